"""Does a higher fitness lead to a solution? Base programs judged on every hidden case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import stats
from report.tally import Checks, share_of
from report.words import counted, interval, p_text, points
from swarm import Records

if TYPE_CHECKING:
    from swarm import Record

HILL_PROGRAMS = 20  # fewer programs of a kind say nothing of the shape
UPPER, LOWER = "3/4 and up", "none"  # of SHARES: the two kinds that are compared
CLIFF = 0.1  # a cliff when at most this share can pass from just below the top

# (task, program) -> (share of visible cases passed, whether it passes all hidden ones)
Programs = Mapping[tuple[str, int], tuple[float, bool]]

# Buckets of the share of visible cases passed.
SHARES: dict[str, Callable[[float], bool]] = {
    "none": lambda share: share == 0,
    "under 1/4": lambda share: 0 < share < 0.25,
    "1/4 to 1/2": lambda share: 0.25 <= share < 0.5,
    "1/2 to 3/4": lambda share: 0.5 <= share < 0.75,
    "3/4 and up": lambda share: 0.75 <= share < 1,
    "all": lambda share: share == 1,
}


def compared(group: Iterable[Record]) -> bool:
    """Whether a task's base group has programs of both kinds that are compared."""
    shares = [r.visible_passed / r.visible_total for r in group if r.program_hash]
    return all(any(map(SHARES[name], shares)) for name in (UPPER, LOWER))


def hill(records: Records, checks: Checks) -> dict[str, Any] | None:
    """Does a higher fitness lead to a solution? None when no program was calibrated.

    Over distinct base programs: those that passed all visible cases, whose hidden cases have run
    anyway, and the calibrated ones of the others.
    """
    if not any(kind == "hidden" for kind, _, _ in checks):
        return None
    programs: dict[tuple[str, int], tuple[float, bool]] = {}
    for (arm, task), saved in records.items():
        if arm != "base":
            continue
        for record in saved.values():
            check = checks.get(("hidden", task, record.program_hash))
            share = record.visible_passed / record.visible_total
            if share == 1:
                programs[task, record.program_hash] = (share, record.accepted)
            elif check is not None and record.program_hash:
                programs[task, record.program_hash] = (share, check[0] == check[1])
    buckets = [_bucket(name, programs, test) for name, test in SHARES.items()]
    within = _within_tasks(programs)
    shape, sentence = _shape(within)
    return {
        "programs": len(programs),
        "buckets": buckets,
        "within_tasks": within,
        "shape": shape,
        "sentence": sentence,
    }


def _bucket(name: str, programs: Programs, test: Callable[[float], bool]) -> dict[str, Any]:
    inside = {key: passed for key, (share, passed) in programs.items() if test(share)}
    count, passed = len(inside), sum(inside.values())
    low, high = stats.wilson_interval(passed, count) if count else (None, None)
    return {
        "visible_share": name,
        "programs": count,
        "tasks": len({task for task, _ in inside}),
        "pass_hidden": passed,
        "rate": share_of(passed, count),
        "low": low,
        "high": high,
    }


def _within_tasks(programs: Programs) -> dict[str, Any]:
    """Programs at three quarters and up, against those that pass none of the same task.

    Tasks differ in how easy they are, and an easy one has high shares and solutions at once: over
    all tasks together that looks like a hill where inside each task there is none.
    """
    strata: dict[str, list[int]] = {}
    for (task, _), (share, passed) in programs.items():
        for place, name in ((0, UPPER), (2, LOWER)):
            if SHARES[name](share):
                counts = strata.setdefault(task, [0, 0, 0, 0])
                counts[place] += 1
                counts[place + 1] += passed
    both = [(a, b, c, d) for a, b, c, d in strata.values() if a and c]
    difference, p_value = stats.stratified(both) if both else (None, None)
    sums = [sum(stratum[i] for stratum in both) for i in range(4)]
    return {
        "tasks": len(both),
        **dict(zip(("upper", "upper_pass", "lower", "lower_pass"), sums, strict=True)),
        "difference": difference,
        "p_value": p_value,
    }


def _shape(within: Mapping[str, Any]) -> tuple[str, str]:
    """Hill, cliff, unclear or too few, and why.

    A hill when, on the same task, programs that pass three quarters of the visible cases reach the
    hidden ones more often than programs that pass none (one-sided p under 2.5%); a cliff when
    they do not, and Wilson's interval says that fewer than CLIFF of them can.
    """
    upper, lower = within["upper"], within["lower"]
    if min(upper, lower) < HILL_PROGRAMS:
        return "too few", (
            "Too few programs to tell a hill from a cliff: on the tasks that have both, "
            f"{upper:,} passed three quarters or more of the visible cases but not all, and "
            f"{lower:,} passed none; {HILL_PROGRAMS} each are needed."
        )
    low, high = stats.wilson_interval(within["upper_pass"], upper)
    found = (
        f"on the same {counted(within['tasks'], 'task')}, of {upper:,} programs that passed three "
        f"quarters or more of the visible cases but not all, {within['upper_pass']:,} "
        f"({interval(low, high)}) pass the hidden ones, of {lower:,} that passed none "
        f"{within['lower_pass']:,} ({points(within['difference'])} points within tasks, "
        f"one-sided p {p_text(within['p_value'])})"
    )
    if within["p_value"] < stats.ALPHA / 2:
        return "hill", f"Hill: {found}. A higher fitness goes with a better chance of a solution."
    if high < CLIFF:
        return "cliff", f"Cliff: {found}. A higher fitness brings a solution no nearer."
    return "unclear", f"Unclear, neither hill nor cliff: {found}."
