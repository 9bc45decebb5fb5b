"""Tasks: files of any known format (formats.py), data sets on the hub, or the shipped toy tasks.

Most of a CodeContests file is columns that this recipe never looks at (other people's solutions),
and most of the rest is generated cases beyond the ones it uses. So whole structs are projected,
a few rows are decoded at a time, and only the cases that are kept become Python strings.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

import toy
from compare import letters_in_any_case
from formats import FORMATS, INTERACTIVE, Draft, Dropped, Format, check, format_of, slug
from sources import (
    SUFFIXES,
    DataError,
    hub_files,
    json_rows,
    kind_of,
    local_files,
    one_line,
    parquet_batches,
    parquet_columns,
    split_patterns,
    stem_of,
)

__all__ = ["RATING_BANDS", "Case", "DataError", "Loaded", "Task", "load_tasks", "rating_band"]

DATASET = "deepmind/code_contests"
REVISION = "802411c3010cb00d1b05bad57ca77365a3c699d6"
SPLITS = ("train", "valid", "test")
DEFAULT_SPLITS = ("test", "valid")

VISIBLE_GENERATED = 8
HIDDEN_GENERATED = 32
VISIBLE_CASES, HIDDEN_CASES = 8, 40  # of formats that do not say which are visible
PYTHON_3 = 3  # of CodeContests' numbers of languages
RATING_BANDS = ("unrated", "under 1500", "1500 to 2199", "2200 and up")
_TEXTS = ("name", "description", "input_file", "output_file")
_NUMBERS = ("cf_contest_id", "cf_rating")
_CASES = ("public_tests", "private_tests", "generated_tests")
_COLUMNS = (*_TEXTS, *_NUMBERS, *_CASES)
_ALSO = ("time_limit", "memory_limit_bytes")
_KNOWN = ("solutions", "incorrect_solutions")


class Case(NamedTuple):
    """One test case: what the program reads on stdin and what it must print."""

    input: str
    output: str


@dataclass(frozen=True)
class Task:
    """One contest problem.

    Attributes:
        id: unique and stable, e.g. "test/1575_A".
        name: the dataset's name, e.g. "1575_A. Another Sorting Problem".
        contest: the cluster of tasks that are not independent of each other, e.g. "1575".
        statement: the problem text.
        rating: Codeforces rating, 0 when unknown.
        visible: public cases and the first 8 generated ones; their share passed is the fitness.
        hidden: private cases and the next 32 generated ones; passing them too is a rescue.
        extra: the generated cases beyond those, empty unless asked for.
        function: the function that a program must define; each line of a case's input is then one
            argument and its output the value, as JSON. None: programs read stdin and print.
        starter_code: code that the prompt shows for a program to go on from, "" for none.
        checker: a Python program that says whether an output is right (see trial.py), or None:
            the expected output is the only one.
        time_limit, memory_limit: seconds and MiB that the data set gives, or None.
        solutions, wrong_solutions: Python 3 programs that the data set knows, empty unless asked
            for.
    """

    id: str
    name: str
    contest: str
    statement: str
    rating: int
    visible: tuple[Case, ...]
    hidden: tuple[Case, ...]
    extra: tuple[Case, ...] = ()
    function: str | None = None
    starter_code: str = ""
    checker: str | None = None
    time_limit: float | None = None
    memory_limit: int | None = None
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
        parts = [self.visible, self.hidden, {k: v for k, v in judged.items() if v is not None}]
        return sha256(json.dumps(parts if parts[2] else parts[:2]).encode()).hexdigest()[:16]


def rating_band(rating: int) -> str:
    """The one of RATING_BANDS that a Codeforces rating is in; 0 is an unknown one."""
    return RATING_BANDS[(rating > 0) + (rating >= 1500) + (rating >= 2200)]


@dataclass(frozen=True)
class Loaded:
    """What load_tasks found.

    Attributes:
        tasks: the tasks, in the order of the source; with a limit, in that of the shuffle.
        source: "deepmind/code_contests@802411c3", an absolute path, or "toy".
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
    visible: int = VISIBLE_CASES,
    known: int = 0,
) -> Loaded:
    """Load tasks of any known format.

    Args:
        tasks: where from: None for the default data set on the hub, "toy", a file or a folder of
            files, or "hf:OWNER/NAME[@REVISION]".
        splits: which splits of a data set on the hub; None for DEFAULT_SPLITS of the default one.
        config: which configuration of a data set on the hub, where it has several.
        limit: take the first `limit` tasks of a shuffle by `seed`. The shuffle ranks each task by
            its own id, so a larger limit adds tasks and changes none, whatever the file order.
        extra: fill Task.extra, which can be megabytes a task.
        ids: keep only these tasks; those that are not there are left out.
        interactive: keep interactive problems too, to judge given programs by their cases.
        visible: how many cases are visible, at most half of them, where a format does not say.
        known: how many known solutions, and how many wrong ones, a task gets.

    Raises:
        DataError: unknown split, unreachable hub, nothing at the path, a file that cannot be read
            or has no known format, two tasks of one id, no task left, limit under 1.
    """
    if limit is not None and limit < 1:
        raise DataError(f"--limit must be at least 1, got {limit}")
    wanted = _Wanted(extra, ids, interactive, visible, known)
    source, rows = _source(tasks, splits, config, wanted)
    read, dropped = 0, Counter[str]()
    kept: dict[str, Task] = {}
    places: dict[str, str] = {}
    for place, row in rows:
        read += 1
        if isinstance(row, str):
            dropped[row] += 1
        elif row is not None and (ids is None or row.id in ids):
            here = f"{row.name!r} ({place})"
            if row.id in places:
                if row == kept.get(row.id):
                    dropped["the same as another"] += 1
                    continue
                raise DataError(f"two tasks have the id {row.id}: {places[row.id]} and {here}")
            kept[row.id], places[row.id] = row, here
            if limit is not None and len(kept) >= 2 * limit:
                kept = _first(kept, limit, seed)  # so that a large split is never held whole
    if limit is not None:
        kept = _first(kept, limit, seed)
    loaded = Loaded(list(kept.values()), source, read, dict(sorted(dropped.items())))
    if not kept and ids is None:
        raise DataError(f"no task left: {loaded.line}")
    return loaded


