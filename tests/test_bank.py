"""python judge.py: a file of programs in, a file of verdicts out, and nothing lost on the way."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import bank
from data import load_tasks
from judge import Judge, JudgeFault

ROOT = Path(__file__).parent.parent
TOY = load_tasks("toy").tasks[0]
ROWS = [{"task": TOY.id, "program": "print(1)"}, {"task": TOY.name, "program": None, "kept": 1}]


def judge(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / "judge.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def old(tmp_path) -> Path:
    """Verdicts that are there already."""
    path = tmp_path / "verdicts.jsonl"
    path.write_text("old\n")
    return path


def test_verdicts_take_the_place_of_the_old_ones_when_they_are_whole(tmp_path, old):
    done = judge(write(tmp_path / "bank.jsonl", *ROWS), "--tasks", "toy", "--out", old)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in old.read_text().splitlines()]
    assert [row["verdict"] for row in rows] == ["wrong answer", "no program"]
    assert rows[1]["kept"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bank.jsonl", "verdicts.jsonl"]


@pytest.mark.parametrize("name", ["bank.jsonl", "./bank.jsonl", "link.jsonl", "hard.jsonl"])
def test_what_is_read_is_never_written(tmp_path, name):
    source = write(tmp_path / "bank.jsonl", *ROWS)
    (tmp_path / "link.jsonl").symlink_to(source)
    os.link(source, tmp_path / "hard.jsonl")
    before = source.read_text()
    done = judge("bank.jsonl", "--tasks", "toy", "--out", name, cwd=tmp_path)
    assert done.returncode == 1
    assert f"error: --out {Path(name)} is what is read" in done.stderr
    assert source.read_text() == before


def test_no_file_of_a_folder_of_tasks_is_written(tmp_path):
    """Nothing of it is a task: were --out not refused first, that would be the error."""
    source = write(tmp_path / "bank.jsonl", *ROWS)
    file = tmp_path / "tasks" / "deep" / "a.parquet"
    file.parent.mkdir(parents=True)
    file.write_text("tasks")
    done = judge(source, "--tasks", tmp_path / "tasks", "--out", file)
    assert done.returncode == 1
    assert "is what is read" in done.stderr
    assert file.read_text() == "tasks"


def test_a_link_stays_a_link(tmp_path, old):
    link = tmp_path / "link.jsonl"
    link.symlink_to(old)
    done = judge(write(tmp_path / "bank.jsonl", *ROWS), "--tasks", "toy", "--out", link)
    assert done.returncode == 0, done.stderr
    assert link.is_symlink()
    assert len(old.read_text().splitlines()) == 2


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    """As /dev/stdout and /dev/null are: root could replace them."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(
        target=lambda: read.extend(pipe.read_text().splitlines()), daemon=True
    )
    reader.start()
    done = judge(write(tmp_path / "bank.jsonl", *ROWS), "--tasks", "toy", "--out", pipe)
    if not pipe.is_fifo():
        pytest.fail("the pipe was replaced")  # and the reader waits for ever
    reader.join()
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["verdict"] for line in read] == ["wrong answer", "no program"]


@pytest.mark.parametrize(
    ("tasks", "rows", "said"),
    [
        ("nowhere.parquet", ROWS, "no such file"),
        ("toy", [*ROWS, {"task": "toy/99_Z", "program": ""}], "line 3: task 'toy/99_Z' is unknown"),
        ("toy", [*ROWS, {"task": TOY.id}], 'line 3: needs "task" and "program"'),
        ("toy", [*ROWS, {"task": TOY.id, "program": 1}], "line 3: the program is not a text"),
        ("toy", [*ROWS, "text"], "line 3: needs"),
    ],
)
def test_a_mistake_in_the_input_empties_no_output(tmp_path, old, tasks, rows, said):
    done = judge(write(tmp_path / "bank.jsonl", *rows), "--tasks", tasks, "--out", old)
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert old.read_text() == "old\n"


def test_a_missing_folder_is_one_line(tmp_path):
    source = write(tmp_path / "bank.jsonl", *ROWS)
    for out in (tmp_path / "no" / "where.jsonl", tmp_path):
        done = judge(source, "--tasks", "toy", "--out", out)
        assert done.returncode == 1
        assert "error: --out" in done.stderr


def test_a_judge_fault_costs_its_own_row_only(tmp_path, old, monkeypatch, capsys):
    grade = Judge.grade

    async def faulty(self, program, task, **options):
        if program == "fault":
            raise JudgeFault("no process could be started")
        return await grade(self, program, task, **options)

    monkeypatch.setattr(Judge, "grade", faulty)
    rows = [ROWS[0], {"task": TOY.id, "program": "fault"}, ROWS[1]]
    source = write(tmp_path / "bank.jsonl", *rows)
    assert bank.main([str(source), "--tasks", "toy", "--out", str(old)]) == 1
    found = [json.loads(line) for line in old.read_text().splitlines()]
    assert [row["verdict"] for row in found] == ["wrong answer", None, "no program"]
    assert found[1]["judge_fault"] == "no process could be started"
    said = capsys.readouterr().err
    assert "bank.jsonl, line 2: no process could be started" in said
    assert said.splitlines()[-1].startswith("error: 1 row")
