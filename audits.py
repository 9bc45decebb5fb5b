"""What the known programs of a task came to: is the task sound?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

# Verdict on a program that is known to be right -> why its task refuses it.
CAUSES = {
    "wrong answer": "differs from the expected output",
    "runtime error": "crashes on a case",
    "time limit": "time",
    "memory limit": "memory",
    "output limit": "prints too much",
}


class Audit(NamedTuple):
    """What the known programs of a task came to.

    Attributes:
        known: how many right ones and how many wrong ones were asked for.
        several: whether the statement says that several answers are right.
        right, wrong: verdicts on the programs known to be right, and on those known to be wrong.
    """

    known: int
    several: bool
    right: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def sound(self) -> bool | None:
        """Whether the task takes one of the right programs; None when none is known."""
        return "accepted" in self.right if self.right else None

    @property
    def cause(self) -> str | None:
        """Why a task that is not sound refuses most of the right programs."""
        if self.sound is not False:
            return None
        counts = Counter(CAUSES.get(verdict, verdict) for verdict in self.right)
        return max(counts, key=lambda cause: counts[cause])


def sound_tasks(audits: Mapping[str, Audit]) -> dict[str, bool]:
    """Task -> whether it is sound; those without a known right program are absent."""
    found = {task: audit.sound for task, audit in sorted(audits.items())}
    return {task: sound for task, sound in found.items() if sound is not None}


def audit_of(fields: Mapping[str, Any]) -> Audit:
    """An audit as it comes back from a line: its tuples are lists."""
    right, wrong = (tuple(map(str, fields[name])) for name in ("right", "wrong"))
    return Audit(fields["known"], fields["several"], right, wrong)
