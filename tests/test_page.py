"""The page: what is in it, what never is, how large it gets; its looks are test_browser's."""

import asyncio
import base64
import gzip
import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

import publish
from data import Case, Task, load_tasks
from judge import Failure, Judgement
from policy import Reply
from report import Saved, write_page
from report.figures import figures
from settings import parse
from swarm import (
    Key,
    Prompts,
    Record,
    Rollout,
    Shape,
    TaskFacts,
    fenced,
    hash_messages,
    what_is_seen,
)

ROOT = Path(__file__).parent.parent
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "\u202egnitirw\u202c",
    "<!-- <script>",
    "]]> & <b>",
]


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """The folder of a dry run."""
    folder = tmp_path_factory.mktemp("page") / "out"
    command = [sys.executable, str(ROOT / "run.py"), "--dry-run", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"Page: {folder / 'report.html'}" in done.stdout
    return folder


def data_of(page: str) -> dict:
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text[1])


def chunks_of(page: str) -> dict[str, dict]:
    places = {place: task for task, place in data_of(page)["places"].items()}
    found = re.findall(r'<script type="text/plain" id="chunk-(\d+)">(.*?)</script>', page)
    return {
        places[int(number)]: json.loads(gzip.decompress(base64.b64decode(chunk)))
        for number, chunk in found
    }


def test_the_page_is_one_file_that_loads_nothing(out):
    page = (out / "report.html").read_text("utf-8")
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:|//)""", page)
    assert "@import" not in page
    assert "fetch(" not in page
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; ")
    for tag, name in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}'" in policy
    assert page.count("<script>") == 1


def test_it_has_every_task_and_every_attempt(out):
    page = (out / "report.html").read_text("utf-8")
    results, data = json.loads((out / "results.json").read_text()), data_of(page)
    assert len(data["rows"]) == results["tasks"] == 12
    assert data["finished"]
    assert data["left_out"] == 0
    for arm, row in results["arms"].items():
        rounds = [found["arms"][arm][0] for found in data["rows"] if arm in found["arms"]]
        assert [rounds.count(number) for number in range(3)] == row["by_round"]
    lines = (out / "rollouts.jsonl").read_text().splitlines()
    saved = [line for line in map(json.loads, lines) if line["kind"] == "rollout"]
    chunks = chunks_of(page)
    assert sum(len(texts["attempts"]) for texts in chunks.values()) == len(saved)


def test_lineage_is_what_was_sent(out):
    """A prompt that was made again has the hash that was saved, and shows the programs it names."""
    chunks = chunks_of((out / "report.html").read_text("utf-8"))
    informed = 0
    for texts in chunks.values():
        at = {(a["arm"], a["round"], a["particle"]): a for a in texts["attempts"]}
        for attempt in texts["attempts"]:
            if attempt["arm"] in ("solo", "ring", "star") and attempt["round"]:
                informed += 1
                assert attempt["asked"]
                for place in map(tuple, attempt["saw"]):
                    assert fenced(at[place]["program"]) in attempt["asked"]
                    assert place[1] < attempt["round"]
            else:
                assert attempt["saw"] == []
                assert "asked" not in attempt
    assert informed > 20


def test_no_hidden_case_is_in_the_page(out):
    page = (out / "report.html").read_text("utf-8")
    chunks = chunks_of(page)
    for task in load_tasks("toy").tasks:
        shown = set(task.visible)
        text = json.dumps(chunks[task.id])
        for case in (*task.hidden, *task.extra):
            if case not in shown and len(case.input) > 20:
                assert json.dumps(case.input)[1:-1] not in text


def test_every_picture_is_a_file_and_has_its_numbers(out):
    page = (out / "report.html").read_text("utf-8")
    names = {path.stem for path in (out / "figures").glob("*.svg")}
    assert names >= {"histogram", "rescued-by-samples", "rescued-by-tokens", "deltas", "by-round",
                     "by-rating", "fitness"}  # fmt: skip
    for path in (out / "figures").glob("*.svg"):
        tree = ElementTree.parse(path)
        assert tree.getroot().get("aria-label")
    for figure in figures(json.loads((out / "results.json").read_text())):
        assert f'id="figure-{figure.name}"' in page
        assert len(figure.rows) >= 1
        assert all(len(row) == len(figure.header) for row in figure.rows)


def test_reuse_writes_the_page_again(out):
    before = (out / "report.html").read_text("utf-8")
    (out / "report.html").unlink()
    command = [sys.executable, str(ROOT / "run.py"), "--reuse", "--out", str(out)]
    subprocess.run(command, capture_output=True, check=True)
    assert data_of((out / "report.html").read_text("utf-8")) == data_of(before)


def test_a_run_that_goes_on_has_a_page_and_is_not_hurt_by_one_that_fails(
    out, tmp_path, monkeypatch
):
    folder, said = tmp_path / "out", []
    folder.mkdir()
    (folder / "rollouts.jsonl").write_bytes((out / "rollouts.jsonl").read_bytes()[:-3000])
    config = parse(["--dry-run", "--out", str(folder)])
    tasks = {task.id: task for task in load_tasks("toy").tasks}
    monkeypatch.setattr(publish, "PAGE_SECONDS", 0.01)

    async def watch() -> None:
        writing = asyncio.create_task(publish.publish_so_far(folder, config, tasks, said.append))
        while not (folder / "report.html").exists():
            await asyncio.sleep(0.01)
        writing.cancel()
        await asyncio.wait([writing])
        await publish.publish_so_far(tmp_path / "nowhere", config, {}, said.append)

    asyncio.run(watch())
    assert not data_of((folder / "report.html").read_text("utf-8"))["finished"]
    assert len(said) == 1
    assert said[0].startswith("no page while the run goes on: ")


