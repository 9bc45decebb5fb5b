"""Rewards for trainers: their signatures, and whoever calls from wherever."""

import asyncio
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from data import Case, Task
from export import _ground_truth

ROOT = Path(__file__).parent.parent
RIGHT = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
HALF = "```python\na, b = map(int, input().split())\nprint(3 if a < 5 else 0)\n```"
NONE = "I do not know."
CASES = json.dumps(
    {"inputs": ["1 2\n", "3 0\n", "5 6\n", "7 8\n"], "outputs": ["3", "3", "11", "15"]}
)
BY_PATH = f"""
import importlib.util, json, os, sys
spec = importlib.util.spec_from_file_location("custom", {str(ROOT / "reward.py")!r})
reward = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reward)
RIGHT, CASES = {RIGHT!r}, {CASES!r}
def workers():
    return [w.process.pid for w in reward._ours("resident").resident().judge._all]
"""


@pytest.fixture(scope="module")
def reward():
    """Loaded by its path and unknown to sys.modules, as verl loads it."""
    spec = importlib.util.spec_from_file_location("custom_module", ROOT / "reward.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    module._ours("resident").resident().close()


def script(text: str) -> str:
    return BY_PATH + textwrap.dedent(text)


def run(text: str, **more) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script(text)],
        capture_output=True, text=True, timeout=120, check=False, **more,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for_the_end_of(pids: list[int]) -> None:
    end = time.monotonic() + 90
    while any(map(alive, pids)):
        assert time.monotonic() < end, "workers outlive their caller"
        time.sleep(0.05)


@pytest.mark.parametrize(("shape", "half"), [("pass", 0.0), ("share", 0.5), ("visible", 0.25)])
def test_shapes(reward, shape, half):
    """Half of the cases pass; the first alone is visible."""
    scores = asyncio.run(reward.score([RIGHT, HALF, NONE], [CASES] * 3, shape, visible=[1] * 3))
    assert [each.value for each in scores] == [1.0, half, 0.0]
    assert scores[1].why == "wrong answer: 0"
    assert scores[2].why == "no program in the reply"


def test_a_score_of_visible_cases_never_reaches_one(reward):
    (found,) = asyncio.run(reward.score([HALF], [CASES], "visible", visible=[2]))
    assert found.value == 0.5
    assert found.judgement.visible_passed == found.judgement.visible_total == 2


def test_tasks_of_the_recipe_are_scored_as_they_are(reward):
    task = Task("t", "t", "t", "", 0, (Case("1 2", "3"),), (Case("3 4", "7"),))
    wrong = RIGHT.replace("a + b", "3")
    scores = asyncio.run(reward.score([RIGHT, wrong], [task, task], "visible"))
    assert [each.value for each in scores] == [1.0, 0.5]


def test_trl(reward):
    logged = {}
    said = [[{"role": "assistant", "content": text}] for text in (RIGHT, HALF)]
    rewards = reward.trl(
        prompts=[[{"role": "user", "content": "?"}]] * 2, completions=said,
        completion_ids=[[1], [2]], ground_truth=[CASES] * 2, trainer_state=object(),
        log_extra=logged.__setitem__, log_metric=logged.__setitem__,
    )  # fmt: skip
    assert rewards == [1.0, 0.0]
    assert logged["verdict"] == ["accepted", "wrong answer"]
    assert logged["accepted"] == 0.5
    shaped = partial(reward.trl_async, shape="share")
    columns = {"reward_model": [{"style": "rule", "ground_truth": CASES}] * 2}
    assert asyncio.run(shaped(["?"] * 2, [RIGHT, HALF], [[1], [2]], **columns)) == [1.0, 0.5]
    assert reward.trl(["?"], [[{"role": "assistant", "content": None}]], input_output=[CASES]) == [
        0.0
    ]


