"""Untrusted program + cases -> Judgement, in a sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal[
    "accepted",
    "wrong answer",
    "runtime error",
    "time limit",
    "memory limit",
    "output limit",
    "no program",
]


@dataclass(frozen=True)
class Limits:
    """What one case may use.

    Attributes:
        cpu_seconds: CPU time.
        wall_seconds: wall time; catches programs that sleep.
        memory_mb: address space, MiB.
        output_mb: stdout, MiB.
    """

    cpu_seconds: float = 6.0
    wall_seconds: float = 12.0
    memory_mb: int = 1024
    output_mb: int = 16


@dataclass(frozen=True)
class Failure:
    """The first case that a program failed.

    Attributes:
        case: index into the visible cases, or into the hidden ones when `hidden`.
        hidden: whether it is a hidden case; such a failure must never reach a prompt.
        verdict: what happened on this case.
        input, expected: the case, clipped.
        got: what the program printed, clipped, or the last traceback line, or why it was stopped.
    """

    case: int
    hidden: bool
    verdict: Verdict
    input: str
    expected: str
    got: str


@dataclass(frozen=True)
class Judgement:
    """What the judge found.

    Attributes:
        verdict: "accepted" when every visible and hidden case passed, else the verdict of the
            first failed case.
        visible_passed, visible_total: all visible cases run.
        hidden_passed, hidden_total: hidden cases run only when all visible ones passed, up to
            the first failure (all of them with `every_case`).
        first_failure: None when accepted or when there is no program.
        cpu_seconds: CPU time of the program over all its cases.
        cut_short: the program hit the time limit twice and its remaining cases did not run.
    """

    verdict: Verdict
    visible_passed: int
    visible_total: int
    hidden_passed: int
    hidden_total: int
    first_failure: Failure | None
    cpu_seconds: float
    cut_short: bool = False

    @property
    def accepted(self) -> bool:
        return self.verdict == "accepted"

    @property
    def fitness(self) -> float:
        """Share of the visible cases passed, 0 to 1."""
        return self.visible_passed / self.visible_total


class JudgeFault(Exception):
    """The judge failed, not the program: no verdict can be given."""
