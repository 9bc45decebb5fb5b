"""The search, against a policy and a judge that are written here and a store in memory."""

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from data import Case, Task
from judge import CheckerFault, Failure, JudgeFault, Judgement
from policy import Message, PolicyError, Reply, Stopped
from swarm import (
    START,
    TOPOLOGIES,
    Key,
    Prompts,
    Record,
    Rollout,
    SearchError,
    Shape,
    Swarm,
    derive_seed,
    fenced,
    in_band,
    neighbourhood_best,
    of_search,
    personal_best,
    topology_of,
)

PROMPTS = Path(__file__).parent.parent / "prompts"
SHAPE = Shape()
GOLDEN = Path(__file__).parent / "golden"
ARMS = ("resample", "solo", "ring", "star")
TASK = Task(
    id="toy/1_A",
    name="1_A. Sum",
    contest="1",
    statement="A. Sum\n\nPrint a + b. The prize is $5.",
    rating=800,
    visible=(Case("1 2\n", "3\n"), Case("2 2\n", "4\n"), Case("0 0\n", "0\n")),
    hidden=(Case("HIDDEN-IN", "HIDDEN-OUT"),),
)


@dataclass
class Memory:
    """A store in memory."""

    records: dict = field(default_factory=dict)
    rollouts: dict = field(default_factory=dict)

    def get(self, key: Key) -> Rollout | None:
        return self.rollouts.get(key)

    def append(self, rollout: Rollout) -> Record | None:
        self.rollouts[rollout.key] = rollout
        if rollout.judgement is None:
            return None
        key = rollout.key
        record = Record.of(rollout)
        self.records.setdefault((key.arm, key.task), {})[key.round, key.particle] = record
        return record


class Answers:
    """Replies with a program that says how many visible cases it will pass, drawn by the seed."""

    def __init__(self, scores: tuple[int, ...] = (0, 1, 2)) -> None:
        self.scores, self.asked, self.stopped = scores, [], False

    async def sample(self, messages: list[Message], seed: int) -> Reply:
        if self.stopped:
            raise Stopped("stopped")
        self.asked.append((messages, seed))
        await asyncio.sleep(0)
        score = random.Random(seed).choice(self.scores)
        text = f"```python\nscore = {score}  # {seed}\n```"
        return Reply(text, "", "stop", None, 10, 5, None, 0.0)

    def stop(self) -> None:
        self.stopped = True


class Scorer:
    """A judge that believes the program: score 3 passes every visible case, 4 the hidden too."""

    async def grade(self, program: str | None, task: Task, *, every_case: bool = False):
        score = int(program.split()[2])
        visible, hidden = min(score, 3), int(score > 3)
        verdict = "accepted" if hidden else "wrong answer"
        failure = None
        if not hidden:
            case, is_hidden = (0, True) if score == 3 else (score, False)
            shown = task.hidden[0] if is_hidden else task.visible[case]
            failure = Failure(case, is_hidden, verdict, shown.input, shown.output, "7")
        return Judgement(verdict, visible, 3, hidden, 1, failure, 0.0)


def swarm_of(policy=None, judge=None, store=None, seed=0, **more) -> Swarm:
    return Swarm(
        policy or Answers(), judge or Scorer(), store or Memory(), Prompts(PROMPTS), seed, **more
    )


def attempt(score: int, *, particle=0, number=0, text="", verdict="wrong answer", got="7"):
    """A judged rollout that passes `score` of TASK's visible cases."""
    program = text or f"score = {score}  # particle {particle} round {number}"
    hidden = score == 3
    case = TASK.hidden[0] if hidden else TASK.visible[score]
    failure = Failure(0 if hidden else score, hidden, verdict, case.input, case.output, got)
    judgement = Judgement(verdict, score, 3, 0, 1, failure, 0.0)
    reply = Reply("", "", "stop", None, None, None, None, 0.0)
    return Rollout(Key("ring", TASK.id, number, particle), 1, "", reply, program, judgement)


def run(swarm: Swarm, tasks=(TASK,), arms=ARMS, band="all-fail") -> Swarm:
    asyncio.run(swarm.run(list(tasks), arms, band))
    return swarm


