"""Where rows come from: files of any kind, and the hub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DataError(Exception):
    """The tasks can't be loaded; its text is one line for the user."""


class Row:
    """One row of a file: its columns as Python values, None for one that is not there."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = columns

    def __getitem__(self, name: str) -> Any:
        return self.columns.get(name)

    def view(self, name: str) -> Any:
        """Like row[name], but lists, in a struct too, may be something with only a length and
        slices: what is not looked at need not become Python objects."""
        return self.columns.get(name)


def one_line(error: Exception | str) -> str:
    """The first line of an error's text, which a client may spread over several."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(" .") if lines else type(error).__name__
