"""Tasks: deepmind/code_contests rows, local parquet files or the shipped toy tasks.

Most of a CodeContests file is columns that this recipe never looks at (other people's solutions),
and most of the rest is generated cases beyond the ones it uses. So whole structs are projected,
a few rows are decoded at a time, and only the cases that are kept become Python strings.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

import toy
from compare import letters_in_any_case
from descriptors import exhausted

DATASET = "deepmind/code_contests"
REVISION = "802411c3010cb00d1b05bad57ca77365a3c699d6"
SPLITS = ("train", "valid", "test")

VISIBLE_GENERATED = 8
HIDDEN_GENERATED = 32
RATING_BANDS = ("unrated", "under 1500", "1500 to 2199", "2200 and up")
_ROWS_AT_A_TIME = 4  # a row can hold megabytes of generated cases
_INTERACTIVE = ("interactive problem", "interactor", "flush the output", "fflush")
_TEXTS = ("name", "description", "input_file", "output_file")
_NUMBERS = ("cf_contest_id", "cf_rating")
_CASES = ("public_tests", "private_tests", "generated_tests")
_COLUMNS = (*_TEXTS, *_NUMBERS, *_CASES)


class DataError(Exception):
    """The tasks can't be loaded; its text is one line for the user."""


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
    splits: Sequence[str] = ("test", "valid"),
    *,
    limit: int | None = None,
    seed: int = 0,
    extra: bool = False,
    ids: Collection[str] | None = None,
    interactive: bool = False,
) -> Loaded:
    """Load tasks from the hub (None), the toy tasks ("toy"), or a parquet file or a folder of them.

    Args:
        tasks: where from.
        splits: which splits of the hub's dataset; the other sources have none.
        limit: take the first `limit` tasks of a shuffle by `seed`. The shuffle ranks each task by
            its own id, so a larger limit adds tasks and changes none, whatever the file order.
        extra: fill Task.extra, which can be megabytes a task.
        ids: keep only these tasks; those that are not there are left out.
        interactive: keep interactive problems too, to judge given programs by their cases.

    Raises:
        DataError: unknown split, unreachable hub, nothing at the path, a file that is not parquet
            or lacks a column, two tasks of one id, no task left, limit under 1.
    """
    if limit is not None and limit < 1:
        raise DataError(f"--limit must be at least 1, got {limit}")
    source, rows = _source(tasks, splits, extra, ids, interactive)
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


# What is known of a row: the task, why it was dropped, or None when it was not asked for.
_Row = Task | str | None


def _source(
    tasks: str | None,
    splits: Sequence[str],
    extra: bool,
    ids: Collection[str] | None,
    interactive: bool,
) -> tuple[str, Iterator[tuple[str, _Row]]]:
    """Return the name of the source and its rows, each with the place it comes from."""
    if tasks == "toy":
        return "toy", (("toy.py", task) for task in _toy_tasks(extra))
    if tasks is None:
        files = [(s, path) for s in dict.fromkeys(splits) for path in _hub_files(s)]
        return f"{DATASET}@{REVISION[:8]}", _rows(files, extra, ids, interactive)
    try:
        path = Path(tasks).expanduser().absolute()
    except RuntimeError as error:  # a user without a home
        raise DataError(f"--tasks {tasks}: {_one_line(error)}") from None
    files = [(path.stem, path) for path in _local_files(path)]
    return str(path), _rows(files, extra, ids, interactive)


def _first(tasks: dict[str, Task], limit: int, seed: int) -> dict[str, Task]:
    ranked = sorted(tasks, key=lambda task_id: sha256(f"{seed} {task_id}".encode()).digest())
    return {task_id: tasks[task_id] for task_id in ranked[:limit]}


def _toy_tasks(extra: bool) -> Iterator[Task]:
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
            extra=more if extra else (),
        )


# ---------------------------------------------------------------------------------------------
# Parquet rows


class _Dropped(Exception):
    """A row that can't be used; its text is the reason, the same for all such rows."""


def _local_files(path: Path) -> list[Path]:
    if not path.exists():
        raise DataError(f"--tasks {path}: no such file or folder")
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.parquet"))
    if not files:
        raise DataError(f"--tasks {path}: no .parquet file in this folder")
    return files


def _rows(
    files: list[tuple[str, Path]], extra: bool, ids: Collection[str] | None, interactive: bool
) -> Iterator[tuple[str, _Row]]:
    """Read files of (id prefix, path), one after the other, a few rows at a time."""
    for prefix, path in files:
        for number, row in enumerate(_arrow_rows(path), 1):
            place = f"row {number} of {path.name}"
            try:
                name = row["name"].as_py()
                if not name or not name.strip():
                    raise _Dropped("no name")
                task_id = f"{prefix}/{_short(name)}"
                wanted = ids is None or task_id in ids
                yield place, _task(task_id, name, row, extra, interactive) if wanted else None
            except UnicodeDecodeError:
                yield place, "not UTF-8"
            except _Dropped as dropped:
                yield place, str(dropped)


