"""The attempts on a task, and what each of them was shown: for the page.

What a particle saw is not saved but follows from the attempts before it, so it is worked out
again by the search's own function, and the message that it makes is compared with the hash that
was saved: where they differ, the page says that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from swarm import BASE, START, Key, Record, Rollout, Shape, hash_messages, what_is_seen

if TYPE_CHECKING:
    from data import Task
    from policy import Message
    from swarm import Prompts, Records, TaskFacts

CASE_CHARS = 2000  # of a visible case's text
REPLY_CHARS = 20_000  # of a reply that holds no program, and of a program


@dataclass(frozen=True)
class Saved:
    """A run as it was saved.

    Attributes:
        facts, records: as journal.Journal holds them.
        rollout: reads a whole rollout back.
        fresh: a task's fresh prompt.
        tasks: the tasks themselves, those that could be read again.
        prompts: today's templates.
        arms: the arms of the report, repeats of resample at their end.
        shape, seed: of the run.
        sound: task id -> whether a known solution passes, of the tasks that were audited.
    """

    facts: Mapping[str, TaskFacts]
    records: Records
    rollout: Callable[[Key], Rollout | None]
    fresh: Callable[[str], list[Message]]
    tasks: Mapping[str, Task]
    prompts: Prompts
    arms: Sequence[str]
    shape: Shape
    seed: int
    sound: Mapping[str, bool]


def texts_of(saved: Saved, task: str) -> dict[str, Any]:
    """All that the page shows of a task, JSON-ready; never the text of a hidden case."""
    known, facts = saved.tasks.get(task), saved.facts[task]
    if known is not None and known.cases_hash != facts.cases_hash:
        known = None
    groups: dict[str, list[list[Rollout]]] = {}
    for arm in (BASE, START, *saved.arms):
        if found := _rounds(saved, arm, task):
            groups[arm] = found
    attempts = []
    for arm, rounds in groups.items():
        for number, rollouts in enumerate(rounds):
            seen = _seen(saved, groups, arm, task, number)
            attempts += [
                _attempt(saved, known, rollout, seen.get(rollout.key.particle, (None, None)))
                for rollout in rollouts
            ]
    return {
        "statement": known.statement if known else None,
        "fresh": saved.fresh(task),
        "cases": [[_cut(case.input), _cut(case.output)] for case in known.visible]
        if known
        else None,
        "attempts": attempts,
    }


def _rounds(saved: Saved, arm: str, task: str) -> list[list[Rollout]]:
    """The judged rollouts of an arm on a task, a list a round, by particle."""
    records = saved.records.get((arm, task), {})
    rounds: dict[int, list[Rollout]] = {}
    for place in sorted(records):
        rollout = saved.rollout(records[place].key)
        if rollout is not None:
            rounds.setdefault(place[0], []).append(rollout)
    return [rounds.get(number, []) for number in range(max(rounds, default=-1) + 1)]


Pair = tuple[Rollout | None, Rollout | None]


def _seen(
    saved: Saved, groups: Mapping[str, list[list[Rollout]]], arm: str, task: str, number: int
) -> dict[int, Pair]:
    """What the particles of a round were shown, when all the rounds before it are whole."""
    if arm in (BASE, START) or number == 0:
        return {}
    before = [*groups[arm][:number]]
    if saved.shape.common_start:
        before[0] = (groups.get(START) or [[]])[0]
    if any(len(rollouts) != saved.shape.group for rollouts in before):
        return {}
    return dict(enumerate(what_is_seen(arm, task, before, saved.seed, saved.shape.group)))


def _attempt(saved: Saved, task: Task | None, rollout: Rollout, seen: Pair) -> dict[str, Any]:
    key, reply, judgement = rollout.key, rollout.reply, rollout.judgement
    found: dict[str, Any] = {
        "arm": key.arm,
        "round": key.round,
        "particle": key.particle,
        "seed": rollout.seed,
        "finish": reply.finish_reason,
        "outcome": reply.outcome,
        "tokens": [reply.prompt_tokens, reply.completion_tokens],
        "program": rollout.program and _cut(rollout.program, REPLY_CHARS),
        "saw": [],
    }
    if rollout.program is None:
        found["reply"] = _cut(reply.text, REPLY_CHARS)
    if judgement is not None:
        found["verdict"] = judgement.verdict
        found["passed"] = [judgement.visible_passed, judgement.visible_total]
        if judgement.visible_passed == judgement.visible_total:
            found["hidden"] = [judgement.hidden_passed, judgement.hidden_total]
        failure = judgement.first_failure
        if failure is not None and not failure.hidden:
            found["failure"] = {
                "case": failure.case,
                "verdict": failure.verdict,
                "input": _cut(failure.input),
                "expected": _cut(failure.expected),
                "got": _cut(failure.got),
            }
        elif failure is not None:
            found["failure"] = {"hidden": True, "verdict": failure.verdict}
    if rollout.messages_hash != saved.facts[key.task].messages_hash:
        found["asked"] = _asked(saved, task, rollout, seen)
        # A prompt that comes out otherwise than it was sent shows that something else was seen.
        if found["asked"] is not None or task is None:
            found["saw"] = [
                [place.key.arm, place.key.round, place.key.particle] for place in seen if place
            ]
    return found


def _asked(saved: Saved, task: Task | None, rollout: Rollout, seen: Pair) -> str | None:
    """The user's message, made again; None when it is not the one that was sent."""
    if task is None:
        return None
    messages = saved.prompts.informed(task, *seen)
    return messages[-1]["content"] if hash_messages(messages) == rollout.messages_hash else None


def _cut(text: str, most: int = CASE_CHARS) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most:,} more)"


def summary_of(saved: Saved, task: str, searched: bool) -> dict[str, Any]:
    """A row of the page's matrix."""
    facts = saved.facts[task]
    base = list(saved.records.get((BASE, task), {}).values())
    arms = {}
    for arm in saved.arms:
        records = saved.records.get((arm, task), {})
        start = saved.records.get((START, task), {}) if saved.shape.common_start else {}
        found = [*start.values(), *records.values()]
        if not found:
            continue
        rescued = min((r.key.round for r in found if r.accepted), default=None)
        whole = rescued is not None or len(found) >= saved.shape.samples
        arms[arm] = [rescued, round(max(map(_share, found)), 3), int(whole)]
    return {
        "id": task,
        "rating": facts.rating,
        "contest": facts.contest,
        "passes": sum(record.accepted for record in base),
        "of": len(base),
        "best": round(max(map(_share, base), default=0.0), 3),
        "floor": round(facts.floor / facts.visible, 3),
        "searched": int(searched),
        "sound": saved.sound.get(task),
        "verdicts": sorted({record.verdict for record in base}),
        "arms": arms,
    }


def _share(record: Record) -> float:
    return record.visible_passed / record.visible_total
