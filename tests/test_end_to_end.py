"""Whole runs of run.py as a user starts them: killed, stopped, resumed, failing, extended.

The endpoint is tests/server.py, a process of its own whose replies depend on the messages and the
seed alone, so that a run that was disturbed must end with the numbers of one that was not.

KILLS=20 pytest tests/test_end_to_end.py -k kill -s    kills a run that often, and tells
"""

import asyncio
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from server import Answer, Request, Server, stream
from test_data import row, write

from data import Task, load_tasks

ROOT = Path(__file__).parent.parent
KILLS = int(os.environ.get("KILLS", "3"))
CONCURRENCY = 8
# Toy programs need milliseconds; the endless ones take two limits each.
SMALL = ["--tasks", "toy", "--limit", "4", "--cpu-seconds", "0.5", "--noise-runs", "1"]
SMALL += ["--concurrency", str(CONCURRENCY)]


class Endpoint:
    """tests/server.py as a process."""

    def __init__(self, *flags: str) -> None:
        command = [sys.executable, str(ROOT / "tests" / "server.py"), *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.flags = ["--base-url", f"http://127.0.0.1:{self.port}/v1"]

    def log(self) -> list[dict]:
        """The chat requests so far but for the probes."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/log") as answer:
            return [asked for asked in json.load(answer) if asked["user"].startswith("Solve")]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def endpoint(*flags: str) -> Iterator[Endpoint]:
    server = Endpoint(*flags)
    try:
        yield server
    finally:
        server.close()


def start(*flags: str, out: Path) -> subprocess.Popen:
    """run.py, in the environment of a user who has no key."""
    hidden = ("OPENAI_API_KEY", "WHILEAI_API_KEY")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *flags, "--out", str(out)],
        env={**env, "HOME": str(out)},
        cwd=out.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*flags: str, out: Path, code: int = 0) -> tuple[str, str]:
    """Run to the end; (stdout, stderr)."""
    process = start(*flags, out=out)
    told = process.communicate(timeout=120)
    assert process.returncode == code, told[1]
    assert "Traceback" not in told[1]
    return told


def results(out: Path) -> dict:
    """results.json without what may differ between two runs of one recipe."""
    found = json.loads((out / "results.json").read_text())
    del found["times"]
    del found["environment"]["git_commit"]  # one may be made while the tests run
    return found


def saved(out: Path, *kinds: str) -> list[dict]:
    """The rollouts (or lines of other kinds) of a journal, which may be in use."""
    try:
        whole = (out / "rollouts.jsonl").read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    return [line for line in map(json.loads, whole) if line["kind"] in (kinds or ("rollout",))]


def wait_for(process: subprocess.Popen, out: Path, count: int) -> None:
    """Until `count` rollouts are saved, or the run has ended."""
    while process.poll() is None and len(saved(out)) < count:
        time.sleep(0.01)


@pytest.fixture(scope="module")
def server() -> Iterator[Endpoint]:
    with endpoint("--latency", "0.03") as server:
        yield server


@pytest.fixture(scope="module")
def undisturbed(server, tmp_path_factory) -> Path:
    """The out folder of a run in which nothing went wrong."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    run(*SMALL, *server.flags, out=out)
    return out


def test_two_dry_runs_are_the_same(tmp_path):
    for name in ("one", "two"):
        run("--dry-run", out=tmp_path / name)
    one, two = (json.dumps(results(tmp_path / name)) for name in ("one", "two"))
    assert one == two


def test_a_run_asks_once_and_never_shows_a_hidden_case(server, tmp_path):
    before = len(server.log())
    marker = "7042 HIDDEN MARKER"
    tasks = load_tasks("toy", limit=3).tasks
    path = write(tmp_path / "marked.parquet", *(marked(task, marker) for task in tasks))
    run("--tasks", path, *server.flags, "--cpu-seconds", "0.5", out=tmp_path / "out")
    asked = server.log()[before:]
    assert len(asked) == len(saved(tmp_path / "out")) == 3 * (8 + 4 * 24)
    assert (
        len({line["key"] for line in asked}) == len({line["seed"] for line in asked}) == len(asked)
    )
    # The marker was met by programs that pass every visible case, and their particles went on.
    assert marker in (tmp_path / "out" / "rollouts.jsonl").read_text()
    assert any("passes every visible case" in line["user"] for line in asked)
    assert not [line for line in asked if "MARKER" in line["user"]]


def marked(task: Task, marker: str) -> dict:
    """A task as a row of a file, with a first hidden case that no program passes."""
    return row(
        name=task.name,
        description=task.statement,
        public_tests=cases(task.visible),
        private_tests=cases([(marker, marker), *task.hidden]),
        generated_tests=cases([]),
    )


def cases(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    pairs = list(pairs)
    return {"input": [given for given, _ in pairs], "output": [wanted for _, wanted in pairs]}


def test_kill_9_at_random_moments_costs_only_what_was_in_flight(server, undisturbed, tmp_path):
    out = tmp_path / "out"
    total = len(saved(undisturbed))
    before = len(server.log())
    rng = random.Random(KILLS)
    kills = 0
    paid: set[int] = set()  # seeds of the replies that were saved when the run was killed
    while kills < KILLS:
        asked = len(server.log())
        process = start(*SMALL, *server.flags, out=out)
        # From one start to the next a share of the run is done, more or less.
        share = total // (KILLS + 1)
        wait_for(process, out, (kills + 1) * share - rng.randrange(share))
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        assert not paid & {line["seed"] for line in server.log()[asked:]}
        paid = {line["seed"] for line in saved(out, "rollout", "reply")}
    asked = len(server.log())
    run(*SMALL, *server.flags, out=out)
    assert not paid & {line["seed"] for line in server.log()[asked:]}
    assert results(out) == results(undisturbed)

    times = Counter(line["seed"] for line in server.log()[before:])
    again = sum(times.values()) - len(times)
    print(f"{kills} kills of a run of {total} rollouts: {again} requests were made again")
    assert len(times) == total
    assert again <= kills * CONCURRENCY


def test_a_server_that_fails_a_quarter_of_the_time_changes_nothing(undisturbed, server, tmp_path):
    with endpoint("--failures", "0.25") as failing:
        run(*SMALL, *failing.flags, out=tmp_path / "out")
        asked = failing.log()
    found = json.dumps(results(tmp_path / "out")).replace(str(failing.port), str(server.port))
    assert json.loads(found) == results(undisturbed)
    rollouts = len(saved(undisturbed))
    assert rollouts * 1.1 < len(asked) < rollouts * 1.7


def test_control_c_saves_and_the_same_command_goes_on(server, undisturbed, tmp_path):
    out = tmp_path / "out"
    before = len(server.log())
    process = start(*SMALL, *server.flags, out=out)
    wait_for(process, out, 20)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in told
    rollouts = len(saved(out))
    assert 20 <= rollouts < len(saved(undisturbed))
    assert f"{rollouts:,} rollouts are saved in {out}/rollouts.jsonl" in told
    assert f"to go on: {sys.executable} " in told
    assert " ".join([*SMALL, *server.flags]) in told
    # What was in flight was saved, judged or not.
    paid = {line["seed"] for line in saved(out, "rollout", "reply")}
    assert paid == {line["seed"] for line in server.log()[before:]}
    if len(paid) > rollouts:
        assert f", and {len(paid) - rollouts} replies for the judge" in told

    run(*SMALL, *server.flags, out=out)
    assert results(out) == results(undisturbed)
    assert len(server.log()) - before == len(saved(undisturbed))


def test_a_second_run_is_refused_and_a_second_control_c_leaves_at_once(tmp_path):
    asyncio.run(disturb_a_run_that_hangs(tmp_path / "out"))


async def disturb_a_run_that_hangs(out: Path) -> None:
    def answer(request: Request) -> Answer:
        return Answer(end="hang") if request.user.startswith("Solve") else stream("ready")

    async with Server(answer) as server:
        process = start(*SMALL, "--base-url", server.base_url, out=out)
        while process.poll() is None and server.requests[CONCURRENCY:] == []:
            await asyncio.sleep(0.01)
        second = start(*SMALL, "--base-url", server.base_url, out=out)
        while second.poll() is None:
            await asyncio.sleep(0.01)
        assert "error: another run is writing" in second.communicate()[1]
        assert second.returncode == 1

        process.send_signal(signal.SIGINT)
        assert any("stopping: " in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert not saved(out)


def test_a_run_that_is_stopped_leaves_its_judge(tmp_path):
    asyncio.run(stop_a_run_that_judges(tmp_path / "out"))


async def stop_a_run_that_judges(out: Path) -> None:
    endless = "```python\nn = input()\nwhile True: pass\n```"

    def answer(request: Request) -> Answer:
        return stream(endless if request.user.startswith("Solve") else "ready")

    flags = ["--tasks", "toy", "--limit", "2", "--cpu-seconds", "100000", "--overwrite"]
    async with Server(answer) as server:
        process = start(*flags, "--base-url", server.base_url, out=out)
        while process.poll() is None and len(saved(out, "reply")) < 16:
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGINT)
        report, told = await asyncio.to_thread(process.communicate, timeout=100)
    assert (process.returncode, report) == (130, "")
    assert "Traceback" not in told
    assert "stopping: no request is in flight" in told
    assert f"0 rollouts are saved in {out}/rollouts.jsonl, and 16 replies for the judge" in told
    (way,) = (line for line in told.splitlines() if line.startswith("to go on: "))
    assert "--cpu-seconds 100000" in way
    assert "--overwrite" not in way  # it would set aside what was just paid for


def test_a_spent_budget_names_a_command_that_goes_on(server, tmp_path):
    out = tmp_path / "out"
    flags = ["--tasks", "toy", "--limit", "2", "--arms", "resample", "--cpu-seconds", "0.5"]
    _, told = run(*flags, *server.flags, "--max-total-tokens", "3000", out=out, code=130)
    for _ in range(20):
        (way,) = (line for line in told.splitlines() if line.startswith("to go on: "))
        words = shlex.split(way.removeprefix("to go on: "))
        done = subprocess.run(words, cwd=out.parent, capture_output=True, text=True)
        told = done.stderr
        if done.returncode == 0:
            break
    assert done.returncode == 0
    assert len(saved(out)) > 16


def test_tasks_are_known_by_their_content_wherever_their_file_lies(server, tmp_path):
    tasks = load_tasks("toy", limit=2).tasks
    (tmp_path / "old").mkdir()
    write(tmp_path / "old" / "mine.parquet", *(marked(task, "1 1") for task in tasks))
    out = tmp_path / "out"
    flags = [*server.flags, "--arms", "resample", "--cpu-seconds", "0.5"]
    run("--tasks", "old/mine.parquet", *flags, out=out)
    before = results(out)
    run("--regrade", out=out)  # from the folder of the run
    asked = len(server.log())
    for place in ("new/mine.parquet", "renamed.parquet"):
        moved = tmp_path / place
        moved.parent.mkdir(exist_ok=True)
        next(tmp_path.glob("*/mine.parquet")).rename(moved)
        run("--tasks", str(moved), *flags, out=out)
        assert len(server.log()) == asked
        _, told = run("--regrade", out=out)
        assert "0 of " in told
        assert results(out)["arms"] == before["arms"]
        assert results(out)["tasks"] == before["tasks"] == 2
    moved.rename(tmp_path / "again.parquet")
    _, told = run("--regrade", out=out, code=1)
    assert "renamed.parquet: no such file" in told
    run("--regrade", "--tasks", "again.parquet", out=out)
    write(tmp_path / "other.parquet", *(marked(task, "2 2") for task in tasks))
    for flags_ in (["--regrade", "--tasks", "other.parquet"], ["--tasks", "other.parquet", *flags]):
        _, told = run(*flags_, out=out, code=1)
        assert "error: " in told
        assert "--tasks" in told or "tasks of that run" in told
    assert len(server.log()) == asked


def test_a_run_judged_by_another_python_is_not_calibrated(undisturbed, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(undisturbed, out)
    path = out / "rollouts.jsonl"
    header, rest = path.read_text().split("\n", 1)
    fields = json.loads(header)
    fields["settings"]["python"] = "3.9"
    path.write_text(json.dumps(fields) + "\n" + rest)
    _, told = run("--reuse", "--calibrate", out=out, code=1)
    assert "Python 3.9" in told
    assert "--regrade --calibrate" in told
    run("--reuse", out=out)


def test_changed_settings_are_refused_by_name(server, undisturbed):
    before = (undisturbed / "rollouts.jsonl").read_bytes()
    changed = ["--seed", "1", "--no-comments", "--cpu-seconds", "2"]
    _, told = run(*SMALL, *server.flags, *changed, out=undisturbed, code=1)
    (line,) = (line for line in told.splitlines() if line.startswith("error: "))
    for what in (
        "seed 0 -> 1",
        "no_comments False -> True",
        "limits.cpu_seconds 0.5 -> 2.0",
        "--out",
        "--overwrite",
    ):
        assert what in line
    assert (undisturbed / "rollouts.jsonl").read_bytes() == before


def test_reuse_gives_the_same_report_without_a_server(undisturbed):
    before = results(undisturbed), (undisturbed / "rollouts.jsonl").read_bytes()
    (undisturbed / "results.json").unlink()
    report, _ = run("--reuse", out=undisturbed)
    assert "resample" in report
    assert (results(undisturbed), (undisturbed / "rollouts.jsonl").read_bytes()) == before


def test_a_saved_run_is_read_again_by_another_band_and_some_of_its_arms(undisturbed):
    before = results(undisturbed)
    run("--reuse", "--band", "near-miss", "--arms", "resample,star", out=undisturbed)
    found = results(undisturbed)
    assert list(found["arms"]) == ["resample", "star"]
    assert found["noise"] is None or found["noise"]["runs"] == 2
    assert (found["cohort"]["band"], found["settings"]["band"]) == ("near-miss", ["near-miss"])
    assert found["cohort"]["tasks"] == before["near_miss"] < before["all_fail"]
    run("--reuse", "--noise-runs", "0", out=undisturbed)
    assert results(undisturbed)["noise"] is None
    assert list(results(undisturbed)["arms"]) == list(before["arms"])
    _, told = run("--reuse", "--arms", "resample,von-neumann", out=undisturbed, code=1)
    assert "error: no rollouts of von-neumann are saved" in told
    assert "\n" not in told.strip()
    run("--reuse", out=undisturbed)
    assert results(undisturbed) == before


def test_reuse_with_nothing_there(tmp_path):
    report, told = run("--reuse", out=tmp_path / "out", code=1)
    assert re.fullmatch(r"error: nothing is saved at .*/out/rollouts.jsonl: .*\n", told)
    assert not report
    assert not (tmp_path / "out").exists()


def test_a_run_is_extended_without_asking_twice(server, undisturbed, tmp_path):
    out = tmp_path / "out"
    before = len(server.log())
    few = ["--arms", "resample,star", "--limit", "3", "--noise-runs", "0"]
    run(*SMALL, *few, *server.flags, out=out)
    assert 0 < len(server.log()) - before < len(saved(undisturbed))
    run(*SMALL, *server.flags, out=out)
    assert results(out) == results(undisturbed)
    asked = server.log()[before:]
    assert len(asked) == len({line["key"] for line in asked}) == len(saved(undisturbed))


def test_regrade_by_the_same_judge_changes_nothing(undisturbed):
    before = results(undisturbed)
    _, told = run("--regrade", out=undisturbed)
    assert f"0 of {len(saved(undisturbed))} verdicts changed" in told
    assert results(undisturbed) == before


def test_another_shape_with_a_common_start_goes_on_and_is_refused_in_the_first_one(tmp_path):
    shape = ("--group", "4", "--rounds", "2", "--common-start")
    few = ("--dry-run", "--limit", "6", "--noise-runs", "1", *shape)
    run(*few, "--arms", "resample,ring", out=tmp_path / "out")
    asked = len(saved(tmp_path / "out", "rollout"))
    run(*few, "--arms", "resample,ring,von-neumann", out=tmp_path / "out")
    found = results(tmp_path / "out")
    assert found["shape"] == {"group": 4, "rounds": 2, "common_start": True}
    assert sum(found["histogram"]) == 6
    assert len(found["histogram"]) == 5
    assert {line["arm"] for line in saved(tmp_path / "out")} >= {"base", "start", "ring"}
    assert all(line["round"] == 1 for line in saved(tmp_path / "out") if line["arm"] == "ring")
    assert set(found["arms"]) == {"resample", "ring", "von-neumann"}
    new = saved(tmp_path / "out")[asked:]
    assert {line["arm"] for line in new} == {"von-neumann"}
    told = run("--dry-run", "--limit", "6", out=tmp_path / "out", code=1)[1]
    assert "group 4 -> 8, rounds 2 -> 3, common_start True -> False" in told.splitlines()[-1]


def own(name: str, visible: tuple[str, str], hidden: tuple[str, str], **more: str) -> str:
    """A line of tasks of one's own, named in its statement."""
    shown, rest = ([{"input": given, "output": wanted}] for given, wanted in (visible, hidden))
    task = {"id": name, "statement": f"{name.upper()}.", "visible": shown, "hidden": rest, **more}
    return json.dumps(task) + "\n"


SUM_IS = "import sys\nprint(int(sum(map(int, open(sys.argv[3]).read().split())) == "
OWN = [
    own("twice", ("1", "2"), ("[2]", "[2, 2]"), function="twice", starter_code="def twice(n):"),
    own("pair", ("3", "1 2"), ("5", "5 0"), checker=f"{SUM_IS}int(open(sys.argv[1]).read())))"),
    own("broken", ("1", "1"), ("2", "2"), checker="print('perhaps')"),
]


def test_functions_and_checkers_from_a_file_to_the_report(tmp_path):
    asyncio.run(run_own_tasks(tmp_path))


async def run_own_tasks(folder: Path) -> None:
    def answer(request: Request) -> Answer:
        improved = "Your best attempt" in request.user
        if "TWICE." in request.user:
            program = f"def twice(n):\n    return {'2 * n' if improved else 'n'}"
            return stream(f"```python\n{program}\n```\n```python\nprint(twice(int(input())))\n```")
        return stream("```python\nn = int(input())\nprint(0, n)\n```")

    file, out = folder / "own.jsonl", folder / "out"
    file.write_text("".join(OWN))
    flags = ["--tasks", str(file), "--group", "2", "--rounds", "2", "--arms", "resample,ring"]
    async with Server(answer) as server:
        flags += ["--base-url", server.base_url]
        report, _ = await asyncio.to_thread(run, *flags, out=out)
    found = results(out)
    assert found["left_out"] == {
        "tasks": 1,
        "reasons": {
            task: f"the checker of {task} gave no answer: it printed 'perhaps' instead of 0 or 1"
            for task in found["left_out"]["reasons"]
        },
    }
    assert "broken" in next(iter(found["left_out"]["reasons"]))
    assert (found["tasks"], found["histogram"], found["all_fail"]) == (2, [1, 0, 1], 1)
    assert [found["arms"][arm]["by_round"] for arm in ("resample", "ring")] == [[0, 0], [0, 1]]
    assert "checkers gave no answer: 1" in " ".join(report.split())
    rows = [json.loads(line) for line in (out / "rescued.jsonl").read_text().splitlines()]
    (text,) = {row["messages"][-1]["content"] for row in rows}
    assert text == "```python\ndef twice(n):\n    return 2 * n\n```"
    assert "defines the function" in rows[0]["messages"][0]["content"]
