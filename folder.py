"""The folder of a run: whether it can hold one and is ours, and what its disk refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NAME = "rollouts.jsonl"  # the journal


class JournalError(Exception):
    """The journal cannot be used as asked; its text is one line for the user."""


def check_folder(folder: Path, outputs: Sequence[str]) -> None:
    """Refuse a folder in which a run could not be saved, before anything is spent.

    Raises JournalError: it is a file or cannot be written, or it is not ours, since it holds one
    of `outputs`, the files that a run writes beside its journal, and no journal.
    """
    path = folder / NAME
    with told(path):
        places = (folder, *folder.absolute().parents)
        there = next(place for place in places if place.exists() or place.is_symlink())
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", str(there))
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "no right to write there", str(there))
        foreign = [name for name in outputs if (folder / name).exists()]
        if foreign and not path.exists():
            raise JournalError(
                f"{folder} holds {' and '.join(foreign)} and not the {NAME} of a run: nothing of "
                "it is overwritten; use --out for another folder"
            )


def write_all(fd: int, data: bytes) -> None:
    """os.write, until all of it is written."""
    while data:
        data = data[os.write(fd, data) :]


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What the system refuses, as one line for the user."""
    try:
        yield
    except OSError as error:
        advice = "use --out for a folder that can be written"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = (
                "what was saved before is whole: free some space and run the same command again"
            )
        elif error.errno in (errno.EMFILE, errno.ENFILE):
            advice = "too few file descriptors: raise the limit (ulimit -n) or lower --concurrency"
        raise JournalError(f"cannot use {path}: {error.strerror}; {advice}") from error