# --- seeds and topologies -----------------------------------------------------------------------


def test_no_two_rollouts_of_a_task_share_a_seed_of_32_bits():
    arms = ["base", "start", *TOPOLOGIES, *(f"noise-{i}" for i in (1, 2, 999, 1000))]
    keys = [
        Key(arm, "test/1_A", number, particle)
        for arm in arms
        for number in (0, 1, 2, 1023)
        for particle in (*range(64), 1023)
    ]
    seeds = {derive_seed(0, key) for key in keys} | {derive_seed(1, key) for key in keys}
    assert len(seeds) > 2 * len(keys) - 3  # of two runs: they may meet by chance
    for run in (0, 2**63 - 1):
        seeds = {derive_seed(run, key) for key in keys}
        assert len(seeds) == len(keys)
        assert 0 < min(seeds) < 2**31 < max(seeds) < 2**32 - 1


def test_seeds_of_neighbouring_places_have_nothing_in_common():
    seeds = [derive_seed(0, Key("base", f"t/{task}", 0, i)) for task in range(50) for i in range(8)]
    for bit in range(32):
        ones = sum(seed >> bit & 1 for seed in seeds)
        same = sum(not (a ^ b) >> bit & 1 for a, b in itertools.pairwise(seeds))
        assert 130 < ones < 270
        assert 130 < same < 270


@pytest.mark.parametrize("group", [4, 6, 8, 9, 12, 16, 30, 64])
@pytest.mark.parametrize("arm", ["solo", "ring", "star", "von-neumann"])
def test_topologies_are_regular_and_symmetric(arm, group):
    table = topology_of(arm, group)
    assert len(table) == group
    assert len({len(neighbours) for neighbours in table}) == 1
    for particle, neighbours in enumerate(table):
        assert particle not in neighbours
        assert len(set(neighbours)) == len(neighbours)
        assert all(particle in table[other] for other in neighbours)


@pytest.mark.parametrize(
    ("arm", "group", "degree"),
    [("solo", 8, 0), ("ring", 8, 2), ("star", 8, 7), ("ring", 2, 1), ("ring", 64, 2),
     ("star", 64, 63), ("von-neumann", 4, 2), ("von-neumann", 6, 3), ("von-neumann", 8, 3),
     ("von-neumann", 9, 4), ("von-neumann", 12, 4), ("von-neumann", 64, 4)],
)  # fmt: skip
def test_how_many_neighbours_a_particle_has(arm, group, degree):
    assert {len(neighbours) for neighbours in topology_of(arm, group)} == {degree}


def test_von_neumann_is_the_squarest_torus():
    assert topology_of("von-neumann", 8)[0] == (3, 1, 4)
    assert topology_of("von-neumann", 8)[6] == (5, 7, 2)
    assert sorted(topology_of("von-neumann", 12)[0]) == [1, 3, 4, 8]  # 3 x 4
    for group in (2, 3, 5, 7, 13):
        with pytest.raises(SearchError, match=f"torus of two rows or more: {group} does not"):
            topology_of("von-neumann", group)


# --- bests --------------------------------------------------------------------------------------


def test_personal_best_passes_most_and_a_tie_goes_to_the_newer():
    older, newer, worse = attempt(2), attempt(2, number=1), attempt(1, number=2)
    assert personal_best([worse, newer, older]) is newer
    assert personal_best([older, replace(attempt(0, number=1), program=None)]) is older
    assert personal_best([replace(older, program=None)]) is None


def test_neighbourhood_best_draws_ties_and_only_ties():
    top = [attempt(2, particle=1), attempt(2, particle=2)]
    drawn = Counter(
        neighbourhood_best([attempt(1), None, *top], random.Random(seed)).key.particle
        for seed in range(200)
    )
    assert set(drawn) == {1, 2}
    assert min(drawn.values()) > 60
    assert neighbourhood_best([None], random.Random(0)) is None


# --- prompts ------------------------------------------------------------------------------------


