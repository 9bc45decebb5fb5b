"""Faults of the judge itself: none of them may become a verdict, or change one.

Processes are really killed and descriptors, memory files and forks really run out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data import Case, Task
from judge import Judge, JudgeFault, Limits

if sys.platform != "linux":
    pytest.skip("the sandbox needs Linux", allow_module_level=True)

RIGHT = "print(int(input()) + 1)"
WRONG = "print(int(input()) + 2)"
BUSY = "n = int(input())\nfor i in range(3_000_000): pass\nprint(n + 1)"
ENDLESS = "import time\nwhile True: time.sleep(1)"
PATIENT = Limits(cpu_seconds=600, wall_seconds=600)


def a_task(name: str = "task", cases: int = 2) -> Task:
    pairs = tuple(Case(f"{i}\n", f"{i + 1}\n") for i in range(cases))
    return Task(name, name, "", "", 0, pairs, pairs)


def children(parent: int) -> list[int]:
    """From the kernel's own list: a search through /proc can take longer than a case."""
    found = []
    for thread in Path(f"/proc/{parent}/task").glob("*"):
        with contextlib.suppress(OSError):
            found += map(int, (thread / "children").read_text().split())
    return found


def chain(top: int) -> list[int]:
    """A process, its child, the child of that, and so on: a judge's processes never have two."""
    below = children(top)
    return [top, *chain(below[0])] if below else [top]


def a_worker() -> list[int]:
    """The processes of the only worker; an own namespace takes one more than none."""
    (worker,) = children(os.getpid())
    return chain(worker)


@contextlib.contextmanager
def killing(place: int, times: int, idle: int) -> Iterator[list[int]]:
    """Kill a process of the chain while a case runs: `idle` and two more are there then."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while len(killed) < times and not over.wait(0.01):
            for worker in children(os.getpid()):
                pids = chain(worker)
                if len(pids) == idle + 2 and pids[place] not in killed:
                    with contextlib.suppress(ProcessLookupError):  # it ended just now
                        os.kill(pids[place], signal.SIGKILL)
                        killed.append(pids[place])

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def run(body: Callable[[Judge], Coroutine[Any, Any, Any]], limits: Limits | None = None) -> Any:
    async def whole() -> Any:
        async with Judge(1, limits or Limits()) as judge:
            return await body(judge)

    result = asyncio.run(whole())
    assert not children(os.getpid())
    return result


PLACES = {"worker": 0, "program process": -2, "case": -1}  # in the chain while a case runs


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("program", [BUSY, BUSY.replace("+ 1", "+ 2")], ids=["right", "wrong"])
def test_a_process_killed_once_changes_no_verdict(place: str, program: str) -> None:
    async def body(judge: Judge) -> None:
        undisturbed = await judge.grade(program, a_task("undisturbed", 1))
        for attempt in range(100):  # on a loaded machine the case can end before it is found
            with killing(PLACES[place], times=1, idle=len(a_worker())) as killed:
                again = f"{program}\n#{attempt}"
                judgement = await judge.grade(again, a_task("disturbed", 1))
            assert replace(judgement, cpu_seconds=undisturbed.cpu_seconds) == undisturbed
            if killed:
                break
        assert killed

    run(body)


@pytest.mark.parametrize("place", PLACES)
def test_a_process_killed_every_time_is_a_fault_with_its_cause(place: str) -> None:
    async def body(judge: Judge) -> None:
        assert (await judge.grade(RIGHT, a_task())).accepted
        with killing(PLACES[place], times=99, idle=len(a_worker())) as killed:
            with pytest.raises(JudgeFault, match=r"kill|-9|status 9"):
                await judge.grade(ENDLESS, a_task(cases=1))
            assert len(killed) >= 3
        assert (await judge.grade(RIGHT + "\n#", a_task())).accepted
        with killing(PLACES[place], times=99, idle=len(a_worker())) as killed:
            with pytest.raises(JudgeFault):  # a fault is not remembered, but tried again
                await judge.grade(ENDLESS, a_task(cases=1))
            assert len(killed) >= 3

    run(body, PATIENT)


def test_a_worker_that_no_longer_answers_is_replaced() -> None:
    async def body(judge: Judge) -> None:
        assert (await judge.grade(RIGHT, a_task())).accepted
        (worker,) = judge._all
        stopped = a_worker()
        os.kill(stopped[-1], signal.SIGSTOP)
        # Of this worker only: the fresh one may take its time on a loaded machine.
        worker.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", 1, 0))
        assert (await judge.grade(RIGHT + "\n#", a_task())).accepted
        assert not set(stopped) & set(a_worker())

    run(body)


@contextlib.contextmanager
def limited(kind: int, soft: int) -> Iterator[None]:
    """Lower a limit of this process, as far as it can be raised again."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


@contextlib.contextmanager
def all_descriptors_but(free: int) -> Iterator[None]:
    held: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    for _ in range(free):
        os.close(held.pop())
    try:
        yield
    finally:
        for file in held:
            os.close(file)


