"""File descriptors: a run of many requests needs more than most shells allow at first."""

from __future__ import annotations

import errno
import resource

SPARE = 128  # the interpreter, the libraries, the journal, the report, a resolver's sockets
A_WORKER = 8  # of the judge: its socket, its files and what it takes to start it


def raise_limit(needed: int) -> int:
    """Raise this process's soft limit, as far as the hard one lets it, to hold `needed`.

    Returns the limit in force, which is less than `needed` where the hard limit is.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return needed if soft == resource.RLIM_INFINITY else soft


def exhausted(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, is that no descriptor was left."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__ or error.__context__
    return False
