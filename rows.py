"""Rescued programs -> training rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from journal import Journal
from swarm import Record, Shape, fenced, in_band


def rescues(journal: Journal) -> list[Record]:
    """The first record of each distinct passing program of the arms, on the all-fail tasks."""
    first: dict[tuple[str, int], Record] = {}
    group = Shape.of(journal.settings).group
    for (arm, task), records in sorted(journal.records.items()):
        base = journal.records.get(("base", task), {})
        if arm == "base" or len(base) < group or not in_band(base.values(), 0, "all-fail"):
            continue
        if task in journal.left_out:
            continue
        for _, record in sorted(records.items()):
            if record.accepted:
                first.setdefault((task, record.program_hash), record)
    return list(first.values())


def rescued_rows(journal: Journal) -> Iterator[dict[str, Any]]:
    """The rows of rescued.jsonl: the bare problem in, the passing program out."""
    for record in rescues(journal):
        rollout = journal.get(record.key)
        if rollout is None or rollout.program is None:
            raise RuntimeError(f"{record.key} is in the records and not in the journal")
        passed, total = journal.checks.get(
            ("extra", record.key.task, record.program_hash), (None, None)
        )
        answer = {"role": "assistant", "content": fenced(rollout.program)}
        yield {
            "messages": [*journal.fresh_messages(record.key.task), answer],
            "task_id": record.key.task,
            "arm": record.key.arm,
            "round": record.key.round,
            "particle": record.key.particle,
            "seed": rollout.seed,
            "extra_passed": passed,
            "extra_total": total,
        }
