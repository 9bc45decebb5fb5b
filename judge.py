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

import argparse
import ast
import asyncio
import contextlib
import decimal
import hashlib
import itertools
import json
import math
import os
import queue
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

if sys.platform != "win32":  # which has no fork: Judge says so
    import sandbox as worker_side

if TYPE_CHECKING:
    from data import Case, Task

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
class Limits:
    """What one case may use.

    Attributes:
        cpu_seconds: CPU time.
        wall_seconds: wall time; catches programs that sleep.
        memory_mb: address space, MiB.
        output_mb: stdout, MiB.
    """

    cpu_seconds: float = 6.0
    wall_seconds: float = 12.0
    memory_mb: int = 1024
    output_mb: int = 16


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


class JudgeFault(Exception):
    """The judge failed, not the program: no verdict can be given."""


# --- reading programs and outputs ---

# The source limit of Codeforces. A longer text is no program, and parsing can take n^2 time.
_PARSE_CHARS = 65_536
_PARSE_TRIES = 10

_LINE = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
_THINK = re.compile(r"<(/?)think>", re.IGNORECASE)
_OPENING = re.compile(r"( *)(`{3,}(?=[^`]*$)|~{3,})(.*)", re.DOTALL)
_LIST_ITEM = re.compile(r" *(?:[-+*]|\d{1,9}[.)]) +")
_PYTHON_TAG = re.compile(r"\{?\s*\.?(?:python|py)(?:3[\d.]*)?(?![\w.+#-])", re.IGNORECASE)


def extract_program(reply: str) -> str | None:
    """The Python program in a reply, without its trailing whitespace; None when there is none.

    In this order: the last closed fence tagged as Python (python, py, python3, any case); the last
    closed untagged fence that compiles; what follows the opening of a fence that the reply's end
    cut off; the whole reply when it compiles. A sample output such as `3` or `YES` compiles too,
    so the text that is only tried as Python must do something. <think> parts never count.

    Fences are CommonMark's (https://spec.commonmark.org/0.31.2/#fenced-code-blocks), also inside
    list items, with two allowances for what models write: a closing fence at which the text does
    not compile, though it does at a later one, stands in a string; and a fence tagged as Python
    opens also within a fence that is no program (a wrapper, or the rest after a stray fence).
    """
    lines = _without_thinking(_LINE.split(reply))
    tagged, untagged, cut_off, before = _programs(lines)
    if tagged or untagged:
        return (tagged or untagged)[-1]
    if cut_off is not None and _PYTHON_TAG.match(cut_off[0]):
        return cut_off[1].rstrip() or None
    for text in ("".join(lines), before):
        if _does_something(text):
            return text.rstrip()
    return (cut_off[1].rstrip() or None) if cut_off and not cut_off[0] else None


def _programs(lines: list[str]) -> tuple[list[str], list[str], tuple[str, str] | None, str]:
    """Programs of closed tagged and untagged fences, (tag, text) of an open fence at the end, and
    the text before the first fence."""
    tagged: list[str] = []
    untagged: list[str] = []
    cut_off = None
    first = len(lines)
    at = offset = 0
    while at < len(lines):
        offset = _list_offset(lines[at], offset)
        opening = _opening(lines[at], offset)
        if opening is None:
            at += 1
            continue
        first = min(first, at)
        tag = opening[3].strip()
        python = bool(_PYTHON_TAG.match(tag))
        end, text = _content(lines, at, opening, offset, in_string=python or not tag)
        inner = None
        if python and end < len(lines):
            if text.strip():
                tagged.append(text.rstrip())
        elif not tag and end < len(lines) and _does_something(text):
            untagged.append(text.rstrip())
        elif not python:
            inner = next((i for i in range(at + 1, end) if _opens_python(lines[i], offset)), None)
        if end == len(lines) and inner is None:
            cut_off = (tag, text)
        at = end + 1 if inner is None else inner
    return tagged, untagged, cut_off, "".join(lines[:first])