def test_running_out_of_descriptors_is_a_fault_or_no_matter() -> None:
    async def body(judge: Judge) -> None:
        task = a_task()
        assert (await judge.grade(RIGHT, task)).accepted
        outcomes: set[str] = set()
        for free in range(0, 16, 3):  # a worker takes four, and more while it starts
            for worker in children(os.getpid()):
                os.kill(worker, signal.SIGKILL)
            with limited(resource.RLIMIT_NOFILE, 200), all_descriptors_but(free):
                try:
                    judgement = await judge.grade(f"{RIGHT}\n#{free}", task)
                    outcomes.add(judgement.verdict)
                except JudgeFault as fault:
                    outcomes.add(str(fault).rpartition("] ")[2])
        assert outcomes == {"Too many open files", "accepted"}
        assert (await judge.grade(RIGHT + "\n", task)).accepted

    run(body)


def test_no_room_for_an_input_is_a_fault() -> None:
    """A limit on the size of files stands for a full disk."""

    async def body(judge: Judge) -> None:
        big = Case("1\n" + " " * 100_000, "2\n")
        task = Task("big", "", "", "", 0, (big,), (big,))
        with limited(resource.RLIMIT_FSIZE, 50_000), pytest.raises(JudgeFault, match="too large"):
            await judge.grade(RIGHT, task)
        assert (await judge.grade(RIGHT, task)).accepted

    run(body)


@pytest.mark.parametrize(("name", "limit"), [("RLIMIT_FSIZE", 1 << 20), ("RLIMIT_AS", 900 << 20)])
def test_a_machine_that_gives_less_than_the_limits_is_a_fault(name: str, limit: int) -> None:
    """Otherwise "output limit" would mean something else here than on another machine."""
    script = f"""
import resource
from test_faults import *
program = "print(int(input()) + 1, ' ' * (4 << 20), len(bytes(400 << 20)) * 0 or '')"
resource.setrlimit(resource.{name}, ({limit}, {limit}))
try: print(run(lambda judge: judge.grade(program, a_task())))
except JudgeFault as fault: print("fault:", fault)
"""
    printed = in_a_child(script)
    assert printed.startswith("fault:"), printed
    assert "limit" in printed


def in_a_child(script: str) -> str:
    """Run a script that may import this module in a process of its own."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=here,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here, here.parent, *sys.path)))},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


NO_FORK = """
import resource
from test_faults import *

async def body(judge):
    print((await judge.grade(RIGHT, a_task())).verdict)
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, before[1]))
    for worker in children(os.getpid()):  # it has the old limit
        os.kill(worker, signal.SIGKILL)
    for program in RIGHT + "#", WRONG:
        try: print((await judge.grade(program, a_task())).verdict)
        except JudgeFault as fault: print("fault:", fault)
    resource.setrlimit(resource.RLIMIT_NPROC, before)
    for program in RIGHT + "#", WRONG:
        print((await judge.grade(program, a_task())).verdict)

if os.geteuid() == 0:  # the limit does not bind root, but does a worker, which has no capability
    os.setresuid(54321, 0, 0)
run(body)
"""


def test_a_fork_that_fails_is_a_fault() -> None:
    first, right, wrong, *after = in_a_child(NO_FORK).splitlines()
    assert first == "accepted"
    for fault in right, wrong:
        assert fault.startswith("fault:")
        assert "Resource temporarily unavailable" in fault
    assert after == ["accepted", "wrong answer"]


NO_THREAD = """
import resource
from test_faults import *

async def body(judge):
    with limited(resource.RLIMIT_NPROC, 0):
        try: print((await judge.grade(RIGHT, a_task())).verdict)
        except JudgeFault as fault: print("fault:", fault)

if os.geteuid() == 0:
    os.setresuid(54321, 54321, 54321)
run(body)
"""


def test_a_thread_that_cannot_start_is_a_fault() -> None:
    assert in_a_child(NO_THREAD).startswith("fault:")


def test_an_interpreter_that_is_gone_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(judge: Judge) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/nowhere/python")
            with pytest.raises(JudgeFault, match="No such file"):
                await judge.grade(RIGHT, a_task())
        assert (await judge.grade(RIGHT, a_task())).accepted

    run(body)


def resident(pid: int | str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


KINDS = [
    RIGHT,
    WRONG,
    "print(1 / 0)",
    "print(",
    "import sys; sys.exit(3)",
    "import os; os.abort()",
    "x = bytearray(9 << 30)",
    "import threading; threading.Thread(target=print).start()",
    "import os; os.fork()",
    "print('x' * 100_000)",
]


def test_counts_stay_flat_over_a_thousand_programs() -> None:
    def counts(judge: Judge) -> tuple[int, int, int]:
        return (
            len(os.listdir("/proc/self/fd")),
            len(children(os.getpid())),
            threading.active_count(),
        )

    async def body(judge: Judge) -> None:
        async def grade(start: int, end: int) -> None:
            for i in range(start, end):
                program = f"{KINDS[i % len(KINDS)]}\n#{i}"
                judgement = await judge.grade(program, a_task(cases=1))
                assert judgement.accepted == (KINDS[i % len(KINDS)] == RIGHT)

        await grade(0, 100)
        worker = a_worker()
        before = counts(judge)
        memory = resident("self"), resident(worker[-1])
        await grade(100, 1100)
        assert counts(judge) == before
        assert a_worker() == worker
        assert len(os.listdir(f"/proc/{worker[-1]}/fd")) <= 8
        assert resident("self") - memory[0] < 16 << 20
        assert resident(worker[-1]) - memory[1] < 4 << 20

    run(body)
