"""Files of rows: parquet, JSON lines and JSON, each also as .gz and .zst.

Nothing is read whole: parquet a few rows at a time and only the columns asked for, JSON lines a
line at a time, a JSON array a value at a time. Compressed parquet, which has to be read from its
end, is unpacked into an unnamed file.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from descriptors import exhausted
from sources import DataError, Row, one_line

ROWS_AT_A_TIME = 4  # a row can hold megabytes of cases
LARGEST_LINE = 64 << 20  # bytes of a JSON line, or characters of a value, that are held at once
TOO_LARGE = "over 64 MiB"
NO_OBJECT = "not a JSON object"
CODECS = {".gz": "gzip", ".zst": "zstd"}
KINDS = (".parquet", ".jsonl", ".ndjson", ".json")
LARGEST_PEEK = 1 << 20
LOOKED_AT = 20  # rows in which the columns of a JSON file are looked for

# Columns of a file, and Arrow's schema where it has one -> the columns to read.
Project = Callable[[Sequence[str], Any], Sequence[str]]
Item = Row | str  # a row, or why it can't be one


def kind_of(path: Path) -> str:
    """The suffix of KINDS that a file's name has, compressed or not, or ""."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes and suffixes[-1] in CODECS:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in KINDS else ""


def stem_of(path: Path) -> str:
    """The name of a file without the suffixes that say what it is."""
    name = path.name
    for suffix in (*CODECS, *KINDS):
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return name if kind_of(path) else path.stem


def local_files(path: Path) -> list[Path]:
    """The file, or the files of a folder that rows can be in, sorted by name."""
    if not path.exists():
        raise DataError(f"--tasks {path}: no such file or folder")
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if kind_of(file) and file.is_file())
    if not files:
        raise DataError(f"--tasks {path}: no {', '.join(KINDS)} file (or .gz, .zst) in this folder")
    return files


def rows_of(path: Path, project: Project) -> Iterator[Item]:
    """Read the rows of a file; what is not parquet by its name must be JSON by its name."""
    kind = kind_of(path)
    reader = _json_rows if kind and kind != ".parquet" else _parquet_rows
    what = "JSON" if reader is _json_rows else "parquet"
    try:
        yield from reader(path, project)
    except (pa.ArrowException, OSError) as error:
        if exhausted(error):
            raise DataError(
                f"cannot open {path}: too few file descriptors; raise the limit (ulimit -n)"
            ) from error
        raise DataError(f"{path} can't be read as {what}: {one_line(error)}") from error


@contextmanager
def _unpacked(path: Path) -> Iterator[IO[bytes]]:
    codec = CODECS.get(path.suffix.lower())
    if codec is None:
        with path.open("rb") as plain:
            yield plain
    else:
        with pa.input_stream(str(path), compression=codec) as stream:
            yield io.BufferedReader(stream, 1 << 20)


# ---------------------------------------------------------------------------------------------
# Parquet


class ArrowRow(Row):
    """A row of Arrow scalars, converted when they are looked at."""

    def __getitem__(self, name: str) -> Any:
        scalar = self.columns.get(name)
        return None if scalar is None else scalar.as_py()

    def view(self, name: str) -> Any:
        scalar = self.columns.get(name)
        return None if scalar is None else _opened(scalar)


