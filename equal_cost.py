"""Two arms at the same bill: rescues by a spend of tokens, and tokens a rescue.

An arm is run round by round on each task until its first rescue, so that after j rounds it has
spent some mean number of tokens a task and rescued some share of the tasks. Between two rounds the
curve is straight: there the next round is run on a random part of the tasks that are left, which
costs and rescues in proportion. Comparing each task at what the arm spent on that task would favour
the arm: an early rescue would leave its rival a small budget.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from stats import ALPHA, BLOCK, expanded

DRAWS = 2_000  # of a bootstrap

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Course:
    """What an arm did on each task, in the order of a list of tasks.

    Attributes:
        tokens: for each task the tokens of each of its rounds, up to its rescue or its end.
        rescued: for each task whether the last of these rounds rescued it.
    """

    tokens: Sequence[Sequence[float]]
    rescued: Sequence[bool]

    def then(self, other: Course) -> Course:
        """One long run: where this one did not rescue, the other goes on."""
        pairs = list(zip(self.tokens, self.rescued, other.tokens, other.rescued, strict=True))
        return Course(
            [own if done else [*own, *more] for own, done, more, _ in pairs],
            [done or later for _, done, _, later in pairs],
        )

    def table(self) -> Floats:
        """Tasks x 2 x rounds: tokens spent, and whether rescued (0 or 1), after each round."""
        rounds = max(map(len, self.tokens))
        table = np.zeros((len(self.tokens), 2, rounds))
        for row, tokens, rescued in zip(table, self.tokens, self.rescued, strict=True):
            row[0, : len(tokens)] = tokens
            row[1, len(tokens) - 1 :] = rescued
        table[:, 0] = table[:, 0].cumsum(axis=1)
        return table

    def curve(self) -> tuple[list[float], list[float]]:
        """Mean tokens a task, and share of tasks rescued, after each round."""
        spent, rescued = self.table().mean(axis=0)
        return spent.tolist(), rescued.tolist()


@dataclass(frozen=True)
class EqualSpend:
    """Two arms at one spend.

    Attributes:
        spend: mean tokens a task: all that treated spent, or all that control did where it spent
            less.
        whole: whether that is all that treated spent.
        treated, control: shares of tasks rescued at that spend.
        delta, low, high: treated minus control, with its 95% interval.
    """

    spend: float
    whole: bool
    treated: float
    control: float
    delta: float
    low: float
    high: float


@dataclass(frozen=True)
class Ratio:
    """Tokens a rescue, treated over control, with its 95% interval; None: it has no bound."""

    ratio: float
    low: float | None
    high: float | None


def equal_spend(
    control: Course,
    treated: Course,
    *,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> EqualSpend:
    """Compare two arms over the same tasks at the same mean number of tokens a task.

    The interval is a paired percentile bootstrap over DRAWS draws of tasks or clusters, each with
    its own spend, and made for few of them as that of stats.paired_delta is: two tasks more are
    drawn from, one rescued by treated only and one by control only, at their mean spend.

    Raises:
        ValueError: no task, lengths that differ, or a course without any token.
    """
    tables = control.table(), treated.table()
    if len(tables[0]) != len(tables[1]):
        raise ValueError("the two arms must be over the same tasks")
    if not all(table[:, 0].any() for table in tables):
        raise ValueError("an arm without a token has no spend")
    means = [table.mean(axis=0) for table in tables]
    spend, before, after = (float(x[0]) for x in _compare(*(mean[None] for mean in means)))
    only_treated, only_control = [mean.copy() for mean in means], [mean.copy() for mean in means]
    for arm in (0, 1):
        only_treated[arm][1] = arm
        only_control[arm][1] = 1 - arm
    rows = [*zip(*tables, strict=True), only_control, only_treated]
    flat = np.stack([np.concatenate([part.ravel() for part in row]) for row in rows])
    drawn, groups = _bootstrap(flat, len(tables[0]), seed, clusters)
    split = tables[0][0].size
    halves = drawn[:, :split], drawn[:, split:]
    _, low_before, low_after = _compare(*(half.reshape(DRAWS, 2, -1) for half in halves))
    low, high = np.quantile(low_after - low_before, _tails(groups))
    whole = bool(means[1][0, -1] <= means[0][0, -1])
    return EqualSpend(spend, whole, after, before, after - before, float(low), float(high))


def cost_ratio(
    controls: Sequence[Course],
    treated: Course,
    *,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
) -> Ratio | None:
    """Tokens a rescue of treated over those of one or more runs of control, on the same tasks.

    (tokens / rescues) over (sum of the runs' tokens / sum of their rescues). The interval is a
    paired percentile bootstrap over DRAWS draws of tasks or clusters, at the percentiles that
    stats.paired_delta takes for few of them. None when an arm rescued nothing.

    Raises:
        ValueError: no task, or lengths that differ.
    """
    rows = np.array(
        [
            (sum(tokens), treated.rescued[i], sum(sum(c.tokens[i]) for c in controls),
             sum(c.rescued[i] for c in controls))
            for i, tokens in enumerate(treated.tokens)
        ],
        dtype=np.float64,
    )  # fmt: skip
    if any(len(course.tokens) != len(rows) for course in controls):
        raise ValueError("the arms must be over the same tasks")
    if not (rows[:, 1].any() and rows[:, 3].any() and rows[:, 2].any()):
        return None
    drawn, groups = _bootstrap(rows, len(rows), seed, clusters)

    def ratio(sums: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = (sums[:, 0] / sums[:, 1]) / (sums[:, 2] / sums[:, 3])
        return np.nan_to_num(found, nan=1.0, posinf=np.inf)  # nothing rescued by either

    low, high = np.quantile(ratio(drawn), _tails(groups), method="inverted_cdf")
    return Ratio(
        float(ratio(rows.sum(axis=0)[None])[0]),
        float(low) if low > 0 else None,
        float(high) if math.isfinite(high) else None,
    )


def _tails(groups: int) -> list[float]:
    return [float(norm.cdf(expanded(tail, groups))) for tail in (ALPHA / 2, 1 - ALPHA / 2)]


def _bootstrap(
    rows: Floats, tasks: int, seed: int, clusters: Sequence[Hashable] | None
) -> tuple[Floats, int]:
    """Means of the columns over DRAWS draws of clusters of rows, and the number of clusters.

    A single cluster says nothing of others: its tasks are drawn then. Rows beyond the tasks are
    clusters of their own.
    """
    labels: list[Hashable] = list(range(tasks)) if clusters is None else list(clusters)
    if len(labels) != tasks:
        raise ValueError(f"{len(labels)} cluster labels for {tasks} tasks")
    if len(set(labels)) == 1:
        labels = list(range(tasks))
    groups = len(set(labels))
    labels += [("more", i) for i in range(len(rows) - tasks)]
    places: dict[Hashable, int] = {}
    index = [places.setdefault(label, len(places)) for label in labels]
    sums = np.zeros((len(places), rows.shape[1] + 1))
    np.add.at(sums, index, np.concatenate([rows, np.ones((len(rows), 1))], axis=1))
    generator = np.random.default_rng(seed)
    step, chances = max(1, BLOCK // len(sums)), np.full(len(sums), 1 / len(sums))
    drawn = np.concatenate(
        [
            generator.multinomial(len(sums), chances, size=min(step, DRAWS - start)) @ sums
            for start in range(0, DRAWS, step)
        ]
    )
    means: Floats = drawn[:, :-1] / drawn[:, -1:]
    return means, groups


def _compare(control: Floats, treated: Floats) -> tuple[Floats, Floats, Floats]:
    """Spend, and shares of control and treated at it, of many data sets at once.

    Each argument is data sets x 2 x rounds, as Course.table has it.
    """
    spend = np.minimum(control[:, 0, -1], treated[:, 0, -1])
    return spend, _at(control, spend), _at(treated, spend)


def _at(curve: Floats, spend: Floats) -> Floats:
    """The share rescued at a spend, straight between two rounds."""
    share = np.zeros(len(curve))
    tokens = rescued = np.zeros(len(curve))
    for j in range(curve.shape[2]):
        width = curve[:, 0, j] - tokens
        part = np.clip((spend - tokens) / np.where(width > 0, width, 1), 0, 1)
        share = share + part * (curve[:, 1, j] - rescued)
        tokens, rescued = curve[:, 0, j], curve[:, 1, j]
    return share
