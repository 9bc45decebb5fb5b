"""Files of the report, each written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class ReportError(Exception):
    """A file of the report cannot be written; its text is one line for the user."""


def write(results: Mapping[str, Any], path: Path) -> None:
    """Write results.json whole or not at all. Raises ReportError."""
    _write(json.dumps(results, indent=2, allow_nan=False) + "\n", path)


def write_lines(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write rows as JSON lines, whole or not at all. Raises ReportError."""
    _write("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows), path)


def _write(text: str, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ReportError(f"cannot write {path}: {error.strerror or error}") from error
