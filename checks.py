"""Saved programs judged on further cases: rescued ones on the rest, base ones on the hidden."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from audits import Audit
from compare import several_answers
from data import Task
from folder import JournalError
from journal import Journal
from judge import CheckerFault, Judge
from report.hill import compared
from rows import rescues
from settings import CALIBRATION_SIZE, Config, saved_tasks
from swarm import BASE, Key, Record


async def judge_extra(config: Config, journal: Journal, judge: Judge) -> None:
    """Judge each rescued program on the cases that are neither visible nor hidden.

    A task that is not among the run's tasks any more is left out.
    """
    missing = [
        record
        for record in rescues(journal)
        if ("extra", record.key.task, record.program_hash) not in journal.checks
    ]
    if not missing:
        return
    ids = {record.key.task for record in missing}
    tasks = saved_tasks(config, journal, ids, extra=True)
    missing = [record for record in missing if _same(journal, tasks.get(record.key.task))]

    async def one(record: Record) -> None:
        task, rollout = tasks[record.key.task], journal.get(record.key)
        if rollout is None:
            raise RuntimeError(f"{record.key} is in the records and not in the journal")
        extra = replace(task, id=f"{task.id} extra", visible=task.extra, hidden=(), extra=())
        passed = 0
        if task.extra and task.id not in journal.left_out:
            with leaving_out(journal, task.id):
                passed = (await judge.grade(rollout.program, extra)).visible_passed
        if task.id in journal.left_out:
            return
        journal.add_check("extra", task.id, record.program_hash, passed, len(task.extra))

    await asyncio.gather(*map(one, missing))


async def calibrate(config: Config, journal: Journal, judge: Judge) -> None:
    """Judge a seeded sample of the base rollouts' programs on every hidden case."""
    chosen = [
        record.key
        for record in calibration_sample(journal, config.seed)
        if ("hidden", record.key.task, record.program_hash) not in journal.checks
    ]
    ids = {key.task for key in chosen}
    tasks = saved_tasks(config, journal, ids)
    for name in sorted(ids):
        if not _same(journal, tasks.get(name)):
            raise JournalError(
                f"{journal.path} has rollouts of {name}, which is not among the tasks read, or has "
                "other cases there: give the --tasks of the run"
            )

    async def one(key: Key) -> None:
        rollout = journal.get(key)
        if rollout is None:
            raise RuntimeError(f"{key} is in the records and not in the journal")
        with leaving_out(journal, key.task):
            found = await judge.grade(rollout.program, tasks[key.task], every_case=True)
            program = Record.of(rollout).program_hash
            journal.add_check("hidden", key.task, program, found.hidden_passed, found.hidden_total)

    await asyncio.gather(*map(one, chosen))


def not_audited(journal: Journal, known: int) -> list[str]:
    """The tasks of which `known` right and wrong programs are still to be judged."""
    return [
        task
        for task in journal.facts
        if task not in journal.left_out
        and (task not in journal.audits or journal.audits[task].known < known)
    ]


async def audit(
    config: Config, journal: Journal, judge: Judge, progress: Callable[[], object] = int
) -> None:
    """Judge the programs that the data set knows, up to --audit right and wrong ones a task.

    Each task is saved when all of its programs are judged, and not judged again later. A task that
    is not among the run's tasks any more is left out. `progress` is called after each.
    """
    known = config.audit or 0
    ids = not_audited(journal, known)
    tasks = saved_tasks(config, journal, ids, known=known) if ids else {}
    same = [tasks[task] for task in ids if _same(journal, tasks.get(task))]
    room = asyncio.Semaphore(2 * judge.workers)

    async def one(task: Task) -> None:
        async with room:
            with leaving_out(journal, task.id):
                right, wrong = [
                    tuple([(await judge.grade(program, task)).verdict for program in programs])
                    for programs in (task.solutions, task.wrong_solutions)
                ]
                several = several_answers(task.statement)
                journal.add_audit(task.id, Audit(known, several, right, wrong))
        progress()

    await asyncio.gather(*map(one, same))


@contextmanager
def leaving_out(journal: Journal, task_id: str) -> Iterator[None]:
    """A checker that gives no answer here ends what is said of its task, and nothing else."""
    try:
        yield
    except CheckerFault as fault:
        if task_id not in journal.left_out:
            journal.leave_out(task_id, str(fault))


def _same(journal: Journal, task: Task | None) -> bool:
    """Whether a task is there and has the cases that its rollouts were judged on."""
    return task is not None and task.cases_hash == journal.facts[task.id].cases_hash


def calibration_sample(journal: Journal, seed: int) -> list[Record]:
    """Distinct base programs of whole tasks, in a seeded order, until there are enough.

    A hill shows where one task has programs that pass much and programs that pass nothing (see
    report.hill): such tasks come first.
    """
    tasks: dict[str, list[Record]] = {}
    for (arm, task), records in sorted(journal.records.items()):
        if arm == BASE and task not in journal.left_out:
            distinct = {r.program_hash: r for _, r in sorted(records.items()) if r.program_hash}
            tasks[task] = list(distinct.values())
    order = list(tasks)
    random.Random(f"calibrate {seed}").shuffle(order)
    order.sort(key=lambda task: not compared(tasks[task]))
    return [record for task in order for record in tasks[task]][:CALIBRATION_SIZE]
