"""Looks at a run while it grows: by whole dry runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from folder import JournalError
from journal import Journal
from looks import check_looks, parts_of
from settings import Config, parse, read_tasks

ROOT = Path(__file__).parent.parent


def run(out: Path, *flags: str, code: int = 0) -> tuple[str, str]:
    command = [sys.executable, str(ROOT / "run.py"), "--dry-run", "--out", str(out), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def results(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "results.json").read_text())
    return found


def test_a_run_with_a_plan_is_looked_at_as_planned_and_goes_on_so(tmp_path: Path) -> None:
    out = tmp_path / "out"
    report, told = run(out, "--looks", "3")
    lines = [line for line in told.splitlines() if line.startswith("look ")]
    assert [line.partition(":")[0] for line in lines] == [
        "look 1 of 3, 4 tasks",
        "look 2 of 3, 8 tasks",
        "look 3 of 3, 12 tasks",
    ]
    found = results(out)
    assert (found["looks"]["done"], found["looks"]["tasks"]) == (3, [4, 8, 12])
    assert found["looks"]["decided"]
    assert "Looks: 3 of 3" in report
    again, _ = run(out, "--reuse")
    assert again.replace("\n", "")[:2000] == report.replace("\n", "")[:2000]
    assert results(out) == found
    _, told = run(out, "--looks", "2", code=1)
    assert "were looked at with --looks 3" in told.replace("\n", " ")
    assert len(told.splitlines()[-1]) < 400


def test_without_a_plan_growing_runs_are_warned_of(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out, "--limit", "6")
    once = results(out)["times"]["looks"]["tasks"]
    run(out, "--limit", "6")
    assert results(out)["times"]["looks"]["tasks"] == once == [6]
    report, _ = run(out)
    assert results(out)["times"]["looks"]["tasks"] == [6, 12]
    assert "This run was looked at 2 times as it grew" in report
    assert results(out)["looks"] is None


def test_a_decided_run_samples_no_more(tmp_path: Path) -> None:
    """With resample alone, or arms that cannot differ any more, nothing is left to find."""
    out = tmp_path / "out"
    _, told = run(out, "--looks", "12", "--stop-when-decided", "--arms", "resample,solo")
    found = results(out)
    said = [line for line in told.splitlines() if line.startswith("look ")]
    assert len(said) == found["looks"]["done"]
    conclusions = {arm["conclusion"] for arm in found["looks"]["arms"].values()}
    assert found["looks"]["done"] == 12 or conclusions <= {"shown", "futile"}
    lines = (out / "rollouts.jsonl").read_text().splitlines()
    sampled = {json.loads(line)["task"] for line in lines if '"kind": "rollout"' in line}
    assert len(sampled) == found["looks"]["tasks"][-1]


def test_parts_are_equal_and_in_the_order_of_the_shuffle() -> None:
    config = parse(["--dry-run", "--looks", "5"])
    tasks = read_tasks(config).tasks
    assert [len(part) for part in parts_of(tasks, 5)] == [2, 3, 2, 3, 2]
    assert [task for part in parts_of(tasks, 5) for task in part] == tasks
    assert [len(part) for part in parts_of(tasks[:2], 5)] == [1, 1]
    limited = read_tasks(parse(["--dry-run", "--looks", "5", "--limit", "6"])).tasks
    assert tasks[:6] == limited
    assert tasks != read_tasks(parse(["--dry-run"])).tasks


def test_another_plan_is_refused(tmp_path: Path) -> None:
    tasks = read_tasks(parse(["--dry-run", "--looks", "3"])).tasks
    with Journal.open(tmp_path, {}) as journal:
        journal.add_look([task.id for task in tasks[:4]], 3)
        journal.add_look([task.id for task in tasks[:4]], 3)
        assert len(journal.looks) == 1
        check_looks(journal, parts_of(tasks, 3))
        with pytest.raises(JournalError, match="looked at with --looks 3"):
            check_looks(journal, parts_of(tasks, 1))
        with pytest.raises(JournalError, match="after other tasks"):
            check_looks(journal, parts_of(tasks[:9], 3))
    with Journal.read(tmp_path) as journal:
        assert journal.looks == [{"tasks": [task.id for task in tasks[:4]], "of": 3}]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--stop-when-decided"], "add --looks"),
        (["--looks", "0"], "--looks must be 1 or more"),
        (["--margin", "0"], "--margin must be 0.1 or more"),
        (["--reuse", "--looks", "3"], "--looks has no effect with --reuse"),
    ],
)
def test_flags_without_sense(
    flags: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(flags)
    assert reason in capsys.readouterr().err


def test_a_margin_may_be_given_to_a_saved_run() -> None:
    assert parse(["--reuse", "--margin", "5", "--details"]).margin == 5
    assert Config().margin is None
