"""What the same money would have bought: arms at an equal bill, and plain sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import stats
from equal_cost import Course, cost_ratio, equal_spend
from report.tally import CONTROL, Run, mean_of

FEW_RESCUES = 5  # with fewer a ratio of two rates has no spread that a formula could tell
TENTH = 1.645  # standard deviations that two equal arms exceed one time in ten


def samples_after(run: Run, runs: int, rounds: int) -> list[int]:
    """The most samples of a task after each round of so many runs in a row."""
    fresh = 1 if run.shape.common_start else 0  # a repeat does not begin anew
    return [run.shape.group * (i + 1) for i in range(rounds + (runs - 1) * (rounds - fresh))]


def plain_sampling(run: Run, controls: Sequence[str]) -> dict[str, Any] | None:
    """What fresh samples alone rescue: by one run of resample, by two in a row, and so on.

    Of a task that c of k runs rescued, m of them do with chance 1 - C(k - c, m) / C(k, m).
    """
    tasks = run.both(*controls)
    if not controls or not tasks:
        return None
    k = len(controls)
    hits = [sum(values) for values in zip(*(run.outcomes(c, tasks) for c in controls), strict=True)]
    shares = [sum(stats.pass_at_k(k, hit, m) for hit in hits) / len(tasks) for m in range(1, k + 1)]
    after = samples_after(run, k, run.shape.rounds)
    step = run.shape.rounds - (1 if run.shape.common_start else 0)
    return {
        "n": len(tasks),
        "samples": [after[run.shape.rounds - 1 + step * i] for i in range(k)],
        "shares": shares,
        "rescued": [share * len(tasks) for share in shares],
    }


def long_run(run: Run, controls: Sequence[str], tasks: Sequence[str]) -> Course | None:
    """Resample and its repeats, in their order, as one run of resample."""
    whole: Course | None = None
    for control in controls:
        course = run.course(control, tasks)
        if course is None:
            return None
        if whole is None:
            whole = course
        elif run.shape.common_start:
            whole = whole.then(Course([row[1:] for row in course.tokens], course.rescued))
        else:
            whole = whole.then(course)
    return whole


def equal_cost(run: Run, arms: Sequence[str], controls: Sequence[str]) -> dict[str, Any] | None:
    """Each arm beside resample that spends as much; None without resample.

    Arms are compared over the tasks on which their and all control searches ended.
    """
    if not controls or not run.both(*controls):
        return None
    tasks = run.both(*controls)
    whole = long_run(run, controls, tasks)
    return {
        "runs": len(controls),
        "curves": {arm: _curve(run, run.course(arm, list(run.searches[arm])), 1) for arm in arms},
        "long_run": _curve(run, whole, len(controls)),
        "arms": {arm: _compared(run, arm, controls) for arm in arms if arm != CONTROL},
        "equal_arms_ratio": _equal_arms_ratio(run, controls),
    }


def _curve(run: Run, course: Course | None, runs: int) -> dict[str, Any] | None:
    if course is None:
        return None
    spent, rescued = course.curve()
    samples = samples_after(run, runs, run.shape.rounds)[: len(spent)]
    return {"samples": samples, "tokens": spent, "rescued": rescued}


def _compared(run: Run, arm: str, controls: Sequence[str]) -> dict[str, Any] | None:
    tasks = run.both(arm, *controls)
    treated, control = run.course(arm, tasks), long_run(run, controls, tasks)
    if treated is None or control is None:
        return None
    contests = run.contests(tasks)
    found = equal_spend(control, treated, seed=run.seed, clusters=contests)
    courses = [course for c in controls if (course := run.course(c, tasks)) is not None]
    ratio = cost_ratio(courses, treated, seed=run.seed, clusters=contests)
    bill = sum(map(sum, treated.tokens)) / mean_of([sum(map(sum, c.tokens)) for c in courses])
    return {
        "n": len(tasks),
        **asdict(found),
        "bill": bill,
        "tokens_per_rescue_ratio": asdict(ratio) if ratio else None,
    }


def _equal_arms_ratio(run: Run, controls: Sequence[str]) -> float | None:
    """The ratio of tokens a rescue that two equal arms exceed, one way or the other, in one of ten.

    The logarithm of a ratio of two rescue rates spreads by that of their difference over the rate;
    what the arms spend hardly differs.
    """
    tasks = run.both(*controls)
    outcomes = [run.outcomes(control, tasks) for control in controls]
    rescued = sum(map(sum, outcomes)) / len(outcomes)
    if len(controls) < 2 or rescued < FEW_RESCUES:
        return None
    spread = stats.within_task_band(outcomes) / math.sqrt(stats.Z2) * len(tasks) / rescued
    return math.exp(TENTH * spread)
