"""Scheduling and client cost, against a local server with N slots and log-normal latency.

    python benchmarks/throughput.py

Two ways to the same rollouts, one after the other: the search as run.py runs it, and the simple
way (6 tasks at a time, 8 requests each, a barrier a round, arms one after another). The ideal is
the sum of the latencies / N: every slot busy from the first request to the last. Then 256 and 1,024
replies of 500 tokens at once, whole and streamed, from a server that paces them: tokens a
CPU-second of the client, and wall time over the time that the server takes.

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
from descriptors import raise_limit
from journal import Journal
from judge import Judgement
from policy import Sampling
from policy.endpoint import Endpoint
from swarm import Prompts, Shape, Swarm, TaskFacts

SHAPE = Shape()

ROOT = Path(__file__).resolve().parent.parent
ARMS = ("resample", "solo", "ring", "star")
TASKS_OF_THE_SIMPLE_WAY = 6
TOKENS = 500
STREAM = {"whole": "off", "streamed": "on"}


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
def server(*options: object, script: str = "tests/server.py") -> Iterator[str]:
    """A server process; its address."""
    command = [sys.executable, str(ROOT / script), *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def endpoint(
    address: str, concurrency: int, *, stream: str = "auto", probe: bool = True
) -> AsyncIterator[Endpoint]:
    opened = Endpoint(
        [f"{address}/v1"],
        ["key"],
        "test-model",
        Sampling(),
        notify=print,
        concurrency=concurrency,
        stream=stream,
    )
    async with opened:
        if probe:
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
            log = [row for row in json.load(response) if "Statement" in row["user"]]
    rows = [{name: row[name] for name in ("at", "slot", "end")} for row in log]
    return Timing(rows, options.slots, wall, cpu)


async def replies(count: int, how: str, rate: int) -> None:
    """Print what reading `count` replies at once costs the client, and how long it takes.

    The replies begin together and each takes as long as `rate` tokens a second in all allow.
    """
    seconds = count * TOKENS / rate
    messages = [{"role": "user", "content": "question " * 400}]
    settings = ("--tokens", TOKENS, "--seconds", seconds)
    with server(*settings, script="benchmarks/paced.py") as address:
        async with endpoint(address, count, stream=STREAM[how], probe=False) as policy:
            wall, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(policy.sample(messages, seed) for seed in range(count)))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"{count:5} replies {how:<8} {wall:5.1f} s  wall / ideal {wall / seconds:5.2f}  client CPU "
        f"{1000 * cpu / count:5.1f} ms a reply, {count * TOKENS / cpu:9,.0f} tokens a CPU-second",
        flush=True,
    )


async def served_alone(how: str) -> None:
    """Print what the server of `replies` sends when it does not pace, and nothing parses it."""
    body = b'{"stream":true}' if how == "streamed" else b"{}"
    request = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%s"
    end = b"0\r\n\r\n" if how == "streamed" else b"}}"

    async def read(address: str) -> None:
        port = int(address.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        for _ in range(20):
            writer.write(request % (len(body), body))
            await reader.readuntil(end)
        writer.close()

    with server("--tokens", TOKENS, "--seconds", 0, script="benchmarks/paced.py") as address:
        wall = time.perf_counter()
        await asyncio.gather(*(read(address) for _ in range(64)))
        wall = time.perf_counter() - wall
    print(f"the server alone, replies {how}: {64 * 20 * TOKENS / wall:,.0f} tokens a second")


def main() -> None:
    parser = argparse.ArgumentParser(description="Scheduling and client cost.")
    parser.add_argument("--tasks", type=int, default=16, help="tasks (default: 16)")
    parser.add_argument("--slots", type=int, default=64, help="slots N (default: 64)")
    parser.add_argument("--latency", type=float, default=1.0, help="median (default: 1 s)")
    parser.add_argument("--rate", type=int, default=16_000, help="tokens a second of the server "
                        "that paces 256 and 1,024 replies (default: 16000)")  # fmt: skip
    options = parser.parse_args()
    ran = {way.__name__: asyncio.run(timed(way, options)) for way in (ours, simple)}
    for name, timing in ran.items():
        print(timing.line(name))
    print(f"the simple way takes {ran['simple'].seconds / ran['ours'].seconds:.2f} x our time")
    raise_limit(4096)
    for how in STREAM:
        asyncio.run(served_alone(how))
    for count in (256, 1024):
        for how in STREAM:
            asyncio.run(replies(count, how, options.rate))


if __name__ == "__main__":
    main()
