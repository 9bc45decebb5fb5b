"""Looks at a run while it grows: a plan that allows for them, or a count of those without one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy.stats import norm

import sequential
import stats
from report.deltas import against, with_holm
from report.tally import Run

Look = Mapping[str, Any]  # "tasks": ids that it had and none before, "of": looks planned or 1


def history(looks: Sequence[Look]) -> dict[str, Any]:
    """Tasks at each look at the run as it grew, and what so many do to a p under 5%."""
    sizes, total = [], 0
    for look in looks:
        total += len(look["tasks"])
        sizes.append(total)
    grown = sorted(set(sizes) - {0})
    limit = float(norm.isf(stats.ALPHA / 2))
    return {
        "tasks": sizes,
        "false_alarms": sequential.leaving_chance([limit] * len(grown), grown) if grown else None,
    }


def planned(
    run: Run, looks: Sequence[Look], of: int, arms: Sequence[str], controls: Sequence[str]
) -> dict[str, Any]:
    """A group-sequential design of `of` looks, after those done.

    The z of an arm at a look is that of the primary test's exact p-value over the tasks so far.
    Its p-value over all looks is read by Holm; its interval is the repeated confidence interval
    (Jennison & Turnbull 1989, JRSS B 51:305), as much wider as the look's bound is above 1.96.
    """
    fractions: list[float] = []
    searched: list[int] = []
    entries: list[dict[str, dict[str, Any]]] = []
    seen: set[str] = set()
    for number, look in enumerate(looks, 1):
        seen.update(look["tasks"])
        part = run.within(seen)
        if len(part.cohort) > (searched[-1] if searched else 0):
            fractions.append(number / of)
            searched.append(len(part.cohort))
            entries.append(against(part, arms, controls))
    done = len(looks)
    result: dict[str, Any] = {
        "planned": of,
        "done": done,
        "tasks": [sum(len(look["tasks"]) for look in looks[: i + 1]) for i in range(done)],
        "searched": searched,
        "bounds": sequential.bounds(fractions, information=searched) if searched else [],
        "last_bound": _last_bound(fractions, searched, of),
    }
    found = {
        arm: _arm([entry[arm] for entry in entries], fractions, searched, result)
        for arm in (entries[-1] if entries else {})
        if all(arm in entry for entry in entries)
    }
    result["arms"] = with_holm(found)
    for arm in found.values():
        arm["conclusion"] = _conclusion(arm, done == of)
    going_on = [name for name, arm in found.items() if arm["conclusion"] == "go on"]
    result["decided"] = done == of or (bool(found) and not going_on)
    return result


def _last_bound(fractions: list[float], searched: list[int], of: int) -> float:
    """The bound of the last look, when the rest of the run brings tasks as the looks so far did."""
    if not searched:
        return sequential.bounds([i / of for i in range(1, of + 1)])[-1]
    per_look = searched[-1] / (fractions[-1] * of)
    ahead = [i / of for i in range(round(fractions[-1] * of) + 1, of + 1)]
    times = [*searched, *(searched[-1] + per_look * (i + 1) for i in range(len(ahead)))]
    return sequential.bounds([*fractions, *ahead], information=times)[-1]


def _arm(
    entries: Sequence[Mapping[str, Any]],
    fractions: Sequence[float],
    searched: Sequence[int],
    design: Mapping[str, Any],
) -> dict[str, Any]:
    z = [
        math.copysign(float(norm.isf(max(entry["p_value"], 1e-15) / 2)), entry["delta"])
        for entry in entries
    ]
    last, wider = entries[-1], design["bounds"][-1] / math.sqrt(stats.Z2)
    delta = last["delta"]
    ends = {
        name: delta + (last[name] - delta) * wider for name in ("low", "high", "lower", "upper")
    }
    power = sequential.conditional_power(z[-1], fractions[-1], design["last_bound"])
    return {
        "z": z,
        "delta": delta,
        **{name: max(-1.0, min(1.0, value)) for name, value in ends.items()},
        "p_value": sequential.sequential_p(z, fractions, information=searched),
        "conditional_power": power,
    }


def _conclusion(arm: Mapping[str, Any], last: bool) -> str:
    if arm["holm_p"] < stats.ALPHA:
        return "shown"
    if last:
        return "not shown"
    return "futile" if arm["conditional_power"] < sequential.FUTILE else "go on"