def _opening(line: str, offset: int) -> re.Match[str] | None:
    """The line as an opening fence; `offset` is the indentation of the list item it may be in."""
    match = _OPENING.match(line)
    if match is None:
        return None
    indent = len(match[1])
    return match if indent <= 3 or offset <= indent <= offset + 3 else None


def _opens_python(line: str, offset: int) -> bool:
    match = _opening(line, offset)
    return match is not None and bool(_PYTHON_TAG.match(match[3].strip()))


def _closes(line: str, opening: re.Match[str], offset: int) -> bool:
    indent = len(line) - len(line.lstrip(" "))
    bare = line.strip()
    enough = len(bare) >= len(opening[2]) and not bare.strip(opening[2][0])
    return enough and indent <= (offset if len(opening[1]) > 3 else 0) + 3


def _content(
    lines: list[str], at: int, opening: re.Match[str], offset: int, in_string: bool
) -> tuple[int, str]:
    """Index of the closing line (len(lines) when there is none) and the text up to it, with the
    opening's indentation taken off. With `in_string`, closing lines in a string are passed over."""
    indent = len(opening[1])
    body: list[str] = []
    found: tuple[int, str] | None = None
    tries = 0
    for end in range(at + 1, len(lines)):
        line = lines[end]
        if _closes(line, opening, offset):
            found = found or (end, "".join(body))
            tries += 1
            if not in_string or tries > _PARSE_TRIES:
                break
            if _parsed("".join(body)) is not None:
                return end, "".join(body)
        body.append(line[min(indent, len(line) - len(line.lstrip(" "))) :])
    return found or (len(lines), "".join(body))


def _list_offset(line: str, offset: int) -> int:
    """Indentation of the contents of the list item that the text after this line belongs to."""
    item = _LIST_ITEM.match(line)
    if item:
        return item.end()
    indented = len(line) - len(line.lstrip(" "))
    return offset if not line.strip() or indented >= offset else 0


def _without_thinking(lines: list[str]) -> list[str]:
    """The lines that no <think> part holds.

    A template can give the opening <think> to the policy, so a lone </think> ends a part that
    began with the reply. Within a fence a tag is the program's text, unless </think> is alone on
    its line: then the fence is a draft that the thinking left open.
    """
    kept: list[str] = []
    fence: re.Match[str] | None = None
    thinking = False
    for line in lines:
        if fence is not None:
            if line.strip().lower() == "</think>":
                kept, fence = [], None
            else:
                kept.append(line)
                fence = None if _closes(line, fence, 3) else fence
            continue
        outside = ""
        start = 0
        for tag in _THINK.finditer(line):
            if tag[1] and not thinking:
                kept, outside = [], ""
            elif not tag[1] and not thinking:
                outside += line[start : tag.start()]
            thinking, start = not tag[1], tag.end()
        outside += "" if thinking else line[start:]
        fence = None if thinking else _opening(outside, 4)
        kept.append(outside)
    return kept


def _parsed(text: str) -> ast.Module | None:
    """The text's syntax tree when it is Python, else None.

    Only the parser sees the text: it runs in our own process, and CPython's compiler can be crashed
    (fifty nested comprehensions end 3.12 and 3.13 with a segmentation fault). The parser bounds its
    recursion and folds nothing; it answers a bomb with one of these exceptions.
    """
    if len(text) > _PARSE_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _does_something(text: str) -> bool:
    """Whether the text is a Python program, and more than `YES`, `-1, 2` or `Answer: 3`."""
    tree = _parsed(text)
    if tree is None or any(isinstance(node, ast.Return) for node in _outside_functions(tree)):
        return False
    inert = all(
        isinstance(s, ast.Expr) or (isinstance(s, ast.AnnAssign) and s.value is None)
        for s in tree.body
    )
    return not inert or any(isinstance(node, ast.Call) for node in ast.walk(tree))


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of no function's body: a return among them is an excerpt, not a program."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo.extend(ast.iter_child_nodes(node))


