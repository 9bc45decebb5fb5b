"""The search: base group, resample, and the particle swarms solo, ring and star.

A particle is one of the places of a group. In round 0 every particle of every arm answers the
fresh prompt. From round 1 a particle of a swarm sees its personal best (Kennedy & Eberhart 1995)
and, in an arm whose topology gives it neighbours, the best of theirs (Kennedy & Mendes 2002);
resample goes on with fresh prompts. An arm leaves a task after the round of its first rescue.
With a common start all arms of a task go on from one and the same round 0.

Whatever is already in the store is not sampled again: a run goes on by running the same search.
Hidden cases never reach a prompt; Prompts is the only place that writes one.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import math
import random
import re
import struct
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar

from judge import CheckerFault, JudgeFault, Judgement, extract_program
from policy import Message, Policy, Reply, Stopped

if TYPE_CHECKING:
    from data import Task
    from judge import Judge

BANDS = ("all-fail", "near-miss", "above-floor", "sound")
BASE, START = "base", "start"  # arms of a Key: the base group, and the round 0 that arms may share

Topology = tuple[tuple[int, ...], ...]  # for each particle the particles whose bests it may see


@dataclass(frozen=True)
class Shape:
    """How much is sampled of a task, and in which order.

    Attributes:
        group: rollouts of the base group, and particles of an arm.
        rounds: rounds of an arm, the fresh one included.
        common_start: whether the arms of a task, repeats of resample too, share their round 0.
            The same samples then serve all of them, so that an arm is compared on what it did
            with them; repeats differ less than whole runs would.
    """

    group: int = 8
    rounds: int = 3
    common_start: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Shape:
        """The shape that a run's saved settings say; what they lack is the default."""
        return cls(**{name: settings.get(name, value) for name, value in asdict(cls()).items()})

    @property
    def samples(self) -> int:
        """The most samples of an arm on a task."""
        return self.group * self.rounds

    def most_rollouts(self, arms: int) -> int:
        """The most rollouts of a task that `arms` arms search."""
        if self.common_start and arms:
            return self.group * (2 + arms * (self.rounds - 1))
        return self.group + arms * self.samples


def _distinct(*places: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys(places))


def ring(group: int) -> Topology:
    """The particle before and the one behind."""
    return tuple(_distinct((i - 1) % group, (i + 1) % group) for i in range(group))


def star(group: int) -> Topology:
    """All the others."""
    return tuple(tuple(j for j in range(group) if j != i) for i in range(group))


def von_neumann(group: int) -> Topology:
    """The cells left, right, above and below on the squarest torus.

    SearchError where the only torus has one row. With two rows (8 particles: 2 x 4) the cell
    above is the one below.
    """
    rows = max(n for n in range(1, math.isqrt(group) + 1) if group % n == 0)
    if rows == 1:
        raise SearchError(
            f"von-neumann needs a group that fills a torus of two rows or more: {group} does not"
        )
    columns = group // rows
    return tuple(
        _distinct(
            i // columns * columns + (i - 1) % columns,
            i // columns * columns + (i + 1) % columns,
            (i - columns) % group,
            (i + columns) % group,
        )
        for i in range(group)
    )


# Size of the group -> neighbours of each particle; None: a particle sees no attempt at all.
# New arms go to the end: seeds depend on the place.
TOPOLOGIES: dict[str, Callable[[int], Topology] | None] = {
    "resample": None,
    "solo": lambda group: ((),) * group,
    "ring": ring,
    "star": star,
    "von-neumann": von_neumann,
}

# Tasks under way at once. Far more than any endpoint has slots, so that no slot waits, and few
# enough that a run over the 13,328 tasks of the train split keeps only these in flight.
TASKS_AT_ONCE = 1024

# A failed case in a prompt: each of its texts is cut to this many characters.
SHOWN = 400

# Rollouts that the judge could not judge, after which the run stops.
MAX_FAULTS = 3

T = TypeVar("T")


class Key(NamedTuple):
    """Identity of a rollout within a run.

    arm is "base", an arm's name, "noise-1", "noise-2", ..., or "start" for the round 0 that arms
    share; round is 0 for the base group.
    """

    arm: str
    task: str
    round: int
    particle: int


@dataclass(frozen=True)
class Rollout:
    """One sampled reply, its program and its judgement.

    judgement is None while it waits for the judge, or when the judge failed (a judge fault): the
    reply is kept, since it was paid for, and is judged when the run goes on.
    """

    key: Key
    seed: int
    messages_hash: str
    reply: Reply
    program: str | None
    judgement: Judgement | None


