"""One Judge that lives as long as the process: for callers of many threads and event loops.

The judge belongs to an event loop, so it gets one of its own, in a thread of its own; whoever
asks, from a thread, from a running event loop, hands over a coroutine and waits for it as it can.

It ends with the process: the interpreter's end ends the workers, also those that judge. When the
process is killed, its sockets close, and each worker ends when its case does. A process that was
forked off has no threads but the one that forked: it lets go of the judge, whose workers are its
parent's, and makes one of its own when it needs one.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from judge import Judge, JudgeFault, Limits, Sandbox, SandboxError
from ray_judge import RayJudge

T = TypeVar("T")


class Resident:
    """A judge with an event loop in a thread.

    Attributes:
        judge: awaited in that loop only.
        line: what the judge found when it attacked itself.
    """

    def __init__(self, make: Callable[[], Judge]) -> None:
        """Start it. Raises SandboxError when less of the sandbox holds than was asked for."""
        self.judge = make()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="judge's loop", daemon=True).start()
        try:
            found = self.judge.self_check()
            found.check()
        except BaseException:
            self.close()
            raise
        self.line = found.line

    def submit(self, work: Coroutine[None, None, T]) -> Future[T]:
        """Begin to run a coroutine in the judge's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the workers, also while they judge, and the loop."""
        self.submit(self.judge.__aexit__()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)


_lock = threading.Lock()
_make: Callable[[], Judge] = Judge
_resident: Resident | None = None
_left: list[Resident] = []  # a forked process keeps what it must not end


def set_up(
    workers: int | None = None,
    limits: Limits | None = None,
    sandbox: Sandbox = True,
    judge: str = "local",
    ray_address: str | None = None,
) -> str:
    """Start the judge with these instead of the usual arguments of Judge; what it says of itself.

    Raises:
        RuntimeError: it was started already.
        SandboxError: less of the sandbox holds on this machine than was asked for, or no node of
            the Ray can judge.
        ValueError: the judge is neither "local" nor "ray".
    """
    global _make
    if judge not in ("local", "ray"):
        raise ValueError(f"a judge is local or ray, and not {judge!r}")
    with _lock:
        if _resident is not None:
            raise RuntimeError("the judge of this process was started already: set it up before")
        if judge == "ray":
            _make = partial(RayJudge, workers, limits, sandbox, ray_address)
        else:
            _make = partial(Judge, workers, limits, sandbox)
    return resident().line


def resident() -> Resident:
    """The judge of this process, started when it is first asked for."""
    global _resident
    with _lock:
        if _resident is None:
            _resident = Resident(_make)
        return _resident


def _at_the_end() -> None:
    if _resident is not None:
        _resident.close()


def _in_forked_child() -> None:
    global _lock, _resident
    _lock = threading.Lock()
    if _resident is not None:
        _resident.judge.let_go()
        _left.append(_resident)
        _resident = None


os.register_at_fork(after_in_child=_in_forked_child)
# As concurrent.futures does, and so before it waits for the judge's threads: atexit comes later.
threading._register_atexit(_at_the_end)  # type: ignore[attr-defined]

__all__ = ["JudgeFault", "Resident", "SandboxError", "resident", "set_up"]
