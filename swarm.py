"""The search: base group, resample, and the particle swarms solo, ring, star."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from judge import Judgement
from policy import Reply


class Key(NamedTuple):
    """Identity of a rollout within a run.

    arm is "base", an arm's name or "noise-1", "noise-2", ...; round is 0 for the base group.
    """

    arm: str
    task: str
    round: int
    particle: int


@dataclass(frozen=True)
class Rollout:
    """One sampled reply, its program and its judgement.

    judgement is None when the judge failed (a judge fault): the reply is kept, since it was
    paid for, and is judged when the run goes on.
    """

    key: Key
    seed: int
    messages_hash: str
    reply: Reply
    program: str | None
    judgement: Judgement | None


@dataclass(frozen=True, slots=True)
class Record:
    """What the statistics keep of a judged rollout: numbers and no text.

    reply_hash and program_hash are the first 8 bytes of a SHA-256; program_hash is 0 without a
    program.
    """

    key: Key
    verdict: str
    visible_passed: int
    visible_total: int
    finish_reason: str
    outcome: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    reply_hash: int
    program_hash: int
    sample_seconds: float
    judge_seconds: float

    @property
    def accepted(self) -> bool:
        return self.verdict == "accepted"


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What the statistics keep of a task.

    Attributes:
        id, contest, rating: as in data.Task.
        visible, hidden, extra: numbers of cases.
        floor: number of visible cases that the best constant answer passes.
        cases_hash: of the visible and hidden cases: a saved verdict holds for these only.
        messages_hash: of the fresh prompt.
    """

    id: str
    contest: str
    rating: int
    visible: int
    hidden: int
    extra: int
    floor: int
    cases_hash: str
    messages_hash: str
