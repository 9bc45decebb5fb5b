"""A file of programs -> a file of verdicts: what `python judge.py` does."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from data import DataError, load_tasks
from judge import (
    CheckerFault,
    Judge,
    JudgeFault,
    Judgement,
    SandboxError,
    add_limit_flags,
    limits_from,
    sandbox_from,
)

if TYPE_CHECKING:
    from data import Task
from streams import STDERR


class RowError(Exception):
    """A row of the programs' file that cannot be judged; the text says which and why."""


def _programs_in(path: Path, tasks: Sequence[Task]) -> Iterator[tuple[int, dict[str, Any], Task]]:
    """Rows of a JSONL file, each with the number of its line and its task."""
    known: dict[str, list[Task]] = {}
    for task in tasks:
        for name in {task.id, task.name}:
            known.setdefault(name, []).append(task)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise RowError(f"{path}, line {number}: not JSON: {error}") from None
            if not isinstance(row, dict) or not {"task", "program"} <= row.keys():
                raise RowError(f'{path}, line {number}: needs "task" and "program"')
            if not isinstance(row["program"], str | None):
                raise RowError(f"{path}, line {number}: the program is not a text")
            found = known.get(str(row["task"]), [])
            if len(found) != 1:
                ids = ", ".join(task.id for task in found)
                why = f"is the name of several tasks ({ids}): use an id" if found else "is unknown"
                raise RowError(f"{path}, line {number}: task {row['task']!r} {why}")
            yield number, row, found[0]


def _row(given: dict[str, Any], judgement: Judgement) -> dict[str, Any]:
    """The row to write for a judged row."""
    failure = judgement.first_failure
    return {
        **{key: value for key, value in given.items() if key != "program"},
        "verdict": judgement.verdict,
        "passed": judgement.visible_passed + judgement.hidden_passed,
        "visible_passed": judgement.visible_passed,
        "visible_total": judgement.visible_total,
        "hidden_passed": judgement.hidden_passed,
        "hidden_total": judgement.hidden_total,
        "first_failure": asdict(failure) if failure else None,
        "cpu_seconds": round(judgement.cpu_seconds, 6),
        "cut_short": judgement.cut_short,
    }


def _faulty_row(given: dict[str, Any], fault: JudgeFault | CheckerFault) -> dict[str, Any]:
    """The row to write where the judge failed, or the task's checker: it has no verdict."""
    kept = {key: value for key, value in given.items() if key != "program"}
    whose = "checker_fault" if isinstance(fault, CheckerFault) else "judge_fault"
    return {**kept, "verdict": None, whose: str(fault)}


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[IO[str]]:
    """The terminal, or a file that takes its place when it is whole.

    A device or a pipe is written to: it must not be replaced.
    """
    if path is None:
        yield sys.stdout
        return
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as out:
            yield out
        return
    path = path.resolve()  # of a link, the file behind it
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


async def _judge_file(args: argparse.Namespace) -> int:
    """Judge the rows of a file and write their verdicts in order; how many have none."""
    tasks = load_tasks(args.tasks, extra=args.all_cases, interactive=True).tasks
    if args.all_cases:
        tasks = [replace(task, hidden=(*task.hidden, *task.extra)) for task in tasks]
    rows = list(_programs_in(args.programs, tasks))
    faults = 0
    async with Judge(args.judge_workers, limits_from(args), sandbox_from(args)) as judge:
        report = await asyncio.to_thread(judge.self_check)
        print(report.line, file=STDERR)
        report.check()
        pending = deque[tuple[int, dict[str, Any], asyncio.Task[Judgement]]]()
        for number, row, task in rows:
            grade = judge.grade(row["program"], task, every_case=args.all_cases)
            pending.append((number, row, asyncio.create_task(grade)))
            await asyncio.sleep(0)
        with _output(args.out) as out:
            while pending:
                number, row, job = pending.popleft()
                try:
                    written = _row(row, await job)
                except (CheckerFault, JudgeFault) as fault:
                    faults += 1
                    written = _faulty_row(row, fault)
                    print(f"{args.programs}, line {number}: {fault}", file=STDERR)
                out.write(json.dumps(written) + "\n")
                out.flush()
    return faults


def main(argv: Sequence[str] | None = None) -> int:
    """Judge a file of programs; the exit status: 1 when a row has no verdict."""
    parser = argparse.ArgumentParser(
        prog="judge.py",
        description="Judge programs, a JSONL row each with task (id or name) and program.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("programs", type=Path, metavar="PROGRAMS.jsonl")
    add("--tasks", required=True, help="parquet file, folder of them, or toy")
    add("--out", type=Path, help="where the verdicts go (default: the terminal)")
    add(
        "--all-cases",
        action="store_true",
        help="also run the generated cases beyond the hidden ones, and every case whatever failed "
        "before (default: off)",
    )
    add_limit_flags(parser)
    args = parser.parse_args(argv)
    try:
        if args.out and args.out.exists():
            tasks = Path(args.tasks)
            inside = tasks.rglob("*") if tasks.is_dir() else ()  # a folder's files are read, too
            for source in (args.programs, tasks, *inside):
                if source.exists() and args.out.samefile(source):
                    raise RowError(f"--out {args.out} is what is read: give another file")
        if args.out and (args.out.is_dir() or not args.out.absolute().parent.is_dir()):
            raise RowError(f"--out {args.out} is no file in a folder that is there")
        if args.out is None and sys.stdout is None:
            raise RowError("there is no terminal to write to: give --out")
        faults = asyncio.run(_judge_file(args))
    except BrokenPipeError:
        return 0  # the reader has left
    except (DataError, JudgeFault, OSError, RowError, SandboxError) as error:
        print(f"error: {error}", file=STDERR)
        return 1
    except KeyboardInterrupt:
        return 130
    if faults:
        count = "1 row has" if faults == 1 else f"{faults} rows have"
        print(
            f"error: {count} no verdict: the judge failed there, or a task's checker",
            file=sys.stderr,
        )
    return 1 if faults else 0