def text_of(messages: list[Message]) -> str:
    return "".join(f"[{message['role']}]\n{message['content']}\n" for message in messages)


OWN = attempt(1, text="a, b = input().split()\nprint(a + b)\n", got="22")
CRASH = attempt(
    2, particle=1, text='"""\n```\n"""\nprint(1 / 0)', verdict="runtime error",
    got="ZeroDivisionError: division by zero",
)  # fmt: skip
ALMOST = attempt(3, text="print(sum(map(int, input().split())))")


@pytest.mark.parametrize(
    ("name", "no_comments", "own", "neighbour"),
    [
        ("fresh", False, None, None),
        ("fresh_no_comments", True, None, None),
        ("solo", False, OWN, None),
        ("ring", False, OWN, CRASH),
        ("only_neighbour", True, None, CRASH),
        ("all_visible_passed", False, ALMOST, None),
    ],
)
def test_whole_prompts_are_the_golden_ones(name, no_comments, own, neighbour):
    prompts = Prompts(PROMPTS, no_comments=no_comments)
    messages = prompts.informed(TASK, own, neighbour)
    assert text_of(messages) == (GOLDEN / f"{name}.txt").read_text("utf-8")


STARTER = "class Solution:\n    def add(self, a: int, b: int) -> int:\n"
FUNCTION = replace(
    TASK,
    statement="Add two numbers.",
    visible=(Case("1\n2", "3"), Case("2\n2", "4"), Case("0\n0", "0")),
    function="add",
    starter_code=STARTER,
)
RETURNED = replace(
    OWN,
    judgement=replace(
        OWN.judgement,
        first_failure=Failure(1, False, "wrong answer", "2\n2", "4", "22"),
    ),
    program=f"{STARTER}        return int(f'{{a}}{{b}}')\n",
)


@pytest.mark.parametrize(("name", "own"), [("function", None), ("function_solo", RETURNED)])
def test_whole_prompts_of_a_function_task_are_the_golden_ones(name, own):
    messages = Prompts(PROMPTS).informed(FUNCTION, own, None)
    assert text_of(messages) == (GOLDEN / f"{name}.txt").read_text("utf-8")


def test_starter_code_is_shown_to_a_plain_task_too():
    fresh = Prompts(PROMPTS).fresh(replace(TASK, starter_code="n = int(input())\n"))
    plain = Prompts(PROMPTS).fresh(TASK)
    assert fresh[0] == plain[0]
    assert fresh[1]["content"] == (
        plain[1]["content"] + "\n\nStart from this code:\n\n```python\nn = int(input())\n```"
    )


def test_templates_of_function_tasks_are_no_setting_of_a_run():
    """They shape the fresh prompt only, and a task that had another one is refused."""
    assert not set(Prompts(PROMPTS).hashes) & {"system_function", "function", "starter"}


def test_long_cases_are_clipped():
    own = attempt(1, got="x" * 5000)
    content = Prompts(PROMPTS).informed(TASK, own, None)[1]["content"]
    assert "x" * 400 + " [cut]" in content
    assert "x" * 401 not in content


def test_a_program_with_fences_is_fenced_with_more_backticks():
    assert fenced("print(1)\n") == "```python\nprint(1)\n```"
    assert fenced("'''````'''") == "`````python\n'''````'''\n`````"


def test_editing_a_template_changes_its_hash_and_a_bad_one_is_refused(tmp_path):
    for path in PROMPTS.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    before = Prompts(tmp_path).hashes
    (tmp_path / "improve.txt").write_text("Try again.")
    after = Prompts(tmp_path).hashes
    assert {name for name in before if before[name] != after[name]} == {"improve"}
    (tmp_path / "improve.txt").write_text("It costs $100, $dear.")
    with pytest.raises(SearchError, match=r"improve\.txt: write \$\$ for a dollar sign"):
        Prompts(tmp_path)
    (tmp_path / "improve.txt").unlink()
    with pytest.raises(SearchError, match=r"improve\.txt"):
        Prompts(tmp_path)


# --- bands --------------------------------------------------------------------------------------


