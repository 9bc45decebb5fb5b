"""Tasks: rows of any known format, from files, from the hub, or the shipped toy tasks.

Most of a file is columns that this recipe never looks at (other people's solutions), and most of
the rest is cases beyond the ones it uses. So columns are projected, a few rows are decoded at a
time, and only the cases that are kept become Python strings (formats/, sources/).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import toy
from compare import letters_in_any_case
from formats import Format, format_of
from formats.code_contests import contest_digits, short
from formats.problem import Asked, Case, Dropped, Problem, title
from sources import DataError, Row, one_line
from sources.files import local_files, rows_of, stem_of
from sources.hub import DATASET, DEFAULT_SPLITS, HUB, REVISION, SPLITS, code_contests, data_set
from spool import Spool

# What the loader offers, its own and that of the rooms below.
__all__ = [
    "DATASET",
    "RATING_BANDS",
    "REVISION",
    "SPLITS",
    "VISIBLE",
    "Case",
    "DataError",
    "Loaded",
    "Task",
    "load_tasks",
    "rating_band",
]

VISIBLE = Asked.visible  # visible cases, where a format does not say which are
RATING_BANDS = ("unrated", "under 1500", "1500 to 2199", "2200 and up")


@dataclass(frozen=True)
class Task:
    """One contest problem.

    Attributes:
        id: unique and stable, e.g. "test/1575_A".
        name: the dataset's name, e.g. "1575_A. Another Sorting Problem".
        contest: the cluster of tasks that are not independent of each other, e.g. "1575".
        statement: the problem text.
        rating: Codeforces rating, 0 when unknown.
        visible: their share passed is the fitness; of code_contests the public cases and the
            first 8 generated ones.
        hidden: passing them too is a rescue; of code_contests the private cases and the next 32
            generated ones.
        extra: the cases beyond those, empty unless asked for.
        function: the function that a program must define; each line of a case's input is then one
            argument and its output the value, as JSON. None: programs read stdin and print.
        starter_code: code that the prompt shows for a program to go on from, "" for none.
        checker: a Python program that says whether an output is right (see trial.py), or None:
            the expected output is the only one.
        time_limit: the task's own, s of CPU, or None: it gives none.
        memory_limit: the task's own, MiB, or None.
        solutions, wrong_solutions: programs of the data set that are known to be right, or wrong;
            empty unless asked for.
    """

    id: str
    name: str
    contest: str
    statement: str
    rating: int
    visible: Sequence[Case]
    hidden: Sequence[Case]
    extra: Sequence[Case] = ()
    function: str | None = None
    starter_code: str = ""
    checker: str | None = None
    time_limit: float | None = None
    memory_limit: float | None = None
    solutions: tuple[str, ...] = ()
    wrong_solutions: tuple[str, ...] = ()

    @cached_property
    def any_case(self) -> bool:
        """Whether letters may be printed in any case, as the statement says."""
        return letters_in_any_case(self.statement)

    @property
    def floor(self) -> int:
        """Number of visible cases that the best constant answer passes."""
        return max(Counter(tuple(case.output.split()) for case in self.visible).values())

    @cached_property
    def cases_hash(self) -> str:
        """16 hex digits over the visible and hidden cases: a verdict holds for these only.

        What else decides how a program is run and compared counts where a task has it.
        """
        judged = {"function": self.function, "checker": self.checker}
        parts = [
            [*self.visible],
            [*self.hidden],
            {k: v for k, v in judged.items() if v is not None},
        ]
        return sha256(json.dumps(parts if parts[2] else parts[:2]).encode()).hexdigest()[:16]


def rating_band(rating: int) -> str:
    """The one of RATING_BANDS that a Codeforces rating is in; 0 is an unknown one."""
    return RATING_BANDS[(rating > 0) + (rating >= 1500) + (rating >= 2200)]


@dataclass(frozen=True)
class Loaded:
    """What load_tasks found.

    Attributes:
        tasks: the tasks, in the order of the source; with a limit, in that of the shuffle.
        source: "deepmind/code_contests@802411c3", "hf:OWNER/NAME@COMMIT", an absolute path, or
            "toy".
        read: number of rows looked at.
        dropped: reason -> number of rows that were dropped for it.
    """

    tasks: list[Task]
    source: str
    read: int
    dropped: dict[str, int] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """One line for the terminal: rows read, tasks kept, rows dropped for each reason."""
        dropped = sum(self.dropped.values())
        kept = self.read - dropped
        why = ", ".join(f"{reason} {count}" for reason, count in sorted(self.dropped.items()))
        text = f"{self.source}: {self.read} rows read, {kept} kept, {dropped} dropped"
        text += f" ({why})" if why else ""
        return text + (f"; {len(self.tasks)} of the kept taken" if len(self.tasks) < kept else "")


def load_tasks(
    tasks: str | None,
    splits: Sequence[str] | None = None,
    *,
    config: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    extra: bool = False,
    ids: Collection[str] | None = None,
    interactive: bool = False,
    visible: int = VISIBLE,
    known: int = 0,
) -> Loaded:
    """Load tasks of any known format.

    Args:
        tasks: None for deepmind/code_contests from the hub, "toy", "hf:OWNER/NAME[@REVISION]", or
            a file or a folder of files: parquet, JSON lines or JSON, also as .gz or .zst.
        splits: which splits of a data set of the hub; None for test and valid, those of them that
            it has, or its only one. The other sources have none.
        config: which part of a data set of the hub, where it has several.
        limit: take the first `limit` tasks of a shuffle by `seed`. The shuffle ranks each task by
            its own id, so a larger limit adds tasks and changes none, whatever the file order.
        extra: fill Task.extra, which can be megabytes a task.
        ids: keep only these tasks; those that are not there are left out.
        interactive: keep interactive problems too, to judge given programs by their cases.
        visible: visible cases of a task whose format does not say which are, at most half of all.
        known: how many known solutions, and how many wrong ones, a task gets.

    Raises:
        DataError: unknown split, unreachable hub, nothing at the path, a file that can't be read
            or is of no known format, two tasks of one id, no task left, limit under 1.
    """
    if limit is not None and limit < 1:
        raise DataError(f"--limit must be at least 1, got {limit}")
    asked = Asked(visible, extra, interactive, known)
    source, rows = _source(tasks, splits or DEFAULT_SPLITS, config, asked, ids)
    read, dropped = 0, Counter[str]()
    kept: dict[str, Task] = {}
    places: dict[str, tuple[str, int]] = {}
    spool = Spool()
    for place, row in rows:
        read += 1
        if isinstance(row, str):
            dropped[row] += 1
        elif row is not None and (ids is None or row.id in ids):
            here = f"{row.name!r} ({place})"
            size = sum(len(c[0]) + len(c[1]) for part in _parts(row) for c in part)
            content = hash((row.name, row.statement, len(row.visible), len(row.hidden), size))
            if row.id in places:
                there, before = places[row.id]
                if before != content or not _same(row, kept.get(row.id)):
                    raise DataError(f"two tasks have the id {row.id}: {there} and {here}")
                dropped["the same as another"] += 1
                continue
            kept[row.id], places[row.id] = _stored(row, size, spool), (here, content)
            if limit is not None and len(kept) >= 2 * limit:
                kept = _first(kept, limit, seed)  # so that a large split is never held whole
    if limit is not None:
        kept = _first(kept, limit, seed)
    loaded = Loaded(list(kept.values()), source, read, dict(sorted(dropped.items())))
    if not kept and ids is None:
        raise DataError(f"no task left: {loaded.line}")
    return loaded


# What is known of a row: the task, why it was dropped, or None when it was not asked for.
_Row = Task | str | None


def _parts(task: Task) -> tuple[Sequence[Case], ...]:
    return task.visible, task.hidden, task.extra


def _same(task: Task, other: Task | None) -> bool:
    """Whether two tasks of one id and size have the same cases; None is one that was let go."""
    return other is None or all(
        tuple(one) == tuple(two) for one, two in zip(_parts(task), _parts(other), strict=True)
    )


def _stored(task: Task, size: int, spool: Spool) -> Task:
    """The task, its cases of `size` characters in a file when memory is short."""
    if spool.has_room(size, sum(map(len, _parts(task)))):
        return task
    try:
        visible, hidden, extra = (spool.put(tuple(part)) for part in _parts(task))
    except OSError as error:
        raise DataError(
            f"the cases fill the temporary folder: {one_line(error)}; set TMPDIR to another, or "
            "take fewer tasks by --limit"
        ) from error
    return replace(task, visible=visible, hidden=hidden, extra=extra)


def _source(
    tasks: str | None,
    splits: Sequence[str],
    config: str | None,
    asked: Asked,
    ids: Collection[str] | None,
) -> tuple[str, Iterator[tuple[str, _Row]]]:
    """Return the name of the source and its rows, each with the place it comes from."""
    if tasks == "toy":
        return "toy", (("toy.py", task) for task in _toy_tasks(asked))
    if tasks is None:
        files = [(s, path) for s in dict.fromkeys(splits) for path in code_contests(s)]
        return f"{DATASET}@{REVISION[:8]}", _rows(files, asked, ids)
    if tasks.startswith(HUB):
        source, files = data_set(tasks, splits, config)
        return source, _rows(files, asked, ids)
    try:
        path = Path(tasks).expanduser().absolute()
    except RuntimeError as error:  # a user without a home
        raise DataError(f"--tasks {tasks}: {one_line(error)}") from None
    return str(path), _rows([(stem_of(file), file) for file in local_files(path)], asked, ids)


def _first(tasks: dict[str, Task], limit: int, seed: int) -> dict[str, Task]:
    ranked = sorted(tasks, key=lambda task_id: sha256(f"{seed} {task_id}".encode()).digest())
    return {task_id: tasks[task_id] for task_id in ranked[:limit]}


def _toy_tasks(asked: Asked) -> Iterator[Task]:
    for item in toy.TOY:
        visible, hidden, more = (tuple(Case(*pair) for pair in part) for part in item.cases)
        yield Task(
            id=f"toy/{short(item.title)}",
            name=item.title,
            contest=f"toy-{contest_digits(item.title)}",
            statement=item.statement,
            rating=item.rating,
            visible=visible,
            hidden=hidden,
            extra=more if asked.extra else (),
            solutions=(toy.program(item.solve),) if asked.known else (),
            wrong_solutions=tuple(map(toy.program, item.wrong[: asked.known])),
        )


def _rows(
    files: Sequence[tuple[str, Path]], asked: Asked, ids: Collection[str] | None
) -> Iterator[tuple[str, _Row]]:
    """Read files of (id prefix, path), one after the other."""
    for prefix, path in files:
        found: list[Format] = []

        def project(
            names: Sequence[str], schema: Any, path: Path = path, found: list[Format] = found
        ) -> list[str]:
            found[:] = [format_of(names, schema, str(path))]
            return found[0].wanted(names, asked.known > 0)

        for number, row in enumerate(rows_of(path, project), 1):
            yield f"row {number} of {path.name}", _read(row, found, prefix, asked, ids)


def _read(
    row: Row | str, found: list[Format], prefix: str, asked: Asked, ids: Collection[str] | None
) -> _Row:
    if isinstance(row, str):
        return row
    [form] = found
    try:
        short_id, name = form.identify(row)
        task_id = f"{prefix}/{short_id}"
        if ids is not None and task_id not in ids:
            return None
        return _task(task_id, name, form.read(row, asked))
    except UnicodeDecodeError:
        return "not UTF-8"
    except Dropped as dropped:
        return str(dropped)


def _task(task_id: str, name: str, problem: Problem) -> Task:
    fields = {**vars(problem), "contest": problem.contest or task_id}
    return Task(id=task_id, name=name or title(problem.statement), **fields)
