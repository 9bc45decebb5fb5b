"""Judging on the nodes of a Ray: the same verdicts as here, from many machines.

Each node gets an actor with a Judge over its cores. Programs go out in batches, and what a node
has found comes back as it comes; a task's cases travel to a node once. The source of this project
goes along, so that a node needs Ray, the same minor version of Python, and nothing else of ours.

A node whose sandbox does not hold is left out, with its reason. When an actor or a node dies its
unfinished programs go to another; nodes that join, and nodes whose actor died, are looked for
every LOOK seconds. A program is a judge fault only when no node is left, or when ATTEMPTS nodes
were lost with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import os
import socket
import sys
import zipfile
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkers import CheckerFault
from judge import (
    ATTEMPTS,
    Judge,
    JudgeFault,
    Judgement,
    Limits,
    Sandbox,
    SandboxError,
    SandboxReport,
)
from trial import Failure

if TYPE_CHECKING:
    from data import Task

FOLDER = Path(__file__).resolve().parent
SENT = ("*.py", "formats/*.py", "sandbox/*.py", "sources/*.py")
LOOK = 5.0
A_WORKER = 32  # programs that a node holds for each of its workers
STARTS = 60.0  # seconds that a node may take to start its actor and to check itself
OPTIONS = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": 100}


def _reach(address: str) -> None:
    """SandboxError when nothing listens at HOST:PORT, for which Ray itself would wait long."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # none, "auto", "local": Ray finds it, or starts it
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise SandboxError(
            f"no Ray at {address}: {error}; is it running, and --ray-address right?"
        ) from None