@dataclass(frozen=True)
class _Wanted:
    """What of a row is wanted; see load_tasks."""

    extra: bool
    ids: Collection[str] | None
    interactive: bool
    visible: int
    known: int


# What is known of a row: the task, why it was dropped, or None when it was not asked for.
_Row = Task | str | None


def _source(
    tasks: str | None, splits: Sequence[str] | None, config: str | None, wanted: _Wanted
) -> tuple[str, Iterator[tuple[str, _Row]]]:
    """Return the name of the source and its rows, each with the place it comes from."""
    if tasks == "toy":
        return "toy", (("toy.py", task) for task in _toy_tasks(wanted))
    if tasks is None:
        chosen = list(dict.fromkeys(DEFAULT_SPLITS if splits is None else splits))
        for split in chosen:
            if split not in SPLITS:
                raise DataError(f"unknown split {split!r}: choose from {', '.join(SPLITS)}")
        files = [
            (split, path)
            for split in chosen
            for path in hub_files(DATASET, REVISION, [f"data/{split}-*.parquet"], split)[1]
        ]
        return f"{DATASET}@{REVISION[:8]}", _rows(files, wanted)
    if tasks.startswith("hf:"):
        return _from_hub(tasks, splits, config, wanted)
    try:
        path = Path(tasks).expanduser().absolute()
    except RuntimeError as error:  # a user without a home
        raise DataError(f"--tasks {tasks}: {one_line(error)}") from None
    files = [(stem_of(path), path) for path in local_files(path)]
    return str(path), _rows(files, wanted)


