"""One program on the cases of one task, on one worker -> its Judgement."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from compare import same_output, same_value
from sandbox.channel import Ended, Limits, Worker, WorkerLost

if sys.platform != "win32":
    from sandbox.drivers import FUNCTION, MARK
    from sandbox.worker import CPU, MAX_THREADS, THREADS, WALL

if TYPE_CHECKING:
    from data import Case, Task

TEXT_LIMIT = 1000  # characters of an input, an output or an error that a Failure keeps
TIME_LIMITS = 2  # time limits after which a program is run no further

# A checker, a case's input, its expected output, what was printed -> whether that is right.
Accepts = Callable[[str, bytes, bytes, bytes], bool]

Verdict = Literal[
    "accepted",
    "wrong answer",
    "runtime error",
    "time limit",
    "memory limit",
    "output limit",
    "no program",
]


@dataclass(frozen=True)
class Failure:
    """The first case that a program failed.

    Attributes:
        case: index into the visible cases, or into the hidden ones when `hidden`.
        hidden: whether it is a hidden case; such a failure must never reach a prompt.
        verdict: what happened on this case.
        input, expected: the case, clipped.
        got: what the program printed, clipped, or the last traceback line, or why it was stopped.
    """

    case: int
    hidden: bool
    verdict: Verdict
    input: str
    expected: str
    got: str


@dataclass(frozen=True)
class Judgement:
    """What the judge found.

    Attributes:
        verdict: "accepted" when every visible and hidden case passed, else the verdict of the
            first failed case.
        visible_passed, visible_total: all visible cases run.
        hidden_passed, hidden_total: hidden cases run only when all visible ones passed, up to
            the first failure (all of them with `every_case`).
        first_failure: None when accepted or when there is no program.
        cpu_seconds: CPU time of the program over all its cases.
        cut_short: the program hit the time limit twice and its remaining cases did not run.
    """

    verdict: Verdict
    visible_passed: int
    visible_total: int
    hidden_passed: int
    hidden_total: int
    first_failure: Failure | None
    cpu_seconds: float
    cut_short: bool = False

    @property
    def accepted(self) -> bool:
        return self.verdict == "accepted"

    @property
    def fitness(self) -> float:
        """Share of the visible cases passed, 0 to 1."""
        return self.visible_passed / self.visible_total


class Trial:
    """One program on the cases of one task, on one worker."""

    def __init__(self, worker: Worker, task: Task, limits: Limits, accepts: Accepts) -> None:
        """`accepts` asks the task's checker, if it has one."""
        self.worker, self.task, self.limits, self.accepts = worker, task, limits, accepts
        self.cpu_seconds = 0.0
        self.time_limits = 0
        self.first_failure: Failure | None = None

    def run(self, source: bytes, every_case: bool) -> Judgement:
        """Judge; WorkerLost or OSError when the worker failed and nothing is known."""
        task = self.task
        if task.function is None:
            ended = self.worker.compile(source, limits=self.limits)
        else:
            ended = self.worker.compile(
                source + b"\0" + task.function.encode(), FUNCTION, self.limits
            )
        if ended.kind == b"P":
            visible = self.count(task.visible, hidden=False)
            hidden = 0
            if every_case or visible == len(task.visible):
                hidden = self.count(task.hidden, hidden=True, stop=not every_case)
            self.worker.end()
        elif ended.kind == b"S" or ended.kind == b"E":
            visible = hidden = 0
            self.fail(task.visible[0], 0, False, *how_it_ended(self.worker, ended))
            if ended.kind == b"S":
                self.worker.ended()
            self.worker.idle = True
        else:
            raise WorkerLost(f"no program process: {last_error(self.worker)}")
        return Judgement(
            self.first_failure.verdict if self.first_failure else "accepted",
            visible,
            len(task.visible),
            hidden,
            len(task.hidden),
            self.first_failure,
            self.cpu_seconds,
            self.time_limits >= TIME_LIMITS,
        )

    def count(self, cases: Sequence[Case], hidden: bool, stop: bool = False) -> int:
        """Run cases and count those that pass, up to the first failure with `stop`."""
        passed = 0
        for index, case in enumerate(cases):
            if self.time_limits >= TIME_LIMITS:
                break
            ended = self.worker.run(case.input.encode("utf-8", "surrogatepass"))
            if ended.kind != b"C":
                raise WorkerLost(
                    f"a program process was lost (wait status {ended.status}) "
                    f"{last_error(self.worker)}"
                )
            verdict, got = self.verdict(ended, case)
            if verdict == "accepted":
                passed += 1
                continue
            self.fail(case, index, hidden, verdict, got)
            self.time_limits += verdict == "time limit"
            if stop:
                break
        return passed

    def fail(self, case: Case, index: int, hidden: bool, verdict: Verdict, got: str) -> None:
        """Note a failed case if it is the first."""
        if self.first_failure is None:
            self.first_failure = Failure(
                index, hidden, verdict, clip(case.input), clip(case.output), clip(got)
            )

    def verdict(self, ended: Ended, case: Case) -> tuple[Verdict, str]:
        """The verdict on a case that ended, and what to show for it."""
        self.cpu_seconds += ended.cpu_seconds
        size = self.worker.printed(1)
        in_time = ended.cpu_seconds <= self.limits.cpu_seconds
        if ended.status or size > self.limits.output_mb << 20 or not in_time:
            return how_it_ended(self.worker, ended)
        got = self.worker.read(1, 0, size)
        if self.task.function is not None:
            got = returned(got)
        if self.is_right(case, got):
            return "accepted", ""
        return "wrong answer", got[: 8 * TEXT_LIMIT].decode(errors="replace")

    def is_right(self, case: Case, got: bytes) -> bool:
        """Whether an output is right: as the task's checker says, or the same as the expected."""
        task = self.task
        if task.checker is None and task.function is not None:
            return same_value(case.output, got, task.any_case)
        expected = case.output.encode("utf-8", "surrogatepass")
        if task.checker is None:
            return same_output(expected, got, task.any_case)
        given = case.input.encode("utf-8", "surrogatepass")
        return self.accepts(task.checker, given, expected, got)


