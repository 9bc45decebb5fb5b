"""Which tasks can be rescued at all: how the data set's own programs were judged.

A task that refuses every program known to be right, as the judge takes them, cannot be rescued by
anyone: several answers are accepted where it came from, or its cases break its own statement. A
task that takes one of them is sound. One that takes a program known to be wrong has too few cases
to tell: a rescue there may be false.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from audits import Audit
from data import RATING_BANDS, rating_band
from report.layout import BOLD, Page
from report.tally import share_of
from report.words import counted, percent
from swarm import TaskFacts

LISTED = 40  # refused tasks that the terminal names


def audited(facts: Mapping[str, TaskFacts], audits: Mapping[str, Audit]) -> dict[str, Any] | None:
    """The section of results.json; None when nothing was audited."""
    here = {task: audits[task] for task in sorted(facts) if task in audits}
    if not here:
        return None
    known = {task: audit for task, audit in here.items() if audit.right}
    refused = {task: audit for task, audit in known.items() if not audit.sound}
    causes = Counter(str(audit.cause) for audit in refused.values())
    wrong = [audit.wrong for audit in here.values() if audit.wrong]
    return {
        "known": max(audit.known for audit in here.values()),
        "tasks": len(here),
        "with_solutions": len(known),
        "sound": len(known) - len(refused),
        "refused": dict(sorted(causes.items())),
        "several_answers": sum(audit.several for audit in refused.values()),
        "right": _right(known),
        "wrong": {
            "judged": sum(map(len, wrong)),
            "accepted": sum(verdicts.count("accepted") for verdicts in wrong),
            "tasks": sum("accepted" in verdicts for verdicts in wrong),
        },
        "rating_bands": {
            name: _right({t: a for t, a in known.items() if rating_band(facts[t].rating) == name})
            for name in RATING_BANDS
        },
        "by_task": [
            {
                "id": task,
                "sound": audit.sound,
                "cause": audit.cause,
                "several_answers": audit.several,
                "right": list(audit.right),
                "wrong": list(audit.wrong),
            }
            for task, audit in here.items()
        ],
    }


def _right(known: Mapping[str, Audit]) -> dict[str, Any]:
    judged = sum(len(audit.right) for audit in known.values())
    accepted = sum(audit.right.count("accepted") for audit in known.values())
    return {
        "tasks": len(known),
        "sound": sum(bool(audit.sound) for audit in known.values()),
        "judged": judged,
        "accepted": accepted,
        "accepted_share": share_of(accepted, judged),
    }


def show(page: Page, results: Mapping[str, Any], details: bool) -> None:
    """The section of the terminal report."""
    audit = results["audit"]
    if audit is None:
        return
    page.heading(
        f"Audit: up to {audit['known']} known right and wrong programs on each of "
        f"{counted(audit['tasks'], 'task')}, with the same judge and limits"
    )
    known, right, wrong = audit["with_solutions"], audit["right"], audit["wrong"]
    page.text(
        f"{audit['sound']:,} of {counted(known, 'task')} with known solutions are sound: they take "
        f"at least one ({percent(share_of(audit['sound'], known))}). {right['accepted']:,} of "
        f"{counted(right['judged'], 'right program')} are accepted."
    )
    refused = sum(audit["refused"].values())
    if refused:
        causes = ", ".join(f"{cause} {count:,}" for cause, count in audit["refused"].items())
        page.text(
            f"{counted(refused, 'task')} refuse all of theirs, so that no one can rescue them: "
            f"{causes}. {audit['several_answers']:,} of these say that several answers are right."
        )
    page.text(
        f"{wrong['accepted']:,} of {counted(wrong['judged'], 'wrong program')} are accepted, on "
        f"{counted(wrong['tasks'], 'task')}, where a rescue may be false."
    )
    bands = {name: row for name, row in audit["rating_bands"].items() if row["tasks"]}
    if len(bands) > 1 or details:
        page.lines.append("")
        page.table(
            ("rating", "tasks", "sound", "right programs", "accepted", "share"),
            [
                (
                    name,
                    *(f"{row[key]:,}" for key in ("tasks", "sound", "judged", "accepted")),
                    percent(row["accepted_share"]),
                )
                for name, row in bands.items()
            ],
        )
    if refused and details:
        rows = [row for row in audit["by_task"] if row["sound"] is False]
        for row in rows[:LISTED]:
            several = ", several answers are right" if row["several_answers"] else ""
            page.text(f"{row['id']}: {row['cause']}{several}", mark="    ")
        if len(rows) > LISTED:
            page.text(f"and {len(rows) - LISTED:,} more, in results.json", mark="    ")
    _side_by_side(page, results)


def _side_by_side(page: Page, results: Mapping[str, Any]) -> None:
    sound, cohort = results["sound"], results["cohort"]
    if not sound or not results["tasks"]:
        return
    page.text("All searched tasks beside the sound ones:", BOLD)
    page.table(
        ("", "all", "sound"),
        [
            ("tasks", f"{results['tasks']:,}", f"{sound['tasks']:,}"),
            ("all-fail", f"{results['all_fail']:,}", f"{sound['all_fail']:,}"),
            ("near-miss", f"{results['near_miss']:,}", f"{sound['near_miss']:,}"),
            ("searched", f"{cohort['tasks']:,}", f"{sound['cohort']:,}"),
            *(
                (
                    arm,
                    f"{row['rescued']:,}/{row['n']:,} {percent(row['rate'])}",
                    f"{sound['arms'][arm]['rescued']:,}/{sound['arms'][arm]['n']:,} "
                    f"{percent(sound['arms'][arm]['rate'])}",
                )
                for arm, row in results["arms"].items()
            ),
            *(
                (
                    f"{arm} minus resample",
                    _delta(results["deltas"][arm]),
                    _delta(sound["deltas"].get(arm)),
                )
                for arm in results["deltas"]
            ),
        ],
    )


def _delta(row: Mapping[str, Any] | None) -> str:
    if not row or row["delta"] is None:
        return "-"
    delta, low, high = (100 * row[key] for key in ("delta", "low", "high"))
    return f"{delta:+.1f} ({low:+.1f} to {high:+.1f})"