def _from_hub(
    tasks: str, splits: Sequence[str] | None, config: str | None, wanted: _Wanted
) -> tuple[str, Iterator[tuple[str, _Row]]]:
    repo, _, revision = tasks.removeprefix("hf:").partition("@")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        raise DataError(f"--tasks {tasks}: give hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    if not splits:
        raise DataError(f"--tasks {tasks}: say which splits by --splits, e.g. --splits train")
    files, commit = [], ""
    for split in dict.fromkeys(splits):
        commit, found = hub_files(repo, revision or None, split_patterns(split, config), split)
        files += [(split, path) for path in found]
    return f"{repo}@{commit[:8]}", _rows(files, wanted)


def _first(tasks: dict[str, Task], limit: int, seed: int) -> dict[str, Task]:
    ranked = sorted(tasks, key=lambda task_id: sha256(f"{seed} {task_id}".encode()).digest())
    return {task_id: tasks[task_id] for task_id in ranked[:limit]}


def _toy_tasks(wanted: _Wanted) -> Iterator[Task]:
    for item in toy.TOY:
        visible, hidden, more = (tuple(Case(*pair) for pair in part) for part in item.cases)
        yield Task(
            id=f"toy/{_short(item.title)}",
            name=item.title,
            contest=f"toy-{_contest_digits(item.title)}",
            statement=item.statement,
            rating=item.rating,
            visible=visible,
            hidden=hidden,
            extra=more if wanted.extra else (),
            solutions=(toy.program(item.solve),)[: wanted.known],
            wrong_solutions=tuple(map(toy.program, item.wrong))[: wanted.known],
        )


# ---------------------------------------------------------------------------------------------
# Rows


def _rows(files: list[tuple[str, Path]], wanted: _Wanted) -> Iterator[tuple[str, _Row]]:
    """Read files of (id prefix, path), one after the other, a few rows at a time."""
    for prefix, path in files:
        if kind_of(path) == ".parquet":
            columns = parquet_columns(path)
            if set(_CASES).intersection(columns.names):
                rows = _code_contests(prefix, path, columns, wanted)
            else:
                rows = _drafted(prefix, path, _dicts(path, columns.names, wanted), wanted)
        elif kind_of(path):
            rows = _drafted(prefix, path, json_rows(path), wanted)
        else:
            raise DataError(f"{path} is no {', '.join(SUFFIXES)} file (also with .gz or .zst)")
        yield from rows


def _dicts(path: Path, columns: Sequence[str], wanted: _Wanted) -> Iterator[dict[str, Any]]:
    """Rows of a parquet file, with the columns that its format reads."""
    form = _format(path, columns)
    names = [*form.needs, *form.also, *(form.known if wanted.known else ())]
    for batch in parquet_batches(path, [name for name in names if name in columns]):
        yield from batch.to_pylist()


def _format(path: Path, columns: Iterable[str]) -> Format:
    form = format_of(columns)
    if form is None:
        known = "; ".join(f"{item.name} ({', '.join(item.needs)})" for item in FORMATS)
        raise DataError(
            f"{path}: no known format has its columns: {', '.join(sorted(columns)[:30])}. Known: "
            f"CodeContests ({', '.join(_CASES)}); {known}"
        )
    return form


def _drafted(
    prefix: str, path: Path, rows: Iterable[dict[str, Any]], wanted: _Wanted
) -> Iterator[tuple[str, _Row]]:
    """Rows of one of FORMATS, which the first row's columns tell."""
    form: Format | None = None
    for number, row in enumerate(rows, 1):
        form = form or _format(path, row)
        try:
            if not row.keys() >= set(form.needs):
                raise Dropped("a column is missing")
            if not wanted.known:
                row = {name: value for name, value in row.items() if name not in form.known}
            yield f"row {number} of {path.name}", _finished(prefix, number, form.read(row), wanted)
        except Dropped as dropped:
            yield f"row {number} of {path.name}", str(dropped)


def _finished(prefix: str, number: int, draft: Draft, wanted: _Wanted) -> _Row:
    """The task of a draft, its cases split into visible, hidden and extra ones."""
    task_id = f"{prefix}/{slug(draft.id) or number}"
    if wanted.ids is not None and task_id not in wanted.ids:
        return None
    check(draft, interactive=wanted.interactive)
    public, rest, hidden = draft.public, draft.rest, draft.hidden
    if hidden is None:
        if not public:
            count = min(wanted.visible, len(rest) // 2)
            public, rest = rest[:count], rest[count:]
        hidden, rest = rest[:HIDDEN_CASES], rest[HIDDEN_CASES:]
    if not public or not hidden:
        raise Dropped("no cases" if not (public or hidden or rest) else "too few cases")
    return Task(
        id=task_id,
        name=draft.name or task_id,
        contest=draft.contest or task_id,
        statement=draft.statement,
        rating=draft.rating,
        visible=tuple(Case(*pair) for pair in public),
        hidden=tuple(Case(*pair) for pair in hidden),
        extra=tuple(Case(*pair) for pair in rest) if wanted.extra else (),
        function=draft.function,
        starter_code=draft.starter_code,
        checker=draft.checker,
        time_limit=draft.time_limit,
        memory_limit=draft.memory_limit,
        solutions=draft.solutions[: wanted.known],
        wrong_solutions=draft.wrong_solutions[: wanted.known],
    )


# ---------------------------------------------------------------------------------------------
# CodeContests, of which only what is kept becomes Python objects


def _code_contests(
    prefix: str, path: Path, schema: Any, wanted: _Wanted
) -> Iterator[tuple[str, _Row]]:
    _check_columns(schema, path)
    columns = [*_COLUMNS, *(name for name in _ALSO if name in schema.names)]
    if wanted.known:
        columns += [name for name in _KNOWN if name in schema.names]
    number = 0
    for batch in parquet_batches(path, columns):
        arrays = {name: batch.column(name) for name in columns}
        for i in range(batch.num_rows):
            number += 1
            place, row = f"row {number} of {path.name}", {n: a[i] for n, a in arrays.items()}
            try:
                name = row["name"].as_py()
                if not name or not name.strip():
                    raise Dropped("no name")
                task_id = f"{prefix}/{_short(name)}"
                asked = wanted.ids is None or task_id in wanted.ids
                yield place, _task(task_id, name, row, wanted) if asked else None
            except UnicodeDecodeError:
                yield place, "not UTF-8"
            except Dropped as dropped:
                yield place, str(dropped)


def _check_columns(schema: Any, path: Path) -> None:
    for name in _COLUMNS:
        if name not in schema.names:
            raise DataError(f"{path}: the column {name!r} is missing; is it a CodeContests file?")
        kind = schema.field(name).type
        if name in _NUMBERS:
            fits = pa.types.is_integer(kind)
        elif name in _TEXTS:
            fits = _is_text(kind)
        else:
            fits = pa.types.is_struct(kind) and all(
                kind.get_field_index(part) >= 0 and _is_texts(kind.field(part).type)
                for part in ("input", "output")
            )
        if not fits:
            raise DataError(f"{path}: the column {name!r} has the unexpected type {kind}")


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_texts(kind: Any) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_list and _is_text(kind.value_type))


def _task(task_id: str, name: str, row: dict[str, Any], wanted: _Wanted) -> Task:
    statement = row["description"].as_py()
    if not statement or not statement.strip():
        raise Dropped("no statement")
    if not wanted.interactive and any(phrase in statement.lower() for phrase in INTERACTIVE):
        raise Dropped("interactive")
    if row["input_file"].as_py() or row["output_file"].as_py():
        raise Dropped("named files")
    shown = VISIBLE_GENERATED
    used = shown + HIDDEN_GENERATED
    generated = _cases(row["generated_tests"], None if wanted.extra else used)
    visible = _cases(row["public_tests"]) + generated[:shown]
    hidden = _cases(row["private_tests"]) + generated[shown:used]
    if not visible:
        raise Dropped("no visible case")
    if not hidden:
        raise Dropped("no hidden case")
    contest = row["cf_contest_id"].as_py() or 0
    return Task(
        id=task_id,
        name=name,
        contest=str(contest) if contest > 0 else _contest_digits(name) or task_id,
        statement=statement,
        rating=max(row["cf_rating"].as_py() or 0, 0),
        visible=visible,
        hidden=hidden,
        extra=generated[used:],
        time_limit=_seconds(row.get("time_limit")),
        memory_limit=_mebibytes(row.get("memory_limit_bytes")),
        solutions=_python(row.get("solutions"), wanted.known),
        wrong_solutions=_python(row.get("incorrect_solutions"), wanted.known),
    )


def _seconds(limit: Any) -> float | None:
    """{seconds, nanos}; None where both are 0 or null."""
    value = (limit.as_py() if limit is not None else None) or {}
    return (value.get("seconds") or 0) + (value.get("nanos") or 0) / 1e9 or None


def _mebibytes(limit: Any) -> int | None:
    value = limit.as_py() if limit is not None else None
    return max(1, value >> 20) if value and value > 0 else None


def _python(programs: Any, most: int) -> tuple[str, ...]:
    """The first Python 3 programs of a struct of languages and programs."""
    if programs is None or not most:
        return ()
    languages, texts = programs["language"].values, programs["solution"].values
    if languages is None or texts is None:
        return ()
    found = []
    for place, language in enumerate(languages.to_pylist()):
        if language == PYTHON_3 and (text := texts[place].as_py()):
            found.append(text)
        if len(found) == most:
            break
    return tuple(found)


def _cases(tests: Any, stop: int | None = None) -> tuple[Case, ...]:
    """Convert the first `stop` cases of a struct scalar of two parallel lists."""
    inputs, outputs = (tests[part].values for part in ("input", "output"))
    if inputs is None and outputs is None:
        return ()
    if inputs is None or outputs is None or len(inputs) != len(outputs):
        raise Dropped("inputs and outputs differ in number")
    pairs = zip(inputs[:stop].to_pylist(), outputs[:stop].to_pylist(), strict=True)
    cases = tuple(Case(given, expected) for given, expected in pairs)
    if any(text is None for case in cases for text in case):
        raise Dropped("null in a case")
    return cases


_CODEFORCES = re.compile(r"(\d+)_[A-Z]\d*(?=\.)")  # "1157_C2. Increasing Subsequence"
_AIZU_ATCODER = re.compile(r"p\d+(?= )")  # "p02608 AtCoder Beginner Contest 172 - ..."


def _short(name: str) -> str:
    """Return what identifies a problem in its name: the contest id, else the name as a slug."""
    name = name.strip()
    match = _CODEFORCES.match(name) or _AIZU_ATCODER.match(name)
    return match[0] if match else re.sub(r"[^\w+.-]+", "-", name).strip("-")


def _contest_digits(name: str) -> str | None:
    match = _CODEFORCES.match(name.strip())
    return match[1] if match else None
