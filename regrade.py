"""Judge every saved program again and put the new verdicts in the place of the old ones."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from agree import other_task
from folder import JournalError, told
from journal import FORMAT, Journal
from judge import CheckerFault
from lines import encode, key_of
from replies import extract_program

if TYPE_CHECKING:
    from data import Task
    from judge import Judge

REGRADE_WINDOW = 256  # programs with the judge at once, which bounds the texts in memory


@dataclass(frozen=True)
class Regraded:
    """What judging again changed.

    Attributes:
        total: programs judged, those of replies without a program included.
        changed: verdicts that differ.
        by_verdict: "old -> new" -> number; the old one is "unjudged" where there was none.
    """

    total: int
    changed: int
    by_verdict: dict[str, int]


async def regrade(
    journal: Journal,
    judge: Judge,
    tasks: Mapping[str, Task],
    settings: dict[str, Any],
    progress: Callable[[], object] = int,
) -> Regraded:
    """Judge every saved program again and put the new verdicts in place of the old ones.

    The new journal is written beside the old one and takes its place when it is whole: whatever
    ends this early leaves the old one as it was.

    Args:
        journal: open for writing; it is read back anew at the end.
        judge: today's.
        tasks: task id -> Task, of every task that has a rollout.
        settings: for the new header, today's limits among them.
        progress: called after each program.

    Raises:
        JournalError: a task is not there or has other cases; the disk is full.
        JudgeFault: a program could not be judged.
    """
    _check_tasks(journal, tasks)
    changes: Counter[tuple[str, str]] = Counter()
    new = journal.new_path
    try:
        with told(new), new.open("wb") as out:
            out.write(encode({"kind": "header", "format": FORMAT, "settings": settings}))
            anew = settings.get("recipe") != journal.settings.get("recipe")
            await _judge_again(journal, judge, tasks, out, changes, progress, anew)
            out.flush()
            os.fsync(out.fileno())
        journal.replace_by(new)
    except BaseException:
        with suppress(OSError):
            new.unlink()
        raise
    differ = {f"{old} -> {now}": n for (old, now), n in sorted(changes.items()) if old != now}
    return Regraded(changes.total(), sum(differ.values()), differ)


def _check_tasks(journal: Journal, tasks: Mapping[str, Task]) -> None:
    for task_id in sorted(journal.sampled_tasks):
        if task_id not in tasks:
            raise JournalError(
                f"{journal.path} has rollouts of {task_id}, which is not among the tasks read: "
                "regrade with the --tasks, --splits and --limit of the run"
            )
        saved = journal.facts[task_id]
        now = tasks[task_id].cases_hash
        if refusal := other_task(journal.path, saved, now, saved.messages_hash):
            raise JournalError(refusal)


async def _judge_again(
    journal: Journal,
    judge: Judge,
    tasks: Mapping[str, Task],
    out: BinaryIO,
    changes: Counter[tuple[str, str]],
    progress: Callable[[], object],
    anew: bool,
) -> None:
    """Copy the lines behind the header in their order, rollouts with their new judgement.

    With `anew`, the program is taken from its reply again, as today's recipe does.

    Of two lines about one rollout the one that counts is copied. Checks and audits are not: the old
    judge made them, and they are made again.
    """
    pending: deque[bytes | asyncio.Task[bytes]] = deque()
    left_out: dict[str, str] = {}

    async def again(fields: dict[str, Any]) -> bytes:
        task = tasks[fields["task"]]
        if anew:
            fields["program"] = extract_program(fields["reply"]["text"], task.function)
        old = "unjudged" if fields["judgement"] is None else fields["judgement"]["verdict"]
        try:
            new = await judge.grade(fields["program"], task)
        except CheckerFault as fault:  # which ends no more than its task
            left_out[task.id] = str(fault)
            changes[old, "unjudged"] += 1
            return encode({**fields, "kind": "reply", "judgement": None})
        finally:
            progress()
        changes[old, new.verdict] += 1
        return encode({**fields, "kind": "rollout", "judgement": asdict(new)})

    async def write_oldest() -> None:
        oldest = pending.popleft()
        out.write(oldest if isinstance(oldest, bytes) else await oldest)

    try:
        for offset, line in journal.lines():
            fields = json.loads(line)
            if fields["kind"] in ("reply", "rollout"):
                if journal.offset_of(key_of(fields)) == offset:
                    pending.append(asyncio.create_task(again(fields)))
            elif fields["kind"] not in ("header", "check", "audit", "left_out"):
                pending.append(line)
            if len(pending) == REGRADE_WINDOW:
                await write_oldest()
        while pending:
            await write_oldest()
        for task_id, reason in left_out.items():
            now = round(time.time(), 3)
            out.write(encode({"kind": "left_out", "task": task_id, "reason": reason, "at": now}))
    finally:
        judging = [item for item in pending if not isinstance(item, bytes)]
        for task in judging:
            task.cancel()
        await asyncio.gather(*judging, return_exceptions=True)