_NUMBER = re.compile(rb"[+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?")
_SPACE = re.compile(rb"\s")
_BLOCK = 1 << 16
_TOLERANCE = decimal.Decimal("1e-6")
# Fifty digits and any exponent: a token of any length costs time linear in its length.
_EXACT = decimal.Context(prec=50, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])


def same_output(expected: bytes, got: bytes) -> bool:
    """Whether a contest's checker would take `got` for `expected`.

    Both are split on whitespace (ASCII; the bytes need not be UTF-8). A pair of tokens is equal as
    text; or as integers, exactly, whatever their length; or, when both are plain decimal or
    scientific numbers and not both integers, within 1e-6 of each other, absolute or relative to
    the expected one. `nan`, `inf`, `1_000`, `0x1f` and non-ASCII digits are not numbers.
    """
    if expected == got:
        return True
    pairs = itertools.zip_longest(_tokens(expected), _tokens(got))
    return all(_same_number(want, have) for want, have in pairs if want != have)


def _tokens(text: bytes) -> Iterator[bytes]:
    """The tokens of `text`, a block at a time: 16 MiB of digits are not 8 million objects."""
    return itertools.chain.from_iterable(_blocks(text))


def _blocks(text: bytes) -> Iterator[list[bytes]]:
    start = 0
    while start < len(text):
        space = _SPACE.search(text, start + _BLOCK)
        end = space.end() if space else len(text)
        yield text[start:end].split()
        start = end


def _same_number(expected: bytes | None, got: bytes | None) -> bool:
    """Whether two tokens that differ as text are the same number; None is a missing token."""
    if not (expected and got and _NUMBER.fullmatch(expected) and _NUMBER.fullmatch(got)):
        return False
    if expected.lstrip(b"+-").isdigit() and got.lstrip(b"+-").isdigit():
        return _integer(expected) == _integer(got)
    x, y = float(expected), float(got)
    share = abs(x - y) / (1e-6 * max(1.0, abs(x)))
    if share < 0.999 or 1.001 < share < math.inf:
        return share < 1
    want = _EXACT.create_decimal(expected.decode())
    have = _EXACT.create_decimal(got.decode())
    if not (want.is_finite() and have.is_finite()):
        return False  # exponents of 10^18 and more
    gap = _EXACT.subtract(want, have).copy_abs()
    return gap <= _EXACT.multiply(_TOLERANCE, max(want.copy_abs(), decimal.Decimal(1)))


def _integer(token: bytes) -> tuple[bool, bytes]:
    """Sign and digits without leading zeros: int() of a long text is slow, and refused."""
    digits = token.lstrip(b"+-0")
    return token.startswith(b"-") and bool(digits), digits


# --- the pool ---


class SandboxError(Exception):
    """This machine cannot judge as asked; the text says why and what to do."""


@dataclass(frozen=True)
class SandboxReport:
    """What the judge found when it attacked itself.

    Attributes:
        line: one line that says what holds.
        missing: the layers that do not hold, each with how to get it; empty when all hold.
    """

    line: str
    missing: tuple[str, ...]


TEXT_LIMIT = 1000  # characters of an input, an output or an error that a Failure keeps
ATTEMPTS = 3  # workers that may fail on one program before it is a JudgeFault
TIME_LIMITS = 2  # time limits after which a program is run no further
REMEMBERED = 100_000  # judgements kept for programs that come again
REPLY_SECONDS = 60  # what a worker may take for an answer beyond the limits of a case


# What a worker runs. As a script, sandbox.py would keep its syntax tree in memory: pages to copy.
START = "import sys; sys.path.append({folder!r}); import sandbox; sandbox.main()"

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
        return worker_side.landlock_abi() > 0
    return worker_side.seccomp_works()


