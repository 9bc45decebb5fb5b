"""Untrusted program + cases -> Judgement, in a sandbox.

The judge keeps one worker process a thread (sandbox.py says what happens in it) and lends it a
program at a time. The thread hands over one case's input, waits for how the case ended, reads
what it printed and compares; the event loop only awaits the result. Expected outputs stay in
this process.

A failure of the judge itself (a process that cannot start, a worker that dies, a full disk) is
tried again on a fresh worker and then raised as JudgeFault. It is never a verdict.

    python judge.py PROGRAMS.jsonl --tasks PATH [--out VERDICTS.jsonl] [--all-cases]

judges rows with "task" and "program" and writes a row of counts for each, in input order.
"""

from __future__ import annotations

if __name__ == "__main__":
    import signal
    import sys

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # While modules are imported there is nothing to save: Ctrl-C ends it without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.flags.safe_path:  # python -P leaves out the folder of the script
        sys.path.insert(0, __file__.rpartition("/")[0] or ".")

import argparse
import asyncio
import hashlib
import os
import queue
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from checkers import CheckerFault, Checkers, checker_limits
from compare import same_output
from replies import extract_program
from sandbox.channel import Limits, Worker, WorkerLost
from sandbox.machine import cores, memory_mb
from trial import Failure, Judgement, Trial, Verdict, clip

if sys.platform != "win32":  # which has no fork: Judge says so
    import resource

    from sandbox.cage import STACK_BYTES, landlock_abi, seccomp_works

# What the judge offers, its own and that of the rooms below.
__all__ = [
    "CheckerFault",
    "Failure",
    "Judge",
    "JudgeFault",
    "Judgement",
    "Limits",
    "Sandbox",
    "SandboxError",
    "SandboxReport",
    "Verdict",
    "clip",
    "extract_program",
    "same_output",
]

if TYPE_CHECKING:
    from data import Task


class JudgeFault(Exception):
    """The judge failed, not the program: no verdict can be given."""


# --- the pool ---


Sandbox = bool | Literal["partial"]  # all of it or none, or what the machine has


class SandboxError(Exception):
    """This machine cannot judge as asked; the text says why and what to do."""


@dataclass(frozen=True)
class SandboxReport:
    """What the judge found when it attacked itself.

    Attributes:
        line: one line that says what holds.
        missing: the layers that do not hold, each with how to get it; empty when all hold.
        asked: True for the whole sandbox, "partial" for what the machine has, False for none.
    """

    line: str
    missing: tuple[str, ...]
    asked: Sandbox = True

    def check(self) -> None:
        """SandboxError when less holds than was asked for."""
        if self.missing and self.asked is True:
            raise SandboxError(
                f"the sandbox does not hold on this machine: {'; '.join(self.missing)}. Run on "
                "Linux 5.13 or newer with Landlock and seccomp, or accept the risk with --sandbox "
                "partial (what this machine has) or --sandbox off (nothing)"
            )


ATTEMPTS = 3  # workers that may fail on one program before it is a JudgeFault
REMEMBERED = 100_000  # judgements kept for programs that come again


# What the sandbox is made of, and what has it.
LAYERS = {
    "Landlock": "Linux 5.13 or newer, with landlock among the security modules it starts with",
    "seccomp": "Linux on x86_64 or aarch64, in a container that allows it",
}

# A hostile program: it prints what it could do. It reads whom to attack from stdin.
ATTACK = """
import os, sys, socket

def read(): open(victim).read(1)
def write(): os.open(folder, os.O_TMPFILE | os.O_WRONLY)
def connect(): socket.socket()
def fork(): os.fork() or os._exit(0)
def kill(): os.kill(int(judge), 0)
def look(): os.listdir("/proc/self/fd")

judge, victim, folder = sys.stdin.read().split("\\n")[:3]
for attack in read, write, connect, fork, kill, look:
    try:
        attack()
        print(attack.__name__)
    except OSError:
        pass
print("end")
"""