def test_verl(reward):
    found = reward.compute_score("taco", RIGHT, CASES, {"index": 3}, reward_router_address=None)
    assert found == {"score": 1.0, "acc": 1.0, "passed": 1.0, "verdict": "accepted"}
    info = {"visible": 1}
    found = asyncio.run(reward.compute_score_async("taco", HALF, CASES, info, shape="visible"))
    assert (found["score"], found["acc"], found["verdict"]) == (0.25, 0.0, "wrong answer")


def test_openrlhf(reward):
    assert reward._answer("<s>What?\nIt is 3</s>", "What?\n") == "It is 3</s>"
    assert reward._answer("It is 3", "") == "It is 3"
    with pytest.raises(ValueError, match="does not hold its prompt"):
        reward._answer("Which? It is 3", "What?")
    pytest.importorskip("torch", reason="OpenRLHF's rewards are tensors of torch")
    prompt = "<|im_start|>user\nAdd.<|im_end|>\n<|im_start|>assistant\n"
    found = reward.reward_func(
        [prompt + RIGHT + "<|im_end|>", prompt + NONE], [prompt] * 2, [CASES] * 2
    )
    assert found["rewards"].tolist() == found["scores"].tolist() == [1.0, 0.0]


def test_a_fault_is_no_score(reward):
    """TRL leaves out None; verl has nothing for it, and 0 would teach what is not known."""
    broken = json.dumps({**json.loads(CASES), "checker": "import sys; sys.exit(1)"})
    assert reward.trl(["?"] * 2, [RIGHT] * 2, ground_truth=[broken, CASES]) == [None, 1.0]
    with pytest.raises(Exception, match="gave no answer") as raised:
        reward.compute_score("x", RIGHT, broken)
    assert type(raised.value).__name__ == "JudgeFault"


@pytest.mark.parametrize(
    ("truth", "says"),
    [
        ("42", "can't be judged"),
        ('{"inputs": [], "outputs": []}', "no cases"),
        ('{"inputs": ["1"], "outputs": []}', "differ in number"),
    ],
)
def test_cases_that_cannot_be_read(reward, truth, says):
    with pytest.raises(ValueError, match=says):
        reward.compute_score("x", RIGHT, truth)


def test_usage_that_is_wrong(reward):
    with pytest.raises(ValueError, match="one of pass, share, visible"):
        reward.compute_score("x", RIGHT, CASES, shape="best")
    with pytest.raises(ValueError, match=r"extra_info\.visible"):
        reward.compute_score("x", RIGHT, CASES, shape="visible")
    with pytest.raises(ValueError, match=r"no column with cases: .*; it has answer"):
        reward.trl(["?"], [RIGHT], answer=["3"])
    with pytest.raises(RuntimeError, match="started already"):
        reward.set_up(workers=1)


def test_exported_cases_come_back_as_they_were(reward):
    function = Task("f", "f", "f", "", 0, (Case('[1, 2]\n"a"', '["x"]'),), (Case("[]\n0", "null"),),
                    function="solve", checker="print(1)", time_limit=2.0)  # fmt: skip
    words = "Output: you may print each letter in any case."
    plain = Task("p", "p", "p", words, 0, (Case("1\n2\n", "YES"),), (Case("3", "[4]"),))
    assert plain.any_case
    for task in function, plain:
        back = reward._task(_ground_truth(task))
        for name in ("function", "checker", "any_case", "time_limit"):
            assert getattr(back, name) == getattr(task, name), name
        assert [tuple(c) for c in back.visible] == [tuple(c) for c in task.visible + task.hidden]


def test_many_threads_and_an_event_loop_at_once(reward):
    def one(number: int) -> float:
        reply = RIGHT.replace("print", f"x = {number}\nprint")
        return reward.compute_score("x", reply, CASES)["score"]

    async def all_at_once() -> list:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(8) as pool:
            threads = [loop.run_in_executor(pool, one, number) for number in range(16)]
            here = [reward.compute_score_async("x", HALF, CASES, {}, "share") for _ in range(4)]
            return await asyncio.gather(*threads, *here)

    found = asyncio.run(all_at_once())
    assert found[:16] == [1.0] * 16
    assert [each["score"] for each in found[16:]] == [0.5] * 4