class Judge:
    """A pool of worker processes that judges programs.

    `async with Judge() as judge: judgement = await judge.grade(program, task)`. One event loop
    only. Leaving the block ends the workers, also while they judge.
    """

    def __init__(
        self, workers: int | None = None, limits: Limits = Limits(), sandbox: bool = True
    ) -> None:
        """Prepare a pool; the workers start when they are first needed.

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
        self.limits, self.sandbox = limits, sandbox
        self._layers = [name for name in LAYERS if sandbox and _has(name)]
        self.workers = workers or default_workers(limits)
        self._threads = ThreadPoolExecutor(self.workers, "judge")
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        self._all: set[_Worker] = set()
        self._closing = False
        self._jobs: dict[tuple[bytes, str, bool], asyncio.Future[Judgement]] = {}

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
        """
        if program is None or not program.strip():
            return Judgement("no program", 0, len(task.visible), 0, len(task.hidden), None, 0.0)
        source = program.encode("utf-8", "surrogatepass")
        key = (hashlib.sha256(source).digest(), task.id, every_case)
        job = self._jobs.get(key)
        if job is None:
            loop = asyncio.get_running_loop()
            try:
                job = loop.run_in_executor(self._threads, self._judge, source, task, every_case)
            except RuntimeError as error:  # no thread can start, or the judge is closed
                raise JudgeFault(f"judge fault on {task.id}: {error}") from error
            job.add_done_callback(lambda done: self._forget_failure(key, done))
            self._jobs[key] = job
            if len(self._jobs) > REMEMBERED:
                self._jobs.pop(next(iter(self._jobs)))
        return await asyncio.shield(job)

    def _forget_failure(
        self, key: tuple[bytes, str, bool], done: asyncio.Future[Judgement]
    ) -> None:
        if done.cancelled() or done.exception() is not None:
            self._jobs.pop(key, None)

    def _judge(self, source: bytes, task: Task, every_case: bool) -> Judgement:
        """In a thread of the pool: judge on a worker, and on a fresh one when that fails."""
        causes: list[str] = []
        for attempt in range(ATTEMPTS):
            worker: _Worker | None = None
            try:
                worker = self._take(fresh=attempt > 0)
                judgement = _Trial(worker, task, self.limits).run(source, every_case)
                self._idle.put(worker)
                return judgement
            except (OSError, _WorkerLost) as cause:
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
        done = self._attack() if self._layers else []
        if done and not missing:
            missing = [f"a program could {', '.join(done)}"]
        isolated = all(worker.isolated for worker in self._all)
        kernel = f"Landlock {worker_side.landlock_abi()}, seccomp"
        kernel += ", namespaces" if isolated else "; no namespaces: can see process ids"
        holds = "no file but Python's library, no write, network, process or signal"
        limits = self.limits
        line = f"sandbox: {holds} ({kernel}); " if not missing else "sandbox: NOT HELD: "
        line += "; ".join(missing) + ("; " if missing else "")
        line += f"{self.workers} worker{'s' * (self.workers > 1)} of {limits.memory_mb} MiB"
        return SandboxReport(line, tuple(missing))

    def _attack(self) -> list[str]:
        """Run ATTACK and return what it could do."""
        task = f"{os.getpid()}\n{Path(__file__).resolve()}\n{tempfile.gettempdir()}\n"
        cause = ""
        for attempt in range(ATTEMPTS):
            try:
                worker = self._take(fresh=attempt > 0)
            except (OSError, _WorkerLost) as error:
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
            except (OSError, _WorkerLost) as error:
                cause = str(error)
            self._drop(worker)
        raise JudgeFault(f"the judge could not check itself: {cause}")

    def _take(self, fresh: bool) -> _Worker:
        if not fresh:
            try:
                return self._idle.get_nowait()
            except queue.Empty:
                pass
        worker = _Worker(self.limits, self._layers)
        self._all.add(worker)
        if self._closing:
            worker.kill()
        return worker

    def _drop(self, worker: _Worker) -> None:
        self._all.discard(worker)
        worker.close()


