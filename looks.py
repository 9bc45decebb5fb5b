"""When a run is looked at while it grows: after parts of its tasks, each time by the same plan.

Whoever looks again and again at a p-value until it is small finds what is not there. With --looks
the plan is made before, every look is saved, and the statistics allow for it (sequential.py).
Without, the looks are counted and the report says what they do.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import report
from data import Task
from folder import JournalError
from journal import Journal
from progress import say
from publish import results_of
from settings import Config


def parts_of(tasks: Sequence[Task], looks: int) -> list[Sequence[Task]]:
    """The tasks that each look adds, as equal in number as can be."""
    looks = min(looks, len(tasks))
    ends = [round(len(tasks) * i / looks) for i in range(looks + 1)]
    return [tasks[start:end] for start, end in itertools.pairwise(ends)]


def check_looks(journal: Journal, parts: Sequence[Sequence[Task]]) -> None:
    """Refuse to go on under another plan for looks than that of the looks taken."""
    if not journal.looks:
        return
    before = journal.looks[0]["of"]
    if before != len(parts):
        begun = f"with --looks {before}" if before > 1 else "without --looks"
        raise JournalError(
            f"the results in {journal.path} were looked at {begun}, and what they say depends on "
            "it: go on so, or use --out for another folder"
        )
    if before > 1 and any(
        list(taken["tasks"]) != [task.id for task in part]
        for taken, part in zip(journal.looks, parts, strict=False)
    ):
        raise JournalError(
            f"the looks at {journal.path} were after other tasks: go on with its --limit, --tasks "
            "and --splits, or use --out for another folder"
        )


def look(config: Config, journal: Journal, part: Sequence[Task], of: int) -> bool:
    """Save that the results are looked at; by a plan, say what they are. Whether they are decided.

    Raises JournalError.
    """
    journal.add_look([task.id for task in part], of)
    if of == 1:
        return True
    results = results_of(journal, config)
    say(report.look_line(results))
    decided: bool = results["looks"]["decided"]
    return decided
