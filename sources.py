"""Where rows come from: files of any kind that people keep them in, and the hub's data sets."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from descriptors import exhausted

ROWS_AT_A_TIME = 4  # a row can hold megabytes of cases
SUFFIXES = (".parquet", ".jsonl", ".json")
SQUEEZED = {".gz": "gzip", ".zst": "zstd"}
LINE_BYTES = 512 << 20  # of a row: a longer line is no row


class DataError(Exception):
    """The tasks can't be loaded; its text is one line for the user."""


def local_files(path: Path) -> list[Path]:
    """The file, or the files of a folder in the order of their names."""
    if not path.exists():
        raise DataError(f"--tasks {path}: no such file or folder")
    if not path.is_dir():
        return [path]
    files = sorted(item for item in path.iterdir() if item.is_file() and kind_of(item))
    if not files:
        raise DataError(f"--tasks {path}: no {', '.join(SUFFIXES)} file in this folder")
    return files


def kind_of(path: Path) -> str:
    """ ".parquet", ".jsonl" or ".json", whatever it is squeezed by; "" for another file."""
    name = path.name.lower()
    for ending in SQUEEZED:
        name = name.removesuffix(ending)
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")


def stem_of(path: Path) -> str:
    """The file's name without what says how it is written."""
    name = path.name
    for ending in (*SQUEEZED, *SUFFIXES):
        if name.lower().endswith(ending):
            name = name[: -len(ending)]
    return name


def parquet_columns(path: Path) -> Any:
    """The schema of a parquet file."""
    with _told(path, "parquet"), pq.ParquetFile(path) as file:
        return file.schema_arrow


def parquet_batches(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Record batches of a few rows, with these columns only."""
    # By default a whole row group's columns are read at once, which can be a whole file.
    with (
        _told(path, "parquet"),
        pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file,
    ):
        yield from file.iter_batches(ROWS_AT_A_TIME, columns=list(columns), use_threads=False)


def json_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of JSON lines, or of one JSON value: a list of rows, or {"data": [...]}."""
    with _told(path, "JSON"), _opened(path) as file:
        if kind_of(path) == ".json" and file.peek(1)[:1].strip() not in (b"{", b""):
            yield from _whole(path, file)
            return
        number = 0
        while line := file.readline(LINE_BYTES):
            number += 1
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                if number == 1 and kind_of(path) == ".json":  # an object over several lines
                    yield from _whole(path, io.BytesIO(line + file.read()))
                    return
                raise DataError(f"{path}, line {number}: not JSON: {error}") from None
            if number == 1 and isinstance(row, dict) and isinstance(row.get("data"), list):
                yield from _rows_of(path, row)
            else:
                yield from _rows_of(path, [row])


def _whole(path: Path, file: Any) -> Iterator[dict[str, Any]]:
    try:
        yield from _rows_of(path, json.loads(file.read()))
    except ValueError as error:
        raise DataError(f"{path}: not JSON: {one_line(error)}") from None


def _rows_of(path: Path, value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        value = value["data"] if isinstance(value.get("data"), list) else [value]
    for row in value:
        if not isinstance(row, dict):
            raise DataError(f"{path}: a row is no object: {str(row)[:60]}")
        yield row


def _opened(path: Path) -> io.BufferedReader:
    squeezed = SQUEEZED.get(path.suffix.lower())
    if squeezed is None:
        return path.open("rb")
    return io.BufferedReader(pa.input_stream(str(path), compression=squeezed))


class _told:
    """What the system or pyarrow refuses, as one line for the user."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path, kind

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, pa.ArrowException | OSError | UnicodeDecodeError):
            return
        if exhausted(error):
            raise DataError(
                f"cannot open {self.path}: too few file descriptors; raise the limit (ulimit -n)"
            ) from error
        raise DataError(f"{self.path} can't be read as {self.kind}: {one_line(error)}") from error


def one_line(error: Exception | str) -> str:
    """The first line of an error's text, which a client may spread over several."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(" .") if lines else type(error).__name__


# --- the hub ------------------------------------------------------------------------------------


def hub_files(
    repo: str, revision: str | None, patterns: Sequence[str], split: str
) -> tuple[str, list[Path]]:
    """(commit, files) of a data set that match a pattern, downloaded once into the hub's own cache.

    The cache is looked at first, so that a run on cached files makes no request.
    """
    from huggingface_hub import constants, get_session, snapshot_download  # slow to import

    # The client's own lines and bars would stand between ours, and what it says we say.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    problem: Exception | None = None
    for cache_only in (True, False):
        try:
            if not cache_only and not constants.HF_HUB_OFFLINE:
                # A download is tried for half a minute: ask once whether anything answers.
                get_session().head(f"{constants.ENDPOINT}/api/datasets/{repo}", timeout=10)
            folder = Path(
                snapshot_download(
                    repo,
                    repo_type="dataset",
                    revision=revision,
                    allow_patterns=list(patterns),
                    local_files_only=cache_only,
                )
            )
        # The client's errors, those of its HTTP library and the disk's have no common base.
        except Exception as error:
            problem = error
            continue
        problem = None
        files = sorted(
            path
            for path in folder.rglob("*")
            if path.is_file()
            and kind_of(path)
            and any(fnmatch(path.relative_to(folder).as_posix(), pattern) for pattern in patterns)
        )
        if files and _all_shards(files):
            return folder.name, files
    offline = "it is not whole in the cache and HF_HUB_OFFLINE is set"
    why = offline if constants.HF_HUB_OFFLINE else one_line(problem or "some files are missing")
    raise DataError(
        f"can't get the {split} split of {repo} from the hub: {why}; check the network and "
        "HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE, or take local tasks by --tasks PATH"
    ) from problem


def split_patterns(split: str, config: str | None) -> list[str]:
    """Where the hub's data sets keep the files of a split: test-00000-of-00001.parquet, test.jsonl,
    test/0000.parquet, in data/, at the top, or in a folder named after the configuration."""
    tops = [f"{config}/", f"data/{config}/", f"{config}/data/"] if config else ["", "data/"]
    return [
        f"{top}{split}{rest}{suffix}{squeezed}"
        for top in tops
        for rest in ("", "-*", "[0-9]", "/*", "_*")
        for suffix in SUFFIXES
        for squeezed in ("", *SQUEEZED)
    ]


def _all_shards(files: Sequence[Path]) -> bool:
    """Whether names like test-00000-of-00003-9c49eeff.parquet are all there."""
    groups: dict[tuple[Path, int], int] = {}
    for path in files:
        if match := re.search(r"-of-(\d+)", path.name):
            place = (path.parent, int(match[1]))
            groups[place] = groups.get(place, 0) + 1
    return all(found == wanted for (_, wanted), found in groups.items())