def default_workers(limits: Limits) -> int:
    """One worker a core, but no more than fit into the machine's memory at their worst."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    return max(1, min(cores, memory // (limits.memory_mb + 3 * limits.output_mb)))


# --- one worker process, seen from here -----------------------------------------------------


class _WorkerLost(Exception):
    """A worker did not do its work; the text says how that showed."""


class _Ended(NamedTuple):
    """How a case ended, or the program process while it compiled.

    Attributes:
        kind: the reply's kind, see sandbox.REPLY.
        status: what wait(2) gave: 0 or an exit status or a signal.
        cpu_seconds: CPU time.
        why: what stopped it: 0 itself, or a constant of the sandbox module.
    """

    kind: bytes
    status: int
    cpu_seconds: float
    why: int


class _Worker:
    """A worker process and the three files through which its cases read and print."""

    def __init__(self, limits: Limits, layers: Sequence[str]) -> None:
        self.limits = limits
        self.patience = int(limits.wall_seconds * worker_side.STARVED_WALLS + REPLY_SECONDS)
        self.files: list[int] = []
        self.idle = False  # no program process is below it
        self.process: subprocess.Popen[bytes] | None = None
        self.sock, theirs = socket.socketpair()
        # A timeout of the kernel's: one of Python's costs two more system calls a message.
        patience = struct.pack("@ll", self.patience, 0)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        try:
            with theirs:
                self.files = [_scratch_file() for _ in range(3)]
                self._start(theirs, layers)
            self.isolated = bool(self._expect(b"R").status)
            self.idle = True
        except BaseException:
            self.close()
            raise

    def _start(self, theirs: socket.socket, layers: Sequence[str]) -> None:
        limits = self.limits
        memory, output = limits.memory_mb << 20, limits.output_mb << 20
        arguments = [theirs.fileno(), limits.cpu_seconds, limits.wall_seconds, memory, output]
        # No site-packages, no user's packages, no folder of ours on the path, UTF-8 everywhere.
        flags = ["-S", "-s", "-P", "-B", "-X", "utf8"]
        start = START.format(folder=str(Path(worker_side.__file__).parent))
        self.process = subprocess.Popen(
            [sys.executable, *flags, "-c", start, *map(str, arguments), " ".join(layers)],
            stdin=self.files[0],
            stdout=self.files[1],
            stderr=self.files[2],
            env={"PYTHONHASHSEED": "0", "LD_BIND_NOW": "1"},  # link once, not in each case
            cwd="/",
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is for the judge, which then ends its workers
        )

    def compile(self, source: bytes) -> _Ended:
        """Hand over a program: kind P when it compiled, S when not, E when that killed it."""
        self._clear(source)
        self.idle = False
        self._send(b"P")
        return self._receive()

    def run(self, case_input: bytes) -> _Ended:
        """Run the program on one case: kind C, or E when the program process ended."""
        self._clear(case_input)
        self._send(b"C")
        return self._receive()

    def end(self) -> None:
        """End the program process; the worker is then ready for the next program."""
        self._send(b"E")
        self.ended()

    def ended(self) -> None:
        """Wait until the program process has ended."""
        self._expect(b"E")
        self.idle = True

    def printed(self, descriptor: int) -> int:
        """How many bytes the case wrote to stdout (1) or stderr (2)."""
        return os.fstat(self.files[descriptor]).st_size

    def read(self, descriptor: int, start: int, size: int) -> bytes:
        """Bytes that the case wrote to stdout (1) or stderr (2)."""
        parts = []
        while size and (part := os.pread(self.files[descriptor], size, start)):
            parts.append(part)
            start, size = start + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _clear(self, stdin: bytes) -> None:
        """Put a case's input where it is read, and empty what the last one printed."""
        given, *printed = self.files
        os.lseek(given, 0, os.SEEK_SET)
        os.ftruncate(given, len(stdin))
        written = os.pwrite(given, stdin, 0)
        while written < len(stdin):  # the kernel writes at most 2 GiB at once
            written += os.pwrite(given, memoryview(stdin)[written:], written)
        for file in printed:
            os.lseek(file, 0, os.SEEK_SET)
            os.ftruncate(file, 0)

    def _send(self, command: bytes) -> None:
        self.sock.send(command)

    def _receive(self) -> _Ended:
        reply = b""
        while len(reply) < worker_side.REPLY.size:
            try:
                part = self.sock.recv(worker_side.REPLY.size - len(reply))
            except BlockingIOError:  # see SO_RCVTIMEO
                raise _WorkerLost(f"no answer for {self.patience} s") from None
            if not part:
                raise _WorkerLost(self._obituary())
            reply += part
        return _Ended(*worker_side.REPLY.unpack(reply))

    def _expect(self, kind: bytes) -> _Ended:
        if (reply := self._receive()).kind != kind:
            raise _WorkerLost(f"out of step: expected {kind!r}, got {reply}")
        return reply

    def _obituary(self) -> str:
        if self.process is None:
            return "the worker did not start"
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "the worker closed its socket"
        last = self.read(2, max(0, self.printed(2) - 500), 500).decode(errors="replace")
        return f"the worker ended with {code}: {last.strip().rpartition(chr(10))[2]}"

    def kill(self) -> None:
        """End the worker and all below it; whoever waits for it in another thread finds out."""
        if self.process and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # it leads a session of its own

    def close(self) -> None:
        """End the worker and free its files."""
        self.sock.close()  # an idle worker then ends by itself, and leaves no orphan behind
        if self.process:
            try:
                self.process.wait(1 if self.idle else 0)
            except subprocess.TimeoutExpired:
                self.kill()
                self.process.wait()
        for file in self.files:
            os.close(file)
        self.files = []