def _source() -> bytes:
    """The modules of this project, zipped."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for pattern in SENT:
            for path in sorted(FOLDER.glob(pattern)):
                archive.write(path, path.relative_to(FOLDER).as_posix())
    return made.getvalue()


def _actor_class() -> type:
    """Made in a function, so that Ray sends it by value: no node has this module."""

    class OnNode:
        """A judge on a node."""

        def __init__(
            self, source: bytes, workers: int | None, limits: dict[str, Any], sandbox: Any
        ) -> None:
            import io
            import sys
            import tempfile
            import zipfile

            self.folder = tempfile.TemporaryDirectory(prefix="swarm-rescue-")
            zipfile.ZipFile(io.BytesIO(source)).extractall(self.folder.name)
            sys.path.insert(0, self.folder.name)
            from judge import Judge, Limits

            self.judge = Judge(workers, Limits(**limits), sandbox)
            self.tasks: dict[str, Any] = {}

        async def about(self) -> tuple[str, int, str, tuple[str, ...]]:
            """Version of Python, workers, what the sandbox says, what of it is missing."""
            import asyncio
            import sys

            found = await asyncio.to_thread(self.judge.self_check)
            python = "{}.{}".format(*sys.version_info)
            return python, self.judge.workers, found.line, found.missing

        async def run(self, tasks: dict[str, Any], programs: list[Any]) -> Any:
            """Yield lists of (number, what kind of answer, answer), as they come."""
            import asyncio

            from data import Case, Task

            for name, given in tasks.items():
                cases = {k: tuple(Case(*c) for c in given[k]) for k in ("visible", "hidden")}
                self.tasks[name] = Task(**{**given, **cases})
            ended: asyncio.Queue[Any] = asyncio.Queue()
            jobs = [asyncio.ensure_future(self.one(ended, *each)) for each in programs]
            left = len(jobs)
            while left:
                found = [await ended.get()]
                await asyncio.sleep(
                    0.2
                )  # a message costs more than a program: what ends meanwhile joins
                while not ended.empty():
                    found.append(ended.get_nowait())
                left -= len(found)
                yield found

        async def one(self, ended: Any, number: int, name: str, source: str, every: bool) -> None:
            import dataclasses

            from judge import CheckerFault, JudgeFault

            try:
                judgement = await self.judge.grade(source, self.tasks[name], every_case=every)
                ended.put_nowait((number, "judged", dataclasses.asdict(judgement)))
            except CheckerFault as fault:
                ended.put_nowait((number, "checker", str(fault)))
            except JudgeFault as fault:
                ended.put_nowait((number, "fault", str(fault)))

    return OnNode


@dataclasses.dataclass
class _Job:
    source: str
    task: Task
    every: bool
    answer: asyncio.Future[Judgement]
    lost: int = 0  # nodes that died with it, or failed at it

    @property
    def name(self) -> str:
        return f"{self.task.cases_hash} {self.task.any_case} {self.task.time_limit} {self.task.id}"


class _Node:
    """A node with an actor that holds the sandbox."""

    def __init__(self, name: str, actor: Any, workers: int) -> None:
        self.name, self.actor, self.workers = name, actor, workers
        self.held = 0  # programs with it
        self.sent: set[str] = set()  # tasks it has


class RayJudge(Judge):
    """A Judge whose workers are on the nodes of a Ray."""

    def __init__(
        self,
        workers: int | None = None,
        limits: Limits | None = None,
        sandbox: Sandbox = True,
        address: str | None = None,
    ) -> None:
        """Prepare it; self_check connects.

        Args:
            workers: on each node; None for as many as it can hold.
            limits, sandbox: as of a Judge.
            address: of the Ray; None for RAY_ADDRESS, else a local one is started.
        """
        super().__init__(workers, limits, sandbox)
        self.address, self._asked = address, workers
        self._nodes: dict[str, _Node] = {}
        self._waiting: deque[_Job] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._left_out: dict[str, str] = {}
        self._started = False

    # --- nodes ---

    def self_check(self) -> SandboxReport:
        """Connect, start an actor on each node and have each attack itself.

        Raises:
            SandboxError: there is no Ray, or none of its nodes can judge.
        """
        try:
            import ray
        except ImportError:
            raise SandboxError("--judge ray needs Ray: pip install '.[ray]'") from None
        if not ray.is_initialized():
            _reach(self.address or os.environ.get("RAY_ADDRESS", ""))
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, ValueError, RuntimeError) as error:
                where = self.address or os.environ.get("RAY_ADDRESS") or "here"
                raise SandboxError(f"no Ray at {where}: {str(error).splitlines()[0]}") from None
            self._started = True
        self._code = ray.put(_source())
        self._find_nodes()
        self.workers = max(1, sum(node.workers for node in self._nodes.values()))
        names = ", ".join(f"{n.name} ({n.workers} workers)" for n in self._nodes.values())
        parts = [f"sandbox: judging on {len(self._nodes)} nodes of a Ray: {names}"]
        parts += [f"left out: {name} ({why})" for name, why in self._left_out.items()]
        if not self._nodes:
            raise SandboxError(f"no node of the Ray can judge; {'; '.join(parts[1:])}")
        return SandboxReport("; ".join(parts), (), self.sandbox)

    def _find_nodes(self) -> None:
        """Start actors on the nodes that have none. Blocks."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        begun = {}
        for found in ray.nodes():
            key, name = found["NodeID"], found.get("NodeName") or found["NodeID"]
            if not found["Alive"] or key in self._nodes or key in self._left_out:
                continue
            place = NodeAffinitySchedulingStrategy(key, soft=False)
            kind = ray.remote(_actor_class()).options(scheduling_strategy=place, **OPTIONS)
            limits = dataclasses.asdict(self.limits)
            actor = kind.remote(self._code, self._asked, limits, self.sandbox)
            begun[key] = name, actor, actor.about.remote()
        here = _python()
        for key, (name, actor, about) in begun.items():
            try:
                python, workers, line, missing = ray.get(about, timeout=STARTS)
            except (ray.exceptions.RayError, TimeoutError) as error:
                self._left_out[key] = f"{name}: {str(error).strip().splitlines()[-1]}"
                continue
            if python != here:
                self._left_out[key] = f"{name}: Python {python}, and {here} here"
            elif missing and self.sandbox is True:
                self._left_out[key] = f"{name}: {line}"
            else:
                self._nodes[key] = _Node(name, actor, workers)

    async def _look(self) -> None:
        """Look for nodes that joined, and give them work."""
        while True:
            await asyncio.sleep(LOOK)
            await asyncio.to_thread(self._find_nodes)
            self._hand_out()

    # --- programs ---

    def _begin(self, source: bytes, task: Task, every_case: bool) -> asyncio.Future[Judgement]:
        loop = asyncio.get_running_loop()
        text = source.decode("utf-8", "surrogatepass")
        job = _Job(text, task, every_case, loop.create_future())
        if not self._waiting:
            loop.call_soon(self._hand_out)  # when all that begins now has begun
        self._waiting.append(job)
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        return job.answer

    def _hand_out(self) -> None:
        """Fill the nodes that are at most half full."""
        for key, node in list(self._nodes.items()):
            most = A_WORKER * node.workers
            if not self._waiting or node.held > most // 2:
                continue
            count = min(most - node.held, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(count)]
            node.held += count
            running = asyncio.ensure_future(self._run(key, node, batch))
            self._running.add(running)
            running.add_done_callback(self._running.discard)

    async def _run(self, key: str, node: _Node, batch: list[_Job]) -> None:
        """One batch on one node; what it did not finish goes back."""
        import ray

        open_jobs = dict(enumerate(batch))
        new = {job.name: _plain(job.task) for job in batch if job.name not in node.sent}
        node.sent.update(new)
        programs = [(n, job.name, job.source, job.every) for n, job in open_jobs.items()]
        why = ""
        try:
            async for part in node.actor.run.remote(new, programs):
                for number, kind, answer in await part:
                    job = open_jobs.pop(number)
                    node.held -= 1
                    self._answer(job, kind, answer)
                self._hand_out()
        except ray.exceptions.RayError as error:
            why = str(error).strip().splitlines()[0]
            self._nodes.pop(key, None)
        for job in open_jobs.values():
            self._again(job, f"{node.name} was lost: {why}")
        self._hand_out()
        if not self._nodes and self._waiting:
            await asyncio.to_thread(self._find_nodes)  # its actor alone may have died
            self._hand_out()
        while not self._nodes and self._waiting:
            _fail(self._waiting.popleft(), f"no node of the Ray is left ({why})")

    def _answer(self, job: _Job, kind: str, answer: Any) -> None:
        if job.answer.done():
            return
        if kind == "judged":
            failure = answer.pop("first_failure")
            job.answer.set_result(
                Judgement(**answer, first_failure=Failure(**failure) if failure else None)
            )
        elif kind == "checker":
            job.answer.set_exception(CheckerFault(answer))
        else:
            self._again(job, answer)

    def _again(self, job: _Job, why: str) -> None:
        """To another node, or a judge fault."""
        job.lost += 1
        if job.lost >= ATTEMPTS:
            _fail(job, why)
        else:
            self._waiting.appendleft(job)

    async def __aexit__(self, *_: object) -> None:
        if "ray" in sys.modules:
            await self._leave()
        await super().__aexit__()

    async def _leave(self) -> None:
        import ray

        for running in (*self._running, *([self._looking] if self._looking else [])):
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, ray.exceptions.RayError):
                await running
        if ray.is_initialized():  # the caller may have left it, and with it the actors
            for node in self._nodes.values():
                with contextlib.suppress(ray.exceptions.RayError, ValueError):
                    ray.kill(node.actor)
        self._nodes.clear()
        if self._started:
            await asyncio.to_thread(ray.shutdown)


def _fail(job: _Job, why: str) -> None:
    if not job.answer.done():
        job.answer.set_exception(JudgeFault(f"judge fault on {job.task.id}: {why}"))


def _plain(task: Task) -> dict[str, Any]:
    """A task as Ray can send it whatever our modules are called."""
    kept = ("id", "name", "contest", "statement", "rating", "function", "checker", "time_limit")
    cases = {name: [tuple(c) for c in getattr(task, name)] for name in ("visible", "hidden")}
    return {**{name: getattr(task, name) for name in kept}, **cases}


def _python() -> str:
    return "{}.{}".format(*sys.version_info)
