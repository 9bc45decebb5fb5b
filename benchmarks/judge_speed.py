"""What a case costs: our judge against an interpreter a case, in one run.

    python benchmarks/judge_speed.py [--cases N]

The plain way is what most scripts do: subprocess.run([python, "-I", "-S", file]) a case in a pool
of as many threads. CPU time is that of all processes, this one included, start-up of the workers
too. The floor is a bare os.fork + waitpid in the very process that forks our cases.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from data import Case, Task
from judge import LAYERS, Judge, Limits, same_output
from sandbox import channel

TRIVIAL = "a, b = map(int, input().split())\nprint(a + b)\n"
IMPORTS = (
    "import sys, math, random, re\n"
    "from bisect import bisect_left\n"
    "from collections import Counter, defaultdict, deque\n"
    "from functools import lru_cache, reduce\n"
    "from heapq import heappop, heappush\n"
    "from itertools import accumulate, permutations\n" + TRIVIAL
)
WRONG = "a, b = map(int, input().split())\nprint(a - b - 1)\n"
CASES_A_PROGRAM = 25
ROUNDS = 7


def task(number: int, cases: int) -> Task:
    """A task of sums, all cases visible."""
    sums = tuple(Case(f"{a} {number}\n", f"{a + number}\n") for a in range(cases))
    return Task(f"bench/{number}", f"{number}", f"{number}", "", 0, sums, ())


def cpu() -> float:
    """CPU seconds of this process and of all its ended children."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def measure(work: Callable[[], None], cases: int) -> tuple[float, float]:
    """CPU and wall milliseconds a case."""
    used, start = cpu(), time.perf_counter()
    work()
    return (cpu() - used) / cases * 1e3, (time.perf_counter() - start) / cases * 1e3


def ours(programs: list[str], cases: int, workers: int, right: bool) -> None:
    """Judge each program on a task of its own, pool started and ended."""

    async def run() -> None:
        async with Judge(workers) as judge:
            grades = [judge.grade(text, task(i, cases)) for i, text in enumerate(programs)]
            for judgement in await asyncio.gather(*grades):
                assert judgement.accepted is right, judgement

    asyncio.run(run())


def plain(programs: list[str], cases: int, workers: int, right: bool) -> None:
    """The same by an interpreter a case."""

    def one(job: tuple[str, Case]) -> bool:
        path, case = job
        done = subprocess.run(
            [sys.executable, "-I", "-S", path],
            input=case.input.encode(),
            capture_output=True,
            timeout=60,
        )
        return done.returncode == 0 and same_output(case.output.encode(), done.stdout)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        jobs = []
        for i, text in enumerate(programs):
            path = Path(folder, f"{i}.py")
            path.write_text(text)
            jobs += [(str(path), case) for case in task(i, cases).visible]
        assert all(result is right for result in pool.map(one, jobs))


# What a worker runs to measure the floor: its program process forks, and the forks only end.
BARE = """
import sys; sys.path.append({folder!r}); import os; from sandbox import worker
def cases(process, code, thorough):
    while os.read(process.sock, 1) == b"C":
        for _ in range(int(os.pread(0, 99, 0))):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        process.reply(b"C", 0)
worker._Worker.cases = cases
worker.main()
"""


def bare(forks: int) -> None:
    """os.fork + waitpid, `forks` times, in the process that would fork cases."""
    with patch.object(channel, "START", BARE):
        worker = channel.Worker(Limits(cpu_seconds=3600), list(LAYERS))
    worker.compile(TRIVIAL.encode())
    worker.run(f"{forks}".encode())
    worker.end()
    worker.close()


def floor(cases: int) -> None:
    """Print what a case costs over a bare fork, both without start-up, measured in turn."""
    programs = [f"{TRIVIAL}#{i}\n" for i in range(cases // CASES_A_PROGRAM + 1)]
    costs = []
    for _ in range(ROUNDS):
        start = measure(lambda: ours(programs[:1], CASES_A_PROGRAM, 1, True), cases)[0]
        case = measure(lambda: ours(programs, CASES_A_PROGRAM, 1, True), cases)[0] - start
        none = measure(lambda: bare(0), cases)[0]
        costs.append((measure(lambda: bare(cases), cases)[0] - none, case))
    fork, case = (statistics.median(column) for column in zip(*costs, strict=True))
    ratio = statistics.median(case / fork for fork, case in costs)
    print(f"bare os.fork + waitpid of the same process: {fork:.2f} ms of CPU")
    print(f"a case of a trivial program:                {case:.2f} ms, {ratio:.2f} times as much")
    print(f"(medians of {ROUNDS} rounds, without start-up)\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU and wall a case, ours and the plain way.")
    parser.add_argument("--cases", type=int, default=2000, help="cases a measurement")
    total = parser.parse_args().cases
    many = total // CASES_A_PROGRAM
    floor(total)
    heads = f"{'plain':>8}{'ratio':>7}"
    print(f"{'a case':34}{'CPU ms':>8}{heads}{'wall ms':>9}{heads}")
    for name, text, each, right in (
        ("trivial program, 1 worker", TRIVIAL, CASES_A_PROGRAM, True),
        ("contest imports, 1 worker", IMPORTS, CASES_A_PROGRAM, True),
        ("fails 9 visible cases, 1 worker", WRONG, 9, False),
    ):
        count = many if each == CASES_A_PROGRAM else total // each
        programs = [f"{text}#{i}\n" for i in range(count)]
        cases = count * each
        a = measure(lambda: ours(programs, each, 1, right), cases)  # noqa: B023
        b = measure(lambda: plain(programs, each, 1, right), cases)  # noqa: B023
        print(
            f"{name:34}{a[0]:8.2f}{b[0]:8.2f}{b[0] / a[0]:7.1f}{a[1]:9.2f}{b[1]:8.2f}"
            f"{b[1] / a[1]:7.1f}"
        )
    programs = [f"{TRIVIAL}#{i}\n" for i in range(many)]
    for workers in (1, 2):
        wall = measure(lambda: ours(programs, CASES_A_PROGRAM, workers, True), 1)[1]  # noqa: B023
        print(f"{workers} worker(s): {many * CASES_A_PROGRAM / wall * 1e3:.0f} cases/s")


if __name__ == "__main__":
    main()
