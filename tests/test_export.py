"""Exported rows, from a whole dry run and from journals written here."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data import load_tasks
from export import KINDS, Export, tree_of, write_exports
from journal import Journal
from judge import Failure, Judgement
from policy import Reply
from swarm import Key, Rollout, TaskFacts, fenced, hash_messages

ROOT = Path(__file__).parent.parent
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
FACTS = TaskFacts("t/1", "1", 0, 4, 2, 1, "cases", hash_messages(MESSAGES))
SHAPE = {"group": 2, "rounds": 1, "common_start": False}


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """The folder of a dry run that exported every kind."""
    folder = tmp_path_factory.mktemp("export") / "out"
    command = [sys.executable, str(ROOT / "run.py"), "--dry-run", "--export", ",".join(KINDS)]
    done = subprocess.run([*command, "--out", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for kind in KINDS:
        assert f"rows: {kind}, in" in done.stderr
    return folder


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def rollouts(out: Path) -> list[dict]:
    return [line for line in lines(out / "rollouts.jsonl") if line["kind"] == "rollout"]


def test_messages_are_the_rescued_rows_in_both_files(out):
    rows = lines(out / "export" / "messages.jsonl")
    assert rows == lines(out / "rescued.jsonl")  # no two of a dry run have one syntax tree
    assert pq.read_table(out / "export" / "messages.parquet").to_pylist() == rows
    parts = lines(out / "export" / "prompt-completion.jsonl")
    assert [row["prompt"] + row["completion"] for row in parts] == [r["messages"] for r in rows]
    assert [row["task_id"] for row in parts] == [row["task_id"] for row in rows]


def test_pairs_set_a_rescue_against_failures_on_the_same_prompt(out):
    saved = rollouts(out)
    passing = {line["program"] for line in saved if line["judgement"]["verdict"] == "accepted"}
    rows = lines(out / "export" / "pairs.jsonl")
    assert rows
    for row in rows:
        chosen, rejected = row["chosen"][0]["content"], row["rejected"][0]["content"]
        failed = [
            line
            for line in saved
            if line["task"] == row["task_id"] and line["program"] and fenced(line["program"])
            == rejected
        ]  # fmt: skip
        assert any(fenced(program) == chosen for program in passing)
        assert not any(fenced(program) == rejected for program in passing)
        assert hash_messages(row["prompt"]) in {line["messages_hash"] for line in failed}
    of_one = [r["rejected_fitness"] for r in rows if r["task_id"] == rows[0]["task_id"]]
    best_first = of_one[: len(of_one) // len({r["seed"] for r in rows[: len(of_one)]})]
    assert best_first == sorted(best_first, reverse=True)


def test_verl_rows_hold_the_cases_and_the_pass_rate(out):
    rows = pq.read_table(out / "export" / "verl-rl.parquet").to_pylist()
    tasks = {task.id: task for task in load_tasks("toy").tasks}
    histogram = json.loads((out / "results.json").read_text())["histogram"]
    assert len(rows) == len(tasks)
    for row in rows:
        info, task = row["extra_info"], tasks[row["extra_info"]["task_id"]]
        truth = json.loads(row["reward_model"]["ground_truth"])
        cases = [*task.visible, *task.hidden]
        assert list(zip(truth["inputs"], truth["outputs"], strict=True)) == cases
        assert info["visible"] == len(task.visible)
        assert info["pass_rate"] == info["passes"] / 8
        assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    passes = [row["extra_info"]["passes"] for row in rows]
    assert [passes.count(count) for count in range(9)] == histogram


def test_difficulty_agrees_with_the_report(out):
    rows = lines(out / "export" / "difficulty.jsonl")
    results = json.loads((out / "results.json").read_text())
    for arm, found in results["arms"].items():
        by_round = [[r["rescued"].get(arm) for r in rows].count(n) for n in range(3)]
        assert by_round == found["by_round"]
    assert sum(row["passes"] == 0 for row in rows) == results["all_fail"]
    assert all(not row["rescued"] for row in rows if row["passes"])
    assert all(0 <= row["floor"] <= 1 and row["sound"] is None for row in rows)


def rollout(arm: str, particle: int, program: str, passed: int) -> Rollout:
    """On task t/1; accepted with 4 of 4 visible cases."""
    accepted = passed == 4
    failure = None if accepted else Failure(passed, False, "wrong answer", "", "", "")
    verdict = "accepted" if accepted else "wrong answer"
    judgement = Judgement(verdict, passed, 4, 2 * accepted, 2, failure, 0.0)
    reply = Reply(fenced(program), "", "stop", None, 1, 1, None, 0.0)
    return Rollout(
        Key(arm, "t/1", 0, particle), particle, FACTS.messages_hash, reply, program, judgement
    )


def exported(tmp_path: Path, *more: Rollout, checks=(), **options) -> Path:
    """Every kind but the one that needs cases, of a run with these rollouts."""
    with Journal.open(tmp_path, SHAPE) as journal:
        journal.add_task(FACTS, MESSAGES)
        base = [rollout("base", 0, "print(0)", 1), rollout("base", 1, "print(1)", 2)]
        for item in (*base, *more):
            record = journal.append(item)
            for passed, total in checks:
                journal.add_check("extra", "t/1", record.program_hash, passed, total)
        write_exports(
            Export(journal, list, **options), [kind for kind in KINDS if kind != "verl-rl"]
        )
    return tmp_path / "export"


def test_programs_with_one_syntax_tree_count_once(tmp_path):
    folder = exported(
        tmp_path,
        rollout("ring", 0, "x = 1\nprint(x)", 4),
        rollout("ring", 1, "x=1  # one\n\nprint( x )", 4),
        rollout("star", 0, "x = 2\nprint(x)", 4),
        rollout("resample", 0, "print( 1 )  # again", 2),
        rollout("resample", 1, "print(2)", 3),
    )
    assert [row["seed"] for row in lines(folder / "messages.jsonl")] == [0, 0]
    assert [row["arm"] for row in lines(folder / "messages.jsonl")] == ["ring", "star"]
    shown = [row["rejected"][0]["content"] for row in lines(folder / "pairs.jsonl")]
    failed = [fenced("print(2)"), fenced("print(1)"), fenced("print(0)")]
    assert shown == 2 * failed


def test_an_attempt_that_saw_others_is_no_rejected_side(tmp_path):
    informed = replace(rollout("ring", 0, "print(3)", 3), messages_hash="other")
    folder = exported(tmp_path, informed, rollout("ring", 1, "print(4)", 4))
    shown = [row["rejected"][0]["content"] for row in lines(folder / "pairs.jsonl")]
    assert shown == [fenced("print(1)"), fenced("print(0)")]


def test_at_most_so_many_rows_a_task(tmp_path):
    rescues = [rollout("ring", i, f"x = {i}\nprint(x)", 4) for i in range(2)]
    folder = exported(tmp_path, *rescues, most=1)
    assert len(lines(folder / "messages.jsonl")) == len(lines(folder / "pairs.jsonl")) == 1
    assert lines(folder / "pairs.jsonl")[0]["rejected_fitness"] == 0.5


@pytest.mark.parametrize(
    ("checks", "kept"), [((), 0), (((2, 3),), 0), (((3, 3),), 1), (((0, 0),), 1)]
)
def test_only_programs_that_pass_the_further_cases(tmp_path, checks, kept):
    good = rollout("ring", 0, "print(9)", 4)
    folder = exported(tmp_path, good, checks=checks, require_extra=True)
    assert len(lines(folder / "messages.jsonl")) == kept


def test_what_was_rescued_and_audited_is_said_of_a_task(tmp_path):
    folder = exported(tmp_path, rollout("ring", 0, "print(9)", 4), sound={"t/1": True})
    (row,) = lines(folder / "difficulty.jsonl")
    assert (row["passes"], row["of"], row["best_fitness"], row["floor"]) == (0, 2, 0.5, 0.25)
    assert (row["rescued"], row["sound"], row["rating"]) == ({"ring": 0}, True, None)


def test_a_text_that_is_hard_to_parse_is_its_own_tree():
    assert tree_of("print( 1 )") == tree_of("print(1) # one")
    for text in ("def", "(" * 5000, "x" * 100_000):
        assert tree_of(text) == text
