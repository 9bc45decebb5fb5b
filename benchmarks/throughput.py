"""Scheduling and client cost, against a local server with N slots and log-normal latency.

    python benchmarks/throughput.py

Two ways to the same rollouts, one after the other: the search as run.py runs it, and the simple
way (6 tasks at a time, 8 requests each, a barrier a round, arms one after another). The ideal is
the sum of the latencies / N: every slot busy from the first request to the last. Then 64 streams
of 500 chunks at 50 chunks a second, for the CPU that the client needs to read them.

The judge is a stand-in that takes 20 ms and accepts nothing, so all rounds are sampled.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from data import Case, Task
from journal import Journal
from judge import Judgement
from policy import Sampling
from policy.endpoint import Endpoint
from swarm import Prompts, Shape, Swarm, TaskFacts

SHAPE = Shape()

ROOT = Path(__file__).resolve().parent.parent
ARMS = ("resample", "solo", "ring", "star")
TASKS_OF_THE_SIMPLE_WAY = 6


class StandIn:
    """A judge that accepts nothing."""

    async def grade(self, program: str | None, task: Task) -> Judgement:
        await asyncio.sleep(0.02)
        return Judgement("wrong answer", 0, 1, 0, 1, None, 0.02)


@dataclass
class Timing:
    """One run against the server.

    Attributes:
        rows: the server's log: when each request came, had a slot and ended, in seconds.
        slots: N.
        seconds: wall time that the client saw.
        cpu: CPU seconds of the client.
    """

    rows: list[dict[str, float]]
    slots: int
    seconds: float
    cpu: float

    @property
    def ideal(self) -> float:
        return sum(row["end"] - row["slot"] for row in self.rows) / self.slots

    @property
    def busy(self) -> float:
        """Share of the slots in use, from the first request until the last N are given out."""
        starts = sorted(row["slot"] for row in self.rows)
        first, last = starts[0], starts[-self.slots]
        used = sum(max(0.0, min(row["end"], last) - row["slot"]) for row in self.rows)
        return used / (self.slots * (last - first))

    def line(self, name: str) -> str:
        return (
            f"{name:<11} {len(self.rows):5} requests  {self.seconds:6.1f} s  ideal "
            f"{self.ideal:6.1f} s  wall / ideal {self.seconds / self.ideal:5.2f}  "
            f"slots busy {self.busy:6.1%}  client CPU {self.cpu / self.seconds:5.1%} of a core"
        )


@contextlib.contextmanager
def server(*options: object) -> Iterator[str]:
    """A server process; its address."""
    command = [sys.executable, str(ROOT / "tests" / "server.py"), *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def endpoint(address: str, concurrency: int) -> AsyncIterator[Endpoint]:
    opened = Endpoint(
        f"{address}/v1", "key", "m", Sampling(), notify=print, concurrency=concurrency
    )
    async with opened:
        await opened.probe()
        yield opened


async def ours(policy: Endpoint, tasks: Sequence[Task]) -> None:
    """The search, with its journal."""
    prompts = Prompts(ROOT / "prompts")
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.open(Path(folder), {})
        for task in tasks:
            messages = prompts.fresh(task)
            journal.add_task(TaskFacts.of(task, messages), messages)
        swarm = Swarm(policy, StandIn(), journal, prompts, seed=0)  # type: ignore[arg-type]
        await swarm.run(tasks, ARMS, "all-fail")
        journal.close()


async def simple(policy: Endpoint, tasks: Sequence[Task]) -> None:
    """What one writes first: loops with gather in them."""
    prompts, judge = Prompts(ROOT / "prompts"), StandIn()
    room = asyncio.Semaphore(TASKS_OF_THE_SIMPLE_WAY)

    async def rounds(arm: str, task: Task) -> None:
        async with room:
            for number in range(1 if arm == "base" else SHAPE.rounds):
                messages = prompts.fresh(task)
                seeds = [
                    hash((arm, task.id, number, particle)) >> 11 for particle in range(SHAPE.group)
                ]
                await asyncio.gather(*(policy.sample(messages, abs(seed)) for seed in seeds))
                await asyncio.gather(*(judge.grade("", task) for _ in seeds))

    for arm in ("base", *ARMS):
        await asyncio.gather(*(rounds(arm, task) for task in tasks))


async def timed(way: Any, options: argparse.Namespace) -> Timing:
    case = Case("", "")
    tasks = [
        Task(f"t/{i}", f"{i}", f"{i}", f"Statement {i}", 0, (case,), (case,))
        for i in range(options.tasks)
    ]
    settings = ("--slots", options.slots, "--latency", options.latency)
    with server(*settings) as address:
        async with endpoint(address, options.slots) as policy:
            wall, cpu = time.perf_counter(), time.process_time()
            await way(policy, tasks)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        with urllib.request.urlopen(f"{address}/log") as response:
            log = json.load(response)[1:]  # without the probe
    rows = [{name: row[name] for name in ("at", "slot", "end")} for row in log]
    return Timing(rows, options.slots, wall, cpu)


async def streams(count: int, tokens: int, rate: int) -> None:
    """Print the CPU that reading `count` streams at once takes."""
    messages = [{"role": "user", "content": "question"}]
    with server("--tokens", tokens, "--latency", tokens / rate, "--sigma", 0) as address:
        async with endpoint(address, count) as policy:
            wall, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(policy.sample(messages, seed) for seed in range(count)))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{count} streams of {tokens} chunks at {rate} a second: {wall:.1f} s, client CPU "
        f"{cpu / wall:.1%} of a core, {1000 * cpu / count:.0f} ms a reply"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Scheduling and client cost.")
    parser.add_argument("--tasks", type=int, default=16, help="tasks (default: 16)")
    parser.add_argument("--slots", type=int, default=64, help="slots N (default: 64)")
    parser.add_argument("--latency", type=float, default=1.0, help="median (default: 1 s)")
    options = parser.parse_args()
    ran = {way.__name__: asyncio.run(timed(way, options)) for way in (ours, simple)}
    for name, timing in ran.items():
        print(timing.line(name))
    print(f"the simple way takes {ran['simple'].seconds / ran['ours'].seconds:.2f} x our time")
    asyncio.run(streams(count=64, tokens=500, rate=50))


if __name__ == "__main__":
    main()
