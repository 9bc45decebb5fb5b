"""Saved records -> what every section of the results reads: groups, searches that ended, sums."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from equal_cost import Course
from swarm import Records, Shape, first_rescue, in_band, of_search

if TYPE_CHECKING:
    from swarm import Record, TaskFacts

Checks = Mapping[tuple[str, str, int], tuple[int, int]]


CONTROL = "resample"  # the arm that the others are compared with


def share_of(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def mean_of(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(slots=True)
class Usage:
    """Token counts of one round of an arm: of how many rollouts, and their sums."""

    counted: int = 0
    missing: int = 0
    prompt: int = 0
    completion: int = 0
    reasoning: int = 0

    @property
    def scale(self) -> float | None:
        """What makes the sums those of all rollouts; None when no rollout has a count."""
        return (self.counted + self.missing) / self.counted if self.counted else None


@dataclass(slots=True)
class Tally:
    """Adds up rollouts: how many, what became of them, what they cost.

    Where a server left out the token counts of some replies, those of the same round of the same
    arm stand for them: prompts differ in length between rounds and arms, hardly within one.
    """

    samples: int = 0
    truncated: int = 0
    no_program: int = 0
    sample_seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    usage: defaultdict[tuple[str, int], Usage] = field(default_factory=lambda: defaultdict(Usage))

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self.samples += 1
            self.truncated += record.finish_reason == "length"
            self.no_program += record.verdict == "no program"
            self.sample_seconds += record.sample_seconds
            if record.outcome is not None:
                self.outcomes[record.outcome] += 1
            usage = self.usage[record.key.arm, record.key.round]
            if record.prompt_tokens is not None and record.completion_tokens is not None:
                usage.counted += 1
                usage.prompt += record.prompt_tokens
                usage.completion += record.completion_tokens
                usage.reasoning += record.reasoning_tokens or 0
            elif record.outcome is None:
                usage.missing += 1

    @property
    def without_usage(self) -> int:
        return sum(usage.missing for usage in self.usage.values())

    def tokens(self) -> dict[str, int] | None:
        """Sums over all rollouts; None when a round has rollouts and no count at all."""
        parts = [usage for usage in self.usage.values() if usage.counted or usage.missing]
        if not parts or any(usage.scale is None for usage in parts):
            return None
        sums = {
            name: round(sum(getattr(usage, name) * (usage.scale or 0) for usage in parts))
            for name in ("prompt", "completion", "reasoning")
        }
        return {**sums, "total": sums["prompt"] + sums["completion"]}

    def summary(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "tokens": self.tokens(),
            "without_usage": self.without_usage,
            "truncated": self.truncated,
            "truncated_share": share_of(self.truncated, self.samples),
            "no_program": self.no_program,
            "no_program_share": share_of(self.no_program, self.samples),
            "outcomes": dict(sorted(self.outcomes.items())),
        }


@dataclass(frozen=True, slots=True)
class Search:
    """One arm on one task, ended.

    Attributes:
        rescue_round: round of the first rescue, or None.
        best: best share of visible cases passed up to each round; after a rescue it stays 1.
        records: the rollouts up to and with the round of the first rescue.
    """

    rescue_round: int | None
    best: tuple[float, ...]
    records: list[Record]


def _search(saved: Mapping[tuple[int, int], Record], shape: Shape) -> Search | None:
    """The search that these rollouts are, or None when it has not ended."""
    rescue_round = first_rescue(saved)
    if rescue_round is None and len(saved) < shape.samples:
        return None
    rounds = shape.rounds if rescue_round is None else rescue_round + 1
    records = [record for (number, _), record in sorted(saved.items()) if number < rounds]
    best = [0.0] * shape.rounds
    for record in records:
        fitness = record.visible_passed / record.visible_total
        for number in range(record.key.round, shape.rounds):
            best[number] = max(best[number], fitness)
    return Search(rescue_round, tuple(best), records)


@dataclass(frozen=True)
class Run:
    """The parts of a run that every section below reads.

    Attributes:
        facts: of all tasks, in the order of their ids.
        base: complete base groups, by task.
        cohort: the tasks that the arms search, in the order of their ids.
        searches: arm (noise runs too) -> task -> search that ended.
        records: all of them, also of groups and searches that are not complete.
        shape: group, rounds, and whether the arms share their round 0.
    """

    facts: Mapping[str, TaskFacts]
    base: Mapping[str, list[Record]]
    cohort: list[str]
    searches: Mapping[str, Mapping[str, Search]]
    records: Records
    shape: Shape
    seed: int

    def within(self, tasks: Collection[str]) -> Run:
        """The run as if its arms had searched these tasks only."""
        return replace(self, cohort=[task for task in self.cohort if task in tasks])

    def outcomes(self, arm: str, tasks: Iterable[str]) -> list[int]:
        found = self.searches[arm]
        return [int(found[task].rescue_round is not None) for task in tasks]

    def contests(self, tasks: Iterable[str]) -> list[str]:
        return [self.facts[task].contest for task in tasks]

    def both(self, *arms: str) -> list[str]:
        """The tasks on which all these arms' searches ended."""
        return [task for task in self.cohort if all(task in self.searches[arm] for arm in arms)]

    def course(self, arm: str, tasks: Iterable[str]) -> Course | None:
        """What the arm spent and rescued on these tasks; None when its tokens are unknown."""
        searches = [self.searches[arm][task] for task in tasks]
        tally = Tally()
        for search in self.searches[arm].values():
            tally.add(search.records)
        if not searches or not (tally.tokens() or {}).get("total"):
            return None
        mean = {
            place: (usage.prompt + usage.completion) / usage.counted
            for place, usage in tally.usage.items()
            if usage.counted
        }
        rows = []
        for search in searches:
            row = [0.0] * (1 + max(record.key.round for record in search.records))
            for record in search.records:
                row[record.key.round] += _tokens(record, mean)
            rows.append(row)
        return Course(rows, [search.rescue_round is not None for search in searches])

    def floors(self, tasks: Iterable[str]) -> list[float]:
        return [self.facts[task].floor / self.facts[task].visible for task in tasks]


def _tokens(record: Record, mean: Mapping[tuple[str, int], float]) -> float:
    if record.prompt_tokens is not None and record.completion_tokens is not None:
        return record.prompt_tokens + record.completion_tokens
    return mean[record.key.arm, record.key.round] if record.outcome is None else 0.0


def run_of(
    facts: Mapping[str, TaskFacts],
    records: Records,
    runs: Sequence[str],
    band: str | Collection[str],
    shape: Shape,
    seed: int,
    sound: Mapping[str, bool] | None = None,
) -> Run:
    facts = dict(sorted(facts.items()))
    base = {}
    for task in facts:
        group = records.get(("base", task), {})
        if len(group) == shape.group:
            base[task] = [record for _, record in sorted(group.items())]
    known = sound or {}
    cohort = [
        task
        for task, group in base.items()
        if in_band(group, facts[task].floor, band, known.get(task))
    ]
    searches: dict[str, dict[str, Search]] = {}
    for arm in runs:
        found = {}
        for task in cohort:
            saved = of_search(records, arm, task, common_start=shape.common_start)
            found[task] = _search(saved, shape)
        searches[arm] = {task: search for task, search in found.items() if search is not None}
    return Run(facts, base, cohort, searches, records, shape, seed)
