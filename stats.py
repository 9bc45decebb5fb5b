"""Pure statistics: rates, paired differences, noise between runs, and sample sizes.

The unit is always the task. A rescue is 0 or 1 for each task, and two arms are compared on the
same tasks. Tasks of one contest are alike, so intervals can draw whole contests (`clusters`).
Nothing here knows what an arm or a rollout is, and no function returns NaN: what cannot be
computed is a ValueError that says why.

Which interval, measured by benchmarks/coverage.py: for a rate of some percent, the percentile
bootstrap misses too often above (the small counts are skewed) and BCa does not; for a paired
difference, which is nearly symmetric, BCa is the one that falls short. So each gets its own.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, norm, t

DRAWS = 10_000  # of a bootstrap, and of a sampled sign-flip test
ALPHA = 0.05  # intervals hold 95%; tests and sample sizes are two-sided at 5%
Z2 = float(norm.ppf(1 - ALPHA / 2)) ** 2  # 3.84
BLOCK = 1 << 22  # random numbers held at once

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A share with its 95% intervals; all shares are 0 to 1.

    Attributes:
        mean: the share.
        low, high: the bootstrap interval, or the Wilson interval when `method` says so.
        n: number of tasks.
        wilson_low, wilson_high: Wilson score interval, which takes tasks as independent.
        method: "bootstrap", or "wilson" where the bootstrap has nothing to draw from.
    """

    mean: float
    low: float
    high: float
    n: int
    wilson_low: float
    wilson_high: float
    method: str


@dataclass(frozen=True)
class Delta:
    """A paired difference, treated minus control.

    Attributes:
        delta: mean difference, -1 to 1.
        low, high: its 95% interval.
        p_value: two-sided, of the sign-flip test.
        wins, losses: number of tasks on which treated is above, below control.
        n: number of tasks.
        draws: random sign flips behind p_value; None when it is exact.
        method: "bootstrap", or "score" where the bootstrap has nothing to draw from.
    """

    delta: float
    low: float
    high: float
    p_value: float
    wins: int
    losses: int
    n: int
    draws: int | None
    method: str


@dataclass(frozen=True)
class NoiseBand:
    """How far repeats of one arm lie apart.

    Attributes:
        std: sample standard deviation of the rates (divisor runs - 1).
        band: a difference of two single runs exceeds it in 5% of the cases by noise alone.
        runs: number of runs.
    """

    std: float
    band: float
    runs: int


def rescue_rate(
    rescued: Sequence[float], *, seed: int = 0, clusters: Sequence[Hashable] | None = None
) -> Estimate:
    """Share of tasks rescued, with 95% intervals.

    mean = sum(rescued) / n. The interval is the bias-corrected and accelerated bootstrap (BCa:
    Efron 1987, JASA 82:171) over DRAWS draws of tasks, or of whole clusters when given (cluster
    bootstrap: Davison & Hinkley 1997, section 3.8); there the mean is the ratio of two sums. With
    no task rescued, every task rescued or a single cluster no draw differs from another and
    [0, 0] would claim certainty: the interval is then Wilson's (1927, JASA 22:209).

    Args:
        rescued: one 0 or 1 for each task.
        seed: of the draws; the same input and seed give the same interval.
        clusters: one label for each task, e.g. its contest.

    Raises:
        ValueError: no task, a value other than 0 and 1, or lengths that differ.
    """
    values = _checked(rescued, "rescued")
    if not np.isin(values, (0, 1)).all():
        raise ValueError("rescued must hold only 0 and 1, one for each task")
    count, n = int(values.sum()), len(values)
    wilson_low, wilson_high = wilson_interval(count, n)
    sums, sizes = _by_cluster(values, clusters)
    if _spreadless(sums, sizes):
        low, high, method = wilson_low, wilson_high, "wilson"
    else:
        low, high = _bca(sums, sizes, _bootstrap(sums, sizes, seed))
        method = "bootstrap"
    return Estimate(count / n, low, high, n, wilson_low, wilson_high, method)