def test_whatever_modules_the_caller_has(tmp_path):
    """The caller's modules stay the caller's, also those that it imports later."""
    names = {path.stem for path in ROOT.glob("*.py")} - {"reward"}
    names |= {path.parent.name for path in ROOT.glob("*/__init__.py")}
    for name in names:
        (tmp_path / f"{name}.py").write_text(f"mine = {name!r}\n")
    told = run(
        f"""
        sys.path.insert(0, {str(tmp_path)!r})
        import data, judge
        print(reward.trl(["?"], [RIGHT], ground_truth=[CASES]))
        import compare, replies, sandbox, trial
        print([m.mine for m in (data, judge, compare, replies, sandbox, trial)])
        """,
        cwd=tmp_path,
    )
    assert told == "[1.0]\n['data', 'judge', 'compare', 'replies', 'sandbox', 'trial']\n"


def test_nothing_is_started_or_imported_before_the_first_reply():
    told = run(
        """
        print([name for name in sys.modules if "resident" in name or name == "pyarrow"])
        """
    )
    assert told == "[]\n"


def test_a_fork_has_workers_of_its_own():
    told = run(
        """
        def found():
            return reward.compute_score("x", RIGHT, CASES)["score"]
        print(found(), flush=True)
        before = set(workers())
        if os.fork() == 0:
            print(found(), not before & set(workers()), flush=True)
            sys.exit()
        print(os.wait()[1], flush=True)
        print(found(), before <= set(workers()))
        """
    )
    assert told.splitlines() == ["1.0", "1.0 True", "0", "1.0 True"]


def test_workers_end_when_their_caller_is_killed_though_a_fork_lives_on():
    text = """
        reward.compute_score("x", RIGHT, CASES)
        print(*workers(), flush=True)
        child = os.fork()
        if child:
            print(child, flush=True)
        import time
        time.sleep(600)
        """
    caller = subprocess.Popen(
        [sys.executable, "-c", script(text)], stdout=subprocess.PIPE, text=True
    )
    pids = [int(word) for word in caller.stdout.readline().split()]
    child = int(caller.stdout.readline())
    try:
        assert pids
        assert all(map(alive, pids))
        caller.kill()
        caller.wait()
        wait_for_the_end_of(pids)
        assert alive(child)
    finally:
        os.kill(child, signal.SIGKILL)
        caller.stdout.close()


def test_an_end_while_programs_are_judged():
    told = run(
        """
        import threading, time
        asleep = "```python\\nimport time\\ntime.sleep(600)\\n```"
        reward.compute_score("x", RIGHT, CASES)
        def ask(number):
            try:
                reward.compute_score("x", asleep.replace("600", str(600 + number)), CASES)
            except BaseException:
                pass
        for number in range(100):
            threading.Thread(target=ask, args=(number,), daemon=True).start()
        while not any(not w.idle for w in reward._ours("resident").resident().judge._all):
            time.sleep(0.01)
        print(*workers(), flush=True)
        """
    )
    wait_for_the_end_of([int(word) for word in told.split()])


def test_installed_it_is_swarm_rescue_reward(tmp_path):
    try:
        files = importlib.metadata.files("swarm-rescue") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    if not any(str(path) == "swarm_rescue/reward.py" for path in files):
        pytest.skip("this project is not installed here as pip install . does it")
    text = f"import swarm_rescue.reward as r; print(r.compute_score('x', {RIGHT!r}, {CASES!r}))"
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "'score': 1.0" in done.stdout, done.stderr


def test_every_package_is_installed():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    for path in ROOT.glob("*/__init__.py"):
        assert f'"swarm_rescue.{path.parent.name}"' in project