def _has(layer: str) -> bool:
    if layer == "Landlock":
        return landlock_abi() > 0
    return seccomp_works()


class Judge:
    """A pool of worker processes that judges programs.

    `async with Judge() as judge: judgement = await judge.grade(program, task)`. One event loop
    only. Leaving the block ends the workers, also while they judge.
    """

    def __init__(
        self, workers: int | None = None, limits: Limits | None = None, sandbox: Sandbox = True
    ) -> None:
        """Prepare a pool; the workers start when they are first needed.

        Args:
            workers: programs judged at once; None for as many as the machine can hold.
            limits: of a case.
            sandbox: True for all of it, "partial" for the layers that this machine has, False for
                none. What holds is what self_check says: nothing is refused here.

        Raises:
            SandboxError: this system cannot run the workers.
        """
        if sys.platform == "win32":
            raise SandboxError(
                "the judge needs Linux, or macOS with --sandbox off (on Windows, use WSL)"
            )
        if sandbox and sys.platform != "linux":
            raise SandboxError(
                "the sandbox needs Linux: use a Linux machine or container, or run programs "
                "that you trust with --sandbox off"
            )
        self.limits, self.sandbox = limits or Limits(), sandbox
        self._layers = [name for name in LAYERS if sandbox and _has(name)]
        self.workers = workers or default_workers(self.limits)
        self._threads = ThreadPoolExecutor(self.workers, "judge")
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        self._all: set[Worker] = set()
        self._checkers = Checkers(self._start_checker, self._drop)
        self._closing = False
        self._jobs: dict[Hashable, asyncio.Future[Judgement]] = {}

    async def __aenter__(self) -> Judge:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        for worker in list(self._all):
            if not worker.idle:
                worker.kill()
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._close)
        except RuntimeError:  # no thread can start
            self._close()

    def _close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        while self._all:
            self._drop(next(iter(self._all)))

    def let_go(self) -> None:
        """In a process that was forked off: the workers are the parent's, so hold none of them.

        While their sockets are open here too, they would outlive the parent.
        """
        for worker in list(self._all):
            worker.let_go()

    async def grade(
        self, program: str | None, task: Task, *, every_case: bool = False
    ) -> Judgement:
        """Judge a program: all visible cases, then the hidden ones up to the first failure.

        The same program on the same task is judged once (the last REMEMBERED are kept). Cancelling
        a grade leaves the pool as it was.

        Args:
            program: Python 3 source; None or blank is "no program".
            task: the cases.
            every_case: run every hidden case, whatever failed before.

        Raises:
            JudgeFault: the judge failed, on each of several fresh workers.
            CheckerFault: the task's checker gave no answer, so that nothing can be said of any
                program on this task.
        """
        if program is None or not program.strip():
            return Judgement("no program", 0, len(task.visible), 0, len(task.hidden), None, 0.0)
        source = program.encode("utf-8", "surrogatepass")
        program_hash = hashlib.sha256(source).digest()
        key = (program_hash, task.cases_hash, task.any_case, task.time_limit, every_case)
        job = self._jobs.get(key)
        if job is None:
            try:
                job = self._begin(source, task, every_case)
            except RuntimeError as error:  # no thread can start, or the judge is closed
                raise JudgeFault(f"judge fault on {task.id}: {error}") from error
            job.add_done_callback(lambda done: self._forget_failure(key, done))
            self._jobs[key] = job
            if len(self._jobs) > REMEMBERED:
                self._jobs.pop(next(iter(self._jobs)))
        return await asyncio.shield(job)

    def _begin(self, source: bytes, task: Task, every_case: bool) -> asyncio.Future[Judgement]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads, self._judge, source, task, every_case)

    def _forget_failure(self, key: Hashable, done: asyncio.Future[Judgement]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._jobs.pop(key, None)

    def _judge(self, source: bytes, task: Task, every_case: bool) -> Judgement:
        """In a thread of the pool: judge on a worker, and on a fresh one when that fails."""
        causes: list[str] = []
        for attempt in range(ATTEMPTS):
            worker: Worker | None = None
            try:
                worker = self._take(fresh=attempt > 0)
                trial = Trial(worker, task, self.limits.of(task.time_limit), self._checkers.accepts)
                judgement = trial.run(source, every_case)
                self._idle.put(worker)
                return judgement
            except CheckerFault as fault:
                if worker:
                    self._drop(worker)
                raise CheckerFault(f"the checker of {task.id} gave no answer: {fault}") from None
            except (OSError, WorkerLost) as cause:
                causes.append(str(cause))
                if worker:
                    self._drop(worker)
                if self._closing:
                    break
                time.sleep(0.05 * 4**attempt)  # what is short now may be there in a moment
        if self._closing:
            raise JudgeFault("the judge was closed while it judged")
        raise JudgeFault(f"judge fault on {task.id}, {ATTEMPTS} times: {causes[-1]}")

    def self_check(self) -> SandboxReport:
        """Attack the judge with a program that reads, writes, connects, forks and kills.

        Blocks until the attack is judged: call it in a thread from an event loop.

        Raises:
            JudgeFault: no worker could run it.
        """
        if not self.sandbox:
            line = "sandbox: OFF: programs run with all rights of this user"
            return SandboxReport(line, tuple(LAYERS))
        missing = [f"{name} ({LAYERS[name]})" for name in LAYERS if name not in self._layers]
        done = self._attack() if self._layers or self.sandbox == "partial" else []
        if done:
            missing.append(f"a program could {', '.join(done)}")
        limits = self.limits
        pool = f"{self.workers} worker{'s' * (self.workers > 1)} of {limits.memory_mb} MiB"
        holds = self._holds(missing) + (": " if missing else "") + "; ".join(missing)
        line = "; ".join([holds, *self._narrow(), pool])
        return SandboxReport(line, tuple(missing), self.sandbox)

    def _holds(self, missing: Sequence[str]) -> str:
        isolated = all(worker.isolated for worker in self._all)
        if missing and self.sandbox == "partial":
            held = ", ".join([*self._layers, *["namespaces"] * isolated, "rlimits"])
            return f"sandbox: PARTIAL: held by {held}; NOT HELD"
        if missing:
            return "sandbox: NOT HELD"
        kernel = f"Landlock {landlock_abi()}, seccomp"
        kernel += ", namespaces" if isolated else "; no namespaces: can see process ids"
        holds = "no file but Python's library, no write, network, process or signal"
        return f"sandbox: {holds} ({kernel})"

    def _narrow(self) -> list[str]:
        """Where this machine gives less than a case may take, so that verdicts depend on it."""
        found, limits = [], self.limits
        stack = resource.getrlimit(resource.RLIMIT_STACK)[1]
        if stack != resource.RLIM_INFINITY and stack < STACK_BYTES:
            found.append(
                f"WARNING: the hard limit of the stack is {stack >> 20} MiB here (ulimit -Hs), so "
                "deep recursion ends early"
            )
        if (memory := memory_mb()) < limits.memory_mb + 3 * limits.output_mb:
            found.append(
                f"WARNING: a case may take {limits.memory_mb} MiB and {memory} are to be had: a "
                "lower --memory-mb makes that a verdict instead of a judge fault"
            )
        return found

    def _attack(self) -> list[str]:
        """Run ATTACK and return what it could do."""
        task = f"{os.getpid()}\n{Path(__file__).resolve()}\n{tempfile.gettempdir()}\n"
        cause = ""
        for attempt in range(ATTEMPTS):
            try:
                worker = self._take(fresh=attempt > 0)
            except (OSError, WorkerLost) as error:
                cause = str(error)
                continue
            try:
                if worker.compile(ATTACK.encode()).kind == b"P":
                    ended = worker.run(task.encode())
                    done = worker.read(1, 0, worker.printed(1)).decode()
                    if ended.kind == b"C" and ended.status == 0 and done.endswith("end\n"):
                        worker.end()
                        self._idle.put(worker)
                        return done.splitlines()[:-1]
                cause = worker.read(2, 0, 10_000).decode(errors="replace").strip()
            except (OSError, WorkerLost) as error:
                cause = str(error)
            self._drop(worker)
        raise JudgeFault(f"the judge could not check itself: {cause}")

    def _take(self, fresh: bool) -> Worker:
        if not fresh:
            try:
                return self._idle.get_nowait()
            except queue.Empty:
                pass
        return self._start(self.limits)

    def _start_checker(self) -> Worker:
        return self._start(checker_limits(self.limits))

    def _start(self, limits: Limits) -> Worker:
        worker = Worker(limits, self._layers)
        self._all.add(worker)
        if self._closing:
            worker.kill()
        return worker

    def _drop(self, worker: Worker) -> None:
        self._all.discard(worker)
        worker.close()


def default_workers(limits: Limits) -> int:
    """One worker a core, but no more than fit into the memory at their worst."""
    return max(1, min(cores(), memory_mb() // (limits.memory_mb + 3 * limits.output_mb)))


# --- command line ---------------------------------------------------------------------------


def add_limit_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a judge: limits a case, number of workers, sandbox."""
    limits = Limits()
    add = parser.add_argument
    add(
        "--cpu-seconds",
        type=_within(float, 0.01, 1_000_000),
        default=limits.cpu_seconds,
        help="CPU time a case may take (default: %(default)g)",
    )
    add(
        "--wall-seconds",
        type=_within(float, 0.01, 1_000_000),
        default=limits.wall_seconds,
        help="wall time for a case that mostly sleeps; CPU time decides otherwise "
        "(default: %(default)g)",
    )
    add(
        "--memory-mb",
        type=_within(int, 32, 2**20),
        default=limits.memory_mb,
        help="memory a case may take, MiB (default: %(default)d)",
    )
    add(
        "--output-mb",
        type=_within(int, 1, 2**16),
        default=limits.output_mb,
        help="bytes a case may print, MiB (default: %(default)d)",
    )
    add(
        "--time-factor",
        type=_within(float, 0.01, 1000),
        default=None,
        help="times a task's own time limit that a case may take, at least 1 s, where the tasks "
        "give one (default: --cpu-seconds for every task)",
    )
    add(
        "--judge-workers",
        "--workers",
        type=_within(int, 1, 4096),
        default=None,
        help="programs judged at once (default: one a core, fewer when the memory limits of all "
        "would not fit into the machine)",
    )
    add(
        "--sandbox",
        choices=("on", "partial", "off"),
        default="on",
        help="partial holds what this machine can and says what it lacks; off runs programs of a "
        "model with all rights of this user: only for programs that you trust, or inside a "
        "container or virtual machine (default: on)",
    )


def limits_from(args: argparse.Namespace) -> Limits:
    """The limits that the flags of `add_limit_flags` ask for."""
    return Limits(
        args.cpu_seconds, args.wall_seconds, args.memory_mb, args.output_mb, args.time_factor
    )


def sandbox_from(args: argparse.Namespace) -> Sandbox:
    """What the flag --sandbox asks for."""
    return "partial" if args.sandbox == "partial" else args.sandbox == "on"


def _within(kind: type[float], least: float, most: float) -> Callable[[str], float]:
    """A type for argparse: `kind`, at least and at most so much."""

    def parse(text: str) -> float:
        number = kind(text)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"must be {least} to {most:,}")
        return number

    parse.__name__ = kind.__name__  # argparse: "invalid int value: 'x'"
    return parse


if __name__ == "__main__":
    from bank import main  # above us: it judges whole files
    from streams import settle

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = main()
    finally:
        settle(sys.stdout)
        settle(sys.stderr)
    sys.exit(code)