def paired_delta(
    control: Sequence[float],
    treated: Sequence[float],
    *,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> Delta:
    """Treated minus control over the same tasks.

    delta = mean(treated - control). The interval is the percentile bootstrap over DRAWS draws of
    tasks, or of whole clusters (Efron & Tibshirani 1993, chapters 8 and 13). When all differences
    are the same value d (no task on which the arms differ, or a single cluster), it is
    [(n d - z^2) / (n + z^2), (n d + z^2) / (n + z^2)], z = 1.96: the mean after z^2 further tasks
    that all went one way, which is Tango's score interval (1998, Stat. Med. 17:891) for d = 0.

    The p-value is that of the sign-flip test (Fisher 1935, chapter 3): when the arms do not
    differ, each task's difference is as likely to have the other sign. For 0/1 outcomes that is
    the exact binomial test of wins among wins + losses (McNemar 1947, Psychometrika 12:153), 1
    without any. Otherwise p = (1 + number of flips at least as far from 0) / (1 + DRAWS) (Phipson
    & Smyth 2010, SAGMB 9:39). Clusters do not enter it: given a task's difficulty, what two arms
    that do not differ draw on it is independent of other tasks, also of the same contest.

    Args:
        control, treated: one value of 0 to 1 for each task, in the same order; 0 or 1 for one
            run, a share for the mean of several.
        seed: of the draws; the same input and seed give the same result.
        clusters: one label for each task, e.g. its contest.

    Raises:
        ValueError: no task, a value outside 0 to 1, or lengths that differ.
    """
    before, after = _checked(control, "control"), _checked(treated, "treated")
    if len(before) != len(after):
        raise ValueError(
            f"control has {len(before)} tasks and treated {len(after)}: they must be the same tasks"
        )
    # Means of several runs differ by float dust where they are equal in truth.
    differences = np.round(after - before, 12)
    n, delta = len(differences), float(differences.mean())
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    sums, sizes = _by_cluster(differences, clusters)
    if _spreadless(sums, sizes):
        low, high = (n * delta - Z2) / (n + Z2), (n * delta + Z2) / (n + Z2)
        method = "score"
    else:
        tails = np.quantile(_bootstrap(sums, sizes, seed), (ALPHA / 2, 1 - ALPHA / 2))
        low, high, method = float(tails[0]), float(tails[1]), "bootstrap"
    draws: int | None = None
    if np.isin(differences, (-1, 0, 1)).all():
        p_value = float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0
    else:
        p_value, draws = _sampled_sign_flip(differences, seed), DRAWS
    return Delta(delta, low, high, p_value, wins, losses, n, draws, method)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values (1979, Scand. J. Stat. 6:65), in the order given.

    The i-th smallest of m is max over j <= i of min(1, (m - j + 1) p_(j)): rejecting those under
    alpha keeps the chance of any false rejection under alpha, whatever the dependence.

    Raises:
        ValueError: no p-value, or one outside 0 to 1.
    """
    p = _checked(p_values, "p_values")
    order = np.argsort(p, kind="stable")
    adjusted = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    result = np.empty_like(p)
    result[order] = adjusted
    return [float(value) for value in result]


def noise_band(rates: Sequence[float]) -> NoiseBand:
    """How far apart two runs of the same arm come out by noise alone.

    std = sqrt(sum((r - mean)^2) / (runs - 1)); band = t(0.975, runs - 1) sqrt(2) std, the 95%
    prediction interval of the difference of two further runs (Hahn & Meeker 1991, chapter 4).

    Args:
        rates: one rate of 0 to 1 for each run of the arm.

    Raises:
        ValueError: fewer than two runs, or a rate outside 0 to 1.
    """
    values = _checked(rates, "rates")
    runs = len(values)
    if runs < 2:
        raise ValueError("one run has no spread: the noise band needs two runs or more")
    std = float(values.std(ddof=1))
    return NoiseBand(std, float(t.ppf(1 - ALPHA / 2, runs - 1)) * math.sqrt(2) * std, runs)


def holdout_size(base: float, effect: float, *, power: float = 0.8, alpha: float = ALPHA) -> int:
    """Number of tasks that show a gain of `effect` over the rate `base`.

    n = ceil((z(1 - alpha/2) + z(power))^2 (p (1 - p) + q (1 - q)) / effect^2), p = base,
    q = base + effect (Fleiss, Levin & Paik 2003, chapter 4, without continuity correction). It
    takes the arms as independent; arms that rescue the same tasks need fewer.

    Raises:
        ValueError: a rate outside 0 to 1, an effect that is not positive or leads above 1, or a
            power or alpha outside 0 to 1.
    """
    if not 0 <= base <= 1:
        raise ValueError(f"base is a rate of 0 to 1, not {base}")
    if not 0 < effect <= 1 - base:
        raise ValueError(f"effect must be above 0 and at most 1 - base = {1 - base:g}")
    after = base + effect
    variance = base * (1 - base) + after * (1 - after)
    # The margin keeps rounding from asking for a task more than detectable_effect was given.
    return max(1, math.ceil(_quantiles(power, alpha) * variance / effect**2 - 1e-9))


def detectable_effect(base: float, n: int, *, power: float = 0.8, alpha: float = ALPHA) -> float:
    """The smallest gain over the rate `base` that n tasks show: the inverse of holdout_size.

    The positive root d of (n + Z) d^2 - Z (1 - 2p) d - 2 Z p (1 - p) = 0, p = base,
    Z = (z(1 - alpha/2) + z(power))^2, which is holdout_size's formula solved for the effect.

    Raises:
        ValueError: no task, base outside 0 to 1, power or alpha outside 0 to 1, or so few tasks
            that even a gain to 1 would not show.
    """
    if not 0 <= base <= 1:
        raise ValueError(f"base is a rate of 0 to 1, not {base}")
    if n < 1:
        raise ValueError("no task, so no effect can be seen")
    z = _quantiles(power, alpha)
    middle = z * (1 - 2 * base)
    root = math.sqrt(middle**2 + 8 * z * base * (1 - base) * (n + z))
    effect = (middle + root) / (2 * (n + z))
    if not 0 < effect <= 1 - base:
        raise ValueError(f"{n} tasks are too few to see any gain over a rate of {base:g}")
    return effect


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that at least one of k samples passes, when c of n drawn ones did.

    1 - C(n - c, k) / C(n, k), unbiased (Chen et al. 2021, arXiv:2107.03374). It needs n fixed
    beforehand, so it does not hold for an arm that stops at its first rescue.

    Raises:
        ValueError: c outside 0 to n, or k outside 1 to n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"c must be 0 to n = {n}, not {c}")
    if not 1 <= k <= n:
        raise ValueError(f"k must be 1 to n = {n}, not {k}")
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def wilson_interval(successes: int, n: int) -> tuple[float, float]:
    """The 95% Wilson score interval (1927, JASA 22:209) of successes / n.

    Raises:
        ValueError: n below 1, or successes outside 0 to n.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n} is no share")
    interval = binomtest(successes, n).proportion_ci(1 - ALPHA, method="wilson")
    return float(interval.low), float(interval.high)