def returned(printed: bytes) -> bytes:
    """The JSON value that a function returned; b"" when it did not get to that."""
    before, mark, _ = printed.rpartition(MARK)
    return before.rpartition(MARK)[2] if mark else b""


def how_it_ended(worker: Worker, ended: Ended) -> tuple[Verdict, str]:
    """The verdict on a case that did not end well, and one line that says why."""
    limits = worker.limits
    number = os.WTERMSIG(ended.status) if os.WIFSIGNALED(ended.status) else 0
    over = ended.why == CPU or ended.cpu_seconds > limits.cpu_seconds
    if worker.printed(1) > limits.output_mb << 20 or number == signal.SIGXFSZ:
        return "output limit", f"printed more than {limits.output_mb} MiB"
    if over or number == signal.SIGXCPU:
        return "time limit", f"ran out of time ({limits.cpu_seconds:g} s of CPU)"
    if ended.why == WALL:
        return "time limit", f"ran out of time ({limits.wall_seconds:g} s, mostly asleep)"
    if ended.why == THREADS:
        return "runtime error", f"started more than {MAX_THREADS} threads"
    last = last_error(worker)
    if number == signal.SIGKILL:
        raise WorkerLost(f"a case was killed from outside; is memory short? {last}".rstrip())
    if number:
        return "runtime error", f"killed by signal {number} ({signal.Signals(number).name})"
    compiled = ended.kind != b"S"  # a parser that gives up at deep nesting says MemoryError too
    if compiled and re.match(r"(line \d+: )?MemoryError\b", last):
        return "memory limit", f"ran out of memory ({limits.memory_mb} MiB)"
    return "runtime error", last or f"exit status {os.waitstatus_to_exitcode(ended.status)}"


def last_error(worker: Worker) -> str:
    """The last line that was written to stderr, with the line number of a traceback."""
    size = worker.printed(2)
    text = worker.read(2, max(0, size - 50_000), 50_000).decode(errors="replace").strip()
    where = re.findall(r'File "program\.py", line (\d+)', text)
    last = text[max(text.rfind("\n"), text.rfind("\r")) + 1 :]
    return f"line {where[-1]}: {last}" if where else last


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """The start of a text, with how much was cut."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}... ({len(text) - limit} more characters)"
