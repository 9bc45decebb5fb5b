"""The judge's end of a worker: its process, its socket, and the three files of its cases."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

if sys.platform != "win32":
    from sandbox.drivers import PLAIN
    from sandbox.worker import REPLY, STARVED_WALLS, TIMES

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LD_BIND_NOW": "1",  # link once, not in each case
    "MALLOC_ARENA_MAX": "1",  # glibc reserves 128 MiB of address space for that of each thread
}
LEAST_SECONDS = 1.0  # of CPU, however short a task's own limit is
REPLY_SECONDS = 60  # what a worker may take for an answer beyond the limits of a case

# What a worker runs. As a script, worker.py would keep its syntax tree in memory: pages to copy.
START = "import sys; sys.path.append({folder!r}); from sandbox import worker; worker.main()"


@dataclass(frozen=True)
class Limits:
    """What one case may use.

    Attributes:
        cpu_seconds: CPU time.
        wall_seconds: wall time; catches programs that sleep.
        memory_mb: address space, MiB.
        output_mb: stdout, MiB.
        time_factor: times a task's own time limit that a case may take, where the data set gives
            one (at least LEAST_SECONDS); None: cpu_seconds for every task.
    """

    cpu_seconds: float = 6.0
    wall_seconds: float = 12.0
    memory_mb: int = 1024
    output_mb: int = 16
    time_factor: float | None = None

    def of(self, time_limit: float | None) -> Limits:
        """Those of a task with this time limit of its own, seconds of CPU."""
        if self.time_factor is None or time_limit is None:
            return self
        seconds = max(LEAST_SECONDS, self.time_factor * time_limit)
        wall = max(seconds * 2, min(self.wall_seconds, 12.0))
        return replace(self, cpu_seconds=seconds, wall_seconds=wall)


class WorkerLost(Exception):
    """A worker did not do its work; the text says how that showed."""


class Ended(NamedTuple):
    """How a case ended, or the program process while it compiled.

    Attributes:
        kind: the reply's kind, see worker.REPLY.
        status: what wait(2) gave: 0 or an exit status or a signal.
        cpu_seconds: CPU time.
        why: what stopped it: 0 itself, or a constant of worker.py.
    """

    kind: bytes
    status: int
    cpu_seconds: float
    why: int


class Worker:
    """A worker process and the three files through which its cases read and print."""

    def __init__(self, limits: Limits, layers: Sequence[str]) -> None:
        self.limits = limits  # of the program under way
        self.patience = 0
        self.files: list[int] = []
        self.idle = False  # no program process is below it
        self.process: subprocess.Popen[bytes] | None = None
        self.sock, theirs = socket.socketpair()
        self._wait_for(limits)
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
        start = START.format(folder=str(Path(__file__).parent.parent))
        self.process = subprocess.Popen(
            [sys.executable, *flags, "-c", start, *map(str, arguments), " ".join(layers)],
            stdin=self.files[0],
            stdout=self.files[1],
            stderr=self.files[2],
            env=ENVIRONMENT,
            cwd="/",
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is for the judge, which then ends its workers
        )

    def _wait_for(self, limits: Limits) -> None:
        """Have a message take as long as a case of these limits may, and be missed after that."""
        patience = int(limits.wall_seconds * STARVED_WALLS + REPLY_SECONDS)
        if patience != self.patience:
            # A timeout of the kernel's: one of Python's costs two more system calls a message.
            packed = struct.pack("@ll", patience, 0)
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)
            self.patience = patience

    def compile(self, source: bytes, command: bytes = PLAIN, limits: Limits | None = None) -> Ended:
        """Hand over a program: kind P when it compiled, S when not, E when that killed it.

        The command says what it is, see drivers.py; of a function the source holds the name, too.
        The time limits are the worker's unless given; memory and output stay the worker's.
        """
        self.limits = limits or self.limits
        self._wait_for(self.limits)
        self._clear(source)
        self.idle = False
        self._send(command + TIMES.pack(self.limits.cpu_seconds, self.limits.wall_seconds))
        return self._receive()

    def run(self, case_input: bytes) -> Ended:
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
        for file in self.files:
            os.set_blocking(file, True)  # the only flag that a case can change for later ones
        for file in printed:
            os.lseek(file, 0, os.SEEK_SET)
            os.ftruncate(file, 0)

    def _send(self, command: bytes) -> None:
        self.sock.send(command)

    def _receive(self) -> Ended:
        reply = b""
        while len(reply) < REPLY.size:
            try:
                part = self.sock.recv(REPLY.size - len(reply))
            except BlockingIOError:  # see SO_RCVTIMEO
                raise WorkerLost(f"no answer for {self.patience} s") from None
            if not part:
                raise WorkerLost(self._obituary())
            reply += part
        return Ended(*REPLY.unpack(reply))

    def _expect(self, kind: bytes) -> Ended:
        if (reply := self._receive()).kind != kind:
            raise WorkerLost(f"out of step: expected {kind!r}, got {reply}")
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

    def let_go(self) -> None:
        """Free what this process, forked off from the worker's owner, holds of it."""
        self.sock.close()
        for file in self.files:
            os.close(file)
        self.files = []

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