def _checked(values: Sequence[float], name: str) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"{name} is empty: there is nothing to estimate from")
    if not ((array >= 0) & (array <= 1)).all():
        raise ValueError(f"{name} must hold only values of 0 to 1")
    return array


def _quantiles(power: float, alpha: float) -> float:
    if not (0 < power < 1 and 0 < alpha < 1):
        raise ValueError("power and alpha must lie between 0 and 1")
    return float(norm.ppf(1 - alpha / 2) + norm.ppf(power)) ** 2


def _by_cluster(values: Floats, clusters: Sequence[Hashable] | None) -> tuple[Floats, Floats]:
    """Sum and size of each cluster; each value is its own without clusters."""
    if clusters is None:
        return values, np.ones_like(values)
    if len(clusters) != len(values):
        raise ValueError(f"{len(clusters)} cluster labels for {len(values)} tasks")
    places: dict[Hashable, int] = {}
    index = np.array([places.setdefault(label, len(places)) for label in clusters])
    sums = np.bincount(index, weights=values).astype(np.float64)
    sizes = np.bincount(index).astype(np.float64)
    return sums, sizes


def _spreadless(sums: Floats, sizes: Floats) -> bool:
    """Whether every draw of clusters has the same mean."""
    means = sums / sizes
    return bool(means.max() - means.min() < 1e-9)


def _bootstrap(sums: Floats, sizes: Floats, seed: int) -> Floats:
    """Means of DRAWS samples of clusters, drawn with replacement.

    How often each of the distinct clusters (sum, size) is drawn is multinomial. There are few:
    that costs DRAWS x distinct numbers, where drawing indices costs DRAWS x n.
    """
    kinds, counts = np.unique(np.stack((sums, sizes), axis=1), axis=0, return_counts=True)
    generator = np.random.default_rng(seed)
    means = []
    step = max(1, BLOCK // len(kinds))
    for start in range(0, DRAWS, step):
        size = min(step, DRAWS - start)
        totals = generator.multinomial(len(sums), counts / len(sums), size=size) @ kinds
        means.append(totals[:, 0] / totals[:, 1])
    return np.concatenate(means)


def _bca(sums: Floats, sizes: Floats, means: Floats) -> tuple[float, float]:
    """The BCa interval of a ratio of sums, from its bootstrap distribution and the jackknife."""
    mean = sums.sum() / sizes.sum()
    below = ((means < mean - 1e-12).mean() + (means <= mean + 1e-12).mean()) / 2
    bias = norm.ppf(below)
    influence = (sums.sum() - sums) / (sizes.sum() - sizes)
    influence = influence.mean() - influence
    acceleration = (influence**3).sum() / (6 * (influence**2).sum() ** 1.5)
    z = bias + norm.ppf((ALPHA / 2, 1 - ALPHA / 2))
    low, high = np.quantile(means, norm.cdf(bias + z / (1 - acceleration * z)))
    return float(low), float(high)


def _sampled_sign_flip(differences: Floats, seed: int) -> float:
    """p-value of the sign-flip test over DRAWS random flips.

    Of m tasks with the same |d|, the number that keep their sign is binomial(m, 1/2).
    """
    values, counts = np.unique(np.abs(differences), return_counts=True)
    generator = np.random.default_rng(seed)
    observed = abs(differences.sum())
    extreme = 0
    step = max(1, BLOCK // len(values))
    for start in range(0, DRAWS, step):
        shape = (min(step, DRAWS - start), len(values))
        sums = (2 * generator.binomial(counts, 0.5, size=shape) - counts) @ values
        extreme += int((np.abs(sums) >= observed - 1e-9).sum())
    return (1 + extreme) / (1 + DRAWS)
