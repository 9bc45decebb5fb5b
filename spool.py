"""Cases that do not fit into memory, in an unnamed file: a data set of gigabytes can be loaded.

A run looks at the cases of a few tasks at a time, so they are read back when they are looked at.
"""

from __future__ import annotations

import marshal
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import overload

from formats.problem import Case

ROOM = 96 << 20  # bytes of cases that stay in memory, as about what Python needs for them
TEXT_BYTES = 60  # what a string takes beside its characters


class Spool:
    """Room in memory for the first cases, and a file for what comes when it is used up."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._file: int | None = None
        self._end = 0

    def has_room(self, characters: int, cases: int) -> bool:
        """Whether so much fits into memory yet; then it counts as there."""
        size = characters + 2 * TEXT_BYTES * cases
        fits = size <= self._room
        self._room = self._room - size if fits else 0
        return fits

    def put(self, cases: tuple[Case, ...]) -> Sequence[Case]:
        """A sequence that reads the cases back from the file; OSError when it can't be written."""
        if self._file is None:
            with tempfile.TemporaryFile() as file:
                self._file = os.dup(file.fileno())
        data = marshal.dumps(tuple(map(tuple, cases)))
        view, at = memoryview(data), self._end
        while view:
            written = os.pwrite(self._file, view, self._end)
            view, self._end = view[written:], self._end + written
        return Stored(self, at, len(data), len(cases))

    def read(self, at: int, size: int) -> tuple[Case, ...]:
        if self._file is None:
            raise ValueError("nothing is in the file")
        data = b""
        while len(data) < size:
            part = os.pread(self._file, size - len(data), at + len(data))
            if not part:
                raise OSError("the file of the cases was cut off")
            data += part
        return tuple(Case(*pair) for pair in marshal.loads(data))

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)


class Stored(Sequence[Case]):
    """Cases in a spool's file."""

    def __init__(self, spool: Spool, at: int, size: int, count: int) -> None:
        self._spool, self._at, self._size, self._count = spool, at, size, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Case]:
        return iter(self._spool.read(self._at, self._size))

    @overload
    def __getitem__(self, part: int) -> Case: ...

    @overload
    def __getitem__(self, part: slice) -> Sequence[Case]: ...

    def __getitem__(self, part: int | slice) -> Case | Sequence[Case]:
        return self._spool.read(self._at, self._size)[part]