def test_bands():
    def base(*scores):
        return [Record.of(replace(attempt(min(score, 2)), judgement=asyncio.run(
            Scorer().grade(f"score = {score}", TASK)))) for score in scores]  # fmt: skip

    assert in_band(base(0, 0), 1, "all-fail")
    assert not in_band(base(0, 0), 1, "near-miss")
    assert in_band(base(0, 1), 1, "near-miss")
    assert not in_band(base(0, 1), 1, "above-floor")
    assert in_band(base(3, 2), 1, "above-floor")
    for band in ("all-fail", "near-miss", "above-floor"):
        assert not in_band(base(2, 4), 1, band)


# --- the search ---------------------------------------------------------------------------------


def test_an_all_fail_task_gets_24_samples_an_arm():
    swarm = run(swarm_of())
    count = Counter(key.arm for key in swarm.store.rollouts)
    assert count == {"base": 8, "resample": 24, "solo": 24, "ring": 24, "star": 24}
    seeds = [seed for _, seed in swarm.policy.asked]
    assert len(set(seeds)) == len(seeds) == 104


def test_a_solved_task_is_not_searched():
    skipped = []
    swarm = run(swarm_of(Answers((0, 4)), on_skip=skipped.append))
    assert {key.arm for key in swarm.store.rollouts} == {"base"}
    assert skipped == [4 * 24]


class FreshFails(Answers):
    """Fresh prompts never pass; a prompt that shows an attempt always does."""

    async def sample(self, messages, seed):
        reply = await super().sample(messages, seed)
        score = 4 if "attempt" in messages[1]["content"] else 0
        return replace(reply, text=f"```python\nscore = {score}\n```")


def test_an_arm_stops_after_the_round_of_its_first_rescue():
    swarm = run(swarm_of(FreshFails()))
    count = Counter(key.arm for key in swarm.store.rollouts)
    assert count == {"base": 8, "resample": 24, "solo": 16, "ring": 16, "star": 16}


def test_a_run_stopped_within_the_round_of_a_rescue_finishes_that_round():
    whole = run(swarm_of(FreshFails())).store
    cut = Memory()
    for key, rollout in whole.rollouts.items():
        if key.arm != "ring" or key.round == 0 or key.particle < 3:
            cut.append(rollout)
    policy = FreshFails()
    run(swarm_of(policy, store=cut))
    assert len(policy.asked) == 5
    assert cut.rollouts == whole.rollouts


@pytest.mark.parametrize("shape", [Shape(4, 2), Shape(2, 5), Shape(16, 1), Shape(6, 3, True)])
def test_the_shape_of_a_group(shape):
    skipped = []
    swarm = run(swarm_of(shape=shape, on_skip=skipped.append))
    count = Counter(key.arm for key in swarm.store.rollouts)
    own = shape.rounds - shape.common_start
    shared = {START: shape.group} if shape.common_start else {}
    assert count == {"base": shape.group, **shared, **dict.fromkeys(ARMS, shape.group * own)}
    assert count.total() == shape.most_rollouts(len(ARMS)) == len(swarm.policy.asked)
    assert len({seed for _, seed in swarm.policy.asked}) == count.total()
    assert skipped == []


def test_a_round_skipped_is_counted_for_any_shape():
    skipped = []
    shape = Shape(4, 5, common_start=True)
    swarm = run(swarm_of(FreshFails(), shape=shape, on_skip=skipped.append))
    count = Counter(key.arm for key in swarm.store.rollouts)
    assert count == {"base": 4, START: 4, "resample": 16, "solo": 4, "ring": 4, "star": 4}
    assert count.total() + sum(skipped) == shape.most_rollouts(4)


def test_with_a_common_start_all_arms_go_on_from_the_same_samples():
    swarm = run(swarm_of(shape=Shape(common_start=True)))
    store = swarm.store
    start = store.records[START, TASK.id]
    for arm in ARMS:
        found = of_search(store.records, arm, TASK.id, common_start=True)
        assert len(found) == 24
        assert {place: found[place] for place in start} == start
        assert not any(number == 0 for number, _ in store.records[arm, TASK.id])
    programs = [store.rollouts[Key(START, TASK.id, 0, i)].program for i in range(8)]
    solo = [
        messages[1]["content"]
        for messages, seed in swarm.policy.asked
        for i in range(8)
        if seed == derive_seed(0, Key("solo", TASK.id, 1, i))
    ]
    assert len(solo) == 8
    assert all(program in text for program, text in zip(programs, solo, strict=True))


