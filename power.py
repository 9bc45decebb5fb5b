"""Power of the test that the report uses: what so many tasks can show, by simulation.

The model: task i has the chance p_i of a rescue in any run of the control arm. The p_i are beta
with mean `base` and such a spread that the outcomes of two runs on one task correlate by
`correlation`, as those of real runs do. An arm with a gain also rescues that share of what it
would have missed: q_i = p_i + effect (1 - p_i) / (1 - base). The test is stats.label_permutation
at level alpha against `runs` control runs (one: the sign-flip test); its exact p-values of all
simulated data sets are found at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, comb
from scipy.stats import norm

REPEATS = 500  # simulated data sets: a power of 80% has a standard error of 1.8%
POINTS = 5  # at which the power is simulated to find where it is 80%
POWER = 0.8
MOST_TASKS = 100_000  # looked at; nobody would run more

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """What a comparison rests on.

    Attributes:
        base: rescue rate of the control arm, 0 to 1.
        correlation: of the outcomes of two control runs on one task, 0 to under 1.
        runs: number of control runs.
        alpha: two-sided level of the test.
    """

    base: float
    correlation: float
    runs: int
    alpha: float

    def power(self, n: int, effect: float) -> float:
        """Share of simulated data sets of n tasks in which a gain of `effect` shows."""
        cells = self._cells(effect)
        counts = np.random.default_rng(0).multinomial(n, cells.ravel(), size=REPEATS)
        counts = counts.reshape(REPEATS, self.runs + 1, 2)
        # Of r rescues over all runs, r - 1 are control's where treated has one.
        treated = counts[:, :-1, 1]
        tasks = treated + counts[:, 1:, 0]
        return float((label_p_values(tasks, treated.sum(axis=1)) <= self.alpha).mean())

    def _cells(self, effect: float) -> Floats:
        """Chance of a task with s control rescues and t (0 or 1) of treated: (runs + 1) x 2."""
        base = min(max(self.base, 1e-9), 1 - 1e-9)
        total = 1 / max(self.correlation, 1e-6) - 1
        a, b = base * total, (1 - base) * total
        gain = effect / (1 - base)
        s = np.arange(self.runs + 1)
        ways = comb(self.runs, s)
        rescued = ways * np.exp(betaln(a + s, b + self.runs - s) - betaln(a, b))
        twice = ways * np.exp(betaln(a + s + 1, b + self.runs - s) - betaln(a, b))
        treated = gain * rescued + (1 - gain) * twice
        cells = np.clip(np.stack((rescued - treated, treated), axis=1), 0, None)
        shares: Floats = cells / cells.sum()
        return shares

    def effect(self, n: int) -> float | None:
        """The gain that n tasks show with a power of 80%; None when no gain does."""
        most = 1 - self.base
        if smallest_p(n, self.runs) > self.alpha:
            return None
        high = min(0.01, most)
        while self.power(n, high) < POWER:
            if high == most:
                return None
            high = min(2 * high, most)
        return _crossing(lambda effect: self.power(n, effect), high / 2, high)

    def tasks(self, effect: float) -> int | None:
        """The number of tasks that show a gain of `effect` with a power of 80%.

        None when there is no such gain, or more than MOST_TASKS are needed.
        """
        if not 0 < effect <= 1 - self.base:
            return None
        high = 8
        while self.power(high, effect) < POWER:
            high *= 2
            if high > MOST_TASKS:
                return None
        root = _crossing(
            lambda root: self.power(round(root**2), effect), math.sqrt(high / 2), math.sqrt(high)
        )
        return math.ceil(root**2)


def smallest_p(n: int, runs: int) -> float:
    """The smallest p-value that n tasks can give: treated rescues all, control none."""
    return min(1.0, float(runs + 1) ** -n * (2 if runs == 1 else 1))


def correlation(runs: Sequence[Sequence[int]]) -> float:
    """Correlation of the outcomes of two runs on one task: the mean over all pairs of runs.

    (P(both rescue) - p^2) / (p (1 - p)), kept to 0 to 0.99; 0 for a single run, or when all or
    none is rescued. Runs are 0 or 1 for each task, over the same tasks.
    """
    rescued = np.sum(np.asarray(runs, dtype=np.float64), axis=0)
    k = len(runs)
    p = float(rescued.mean()) / k
    if k < 2 or p * (1 - p) == 0:
        return 0.0
    both = float((rescued * (rescued - 1)).mean()) / (k * (k - 1))
    return min(0.99, max(0.0, (both - p * p) / (p * (1 - p))))


def label_p_values(tasks: NDArray[np.int_], treated: NDArray[np.int_]) -> Floats:
    """stats.label_permutation of many data sets at once, through the characteristic function.

    Args:
        tasks: data sets x runs: how many tasks 1, 2, ... of all runs + 1 rescued; those that none
            or all rescued play no part.
        treated: for each data set, how many of these tasks the treated run rescued.
    """
    runs = tasks.shape[1]
    length = 1 << int(tasks.sum(axis=1).max() + 1).bit_length()
    turn = np.exp(-2j * np.pi * np.arange(length // 2 + 1) / length)
    chances = np.arange(1, runs + 1) / (runs + 1)
    transform = np.ones((len(tasks), len(turn)), dtype=np.complex128)
    for r, chance in enumerate(chances):
        transform *= (1 - chance + chance * turn) ** tasks[:, r, None]
    law = np.fft.irfft(transform, length, axis=1)
    expected = tasks @ chances
    distance = np.abs(treated - expected)[:, None]
    far = np.abs(np.arange(length) - expected[:, None]) >= distance - 1e-9
    # Beyond the number of tasks the law is 0 but for rounding.
    far &= np.arange(length) <= tasks.sum(axis=1)[:, None]
    p_values: Floats = np.clip((law * far).sum(axis=1), 0, 1)
    return p_values


def _crossing(power: Callable[[float], float], low: float, high: float) -> float:
    """Where the power reaches 80% between two places.

    Its normal quantile is nearly a straight line in the effect, and in the root of the number of
    tasks: a line through several simulated powers errs less than any one of them. A first line
    says where to look closer.
    """
    place = (low + high) / 2
    for width in (high - low, 0.2 * place):
        places = np.linspace(place - width / 2, place + width / 2, POINTS)
        powers = np.clip([power(place) for place in places], 0.02, 0.98)
        slope, start = np.polyfit(places, norm.ppf(powers), 1)
        place = float(np.clip((norm.ppf(POWER) - start) / slope, low, high))
    return place