def text_hash(text: str) -> int:
    """First 8 bytes of the SHA-256 of a text, as an unsigned integer.

    Over UTF-16, in which a lone surrogate has a form and a pair of them is the character that
    JSON makes of it: a text has one hash before and after it was saved.
    """
    digest = hashlib.sha256(text.encode("utf-16-le", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big")


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

    @classmethod
    def of(cls, rollout: Rollout) -> Record:
        """The record of a judged rollout; ValueError when it has no judgement."""
        reply, judgement = rollout.reply, rollout.judgement
        if judgement is None:
            raise ValueError(f"{rollout.key} is not judged")
        return cls(
            key=rollout.key,
            verdict=judgement.verdict,
            visible_passed=judgement.visible_passed,
            visible_total=judgement.visible_total,
            finish_reason=reply.finish_reason,
            outcome=reply.outcome,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            reasoning_tokens=reply.reasoning_tokens,
            reply_hash=text_hash(reply.text),
            program_hash=0 if rollout.program is None else text_hash(rollout.program),
            sample_seconds=reply.seconds,
            judge_seconds=judgement.cpu_seconds,
        )

    @property
    def accepted(self) -> bool:
        return self.verdict == "accepted"


def cut_by_window(record: Record, max_tokens: int) -> bool:
    """Whether a reply was cut before it had max_tokens: the server's window was full.

    Some servers count a token more or less, hence the hundredth.
    """
    tokens = record.completion_tokens
    return record.finish_reason == "length" and 0 < (tokens or 0) < 0.99 * max_tokens


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What the statistics keep of a task.

    Attributes:
        id, contest, rating: as in data.Task.
        visible, hidden: numbers of cases.
        floor: number of visible cases that the best constant answer passes.
        cases_hash: of the visible and hidden cases: a saved verdict holds for these only.
        messages_hash: of the fresh prompt.
    """

    id: str
    contest: str
    rating: int
    visible: int
    hidden: int
    floor: int
    cases_hash: str
    messages_hash: str

    @classmethod
    def of(cls, task: Task, messages: Sequence[Message]) -> TaskFacts:
        """The facts of a task whose fresh prompt is `messages`."""
        return cls(
            id=task.id,
            contest=task.contest,
            rating=task.rating,
            visible=len(task.visible),
            hidden=len(task.hidden),
            floor=task.floor,
            cases_hash=task.cases_hash,
            messages_hash=hash_messages(messages),
        )


class SearchError(Exception):
    """A prompt template cannot be used; its text is one line for the user."""


class Store(Protocol):
    """Where rollouts are saved; journal.Journal is one."""

    records: dict[tuple[str, str], dict[tuple[int, int], Record]]

    def get(self, key: Key) -> Rollout | None: ...

    def append(self, rollout: Rollout) -> Record | None: ...


def topology_of(arm: str, group: int) -> Topology | None:
    """The neighbours of each particle; a noise run is resample with other seeds."""
    table = None if arm.startswith("noise-") else TOPOLOGIES[arm]
    return None if table is None else table(group)


Records = Mapping[tuple[str, str], Mapping[tuple[int, int], Record]]


def of_search(
    records: Records, arm: str, task: str, *, common_start: bool
) -> Mapping[tuple[int, int], Record]:
    """An arm's records on a task by (round, particle), with those of a round 0 that it shares."""
    own = records.get((arm, task), {})
    if not common_start:
        return own
    return {**records.get((START, task), {}), **own}


def derive_seed(run_seed: int, key: Key) -> int:
    """A seed of 32 bits, which is what servers keep of one; distinct within a task.

    The place of the rollout in its task is enciphered with a key of run and task (a Feistel
    network, so no two places meet). 0 and 2^32 - 1 stand for "any seed" at some servers.
    """
    seed = (_arm_number(key.arm) << 10 | key.round) << 10 | key.particle
    keys = _round_keys(run_seed, key.task)
    while True:
        left, right = seed >> 16, seed & 0xFFFF
        for word in keys:
            left, right = right, left ^ ((right + word) * 0x9E3779B1 & 0xFFFFFFFF) >> 16
        seed = left << 16 | right
        if 0 < seed < 2**32 - 1:
            return seed


def _arm_number(arm: str) -> int:
    """12 bits: the repeats count down from the top, the arms up in the order of their table."""
    if arm.startswith("noise-"):
        return 4096 - int(arm[6:])
    return (BASE, START, *TOPOLOGIES).index(arm)


@functools.lru_cache(TASKS_AT_ONCE * 2)
def _round_keys(run_seed: int, task: str) -> tuple[int, ...]:
    digest = hashlib.sha256(json.dumps([run_seed, task]).encode()).digest()
    return struct.unpack(">8I", digest)


def hash_messages(messages: Sequence[Message]) -> str:
    """First 16 hex digits of the SHA-256 of the messages."""
    return hashlib.sha256(json.dumps(messages).encode()).hexdigest()[:16]


def in_band(
    base: Iterable[Record], floor: int, band: str | Collection[str], sound: bool | None = None
) -> bool:
    """Whether the arms search a task, given its base records: it is in all the bands named.

    all-fail: no base rollout is accepted. near-miss: besides, one passes a visible case.
    above-floor: besides, one passes more visible cases than the best constant answer (`floor`).
    sound: besides, a solution of the data set is accepted (`sound`).
    """
    bands = {band} if isinstance(band, str) else set(band)
    if "sound" in bands and not sound:
        return False
    passed = 0
    for record in base:
        if record.accepted:
            return False
        passed = max(passed, record.visible_passed)
    least = {"all-fail": -1, "near-miss": 0, "above-floor": floor, "sound": -1}
    return passed > max(least[name] for name in bands)


def fenced(program: str) -> str:
    """The program in a python fence longer than any run of backticks inside it."""
    longest = max((len(run) for run in re.findall("`+", program)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{program.rstrip()}\n{fence}"


def clipped(text: str) -> str:
    return text.strip() if len(text) <= SHOWN else text[:SHOWN].strip() + " [cut]"


class Prompts:
    """The templates of prompts/, filled by string.Template.substitute.

    Attributes:
        texts: name of the file without .txt -> its text.
    """

    FIELDS: ClassVar[dict[str, set[str]]] = {
        "system": set(),
        "task": {"statement"},
        "own": {"passed", "total", "program", "outcome"},
        "neighbour": {"passed", "total", "program", "outcome"},
        "failure": {"input", "expected", "result", "got"},
        "passed": set(),
        "improve": set(),
        "no_comments": set(),
        "system_function": set(),
        "function": {"function"},
        "starter": {"code"},
    }
    # These shape the fresh prompt only, whose hash every task keeps.
    OF_A_TASK: ClassVar[set[str]] = {"system_function", "function", "starter"}

    def __init__(self, folder: Path, *, no_comments: bool = False) -> None:
        self.no_comments = no_comments
        try:
            self.texts = {name: (folder / f"{name}.txt").read_text("utf-8") for name in self.FIELDS}
        except (OSError, UnicodeDecodeError) as error:
            raise SearchError(f"cannot read the prompt templates: {error}") from None
        for name, fields in self.FIELDS.items():
            template = Template(self.texts[name])
            if not template.is_valid() or not fields.issuperset(template.get_identifiers()):
                known = ", ".join(f"${field}" for field in sorted(fields)) or "no field"
                raise SearchError(
                    f"{folder.name}/{name}.txt: write $$ for a dollar sign; its fields are: {known}"
                )

    @property
    def hashes(self) -> dict[str, str]:
        """First 16 hex digits of each template's SHA-256: editing one changes the settings."""
        return {
            name: hashlib.sha256(text.encode()).hexdigest()[:16]
            for name, text in self.texts.items()
            if name not in self.OF_A_TASK
        }

    def fresh(self, task: Task) -> list[Message]:
        """The bare problem."""
        return self._messages(task, self._problem(task))

    def informed(self, task: Task, own: Rollout | None, neighbour: Rollout | None) -> list[Message]:
        """The problem with the attempts that a particle sees; fresh when there are none."""
        shown = [
            self._attempt(name, rollout, task)
            for name, rollout in (("own", own), ("neighbour", neighbour))
            if rollout is not None
        ]
        if not shown:
            return self.fresh(task)
        return self._messages(task, [*self._problem(task), *shown, self._fill("improve")])

    def _problem(self, task: Task) -> list[str]:
        """The statement, what a function task asks for, and the code to start from."""
        parts = [self._fill("task", statement=task.statement.strip())]
        if task.function is not None:
            parts.append(self._fill("function", function=task.function))
        if task.starter_code.strip():
            parts.append(self._fill("starter", code=fenced(task.starter_code)))
        return parts

    def _messages(self, task: Task, parts: list[str]) -> list[Message]:
        if self.no_comments:
            parts = [*parts, self._fill("no_comments")]
        system = "system" if task.function is None else "system_function"
        return [
            {"role": "system", "content": self._fill(system)},
            {"role": "user", "content": "\n\n".join(parts)},
        ]

    def _attempt(self, name: str, rollout: Rollout, task: Task) -> str:
        judgement = rollout.judgement
        if judgement is None or rollout.program is None:
            raise ValueError(f"{rollout.key} has no judged program to show")
        return self._fill(
            name,
            passed=str(judgement.visible_passed),
            total=str(judgement.visible_total),
            program=fenced(rollout.program),
            outcome=self._outcome(judgement, task),
        )

    def _outcome(self, judgement: Judgement, task: Task) -> str:
        failure = judgement.first_failure
        if failure is None or failure.hidden:
            return self._fill("passed")
        printed = "It printed" if task.function is None else "It returned"
        return self._fill(
            "failure",
            input=clipped(failure.input),
            expected=clipped(failure.expected),
            result=printed if failure.verdict == "wrong answer" else failure.verdict.capitalize(),
            got=clipped(failure.got),
        )

    def _fill(self, name: str, **values: str) -> str:
        return Template(self.texts[name]).substitute(values).strip()


async def every(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Like gather, but all run to their end before the first error is raised.

    An error is not a reason to abandon the replies that are being sampled beside it: they are
    paid for. Stopped is raised only when nothing else went wrong, since it is the consequence; a
    CheckerFault, which ends no more than a task, only when there is nothing else at all.
    """
    results = await asyncio.gather(*awaitables, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise min(errors, key=_rank)
    return [result for result in results if not isinstance(result, BaseException)]


def _rank(error: BaseException) -> int:
    """Which of several errors is told: the one that ends most."""
    return 2 if isinstance(error, CheckerFault) else int(isinstance(error, Stopped))


def personal_best(attempts: Iterable[Rollout]) -> Rollout | None:
    """Of one particle's attempts with a program: most visible cases passed, then the newest."""
    best: Rollout | None = None
    for attempt in sorted(attempts, key=lambda attempt: attempt.key.round):
        if attempt.program is not None and (best is None or fitness(attempt) >= fitness(best)):
            best = attempt
    return best


def neighbourhood_best(bests: Iterable[Rollout | None], rng: random.Random) -> Rollout | None:
    """The neighbours' best attempt; a tie is drawn."""
    shown = [best for best in bests if best is not None]
    if not shown:
        return None
    top = max(fitness(best) for best in shown)
    return rng.choice([best for best in shown if fitness(best) == top])


def what_is_seen(
    arm: str, task: str, rounds: Sequence[Sequence[Rollout]], seed: int, group: int
) -> list[tuple[Rollout | None, Rollout | None]]:
    """What each particle is shown in the next round: its personal best and its neighbours' best.

    Args:
        rounds: the rounds before it, in each a rollout a particle.
        seed: the run's, by which ties are drawn.
        group: number of particles.
    """
    topology = topology_of(arm, group)
    if topology is None or not rounds:
        return [(None, None)] * group
    bests = [personal_best(attempts) for attempts in zip(*rounds, strict=True)]
    found = []
    for particle, neighbours in enumerate(topology):
        key = Key(arm, task, len(rounds), particle)
        rng = random.Random(f"tie {derive_seed(seed, key)}")
        neighbour = neighbourhood_best((bests[other] for other in neighbours), rng)
        found.append((bests[particle], neighbour))
    return found


def fitness(rollout: Rollout) -> int:
    """Visible cases passed."""
    if rollout.judgement is None:
        raise ValueError(f"{rollout.key} is not judged")
    return rollout.judgement.visible_passed


@dataclass
class Swarm:
    """One run's search.

    Attributes:
        policy, judge, store, prompts: what it samples from, judges with, saves to and asks with.
        seed: the run's seed.
        shape: how much is sampled.
        on_rollout: called with each record that was sampled or judged now.
        on_skip: called with the number of planned rollouts that will not be needed.
        faults: what the judge said of the rollouts that it could not judge.
        left_out: task id -> why nothing can be said of it (its checker gives no answer). Such a
            task is sampled and judged no further; what is saved of it stays.
        on_left_out: called with the id and the reason of each task that is left out now.
        sound: task id -> whether a known solution is accepted, for the band of that name.
    """

    policy: Policy
    judge: Judge
    store: Store
    prompts: Prompts
    seed: int
    shape: Shape = Shape()
    on_rollout: Callable[[Record], None] = lambda record: None
    on_skip: Callable[[int], None] = lambda count: None
    faults: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    on_left_out: Callable[[str, str], None] = lambda task, reason: None
    sound: Mapping[str, bool] = field(default_factory=dict)

    async def run(
        self, tasks: Sequence[Task], arms: Sequence[str], band: str | Collection[str]
    ) -> None:
        """Base group, then all arms at once, of every task; raises the first thing that went
        wrong when everything in flight has ended."""
        room = asyncio.Semaphore(TASKS_AT_ONCE)

        async def one(task: Task) -> None:
            async with room:
                with suppress(CheckerFault):  # which is noted
                    await self._task(task, arms, band)

        await every(one(task) for task in tasks)

    async def _task(self, task: Task, arms: Sequence[str], band: str | Collection[str]) -> None:
        base = await self._group(BASE, task)
        if not in_band(base, task.floor, band, self.sound.get(task.id)):
            self.on_skip(self.shape.most_rollouts(len(arms)) - self.shape.group)
            return
        if self.shape.common_start and arms:
            await self._group(START, task)
        await every(self.search(arm, task) for arm in arms)

    async def _group(self, arm: str, task: Task) -> list[Record]:
        """The records of fresh prompts that no arm alone has: the base group, a common start."""
        saved = self.store.records.get((arm, task.id), {})
        if len(saved) < self.shape.group:
            await self._round(arm, task, 0, self._fresh(task))
        return list(self.store.records[arm, task.id].values())

    async def search(self, arm: str, task: Task) -> None:
        """One arm on one task, up to the round of its first rescue."""
        group, rounds = self.shape.group, self.shape.rounds
        common = self.shape.common_start
        saved = of_search(self.store.records, arm, task.id, common_start=common)
        rescue_round = first_rescue(saved)
        # A run that was stopped within the round of the rescue goes on to the end of that round.
        if rescue_round is not None and len(saved) == group * (rescue_round + 1):
            self.on_skip(group * (rounds - 1 - rescue_round))
            return
        if len(saved) == group * rounds:
            return
        past: list[list[Rollout]] = []
        for number in range(rounds):
            place = START if common and number == 0 else arm
            past.append(await self._round(place, task, number, self.plan_round(arm, task, past)))
            if any(rollout.judgement and rollout.judgement.accepted for rollout in past[-1]):
                self.on_skip(group * (rounds - 1 - number))
                return

    def _fresh(self, task: Task) -> list[list[Message]]:
        return [self.prompts.fresh(task)] * self.shape.group

    def plan_round(
        self, arm: str, task: Task, rounds: Sequence[Sequence[Rollout]]
    ) -> list[list[Message]]:
        """The messages of the next round, one list a particle, given the rounds before it."""
        seen = what_is_seen(arm, task.id, rounds, self.seed, self.shape.group)
        return [self.prompts.informed(task, own, neighbour) for own, neighbour in seen]

    async def _round(
        self, arm: str, task: Task, number: int, messages: Sequence[list[Message]]
    ) -> list[Rollout]:
        return await every(
            self._rollout(Key(arm, task.id, number, particle), task, messages[particle])
            for particle in range(self.shape.group)
        )

    async def _rollout(self, key: Key, task: Task, messages: list[Message]) -> Rollout:
        """The saved rollout, or a new one; saved when sampled and again when judged."""
        if task.id in self.left_out:
            raise CheckerFault(self.left_out[task.id])
        rollout = self.store.get(key)
        if rollout is not None and rollout.judgement is not None:
            return rollout
        try:
            if rollout is None:
                seed = derive_seed(self.seed, key)
                reply = await self.policy.sample(messages, seed)
                program = extract_program(reply.text, task.function)
                rollout = Rollout(key, seed, hash_messages(messages), reply, program, None)
                # It was paid for, and behind a slow judge thousands may wait.
                self.store.append(rollout)
            judgement = await self.judge.grade(rollout.program, task)
            rollout = replace(rollout, judgement=judgement)
            record = self.store.append(rollout)
        except CheckerFault as fault:
            if task.id not in self.left_out:
                self.left_out[task.id] = str(fault)
                self.on_left_out(task.id, str(fault))
            raise
        except JudgeFault as fault:
            # One rollout that cannot be judged ends its own search only; several end the run.
            self.faults.append(str(fault))
            if len(self.faults) >= MAX_FAULTS:
                self.policy.stop()
            raise
        except BaseException:
            self.policy.stop()
            raise
        if record is not None:
            self.on_rollout(record)
        return rollout


def first_rescue(records: Mapping[tuple[int, int], Record]) -> int | None:
    """The first round with an accepted rollout."""
    return min((place[0] for place, record in records.items() if record.accepted), default=None)