def test_a_rescue_in_the_common_start_ends_every_arm():
    skipped = []

    class StartPasses(Answers):
        async def sample(self, messages, seed):
            reply = await super().sample(messages, seed)
            score = 4 if seed == derive_seed(0, Key(START, TASK.id, 0, 5)) else 0
            return replace(reply, text=f"```python\nscore = {score}\n```")

    swarm = run(swarm_of(StartPasses(), shape=Shape(common_start=True), on_skip=skipped.append))
    assert Counter(key.arm for key in swarm.store.rollouts) == {"base": 8, START: 8}
    assert sum(skipped) == 4 * 16
    for arm in ARMS:
        found = of_search(swarm.store.records, arm, TASK.id, common_start=True)
        assert [place for place, record in found.items() if record.accepted] == [(0, 5)]


@pytest.mark.parametrize("stop_after", [5, 12, 20, 40])
def test_a_stopped_run_with_a_common_start_goes_on_without_repeating(stop_after):
    shape = Shape(common_start=True)
    whole = run(swarm_of(shape=shape)).store
    store, policy = Memory(), Answers()

    def on_rollout(record):
        if len(store.rollouts) == stop_after:
            policy.stop()

    with pytest.raises(Stopped):
        run(swarm_of(policy, store=store, shape=shape, on_rollout=on_rollout))
    resumed = Answers()
    run(swarm_of(resumed, store=store, shape=shape))
    assert store.rollouts == whole.rollouts
    assert len(policy.asked) + len(resumed.asked) == len(whole.rollouts)


def test_what_each_particle_sees():
    """Bests per particle in round 0: particle i scores by the table; 3 = all visible."""
    scores = [0, 2, 1, 0, 3, 1, 1, 0]
    rounds = [[attempt(score, particle=i) for i, score in enumerate(scores)]]
    swarm = swarm_of()

    def seen(arm):
        messages = swarm.plan_round(arm, TASK, rounds)
        return [
            [int(line.split("particle ")[1].split()[0])
             for line in m[1]["content"].splitlines() if "# particle" in line]
            for m in messages
        ]  # fmt: skip

    assert swarm.plan_round("resample", TASK, rounds) == [swarm.prompts.fresh(TASK)] * 8
    assert seen("solo") == [[i] for i in range(8)]
    assert seen("ring") == [[i, best] for i, best in enumerate([1, 2, 1, 4, 5, 4, 5, 6])]
    assert seen("star") == [[i, best] for i, best in enumerate([4, 4, 4, 4, 1, 4, 4, 4])]


def test_a_run_is_a_function_of_its_seed():
    first, again, other = run(swarm_of()), run(swarm_of()), run(swarm_of(seed=1))
    assert first.store.rollouts == again.store.rollouts
    assert first.store.rollouts != other.store.rollouts


@pytest.mark.parametrize("stop_after", [3, 8, 20, 50, 70])
def test_a_stopped_run_keeps_what_was_in_flight_and_goes_on_without_repeating(stop_after):
    whole = run(swarm_of()).store
    store, policy = Memory(), Answers()

    def on_rollout(record):
        if len(store.rollouts) == stop_after:
            policy.stop()

    with pytest.raises(Stopped):
        run(swarm_of(policy, store=store, on_rollout=on_rollout))
    assert len(store.rollouts) == len(policy.asked)
    resumed = Answers()
    run(swarm_of(resumed, store=store))
    assert store.rollouts == whole.rollouts
    assert len(policy.asked) + len(resumed.asked) == 104


def test_no_hidden_case_reaches_a_prompt():
    policy = Answers((0, 1, 2, 3))
    run(swarm_of(policy), arms=tuple(TOPOLOGIES))
    prompts = [text_of(messages) for messages, _ in policy.asked]
    assert any("passes every visible case" in prompt for prompt in prompts)
    assert not any("HIDDEN" in prompt for prompt in prompts)