def _arrow_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield each row as column name -> Arrow scalar, not converted to Python yet."""
    try:
        # By default a whole row group's columns are read at once, which can be a whole file.
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            _check_columns(file.schema_arrow, path)
            for batch in file.iter_batches(
                _ROWS_AT_A_TIME, columns=list(_COLUMNS), use_threads=False
            ):
                columns = {name: batch.column(name) for name in _COLUMNS}
                for i in range(batch.num_rows):
                    yield {name: column[i] for name, column in columns.items()}
    except (pa.ArrowException, OSError) as error:
        if exhausted(error):
            raise DataError(
                f"cannot open {path}: too few file descriptors; raise the limit (ulimit -n)"
            ) from error
        raise DataError(f"{path} can't be read as parquet: {_one_line(error)}") from error


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
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_texts(kind: Any) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_list and _is_text(kind.value_type))


def _task(task_id: str, name: str, row: dict[str, Any], extra: bool, interactive: bool) -> Task:
    statement = row["description"].as_py()
    if not statement or not statement.strip():
        raise _Dropped("no statement")
    if not interactive and any(phrase in statement.lower() for phrase in _INTERACTIVE):
        raise _Dropped("interactive")
    if row["input_file"].as_py() or row["output_file"].as_py():
        raise _Dropped("named files")
    shown = VISIBLE_GENERATED
    used = shown + HIDDEN_GENERATED
    generated = _cases(row["generated_tests"], None if extra else used)
    visible = _cases(row["public_tests"]) + generated[:shown]
    hidden = _cases(row["private_tests"]) + generated[shown:used]
    if not visible:
        raise _Dropped("no visible case")
    if not hidden:
        raise _Dropped("no hidden case")
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
    )


def _cases(tests: Any, stop: int | None = None) -> tuple[Case, ...]:
    """Convert the first `stop` cases of a struct scalar of two parallel lists."""
    inputs, outputs = (tests[part].values for part in ("input", "output"))
    if inputs is None and outputs is None:
        return ()
    if inputs is None or outputs is None or len(inputs) != len(outputs):
        raise _Dropped("inputs and outputs differ in number")
    pairs = zip(inputs[:stop].to_pylist(), outputs[:stop].to_pylist(), strict=True)
    cases = tuple(Case(given, expected) for given, expected in pairs)
    if any(text is None for case in cases for text in case):
        raise _Dropped("null in a case")
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


# ---------------------------------------------------------------------------------------------
# The hub


def _hub_files(split: str) -> list[Path]:
    """Return the parquet files of a split, downloaded once into the hub's own cache.

    The cache is looked at first, so that a run on cached files makes no request.
    """
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}: choose from {', '.join(SPLITS)}")
    from huggingface_hub import constants, get_session, snapshot_download  # slow to import

    # The client's own lines and bars would stand between ours, and what it says we say.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    problem: Exception | None = None
    for cache_only in (True, False):
        try:
            if not cache_only and not constants.HF_HUB_OFFLINE:
                # A download is tried for half a minute: ask once whether anything answers.
                get_session().head(f"{constants.ENDPOINT}/api/datasets/{DATASET}", timeout=10)
            folder = snapshot_download(
                DATASET,
                repo_type="dataset",
                revision=REVISION,
                allow_patterns=[f"data/{split}-*.parquet"],
                local_files_only=cache_only,
            )
        # The client's errors, those of its HTTP library and the disk's have no common base.
        except Exception as error:
            problem = error
            continue
        problem = None
        files = sorted(Path(folder, "data").glob(f"{split}-*.parquet"))
        if files and len(files) == _shards(files[0]):
            return files
    offline = "it is not whole in the cache and HF_HUB_OFFLINE is set"
    why = offline if constants.HF_HUB_OFFLINE else _one_line(problem or "some files are missing")
    raise DataError(
        f"can't get the {split} split of {DATASET} from the hub: {why}; check the network and "
        "HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE, or take local tasks by --tasks PATH"
    ) from problem


def _shards(path: Path) -> int:
    """Return n of a name like test-00000-of-0000n-9c49eeff30aacaa8.parquet."""
    match = re.search(r"-of-(\d+)", path.name)
    return int(match[1]) if match else 0


def _one_line(error: Exception | str) -> str:
    """Return the first line of an error's text, which a client may spread over several."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(" .") if lines else type(error).__name__
