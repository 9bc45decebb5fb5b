"""Does a higher fitness lead to a solution? Base programs judged on every hidden case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import stats
from report.tally import Checks, share_of
from report.words import percent
from swarm import Records

HILL_PROGRAMS = 20  # fewer programs in a half of the partial scores say nothing of its shape
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
    shape, sentence = _shape(programs)
    return {"programs": len(programs), "buckets": buckets, "shape": shape, "sentence": sentence}


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


def _shape(programs: Programs) -> tuple[str, str]:
    """Hill, cliff, unclear or too few, and why.

    Compares the programs that passed at least half of the visible cases, but not all, with those
    that passed fewer: a hill when the Wilson interval of the former lies above that of the
    latter, a cliff when it does not and ends below CLIFF.
    """
    upper = _bucket("1/2 and up", programs, lambda share: 0.5 <= share < 1)
    lower = _bucket("under 1/2", programs, lambda share: share < 0.5)
    if min(upper["programs"], lower["programs"]) < HILL_PROGRAMS:
        return "too few", (
            f"Too few programs to tell a hill from a cliff: {upper['programs']} passed half or "
            f"more of the visible cases but not all, {lower['programs']} fewer; "
            f"{HILL_PROGRAMS} each are needed."
        )
    found = (
        f"of {upper['programs']} programs that passed half or more of the visible cases but not "
        f"all, {upper['pass_hidden']} ({percent(upper['low'])} to {percent(upper['high'])}) "
        f"pass the hidden ones, of {lower['programs']} below half {lower['pass_hidden']} "
        f"({percent(lower['low'])} to {percent(lower['high'])})"
    )
    if upper["low"] > lower["high"]:
        return "hill", f"Hill: {found}. A higher fitness goes with a better chance of a solution."
    if upper["high"] < CLIFF:
        return "cliff", f"Cliff: {found}. A higher fitness brings a solution no nearer."
    return "unclear", f"Unclear, neither hill nor cliff: {found}."
