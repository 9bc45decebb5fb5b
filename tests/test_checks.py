"""Which saved programs are judged on further cases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from checks import calibration_sample
from settings import CALIBRATION_SIZE
from swarm import Key, Record


@dataclass
class Saved:
    records: dict[tuple[str, str], dict[tuple[int, int], Record]]
    left_out: dict[str, str] = field(default_factory=dict)


def record(task: str, particle: int, passed: int, program: int) -> Record:
    return Record(Key("base", task, 0, particle), "wrong answer", passed, 4, "stop", None, 1, 1,
                  None, particle, program, 0.0, 0.0)  # fmt: skip


def journal(tasks: dict[str, list[int]]) -> Any:
    return Saved(
        {
            ("base", task): {(0, i): record(task, i, n, i + 1) for i, n in enumerate(passed)}
            for task, passed in tasks.items()
        }
    )


def test_whole_tasks_are_taken_and_those_that_can_show_a_hill_first() -> None:
    tasks = {f"flat{i:03}": [1] * 8 for i in range(200)}
    tasks |= {f"both{i:02}": [0, 3, 1, 2] for i in range(20)}
    tasks |= {f"solved{i:02}": [4, 0, 1, 2] for i in range(20)}  # all visible cases: not 3/4
    sample = calibration_sample(journal(tasks), 0)
    assert len(sample) == CALIBRATION_SIZE
    assert {r.key.task for r in sample[:80]} == {f"both{i:02}" for i in range(20)}
    last = sample[-1].key.task
    whole = [r.key.task for r in sample if r.key.task != last]
    assert all(whole.count(task) == len(tasks[task]) for task in whole)
    assert calibration_sample(journal(tasks), 0) == sample != calibration_sample(journal(tasks), 1)


def test_equal_programs_and_replies_without_one_and_tasks_left_out_are_not_taken() -> None:
    saved = journal({"a": [0, 0, 3], "b": [0]})
    group = saved.records["base", "a"]
    group[0, 1] = record("a", 1, 0, 1)
    group[0, 2] = record("a", 2, 0, 0)
    saved.left_out["b"] = "its checker failed"
    assert [r.key for r in calibration_sample(saved, 0)] == [Key("base", "a", 0, 1)]