class ListView:
    """A list scalar: a length, and slices that become Python lists."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, part: slice) -> list[Any]:
        found: list[Any] = self.values[part].to_pylist()
        return found


def _opened(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(scalar.type):
        return {name: _opened(scalar[name]) for name in (f.name for f in scalar.type)}
    if pa.types.is_list(scalar.type) or pa.types.is_large_list(scalar.type):
        return ListView(scalar.values)
    return scalar.as_py()


def _parquet_rows(path: Path, project: Project) -> Iterator[Item]:
    with tempfile.TemporaryFile() if path.suffix.lower() in CODECS else path.open("rb") as source:
        if path.suffix.lower() in CODECS:
            with _unpacked(path) as packed:
                shutil.copyfileobj(packed, source, 1 << 20)
            source.seek(0)
        place = source if path.suffix.lower() in CODECS else path
        # By default a whole row group's columns are read at once, which can be a whole file.
        with pq.ParquetFile(place, buffer_size=1 << 20, pre_buffer=False) as file:
            schema = file.schema_arrow
            wanted = list(project(schema.names, schema))
            for batch in file.iter_batches(ROWS_AT_A_TIME, columns=wanted, use_threads=False):
                columns = {name: batch.column(name) for name in wanted}
                for i in range(batch.num_rows):
                    yield ArrowRow({name: column[i] for name, column in columns.items()})


# ---------------------------------------------------------------------------------------------
# JSON


def _json_rows(path: Path, project: Project) -> Iterator[Item]:
    """Rows of JSON lines, of an array, of {"data": an array}, or of objects one after another."""
    waiting: list[Item] = []
    known = False
    names: dict[str, None] = {}
    with _unpacked(path) as file:
        for item in _objects(path, file):
            if known:
                yield item
                continue
            waiting.append(item)
            if isinstance(item, Row):
                names.update(dict.fromkeys(item.columns))
                # Rows may leave out what they do not have.
                known = _knows(project, list(names), last=len(waiting) >= LOOKED_AT)
                if known:
                    yield from waiting
                    waiting = []
    if not known:
        if not names and waiting:
            raise DataError(f"{path} can't be read as JSON: it has no object")
        if names:
            project(list(names), None)
        yield from waiting


def _knows(project: Project, names: Sequence[str], last: bool) -> bool:
    try:
        project(names, None)
        return True
    except DataError:
        if last:
            raise
        return False


def _objects(path: Path, file: IO[bytes]) -> Iterator[Item]:
    one = kind_of(path) == ".json"
    for item in _values(file) if one and not _is_lines(file) else _lines(file):
        data = item["data"] if isinstance(item, Row) and one else None
        if isinstance(data, list):  # {"data": [...]}
            yield from (Row(row) if isinstance(row, dict) else NO_OBJECT for row in data)
        else:
            yield item


def _is_lines(file: IO[bytes]) -> bool:
    """Whether a .json file holds JSON lines: its first line is a whole object."""
    start = file.peek(LARGEST_PEEK) if isinstance(file, io.BufferedReader) else b""
    line, end, _ = start.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    return line.startswith(b"{") and (isinstance(_object(line), Row) or not end)


def _lines(file: IO[bytes]) -> Iterator[Item]:
    while line := file.readline(LARGEST_LINE + 1):
        if len(line) > LARGEST_LINE:
            while line and not line.endswith(b"\n"):
                line = file.readline(LARGEST_LINE)
            yield TOO_LARGE
        elif line.strip():
            yield _object(line)


def _object(line: bytes) -> Item:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return "not UTF-8"
    except (ValueError, RecursionError):
        return NO_OBJECT
    return Row(value) if isinstance(value, dict) else NO_OBJECT


def _values(file: IO[bytes]) -> Iterator[Item]:
    """The values of an array, or values that follow each other, decoded one at a time."""
    text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape")
    try:
        for value in _decoded(text):
            yield Row(value) if isinstance(value, dict) else NO_OBJECT
    finally:
        text.detach()


def _decoded(text: IO[str]) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    buffer, more, first = "", 1 << 16, True
    while True:
        buffer = buffer.lstrip(" \t\r\n,")
        if first and buffer.startswith("["):
            buffer, first = buffer[1:], False
            continue
        if buffer.startswith("]"):
            return
        try:
            value, end = decoder.raw_decode(buffer)
        except (ValueError, RecursionError) as error:
            if len(buffer) > LARGEST_LINE:
                raise OSError(f"a value {TOO_LARGE}, or no JSON: {one_line(error)}") from None
            added = text.read(more)
            if not added and buffer:
                raise OSError(f"it ends within a value: {one_line(error)}") from None
            if not added:
                return
            buffer, more = buffer + added, min(2 * more, LARGEST_LINE)
            continue
        buffer, first = buffer[end:], False
        more = 1 << 16
        yield value
