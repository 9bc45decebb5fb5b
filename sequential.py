"""Group-sequential design: look K times at a run that grows, and keep the false alarms at 5%.

Looking again and again at the same test rejects too often (Armitage, McPherson & Rowe 1969, JRSS A
132:235). Here each look has its own bound, such that the chance of ever leaving the bounds without
an effect is alpha. How much of alpha a look may use is Lan & DeMets' function (1983, Biometrika
70:659) of the O'Brien-Fleming kind (1979, Biometrics 35:549): almost nothing early, so that the
last look decides nearly as a single one would.

The z of look j is that of all tasks up to it. Without an effect z_j sqrt(I_j) is Brownian motion
at times I_j, the numbers of tasks; bounds come from its density, carried from look to look by
numerical integration (Jennison & Turnbull 2000, chapter 19). No kept Python package has these
bounds; tests compare them with published tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm

ALPHA = 0.05
FUTILE = 0.2  # a gain is given up when it would still show with less than this chance
PLANNED_POWER = 0.85  # of the gain that conditional power supposes
NODES = 96  # of Gauss-Legendre integration over what lies within a bound
FAR = 8.0  # a z that does not occur

Floats = NDArray[np.float64]

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(NODES)


def spent(fraction: float, alpha: float = ALPHA) -> float:
    """How much of a two-sided alpha may be used up by this fraction of the tasks.

    2 f(t; alpha / 2) with f(t; a) = 2 - 2 Phi(z(1 - a/2) / sqrt(t)), the same on both sides.

    Raises:
        ValueError: a fraction outside 0 to 1 (0 excluded), or alpha outside 0 to 1.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"a fraction of the tasks is above 0 and at most 1, not {fraction}")
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha lies between 0 and 1, not {alpha}")
    return float(4 * norm.sf(norm.isf(alpha / 4) / math.sqrt(fraction)))


class Motion:
    """z at successive looks, without an effect, among the runs that have left no bound so far."""

    def __init__(self) -> None:
        self.information = 0.0
        self._z, self._mass = np.zeros(1), np.ones(1)

    def leaving(self, information: float) -> Callable[[float], float]:
        """bound -> chance that |z| exceeds it at this look and none before."""
        z, spread = self._step(information)
        mass = self._mass

        def chance(bound: float) -> float:
            out = norm.sf((bound - z) / spread) + norm.cdf((-bound - z) / spread)
            return float(mass @ out)

        return chance

    def go_on(self, information: float, bound: float) -> None:
        """Take the look: keep what lies within its bound."""
        z, spread = self._step(information)
        points = min(bound, FAR) * _POINTS
        density = norm.pdf((points[:, None] - z) / spread) / spread @ self._mass
        self._z, self._mass = points, density * _WEIGHTS * min(bound, FAR)
        self.information = information

    def _step(self, information: float) -> tuple[Floats, float]:
        """Mean of the next z given each of the last, and its spread."""
        if information <= self.information:
            raise ValueError("each look must have more tasks than the one before")
        ratio = self.information / information
        return self._z * math.sqrt(ratio), math.sqrt(1 - ratio)


def bounds(
    fractions: Sequence[float],
    alpha: float = ALPHA,
    *,
    information: Sequence[float] | None = None,
) -> list[float]:
    """The |z| at which each look rejects.

    Args:
        fractions: share of the planned tasks at each look, rising to at most 1; says how much of
            alpha is used up by then.
        alpha: two-sided, over all looks.
        information: number of tasks at each look, where it differs from the plan.

    Raises:
        ValueError: no look, or fractions or information that do not rise.
    """
    times = fractions if information is None else information
    if not fractions or len(times) != len(fractions):
        raise ValueError("bounds need one fraction, and one number of tasks, for each look")
    motion, found, used = Motion(), [], 0.0
    for fraction, time in zip(fractions, times, strict=True):
        total = spent(fraction, alpha)
        chance, share = motion.leaving(time), total - used
        bound = FAR
        if share > chance(FAR):
            bound = brentq(lambda x: chance(x) - share, 0, FAR) if share < chance(0) else 0.0  # noqa: B023
        motion.go_on(time, max(bound, 1e-9))
        found.append(float(bound))
        used = total
    return found


def leaving_chance(limits: Sequence[float], information: Sequence[float]) -> float:
    """Chance that |z| exceeds its limit at any look, without an effect."""
    motion, total = Motion(), 0.0
    for limit, time in zip(limits, information, strict=True):
        total += motion.leaving(time)(limit)
        motion.go_on(time, limit)
    return total


def sequential_p(
    z: Sequence[float], fractions: Sequence[float], *, information: Sequence[float] | None = None
) -> float:
    """p-value over all looks so far: the smallest alpha at which one of them rejects.

    It may be read after any look, and by Holm over several arms (Liu & Anderson 2008, JASA
    103:1621). 1 when no alpha rejects.

    Args:
        z: of each look so far; the sign plays no part.
        fractions, information: as `bounds` takes them, for these looks.
    """

    def margin(log_alpha: float) -> float:
        found = bounds(fractions, math.exp(log_alpha), information=information)
        return max(abs(value) - bound for value, bound in zip(z, found, strict=True))

    low = math.log(1e-12)
    if margin(0.0) <= 0:
        return 1.0
    if margin(low) >= 0:
        return math.exp(low)
    return math.exp(brentq(margin, low, 0.0, xtol=1e-4))


def conditional_power(z: float, fraction: float, last_bound: float) -> float:
    """Chance that a gain shows at the last look, given z (positive: a gain) at this fraction.

    It supposes the gain that the whole run shows with a power of PLANNED_POWER: a drift of
    z(1 - ALPHA / 2) + z(PLANNED_POWER) (Jennison & Turnbull 2000, chapter 10). Supposing what was
    seen so far instead would give up one run in six after a third of its tasks.
    """
    if fraction >= 1:
        return float(z >= last_bound)
    drift = float(norm.isf(ALPHA / 2) + norm.ppf(PLANNED_POWER))
    expected = z * math.sqrt(fraction) + drift * (1 - fraction)
    return float(norm.sf((last_bound - expected) / math.sqrt(1 - fraction)))
