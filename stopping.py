"""The end of a run before its end: what was paid for is awaited and saved, nothing new is begun,
and the command that goes on is said.

A reply in flight is worth waiting for, since it costs money. A judgement is not: its reply is
saved, and the next run judges it first. So a stopped run leaves its judge at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from judge import Judge, JudgeFault, Judgement, Limits, Sandbox
from policy import BudgetSpent, Stopped
from policy.key import without_password
from ray_judge import RayJudge
from settings import Config

if TYPE_CHECKING:
    from data import Task


class Stoppable(Protocol):
    """What starts requests: an endpoint, or the scripted policy."""

    in_flight: int

    def stop(self) -> None: ...


class LeavingJudge(Judge):
    """A judge that can be left: stop() makes every grade raise Stopped, begun or not."""

    def __init__(
        self, workers: int | None = None, limits: Limits | None = None, sandbox: Sandbox = True
    ) -> None:
        super().__init__(workers, limits, sandbox)
        self._left = asyncio.Event()

    def stop(self) -> None:
        self._left.set()

    async def grade(
        self, program: str | None, task: Task, *, every_case: bool = False
    ) -> Judgement:
        """As Judge.grade; raises Stopped besides."""
        if self._left.is_set():
            raise Stopped("nothing more is judged")
        judging = asyncio.ensure_future(super().grade(program, task, every_case=every_case))
        leaving = asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait({judging, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if judging.done():
                return judging.result()
            raise Stopped("nothing more is judged")
        finally:
            judging.cancel()
            leaving.cancel()


class LeavingRayJudge(LeavingJudge, RayJudge):
    """The same for the judge on a Ray at an address, see RayJudge."""

    def __init__(
        self, workers: int | None, limits: Limits, sandbox: Sandbox, address: str | None
    ) -> None:
        super().__init__(workers, limits, sandbox)
        self.address = address


@contextlib.contextmanager
def stopping_on_signals(
    policy: Stoppable, judge: LeavingJudge, say: Callable[[str], None]
) -> Iterator[None]:
    """Ctrl-C (or SIGTERM) begins nothing new; a second one leaves at once.

    Leaving at once is safe: a saved line is written whole.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def on_signal() -> None:
        nonlocal asked
        if asked:
            os._exit(130)
        asked = True
        policy.stop()
        judge.stop()
        replies = f"{policy.in_flight} replies" if policy.in_flight != 1 else "1 reply"
        say(
            f"stopping: no new request; waiting for {replies} in flight (again to leave at once)"
            if policy.in_flight
            else "stopping: no request is in flight"
        )

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def to_go_on(config: Config, error: BaseException, workers: int) -> str:
    """The command line that goes on with a run that `error` ended.

    Not the one that was given where that would end again, or set aside what is there now.
    """
    words = [without_password(word) for word in sys.orig_argv if word != "--overwrite"]
    if isinstance(error, BudgetSpent) and config.max_total_tokens:
        words = _with_flag(words, "--max-total-tokens", 2 * config.max_total_tokens)
    if isinstance(error, JudgeFault) and workers > 1:
        words = _with_flag(words, "--judge-workers", 1)  # memory or processes may be short
    return shlex.join(words)


def _with_flag(words: Sequence[str], option: str, value: int) -> list[str]:
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if option not in (word, before) and not word.startswith(option + "=")
    ]
    return [*kept, option, str(value)]