def _scratch_file() -> int:
    """A descriptor of an empty, unnamed file, in memory where the system can."""
    if sys.platform == "linux":
        file = os.memfd_create("case")
    else:
        file, path = tempfile.mkstemp()
        os.unlink(path)
    return file


# --- one program on one task ----------------------------------------------------------------


class _Trial:
    """One program on the cases of one task, on one worker."""

    def __init__(self, worker: _Worker, task: Task, limits: Limits) -> None:
        self.worker, self.task, self.limits = worker, task, limits
        self.cpu_seconds = 0.0
        self.time_limits = 0
        self.first_failure: Failure | None = None

    def run(self, source: bytes, every_case: bool) -> Judgement:
        """Judge; _WorkerLost or OSError when the worker failed and nothing is known."""
        task = self.task
        ended = self.worker.compile(source)
        if ended.kind == b"P":
            visible = self.count(task.visible, hidden=False)
            hidden = 0
            if every_case or visible == len(task.visible):
                hidden = self.count(task.hidden, hidden=True, stop=not every_case)
            self.worker.end()
        elif ended.kind == b"S" or ended.kind == b"E":
            visible = hidden = 0
            self.fail(task.visible[0], 0, False, *self.why(ended))
            if ended.kind == b"S":
                self.worker.ended()
            self.worker.idle = True
        else:
            raise _WorkerLost(f"no program process: {self.last_error()}")
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
                raise _WorkerLost(
                    f"a program process was lost (wait status {ended.status}) {self.last_error()}"
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

    def verdict(self, ended: _Ended, case: Case) -> tuple[Verdict, str]:
        """The verdict on a case that ended, and what to show for it."""
        self.cpu_seconds += ended.cpu_seconds
        size = self.worker.printed(1)
        if ended.status == 0 and size <= self.limits.output_mb << 20:
            if ended.cpu_seconds > self.limits.cpu_seconds:
                return self.why(ended)
            got = self.worker.read(1, 0, size)
            if same_output(case.output.encode("utf-8", "surrogatepass"), got):
                return "accepted", ""
            return "wrong answer", got[: 8 * TEXT_LIMIT].decode(errors="replace")
        return self.why(ended)

    def why(self, ended: _Ended) -> tuple[Verdict, str]:
        """The verdict on a case that did not end well, and one line that says why."""
        limits = self.limits
        number = os.WTERMSIG(ended.status) if os.WIFSIGNALED(ended.status) else 0
        over = ended.why == worker_side.CPU or ended.cpu_seconds > limits.cpu_seconds
        if self.worker.printed(1) > limits.output_mb << 20 or number == signal.SIGXFSZ:
            return "output limit", f"printed more than {limits.output_mb} MiB"
        if over or number == signal.SIGXCPU:
            return "time limit", f"ran out of time ({limits.cpu_seconds:g} s of CPU)"
        if ended.why == worker_side.WALL:
            return "time limit", f"ran out of time ({limits.wall_seconds:g} s, mostly asleep)"
        if ended.why == worker_side.THREADS:
            return "runtime error", f"started more than {worker_side.MAX_THREADS} threads"
        last = self.last_error()
        if number == signal.SIGKILL:
            raise _WorkerLost(f"a case was killed from outside; is memory short? {last}".rstrip())
        if number:
            return "runtime error", f"killed by signal {number} ({signal.Signals(number).name})"
        compiled = ended.kind != b"S"  # a parser that gives up at deep nesting says MemoryError too
        if compiled and re.match(r"(line \d+: )?MemoryError\b", last):
            return "memory limit", f"ran out of memory ({limits.memory_mb} MiB)"
        return "runtime error", last or f"exit status {os.waitstatus_to_exitcode(ended.status)}"

    def last_error(self) -> str:
        """The last line that was written to stderr, with the line number of a traceback."""
        size = self.worker.printed(2)
        text = self.worker.read(2, max(0, size - 50_000), 50_000).decode(errors="replace").strip()
        where = re.findall(r'File "program\.py", line (\d+)', text)
        last = text[max(text.rfind("\n"), text.rfind("\r")) + 1 :]
        return f"line {where[-1]}: {last}" if where else last


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """The start of a text, with how much was cut."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}... ({len(text) - limit} more characters)"


# --- command line ---------------------------------------------------------------------------


def add_limit_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a judge: limits a case, number of workers, sandbox."""
    limits = Limits()
    add = parser.add_argument
    add(
        "--cpu-seconds",
        type=_positive(float),
        default=limits.cpu_seconds,
        help="CPU time a case may take (default: %(default)g)",
    )
    add(
        "--wall-seconds",
        type=_positive(float),
        default=limits.wall_seconds,
        help="wall time for a case that mostly sleeps; CPU time decides otherwise "
        "(default: %(default)g)",
    )
    add(
        "--memory-mb",
        type=_positive(int),
        default=limits.memory_mb,
        help="memory a case may take, MiB (default: %(default)d)",
    )
    add(
        "--output-mb",
        type=_positive(int),
        default=limits.output_mb,
        help="bytes a case may print, MiB (default: %(default)d)",
    )
    add(
        "--judge-workers",
        "--workers",
        type=_positive(int),
        default=None,
        help="programs judged at once (default: one a core, fewer when the memory limits of all "
        "would not fit into the machine)",
    )
    add(
        "--sandbox",
        choices=("on", "off"),
        default="on",
        help="off runs programs of a model with all rights of this user: only for programs that "
        "you trust, or inside a container or virtual machine (default: on)",
    )


def limits_from(args: argparse.Namespace) -> Limits:
    """The limits that the flags of `add_limit_flags` ask for."""
    return Limits(args.cpu_seconds, args.wall_seconds, args.memory_mb, args.output_mb)


def _positive(kind: type[float]) -> Callable[[str], float]:
    """A type for argparse: `kind`, above zero and finite."""

    def parse(text: str) -> float:
        number = kind(text)
        if not 0 < number < float("inf"):
            raise ValueError(text)
        return number

    parse.__name__ = f"positive {kind.__name__}"  # argparse: "invalid positive int value: '0'"
    return parse


class RowError(Exception):
    """A row of the programs' file that cannot be judged; the text says which and why."""


def _programs_in(path: Path, tasks: Sequence[Task]) -> Iterator[tuple[dict[str, Any], Task]]:
    """Rows of a JSONL file, each with its task."""
    known: dict[str, list[Task]] = {}
    for task in tasks:
        for name in {task.id, task.name}:
            known.setdefault(name, []).append(task)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise RowError(f"{path}, line {number}: not JSON: {error}") from None
            if not isinstance(row, dict) or not {"task", "program"} <= row.keys():
                raise RowError(f'{path}, line {number}: needs "task" and "program"')
            if not isinstance(row["program"], str | None):
                raise RowError(f"{path}, line {number}: the program is not a text")
            found = known.get(str(row["task"]), [])
            if len(found) != 1:
                ids = ", ".join(task.id for task in found)
                why = f"is the name of several tasks ({ids}): use an id" if found else "is unknown"
                raise RowError(f"{path}, line {number}: task {row['task']!r} {why}")
            yield row, found[0]


def _row(given: dict[str, Any], judgement: Judgement) -> dict[str, Any]:
    """The row to write for a judged row."""
    failure = judgement.first_failure
    return {
        **{key: value for key, value in given.items() if key != "program"},
        "verdict": judgement.verdict,
        "passed": judgement.visible_passed + judgement.hidden_passed,
        "visible_passed": judgement.visible_passed,
        "visible_total": judgement.visible_total,
        "hidden_passed": judgement.hidden_passed,
        "hidden_total": judgement.hidden_total,
        "first_failure": asdict(failure) if failure else None,
        "cpu_seconds": round(judgement.cpu_seconds, 6),
        "cut_short": judgement.cut_short,
    }


async def _judge_file(args: argparse.Namespace, out: IO[str]) -> None:
    """Judge the rows of a file and write their verdicts in order, as they are known."""
    from data import load_tasks

    tasks = load_tasks(args.tasks, extra=args.all_cases, interactive=True).tasks
    if args.all_cases:
        tasks = [replace(task, hidden=task.hidden + task.extra) for task in tasks]
    rows = list(_programs_in(args.programs, tasks))
    async with Judge(args.judge_workers, limits_from(args), args.sandbox == "on") as judge:
        report = await asyncio.to_thread(judge.self_check)
        print(report.line, file=sys.stderr)
        if report.missing and args.sandbox == "on":
            raise SandboxError(
                f"missing: {', '.join(report.missing)}; --sandbox off goes on without a sandbox"
            )
        pending = deque[tuple[dict[str, Any], asyncio.Task[Judgement]]]()
        for row, task in rows:
            grade = judge.grade(row["program"], task, every_case=args.all_cases)
            pending.append((row, asyncio.create_task(grade)))
            await asyncio.sleep(0)
        while pending:
            row, job = pending.popleft()
            out.write(json.dumps(_row(row, await job)) + "\n")
            out.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Judge a file of programs; the exit status."""
    parser = argparse.ArgumentParser(
        description="Judge programs, a JSONL row each with task (id or name) and program.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("programs", type=Path, metavar="PROGRAMS.jsonl")
    add("--tasks", required=True, help="parquet file, folder of them, or toy")
    add("--out", type=Path, help="where the verdicts go (default: the terminal)")
    add(
        "--all-cases",
        action="store_true",
        help="also run the generated cases beyond the hidden ones, and every case whatever failed "
        "before (default: off)",
    )
    add_limit_flags(parser)
    args = parser.parse_args(argv)
    from data import DataError

    try:
        with args.out.open("w") if args.out else contextlib.nullcontext(sys.stdout) as out:
            asyncio.run(_judge_file(args, out))
    except (DataError, JudgeFault, OSError, RowError, SandboxError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
