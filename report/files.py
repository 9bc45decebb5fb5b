"""Files of the report, each written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


class ReportError(Exception):
    """A file of the report cannot be written; its text is one line for the user."""


def write(results: Mapping[str, Any], path: Path) -> None:
    """Write results.json whole or not at all. Raises ReportError."""
    write_text(json.dumps(results, indent=2, allow_nan=False) + "\n", path)


def write_lines(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write rows as JSON lines, whole or not at all. Raises ReportError."""
    write_text("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows), path)


def write_text(text: str, path: Path) -> None:
    """Write a text whole or not at all. Raises ReportError."""
    with whole(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place when the block ends well.

    The folder is made when it is missing. Raises ReportError for what the system refuses.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ReportError(f"cannot write {path}: {error.strerror or error}") from error
        raise