class Faulty(Scorer):
    """Cannot judge the first `faults` programs."""

    def __init__(self, faults):
        self.left = faults

    async def grade(self, program, task, *, every_case=False):
        if self.left:
            self.left -= 1
            raise JudgeFault("no process could be started")
        return await super().grade(program, task)


def test_a_judge_fault_is_no_verdict_and_the_reply_is_kept():
    store, policy = Memory(), Answers()
    tasks = (TASK, replace(TASK, id="toy/2_A"))
    with pytest.raises(JudgeFault):
        run(swarm_of(policy, Faulty(1), store), tasks)
    assert sum(rollout.judgement is None for rollout in store.rollouts.values()) == 1
    assert len(store.records["base", "toy/1_A"]) == 7
    assert len(store.records["star", "toy/2_A"]) == 24
    again = Answers()
    run(swarm_of(again, store=store), tasks)
    assert len(policy.asked) + len(again.asked) == 2 * 104
    assert store.rollouts == run(swarm_of(), tasks).store.rollouts


def test_repeated_judge_faults_stop_the_run():
    policy = Answers()
    tasks = [replace(TASK, id=f"toy/{i}_A") for i in range(50)]
    swarm = swarm_of(policy, Faulty(10**6))
    with pytest.raises(JudgeFault):
        run(swarm, tasks)
    assert policy.stopped
    assert len(swarm.store.rollouts) == len(policy.asked)


class NoAnswer(Scorer):
    """A judge that is given no answer by the checker of one task, from the n-th program on."""

    def __init__(self, task: str, after: int = 0) -> None:
        self.task, self.after, self.faults = task, after, 0

    async def grade(self, program, task, *, every_case=False):
        if task.id == self.task:
            self.after -= 1
            if self.after < 0:
                self.faults += 1
                raise CheckerFault(f"the checker of {task.id} gave no answer")
        return await super().grade(program, task)


@pytest.mark.parametrize("after", [0, 5, 8, 20, 50])
def test_a_task_whose_checker_gives_no_answer_is_left_out_and_the_others_go_on(after):
    other = replace(TASK, id="toy/2_A")
    policy, judge, told = Answers(), NoAnswer("toy/1_A", after), []
    swarm = swarm_of(policy, judge, on_left_out=lambda *noted: told.append(noted))
    run(swarm, (TASK, other))
    assert told == [("toy/1_A", "the checker of toy/1_A gave no answer")]
    assert swarm.left_out == dict(told)
    assert not policy.stopped
    whole = run(swarm_of(), (other,)).store.rollouts
    found = swarm.store.rollouts
    assert {key: each for key, each in found.items() if key.task == "toy/2_A"} == whole
    assert all(each.judgement or each.key.task == "toy/1_A" for each in found.values())
    assert len(found) == len(policy.asked)  # what was sampled is saved, and nothing more is asked
    assert len(policy.asked) < 2 * 104
    again = Answers()
    run(swarm_of(again, judge, swarm.store, left_out=dict(told)), (TASK, other))
    assert not again.asked


def test_a_checker_fault_hides_no_other_error():
    class Down(Answers):
        async def sample(self, messages, seed):
            if len(self.asked) == 3:
                self.asked.append(None)
                raise PolicyError("gone")
            return await super().sample(messages, seed)

    with pytest.raises(PolicyError, match="gone"):
        run(swarm_of(Down(), NoAnswer("toy/1_A")))


def test_a_reply_is_saved_before_it_is_judged():
    store, policy = Memory(), Answers()

    class Busy(Scorer):
        """Has no room before every reply of the base group is saved."""

        async def grade(self, program, task, *, every_case=False):
            while len(store.rollouts) < 8:
                await asyncio.sleep(0)
            return await super().grade(program, task)

    run(swarm_of(policy, Busy(), store), arms=())
    assert store.rollouts == run(swarm_of(), arms=()).store.rollouts