# --- pages of runs that are written here --------------------------------------------------------


def saved_of(tasks: list[Task], text: str = "print(1)") -> tuple[Saved, dict]:
    """One base group of two and one arm of two rounds a task, every program with `text` in it."""
    prompts, shape = Prompts(ROOT / "prompts"), Shape(2, 2)
    rollouts: dict[Key, Rollout] = {}
    facts, records = {}, {}
    for task in tasks:
        fresh = prompts.fresh(task)
        facts[task.id] = TaskFacts.of(task, fresh)
        rounds: list[list[Rollout]] = []
        for arm, number in (("base", 0), ("ring", 0), ("ring", 1)):
            seen = what_is_seen("ring", task.id, rounds, 0, 2) if number else [(None, None)] * 2
            made = []
            for particle in range(2):
                messages = prompts.informed(task, *seen[particle])
                failure = Failure(0, False, "wrong answer", text, text, text)
                judgement = Judgement("wrong answer", 1, 2, 0, 1, failure, 0.0)
                reply = Reply(text, "", "stop", None, 5, 6, None, 0.0)
                key = Key(arm, task.id, number, particle)
                program = f"{text}\n# {number} {particle}"
                made.append(Rollout(key, 1, hash_messages(messages), reply, program, judgement))
            rounds += [made] if arm == "ring" else []
            for rollout in made:
                rollouts[rollout.key] = rollout
                place = (rollout.key.round, rollout.key.particle)
                records.setdefault((arm, task.id), {})[place] = Record.of(rollout)
    saved = Saved(
        facts, records, rollouts.get, lambda name: prompts.fresh(known[name]),
        known := {task.id: task for task in tasks}, prompts, ["ring"], shape, 0, {},
    )  # fmt: skip
    return saved, results_with(text)


def results_with(text: str) -> dict:
    """The results of a dry run are too slow to make here: what the page needs of them."""
    row = {"n": 1, "rescued": 0, "by_round": [0, 0], "cumulative": [0, 0]}
    return {
        "scripted": False, "warnings": [text], "load": None, "tasks": 1, "histogram": [1, 0, 0],
        "all_fail": 1, "cohort": {"band": text, "tasks": 1}, "arms": {"ring": row}, "deltas": {},
        "rating_bands": {}, "noise": None, "hill": None, "settings": {"model": text},
        "environment": {}, "cost": {"calls": 6}, "shape": {"group": 2, "rounds": 2},
        "fitness": {"floor": None, "arms": {}},
    }  # fmt: skip


def task_with(text: str, name: str = "t/1") -> Task:
    cases = (Case(text, text), Case("2", "2"))
    return Task(name, text, "1", f"{text} statement", 0, cases, (Case("HIDDEN-IN", "HIDDEN-OUT"),))


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_policy_or_a_data_set_says_is_data_only(tmp_path, text):
    saved, results = saved_of([task_with(text)], text)
    page = write_page(results, saved, tmp_path, megabytes=25, finished=True).read_text("utf-8")
    plain = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert page.count("<script>") == 1
    assert "alert(1)</script>" not in page
    assert "<img" not in plain
    assert "<b>" not in plain
    assert page.count("</script>") == page.count("<script")
    assert data_of(page)["rows"][0]["title"] == text
    (texts,) = chunks_of(page).values()
    assert texts["attempts"][0]["program"].startswith(text)
    assert "HIDDEN" not in json.dumps(texts)


def test_the_size_is_bound_and_rescued_tasks_are_kept_to_the_last(tmp_path):
    import random

    noise = random.Random(0)
    tasks = [task_with(noise.randbytes(3000).hex(), f"t/{i:02}") for i in range(60)]
    saved, results = saved_of(tasks, noise.randbytes(10_000).hex())
    arm = saved.records["ring", "t/41"]
    arm[0, 0] = replace(arm[0, 0], verdict="accepted")
    path = write_page(results, saved, tmp_path, megabytes=1, finished=True)
    data = data_of(path.read_text("utf-8"))
    assert path.stat().st_size <= 1_000_000
    assert 0 < data["left_out"] < 60
    assert data["left_out"] == 60 - len(data["places"])
    assert "t/41" in data["places"]
    assert [row["id"] for row in data["rows"]] == [task.id for task in tasks]


def test_a_page_of_a_run_that_goes_on_says_so_and_loads_itself_again(tmp_path):
    saved, results = saved_of([task_with("x")])
    page = write_page(results, saved, tmp_path, megabytes=25, finished=False).read_text("utf-8")
    assert "This run goes on: 6 rollouts so far." in page
    assert not data_of(page)["finished"]


def test_a_prompt_that_cannot_be_made_again_is_not_known(tmp_path):
    saved, results = saved_of([task_with("x")])
    other = replace(saved, tasks={})
    page = write_page(results, other, tmp_path, megabytes=25, finished=True).read_text("utf-8")
    (texts,) = chunks_of(page).values()
    assert texts["cases"] is None
    informed = [a for a in texts["attempts"] if a["arm"] == "ring" and a["round"] == 1]
    assert [a["asked"] for a in informed] == [None, None]
    assert all(a["saw"] for a in informed)
    changed = replace(saved, seed=1, prompts=Prompts(ROOT / "prompts", no_comments=True))
    page = write_page(results, changed, tmp_path, megabytes=25, finished=True).read_text("utf-8")
    (texts,) = chunks_of(page).values()
    assert {a["asked"] for a in texts["attempts"] if a["round"]} == {None}
    assert all(a["saw"] == [] for a in texts["attempts"])
