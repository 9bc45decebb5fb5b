"""Standard streams that are closed or full, or whose reader has left: they cost what would have
been said there, and not the run."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO


def fill() -> None:
    """Put /dev/null in the place of a closed stream.

    Else the next file to be opened, a journal say, gets its number, and whatever a library says
    on "stderr" lands in it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free


class Stderr:
    """sys.stderr as tqdm and say() use it: one that is closed, or full, or whose reader has left,
    costs the lines and not the run."""

    @property
    def encoding(self) -> str:
        """By which tqdm chooses what to draw a bar with."""
        return (sys.stderr and sys.stderr.encoding) or "ascii"

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr is not None:
                sys.stderr.write(text.encode(self.encoding, "replace").decode(self.encoding))

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr is not None:
                sys.stderr.flush()

    def fileno(self) -> int:
        return 2

    def isatty(self) -> bool:
        """Whether a bar and lines below it can be drawn."""
        if sys.stderr is None or sys.stderr.closed or os.environ.get("TERM") == "dumb":
            return False
        return sys.stderr.isatty()


STDERR = Stderr()


def show(text: str) -> None:
    """Print to stdout; OSError when it is full, and nothing when its reader has left."""
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "ascii"  # bars become ? on a terminal without Unicode
    with contextlib.suppress(BrokenPipeError):
        print(text.encode(encoding, "replace").decode(encoding), flush=True)


def settle(stream: TextIO | None) -> None:
    """Take from a stream that cannot be written what it still holds: the interpreter would try
    again at its end, and complain."""
    if stream is None:
        return
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
