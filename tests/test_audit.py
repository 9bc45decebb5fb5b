"""The audit: known programs of a data set, judged without a policy, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from audits import Audit, audit_of, sound_tasks
from compare import several_answers
from flags import AUDIT, CALIBRATE, RUN
from report.audit import audited
from settings import parse
from swarm import Key, Record, TaskFacts, in_band

ROOT = Path(__file__).resolve().parent.parent
ECHO = "print(input())"
CASES = [{"input": f"{i}\n", "output": f"{i}\n"} for i in range(1, 5)]


def task(name: str, right: list[str], wrong: list[str], **fields: Any) -> dict[str, Any]:
    return {
        "id": name, "statement": "Print it.", "visible": CASES[:2], "hidden": CASES[2:],
        "solutions": right, "wrong_solutions": wrong, **fields,
    }  # fmt: skip


TASKS = [
    task("sound", ["print(0)", ECHO], ["print(1)", ECHO], rating=800),
    task("differs", ["print(0)"], [], statement="If there are several, print any of them."),
    task("crashes", ["1 / 0", "print(0)", "1 // 0"], ["print(2)"]),
    task("slow", ["while True: pass"], []),
    task("large", ["print(len(bytes(2 << 30)))"], []),
    task("unknown", [], ["print(2)"]),
]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """run.py in a process that has no key and reaches no network."""
    return subprocess.run(
        [sys.executable, "run.py", *words],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def results(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "results.json").read_text())
    return found


def kinds(out: Path) -> list[str]:
    lines = (out / "rollouts.jsonl").read_text().splitlines()
    return [json.loads(line)["kind"] for line in lines]


def test_an_audit_alone(tmp_path: Path) -> None:
    path, out = tmp_path / "own.jsonl", tmp_path / "out"
    path.write_text("".join(json.dumps(row) + "\n" for row in TASKS))
    command = ("--audit", "--tasks", str(path), "--out", str(out), "--cpu-seconds", "0.5")
    done = run(*command, "--details")
    assert done.returncode == 0, done.stderr
    audit = results(out)["audit"]
    assert [audit[name] for name in ("known", "tasks", "with_solutions", "sound")] == [3, 6, 5, 1]
    assert audit["refused"] == {
        "crashes on a case": 1, "differs from the expected output": 1, "memory": 1, "time": 1,
    }  # fmt: skip
    assert audit["wrong"] == {"judged": 4, "accepted": 1, "tasks": 1}
    assert audit["several_answers"] == 1
    assert audit["rating_bands"]["under 1500"]["accepted_share"] == 0.5
    sound = {row["id"]: row["sound"] for row in audit["by_task"]}
    assert sound == {
        "own/sound": True, "own/differs": False, "own/crashes": False, "own/slow": False,
        "own/large": False, "own/unknown": None,
    }  # fmt: skip
    assert "1 of 5 tasks with known solutions are sound" in done.stdout
    assert "own/differs: differs from the expected output, several answers are right" in done.stdout
    assert "not complete" not in done.stdout
    assert all(len(line) <= 100 for line in done.stdout.splitlines()[:-4])

    # All of it is saved: less of it needs no judge again, and a report no tasks.
    assert kinds(out).count("audit") == 6
    assert run(*command[:1], "1", *command[1:]).returncode == 0
    path.unlink()
    done = run("--reuse", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert kinds(out).count("audit") == 6
    assert results(out)["audit"] == audit


def test_an_audit_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    path, out = tmp_path / "own.jsonl", tmp_path / "out"
    path.write_text("".join(json.dumps(row) + "\n" for row in TASKS[:3]))
    command = ("--audit", "1", "--tasks", str(path), "--out", str(out))
    assert run(*command).returncode == 0
    lines = (out / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if json.loads(line)["kind"] == "audit")
    (out / "rollouts.jsonl").write_bytes(b"".join(lines[: first + 1]) + lines[first + 1][:20])
    assert run(*command).returncode == 0
    assert kinds(out).count("audit") == 3
    assert results(out)["audit"]["with_solutions"] == 3
    # More of them are judged when more are asked for.
    assert results(out)["audit"]["sound"] == 0
    assert run("--audit", "2", *command[2:]).returncode == 0
    assert results(out)["audit"]["sound"] == 1


def test_an_audit_on_top_of_a_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    few = ("--limit", "4", "--group", "2", "--rounds", "1", "--noise-runs", "0")
    done = run("--dry-run", *few, "--arms", "resample,ring", "--out", str(out))
    assert done.returncode == 0, done.stderr
    before = results(out)
    assert (before["audit"], before["sound"]) == (None, None)
    refused = run("--audit", "--tasks", "toy", "--out", str(out))
    assert refused.returncode == 1
    assert "holds a run: to audit its tasks, give --reuse --audit" in refused.stderr
    done = run("--reuse", "--audit", "--out", str(out))
    assert done.returncode == 0, done.stderr
    after = results(out)
    assert (after["audit"]["tasks"], after["audit"]["sound"]) == (4, 4)
    assert after["audit"]["wrong"]["judged"] >= 4
    assert after["sound"]["cohort"] == after["cohort"]["tasks"]
    assert after["sound"]["deltas"]["ring"]["delta"] == after["deltas"]["ring"]["delta"]
    assert "All searched tasks beside the sound ones" in done.stdout
    assert {name: after[name] for name in ("histogram", "arms")} == {
        name: before[name] for name in ("histogram", "arms")
    }
    # Judged again by other limits: the audit, too.
    assert run("--regrade", "--out", str(out), "--cpu-seconds", "2").returncode == 0
    assert results(out)["audit"]["sound"] == 4
    assert kinds(out).count("audit") == 4


def test_only_sound_tasks_are_searched(tmp_path: Path) -> None:
    out = tmp_path / "out"
    few = ("--limit", "4", "--group", "2", "--rounds", "1", "--noise-runs", "0")
    command = ("--dry-run", *few, "--arms", "resample", "--out", str(out), "--band", "sound")
    refused = run(*command)
    assert refused.returncode == 2
    assert "--band sound needs to know which tasks are: add --audit" in refused.stderr
    done = run(*command, "--audit", "1")
    assert done.returncode == 0, done.stderr
    order = kinds(out)
    assert order.index("audit") < order.index("reply")
    assert results(out)["cohort"]["band"] == "sound"
    assert results(out)["cohort"]["tasks"] == results(out)["all_fail"]
    done = run("--reuse", "--out", str(out), "--band", "sound,near-miss")
    assert done.returncode == 0, done.stderr
    assert results(out)["cohort"]["band"] == "sound and near-miss"


def test_what_an_audit_is_asked_for() -> None:
    assert parse([]).audit is None
    assert (parse(["--audit"]).audit, parse(["--audit", "5"]).audit) == (3, 5)
    assert parse(["--audit"]).mode == AUDIT
    assert parse(["--audit", "--base-url", "http://x/v1"]).mode == RUN
    assert parse(["--reuse", "--audit"]).mode == CALIBRATE
    assert parse(["--band", "sound, near-miss", "--audit"]).band == ("sound", "near-miss")


@pytest.mark.parametrize(
    "words", [["--audit", "0"], ["--audit", "--group", "4"], ["--band", "some"], ["--band", ""]]
)
def test_what_an_audit_refuses(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        parse(words)


def test_bands_combine() -> None:
    def record(passed: int) -> Record:
        return Record(
            Key("base", "t", 0, 0), "wrong answer", passed, 4, "stop", None, None, None, None,
            0, 0, 0.0, 0.0)  # fmt: skip

    base = [record(0), record(2)]
    assert in_band(base, 2, "near-miss")
    assert in_band(base, 1, ["all-fail", "near-miss", "above-floor"])
    assert not in_band(base, 2, ["near-miss", "above-floor"])
    for sound in (None, False):
        assert not in_band(base, 1, ["near-miss", "sound"], sound)
    assert in_band(base, 1, ["near-miss", "sound"], True)
    assert not in_band([record(0)], 0, ["sound", "near-miss"], True)


def test_the_cause_is_that_of_most_programs() -> None:
    audits = {
        "a": Audit(3, False, ("wrong answer", "time limit", "time limit"), ()),
        "b": Audit(3, True, ("runtime error", "accepted"), ("accepted", "wrong answer")),
        "c": Audit(3, False, (), ("accepted",)),
    }
    assert [audit.cause for audit in audits.values()] == ["time", None, None]
    assert sound_tasks(audits) == {"a": False, "b": True}
    facts = {name: TaskFacts(name, "c", 0, 1, 1, 1, "", "") for name in audits}
    found = audited(facts, audits)
    assert found is not None
    assert found["wrong"] == {"judged": 3, "accepted": 2, "tasks": 2}
    assert found["right"]["accepted_share"] == 0.2
    assert audited(facts, {}) is None
    for audit in audits.values():
        assert audit_of(json.loads(json.dumps(audit._asdict()))) == audit


@pytest.mark.parametrize(
    ("words", "several"),
    [
        ("If there are multiple answers, print any of them.", True),
        ("If there are several solutions, output any.", True),
        ("You may print the edges in any order.", True),
        ("Print any\nvalid permutation.", True),
        ("Print the number of different ways to do it.", False),
        ("Print the sum of all the numbers.", False),
    ],
)
def test_statements_that_take_several_answers(words: str, several: bool) -> None:
    assert several_answers(words) == several
