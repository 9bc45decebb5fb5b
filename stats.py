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
from scipy.stats import binom, binomtest, hypergeom, norm, t

DRAWS = 10_000  # of a bootstrap
ARRANGEMENTS = 2_000  # random ones of a test that is not exact
MOST_RUNS = 64  # of a control whose number of runs is not given
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
        lower, upper: one-sided 95% bounds: a gain above `upper` is ruled out.
        p_value: two-sided and exact.
        wins, losses: number of tasks that only treated, only control rescued; against several
            control runs the sums over these, so that wins - losses = runs x n x delta.
        n: number of tasks.
        runs: number of control runs.
        test: "sign flip" against one run, "label permutation" against several.
        method: "bootstrap", or "score" where the bootstrap has nothing to draw from.
    """

    delta: float
    low: float
    high: float
    lower: float
    upper: float
    p_value: float
    wins: int
    losses: int
    n: int
    runs: int
    test: str
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
    values = _zero_or_one(rescued, "rescued")
    count, n = int(values.sum()), len(values)
    wilson_low, wilson_high = wilson_interval(count, n)
    sums, sizes = by_cluster(values, clusters)
    if _spreadless(sums, sizes):
        low, high, method = wilson_low, wilson_high, "wilson"
    else:
        low, high = _bca(sums, sizes, _bootstrap(sums, sizes, seed))
        method = "bootstrap"
    return Estimate(count / n, low, high, n, wilson_low, wilson_high, method)


def paired_delta(
    control: Sequence[float],
    treated: Sequence[int],
    *,
    runs: int | None = None,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> Delta:
    """Treated minus control over the same tasks.

    delta = mean(treated - control). The interval is a percentile bootstrap over DRAWS draws of
    tasks, or of whole clusters (Efron & Tibshirani 1993, chapters 8 and 13), made for few
    discordant tasks and few clusters: two tasks more are drawn from, one won and one lost (Bonett
    & Price 2012, J. Educ. Behav. Stat. 37:479), since one win and no loss do not rule out a loss;
    and the percentiles are those of t with clusters - 1 degrees of freedom (Hesterberg 2015, Am.
    Stat. 69:371). A single cluster says nothing of others: its tasks are drawn then. When no task
    differs, it is Tango's score interval (1998, Stat. Med. 17:891), -+ z^2 / (n + z^2), z = 1.96.

    The p-value is that of `label_permutation`, which against one run is the exact sign-flip test
    (Fisher 1935, chapter 3): of wins + losses tasks each is as likely a win (McNemar 1947,
    Psychometrika 12:153). Clusters do not enter it: given a task's difficulty, what two arms that
    do not differ draw on it is independent of other tasks, also of the same contest.

    Args:
        control: for each task 0 or 1 of one run, or the share of several runs that rescued it.
        treated: 0 or 1 for each task, in the same order.
        runs: how many runs `control` is the mean of; by default the fewest that have such shares.
            The p-value depends on it: give it wherever there is more than one.
        seed: of the draws; the same input and seed give the same result.
        clusters: one label for each task, e.g. its contest.

    Raises:
        ValueError: no task, a value outside 0 to 1, lengths that differ, a treated value other
            than 0 and 1, or shares that are not those of `runs` runs.
    """
    before, after = _checked(control, "control"), _zero_or_one(treated, "treated")
    if len(before) != len(after):
        raise ValueError(
            f"control has {len(before)} tasks and treated {len(after)}: they must be the same tasks"
        )
    runs = runs or _fewest_runs(before)
    counts = np.rint(before * runs).astype(int)
    if np.abs(counts / runs - before).max() > 1e-9:
        raise ValueError(f"control holds a share that {runs} runs cannot have")
    differences = after - counts / runs
    n, delta = len(differences), float(differences.mean())
    wins, losses = int((after * (runs - counts)).sum()), int(((1 - after) * counts).sum())
    sums, sizes = by_cluster(differences, clusters)
    if len(sums) == 1:
        sums, sizes = by_cluster(differences, None)
    tails = ALPHA / 2, ALPHA, 1 - ALPHA, 1 - ALPHA / 2
    if differences.any():
        means = _bootstrap(np.append(sums, (1, -1)), np.append(sizes, (1, 1)), seed)
        bounds = np.quantile(means, [norm.cdf(expanded(tail, len(sums))) for tail in tails])
        method = "bootstrap"
    else:
        squares = norm.ppf(tails[2:]) ** 2
        above = squares / (n + squares)
        bounds = np.concatenate((-above[::-1], above))
        method = "score"
    low, lower, upper, high = map(float, bounds)
    p_value = _label_p(counts + after.astype(int), after, runs)
    test = "sign flip" if runs == 1 else "label permutation"
    return Delta(delta, low, high, lower, upper, p_value, wins, losses, n, runs, test, method)


def label_permutation(treated: Sequence[int], controls: Sequence[Sequence[int]]) -> float:
    """Two-sided exact p-value of one run against one or more runs of a control arm.

    When treated is but one more run of the control arm, then on each task each of the k + 1 runs
    is as likely as any other to be the treated one (Fisher's randomisation test, within tasks). So
    on a task that r of them rescue, treated is a coin of chance r / (k + 1), independent of the
    other tasks, and T, its number of rescues, is a sum of binomials of which the exact
    distribution is known. p = P(|T - E T| >= |observed - E T|): E T is the number of rescues at
    which treated equals the mean of all k + 1 runs. With k = 1 this is the sign-flip test.

    Nothing but the labels is random, so it holds whatever the tasks' difficulty, how alike tasks of
    a contest are, and how an outcome came about (also by a search that stopped at its rescue).

    Args:
        treated: 0 or 1 for each task.
        controls: one such list for each run of the control arm, over the same tasks.

    Raises:
        ValueError: no task, no control run, a value other than 0 and 1, or lengths that differ.
    """
    after = _zero_or_one(treated, "treated")
    runs = [_zero_or_one(run, "a control run") for run in controls]
    if not runs:
        raise ValueError("no control run: there is nothing to compare with")
    if any(len(run) != len(after) for run in runs):
        raise ValueError("treated and the control runs must be over the same tasks")
    return _label_p((sum(runs) + after).astype(int), after, len(runs))


def same_rates(runs: Sequence[Sequence[int]], *, seed: int = 0) -> float:
    """p-value for the runs having one rescue rate: do arms differ where they cannot?

    The statistic is the spread of the runs' numbers of rescues, sum (R_j - mean)^2, as in
    Cochran's Q (1950, Biometrika 37:256). When the runs are alike, each arrangement of a task's
    outcomes among them is as likely: p = (1 + arrangements at least as spread) / (1 + ARRANGEMENTS)
    over random ones (Phipson & Smyth 2010, SAGMB 9:39).

    Args:
        runs: two or more; 0 or 1 for each task, over the same tasks.

    Raises:
        ValueError: fewer than two runs, no task, a value other than 0 and 1, lengths that differ.
    """
    if len(runs) < 2 or len({len(run) for run in runs}) > 1:
        raise ValueError("two runs or more over the same tasks are needed")
    outcomes = np.stack([_zero_or_one(run, "a run") for run in runs])
    spread = float(outcomes.sum(axis=1).var())
    counts = outcomes.sum(axis=0).astype(int)
    totals = np.zeros((ARRANGEMENTS, len(runs)))
    generator = np.random.default_rng(seed)
    for count in counts[(counts > 0) & (counts < len(runs))]:
        ranks = generator.random(totals.shape).argsort(axis=1)
        totals += ranks < count
    # Tasks that all runs rescued add the same to each.
    extreme = int((totals.var(axis=1) >= spread - 1e-9).sum())
    return (1 + extreme) / (1 + ARRANGEMENTS)


def stratified(strata: Sequence[tuple[int, int, int, int]]) -> tuple[float, float]:
    """Two groups compared within strata: difference of their shares, and one-sided exact p-value.

    The difference is that of Mantel & Haenszel, weighted n1 n0 / (n1 + n0) (Greenland & Robins
    1985, Biometrics 41:55). p is the chance of at least so many passes of the first group when
    in each stratum the passes fall on any of its members (hypergeometric) and the strata are
    independent: the exact form of the Cochran-Mantel-Haenszel test.

    Args:
        strata: members and passes of the first group, members and passes of the second; strata
            without both groups are left out.

    Raises:
        ValueError: no stratum has both groups.
    """
    both = [stratum for stratum in strata if stratum[0] and stratum[2]]
    if not both:
        raise ValueError("no stratum has both groups")
    weights = [n1 * n0 / (n1 + n0) for n1, _, n0, _ in both]
    gaps = [passed1 / n1 - passed0 / n0 for n1, passed1, n0, passed0 in both]
    law = np.ones(1)
    for n1, passed1, n0, passed0 in both:
        possible = np.arange(n1 + 1)
        law = np.convolve(law, hypergeom.pmf(possible, n1 + n0, passed1 + passed0, n1))
    observed = sum(passed1 for _, passed1, _, _ in both)
    difference = sum(w * gap for w, gap in zip(weights, gaps, strict=True)) / sum(weights)
    return difference, min(1.0, float(law[observed:].sum()))


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


def within_task_band(runs: Sequence[Sequence[int]]) -> float:
    """How far apart two runs of the same arm come out by noise, from the variance within tasks.

    1.96 sqrt(2 sum_i s_i^2) / n, with s_i^2 the sample variance (divisor runs - 1) of task i's
    outcomes over the runs. Two runs draw on the same tasks, so only this variance separates them;
    it has as many terms as tasks, where `noise_band` has one a run.

    Args:
        runs: two or more runs of one arm; 0 or 1 for each task, over the same tasks.

    Raises:
        ValueError: fewer than two runs, no task, a value other than 0 and 1, lengths that differ.
    """
    if len(runs) < 2 or len({len(run) for run in runs}) > 1:
        raise ValueError("two runs or more over the same tasks are needed")
    outcomes = np.stack([_zero_or_one(run, "a run") for run in runs])
    variance = 2 * float(outcomes.var(axis=0, ddof=1).sum())
    return math.sqrt(Z2 * variance) / len(runs[0])


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


def _zero_or_one(values: Sequence[float], name: str) -> Floats:
    array = _checked(values, name)
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name} must hold only 0 and 1, one for each task")
    return array


def _fewest_runs(shares: Floats) -> int:
    for runs in range(1, MOST_RUNS + 1):
        if np.abs(np.rint(shares * runs) - shares * runs).max() < 1e-9:
            return runs
    raise ValueError("control must hold 0 and 1, or shares of a number of runs")


def _label_p(rescued: NDArray[np.int_], treated: Floats, runs: int) -> float:
    """label_permutation, from each task's number of rescues over all runs + 1 of them."""
    law, observed = np.ones(1), 0
    for count in range(1, runs + 1):
        here = rescued == count
        tasks, chance = int(here.sum()), count / (runs + 1)
        law = np.convolve(law, binom.pmf(np.arange(tasks + 1), tasks, chance))
        observed += int(treated[here].sum())
    totals = np.arange(len(law))
    expected = float((rescued[rescued <= runs]).sum()) / (runs + 1)
    far = np.abs(totals - expected) >= abs(observed - expected) - 1e-9
    return min(1.0, float(law[far].sum()))


def expanded(tail: float, clusters: int) -> float:
    """The normal quantile at which a bootstrap of few clusters has this tail (Hesterberg 2015)."""
    if clusters < 2:
        return math.copysign(math.inf, tail - 0.5)
    return math.sqrt(clusters / (clusters - 1)) * float(t.ppf(tail, clusters - 1))


def _quantiles(power: float, alpha: float) -> float:
    if not (0 < power < 1 and 0 < alpha < 1):
        raise ValueError("power and alpha must lie between 0 and 1")
    return float(norm.ppf(1 - alpha / 2) + norm.ppf(power)) ** 2


def by_cluster(values: Floats, clusters: Sequence[Hashable] | None) -> tuple[Floats, Floats]:
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
    z = bias + np.array([expanded(tail, len(sums)) for tail in (ALPHA / 2, 1 - ALPHA / 2)])
    low, high = np.quantile(means, norm.cdf(bias + z / (1 - acceleration * z)))
    return float(low), float(high)
