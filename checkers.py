"""A task's own checker: an untrusted program that says whether an output is right.

It is called as `checker.py input.txt correct_output.txt solution_output.txt` and prints 1 or 0 as
its last word. It runs in workers of its own, under limits of its own, and is never in one process
tree with the program that it judges. It is compiled once, and forked for each output.

A checker that crashes, hangs or says something else is a CheckerFault, after a second try in a
fresh process. That is the task's fault, and no verdict on the program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from sandbox.channel import Limits, Worker, WorkerLost
from sandbox.drivers import CHECKER, SIZES
from trial import how_it_ended

TRIES = 2
SAID = 1000  # bytes of the end of its output that are looked at


class CheckerFault(Exception):
    """A task's checker gave no answer; nothing is known of the program. The text says why."""


def checker_limits(limits: Limits) -> Limits:
    """What a checker may use, for one output: no less than the programs that it judges."""
    return Limits(
        cpu_seconds=max(10.0, limits.cpu_seconds),
        wall_seconds=max(20.0, limits.wall_seconds),
        memory_mb=max(1024, limits.memory_mb),
        output_mb=1,
    )


class Checkers:
    """Workers that hold a compiled checker each; any thread may ask."""

    def __init__(self, start: Callable[[], Worker], drop: Callable[[Worker], None]) -> None:
        self._start, self._drop = start, drop
        self._lock = threading.Lock()
        self._idle: list[tuple[str, Worker]] = []

    def accepts(self, checker: str, given: bytes, expected: bytes, printed: bytes) -> bool:
        """Whether a checker takes what was printed.

        Raises:
            CheckerFault: it gave no answer, twice.
            WorkerLost, OSError: the worker failed and nothing is known.
        """
        files = given, expected, printed
        data = SIZES.pack(*map(len, files)) + b"".join(files)
        why = ""
        for _ in range(TRIES):
            worker = self._take(checker)
            try:
                answer, why = self._ask(worker, data)
            except BaseException:
                self._drop(worker)
                raise
            if answer is not None:
                with self._lock:
                    self._idle.append((checker, worker))
                return answer
            self._drop(worker)
        raise CheckerFault(why)

    def _ask(self, worker: Worker, data: bytes) -> tuple[bool | None, str]:
        """The answer, or None and why there is none."""
        ended = worker.run(data)
        if ended.kind != b"C":
            raise WorkerLost(f"a checker's process was lost (wait status {ended.status})")
        size = worker.printed(1)
        if ended.status or size > worker.limits.output_mb << 20:
            return None, how_it_ended(worker, ended)[1]
        words = worker.read(1, max(0, size - SAID), SAID).split()
        if words and words[-1] in (b"0", b"1"):
            return words[-1] == b"1", ""
        said = words[-1][:80].decode(errors="replace") if words else ""
        return None, f"it printed {said!r} instead of 0 or 1" if said else "it printed nothing"

    def _take(self, checker: str) -> Worker:
        """A worker that holds this checker; of the others, the one that waited longest."""
        with self._lock:
            for number, (held, worker) in enumerate(self._idle):
                if held == checker:
                    del self._idle[number]
                    return worker
            other = self._idle.pop(0)[1] if self._idle else None
        if other is not None:
            self._drop(other)
        worker = self._start()
        try:
            ended = worker.compile(checker.encode("utf-8", "surrogatepass"), CHECKER)
            if ended.kind == b"P":
                return worker
            why = how_it_ended(worker, ended)[1]
        except BaseException:
            self._drop(worker)
            raise
        self._drop(worker)
        if ended.kind == b"X":
            raise WorkerLost(f"no process for a checker: {why}")
        raise CheckerFault(f"it does not compile: {why}")
