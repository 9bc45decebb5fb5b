"""Lines of a terminal: colour, paragraphs and tables that keep to a width."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TextIO

from report.words import columns

PASS, BAD, FAINT, BOLD = "32", "31", "2", "1"  # ANSI colours


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colour (https://no-color.org)."""
    dumb = os.environ.get("TERM") == "dumb"
    return stream.isatty() and not os.environ.get("NO_COLOR") and not dumb


class Page:
    """Lines of at most `width` columns."""

    def __init__(self, width: int, colour: bool) -> None:
        self.width, self.colour = width, colour
        self.lines: list[str] = []

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def heading(self, title: str, note: str = "") -> None:
        self.lines += ["", self.paint(title, BOLD)]
        if note:
            self.text(note)

    def text(self, text: str, code: str = "", mark: str = "  ") -> None:
        """A paragraph, its first line after `mark`."""
        for line in wrapped(text, self.width, mark):
            self.lines.append(self.paint(line, code) if code else line)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """First column to the left, the others to the right.

        Columns that do not fit follow in a table below, which begins with the first column again.
        """
        cells = [list(header), *map(list, rows)]
        widths = [max(columns(row[i]) for row in cells) for i in range(len(header))]
        parts: list[list[int]] = []
        used = self.width
        for i in range(1, len(widths)):
            if used + 2 + widths[i] > self.width:
                used = 2 + widths[0]
                parts.append([])
            parts[-1].append(i)
            used += 2 + widths[i]
        for part in parts:
            for number, row in enumerate(cells):
                first = row[0] + " " * (widths[0] - columns(row[0]))
                others = (" " * (widths[i] - columns(row[i])) + row[i] for i in part)
                line = "  ".join(["  " + first, *others]).rstrip()
                self.lines.append(line if number else self.paint(line, FAINT))


def wrapped(text: str, width: int, mark: str) -> list[str]:
    """A paragraph as lines of at most `width` columns, the first after `mark`."""
    lines, line = [], mark
    rest = " " * columns(mark)
    for word in text.split():
        gap = "" if line in (mark, rest) else " "
        if columns(line + gap + word) > width and gap:
            lines.append(line)
            line, gap = rest, ""
        while columns(line + gap + word) > width:  # a path, say
            part = _head(word, width - columns(line))
            lines.append(line + part)
            line, word = rest, word[len(part) :]
        line += gap + word
    return [*lines, line] if line.strip() else lines


def _head(word: str, width: int) -> str:
    """As much of a word as fits, and at least a character."""
    part = word[:1]
    for character in word[1:]:
        if columns(part + character) > width:
            break
        part += character
    return part
