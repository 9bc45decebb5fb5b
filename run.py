"""Does a swarm of rollouts rescue the tasks on which a GRPO group fails? One command answers.

    python run.py --dry-run    scripted policy, toy tasks: no key, no network, seconds
    python run.py              the hosted Qwen3-4B on deepmind/code_contests
    python run.py --reuse      the report again, from what out/ holds

The phases: load the tasks; check the judge, then the endpoint, before anything is spent; run the
base group and the arms, saving each rollout to out/rollouts.jsonl when it is judged; judge the
rescued programs on the cases not used so far; write the report. The same command goes on where
it stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import random
import shlex
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

import report
from data import DataError, Loaded, Task, load_tasks
from journal import Journal, JournalError, regrade
from judge import Judge, JudgeFault, Limits, SandboxError, add_limit_flags, limits_from
from policy import BudgetSpent, PolicyError, Sampling, Stopped
from policy.key import DEFAULT_BASE_URL, DEFAULT_MODEL, find_key
from policy.scripted import Scripted, ScriptedPolicy
from swarm import (
    BANDS,
    GROUP,
    ROUNDS,
    TOPOLOGIES,
    Key,
    Prompts,
    Record,
    SearchError,
    Swarm,
    TaskFacts,
    fenced,
    in_band,
)

if TYPE_CHECKING:
    from policy.endpoint import Endpoint

PYTHON = "{}.{}".format(*sys.version_info)  # programs are judged by it: recursion limits differ
RECIPE_VERSION = 1  # raised when the same settings would give other rollouts or verdicts
PROMPTS = Path(__file__).parent / "prompts"
CALIBRATION_SIZE = 400  # base rollouts that --calibrate judges on every hidden case

tqdm.set_lock(threading.RLock())  # its default is for processes, and can start one

USER_ERRORS = (
    DataError,
    JournalError,
    JudgeFault,
    PolicyError,
    SandboxError,
    SearchError,
    report.ReportError,
)


def flag(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Config:
    """Every setting of a run; each field but the last two is the flag of the same name.

    The help of a flag says what its field means; `limits` and `sandbox` come from the judge's
    own flags. The whole of it is written to results.json.
    """

    tasks: str | None = flag(
        None,
        "a parquet file, a folder of them, or 'toy' (default: deepmind/code_contests from the hub)",
    )
    splits: tuple[str, ...] = flag(("test", "valid"), "splits of the hub's dataset")
    limit: int | None = flag(None, "only the first N tasks of a seeded shuffle")
    band: str = flag("all-fail", f"which all-fail tasks the arms search: {', '.join(BANDS)}")
    arms: tuple[str, ...] = flag(
        ("resample", "solo", "ring", "star"), f"arms to run, of {', '.join(TOPOLOGIES)}"
    )
    noise_runs: int = flag(0, "repeats of the resample arm with other seeds")
    seed: int = flag(0, "the run's seed; every rollout's seed is derived from it")
    base_url: str = flag(DEFAULT_BASE_URL, "an OpenAI-compatible endpoint")
    model: str | None = flag(
        None, f"the model (default: {DEFAULT_MODEL} there, elsewhere the only model served)"
    )
    temperature: float = flag(1.0, "sampling temperature")
    max_tokens: int = flag(2048, "longest reply, in tokens")
    thinking: bool = flag(False, "let the model think before it answers")
    no_comments: bool = flag(False, "ask for programs without comments")
    concurrency: int = flag(64, "requests in flight")
    give_up_after: float = flag(30.0, "minutes to wait for an endpoint that does not answer")
    max_total_tokens: int | None = flag(
        None, "stop at this many tokens, prompts and what is saved included"
    )
    out: str | None = flag(None, "folder to write to (default: out, or out/dry-run)")
    dry_run: bool = flag(False, "toy tasks and a scripted policy: no key and no network")
    reuse: bool = flag(False, "make no request; print the report from the folder again")
    regrade: bool = flag(False, "make no request; judge every saved program again")
    calibrate: bool = flag(
        False, f"judge {CALIBRATION_SIZE} base rollouts on every hidden case: hill or cliff?"
    )
    overwrite: bool = flag(False, "start again though the folder holds a run (it is set aside)")
    limits: Limits = field(default_factory=Limits)
    sandbox: bool = True
    judge_workers: int | None = None

    @property
    def folder(self) -> Path:
        return Path(self.out or ("out/dry-run" if self.dry_run else "out"))

    @property
    def all_arms(self) -> list[str]:
        return [*self.arms, *(f"noise-{i + 1}" for i in range(self.noise_runs))]


def parse(argv: Sequence[str] | None) -> Config:
    """Command line -> Config; argparse ends the program on a flag it does not know."""
    parser = argparse.ArgumentParser(
        description="Does a swarm of rollouts rescue the tasks on which a GRPO group fails?",
        allow_abbrev=False,
    )
    names = []
    for item in fields(Config):
        if "help" not in item.metadata:
            continue
        names.append(item.name)
        option, text = "--" + item.name.replace("_", "-"), item.metadata["help"]
        if item.default is False:
            parser.add_argument(option, action="store_true", help=f"{text} (default: off)")
            continue
        if isinstance(item.default, tuple):
            kind: Any = lambda text: tuple(part.strip() for part in text.split(","))  # noqa: E731
            text += f", separated by commas (default: {','.join(item.default)})"
        else:
            kind = {"limit": int, "max_total_tokens": int}.get(item.name, type(item.default))
            kind = str if item.default is None and kind is type(None) else kind
            if "(default" not in text:
                text += f" (default: {'no limit' if item.default is None else item.default})"
        parser.add_argument(option, type=kind, default=item.default, help=text)
    add_limit_flags(parser)
    args = parser.parse_args(argv)
    config = Config(
        **{name: getattr(args, name) for name in names},
        limits=limits_from(args),
        sandbox=args.sandbox == "on",
        judge_workers=args.judge_workers,
    )
    problem = mistake(config)
    if problem:
        parser.error(problem)
    if config.dry_run:
        limits = replace(config.limits, cpu_seconds=min(1.0, config.limits.cpu_seconds))
        config = replace(config, tasks="toy", limits=limits, noise_runs=config.noise_runs or 2)
    return config


def mistake(config: Config) -> str | None:
    """What is wrong with the flags, if anything."""
    unknown = [arm for arm in config.arms if arm not in TOPOLOGIES]
    if unknown or len(set(config.arms)) < len(config.arms):
        return f"--arms takes each of these at most once: {', '.join(TOPOLOGIES)}"
    if config.noise_runs and "resample" not in config.arms:
        return "--noise-runs repeats the resample arm: add it to --arms"
    if config.band not in BANDS:
        return f"--band is one of {', '.join(BANDS)}"
    for name, least in (("limit", 1), ("noise_runs", 0), ("max_tokens", 1), ("concurrency", 1),
                        ("temperature", 0), ("give_up_after", 0), ("max_total_tokens", 1),
                        ("judge_workers", 1)):  # fmt: skip
        value = getattr(config, name)
        if value is not None and not value >= least:
            return f"--{name.replace('_', '-')} must be {least} or more"
    return None


def say(text: str) -> None:
    """A line for the user, beside the report: it does not break the progress bar."""
    tqdm.write(text, file=sys.stderr)


# --- what is recorded -------------------------------------------------------------------------


def shaping_settings(
    config: Config, loaded: Loaded, prompts: Prompts, sampling: dict[str, Any]
) -> dict[str, Any]:
    """What shapes a rollout or its verdict: a saved run goes on only when all of it is equal."""
    return {
        "recipe": RECIPE_VERSION,
        "tasks": loaded.source,
        "cases": "visible: public + 8 generated; hidden: private + 32 generated",
        "sampling": sampling,
        "prompts": prompts.hashes,
        "no_comments": config.no_comments,
        "seed": config.seed,
        "limits": asdict(config.limits),
        "sandbox": config.sandbox,
        "python": PYTHON,
    }


def git_commit() -> str | None:
    """The checkout's commit, read from .git; None outside a checkout."""
    git = Path(__file__).parent / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        ref = head.removeprefix("ref: ")
        if (git / ref).exists():
            return (git / ref).read_text().strip()
        packed = (git / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(" " + ref)), None)
    except OSError:
        return None


def environment(sandbox_line: str, endpoint_line: str) -> dict[str, Any]:
    packages = ("huggingface_hub", "numpy", "openai", "pyarrow", "scipy", "tqdm")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in packages},
        "git_commit": git_commit(),
        "sandbox": sandbox_line,
        "endpoint": endpoint_line,
    }


# --- progress ---------------------------------------------------------------------------------


class Progress:
    """A bar on a terminal, elsewhere a plain line every minute."""

    def __init__(self, planned: int, saved: int, policy: Endpoint | ScriptedPolicy) -> None:
        self.policy = policy
        self.rescued: Counter[str] = Counter()
        self.done = self.truncated = self.tokens = 0
        self.started = self.last_line = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.bar = tqdm(total=planned, initial=saved, unit=" rollouts", smoothing=0.05,
                        dynamic_ncols=True, disable=not self.terminal)  # fmt: skip
        self.total, self.saved = planned, saved
        self._rescued_tasks: set[tuple[str, str]] = set()
        self._groups: dict[str, list[int]] = {}  # reply hashes of the base groups under way
        self._complete = self._repetitive = 0
        self._warned = isinstance(policy, ScriptedPolicy)  # written replies repeat themselves

    def skip(self, count: int) -> None:
        """`count` planned rollouts are not needed."""
        self.total -= count
        self.bar.total = self.total

    def add(self, record: Record) -> None:
        self.done += 1
        self.truncated += record.finish_reason == "length"
        self.tokens += record.completion_tokens or 0
        place = (record.key.arm, record.key.task)
        if record.accepted and record.key.arm != "base" and place not in self._rescued_tasks:
            self._rescued_tasks.add(place)
            self.rescued[record.key.arm] += 1
        if record.key.arm == "base" and record.outcome is None:
            self._look_for_copies(record)
        self.bar.update()
        now = time.monotonic()
        if self.terminal:
            self.bar.set_postfix_str(self.state(now), refresh=False)
        elif now - self.last_line >= 60:
            self.last_line = now
            left = (self.total - self.saved - self.done) * (now - self.started) / self.done
            say(
                f"{self.saved + self.done} of at most {self.total} rollouts, {self.state(now)}, "
                f"about {left / 60:.0f} min left"
            )

    def _look_for_copies(self, record: Record) -> None:
        """Warn early of a server that ignores seeds; the report counts over all groups."""
        hashes = self._groups.setdefault(record.key.task, [])
        hashes.append(record.reply_hash)
        if len(hashes) < GROUP:
            return
        self._complete += 1
        self._repetitive += 2 * len(set(self._groups.pop(record.key.task))) <= GROUP
        if self._repetitive > max(2, self._complete / 4) and not self._warned:
            self._warned = True
            say(
                f"WARNING: in {self._repetitive} of {self._complete} base groups at most half of "
                "the replies differ: does the server cache, or ignore seeds or the temperature?"
            )

    def state(self, now: float) -> str:
        rate = self.tokens / max(now - self.started, 1e-3)
        rescues = " ".join(f"{arm} {count}" for arm, count in sorted(self.rescued.items()))
        return (
            f"rescues: {rescues or 'none yet'}, {rate:.0f} tokens/s, "
            f"{self.truncated / self.done:.0%} truncated, "
            f"{self.policy.in_flight} in flight, {self.policy.retries} retries"
        )


def plan_line(tasks: Sequence[Task], prompts: Prompts, config: Config) -> tuple[int, str]:
    """The most rollouts that the run can take, and a line that says so."""
    per_task = GROUP + len(config.all_arms) * GROUP * ROUNDS
    characters = sum(len(m["content"]) for task in tasks for m in prompts.fresh(task))
    calls = len(tasks) * per_task
    return calls, (
        f"planned at most: {calls:,} calls ({GROUP} a task, then {GROUP * ROUNDS} an arm on the "
        f"tasks that all {GROUP} fail), about {characters * per_task / 4e6:,.1f}M prompt tokens "
        f"(fresh prompts; those of the swarms are longer) and at most "
        f"{calls * config.max_tokens / 1e6:,.1f}M sampled"
    )


# --- phases -----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def open_policy(config: Config) -> AsyncIterator[Endpoint | ScriptedPolicy]:
    """The probed endpoint, or the scripted policy of the dry run."""
    if config.dry_run:
        from toy import replies

        written = {title: [Scripted(*row) for row in rows] for title, rows in replies().items()}
        yield ScriptedPolicy(written)
        return
    from policy.endpoint import Endpoint  # slow to import: --reuse and the dry run do without

    endpoint = Endpoint(
        config.base_url,
        find_key(config.base_url),
        config.model,
        Sampling(config.temperature, config.max_tokens, config.thinking),
        concurrency=config.concurrency,
        give_up_after_minutes=config.give_up_after,
        max_total_tokens=config.max_total_tokens,
        notify=say,
    )
    async with endpoint:
        await endpoint.probe()
        yield endpoint


async def open_judge(config: Config, stack: contextlib.AsyncExitStack) -> tuple[Judge, str]:
    """A judge that has attacked itself, and the line that says what holds."""
    judge = await stack.enter_async_context(
        Judge(config.judge_workers, config.limits, sandbox=config.sandbox)
    )
    found = await asyncio.to_thread(judge.self_check)
    say(found.line)
    if found.missing and config.sandbox and not config.dry_run:
        raise SandboxError(
            f"the sandbox cannot hold {', '.join(found.missing)} on this machine; run on Linux "
            "5.13 or newer with Landlock and seccomp, or accept the risk with --sandbox off"
        )
    return judge, found.line


@contextlib.contextmanager
def stopping_on_signals(policy: Endpoint | ScriptedPolicy) -> Iterator[None]:
    """Ctrl-C (or SIGTERM) starts no new request; a second one leaves at once.

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
        say("stopping: no new request; waiting for those in flight (again to leave at once)")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def sample(config: Config, loaded: Loaded) -> None:
    """Everything that makes requests, then the checks and the report."""
    prompts = Prompts(PROMPTS, no_comments=config.no_comments)
    async with contextlib.AsyncExitStack() as stack:
        judge, sandbox_line = await open_judge(config, stack)
        policy = await stack.enter_async_context(open_policy(config))
        say(policy.line)
        settings = shaping_settings(config, loaded, prompts, policy.sent)
        journal = stack.enter_context(
            Journal.open(config.folder, settings, overwrite=config.overwrite)
        )
        if journal.moved:
            say(f"the run that was there is set aside as {journal.moved}")
        for task in loaded.tasks:
            messages = prompts.fresh(task)
            journal.add_task(TaskFacts.of(task, messages), messages)
        journal.add_load(
            {
                "source": loaded.source,
                "read": loaded.read,
                "kept": len(loaded.tasks),
                "dropped": loaded.dropped,
                "config": asdict(config),
                "environment": environment(sandbox_line, policy.line),
            }
        )
        planned, line = plan_line(loaded.tasks, prompts, config)
        say(line)
        # A budget is for the whole run: what earlier sittings spent counts.
        policy.tokens_used += sum(
            (record.prompt_tokens or 0) + (record.completion_tokens or 0)
            for records in journal.records.values()
            for record in records.values()
        )
        progress = Progress(planned, journal.saved, policy)
        swarm = Swarm(policy, judge, journal, prompts, config.seed, progress.add, progress.skip)
        try:
            with stopping_on_signals(policy):
                await swarm.run(loaded.tasks, config.all_arms, config.band)
        except BaseException:
            progress.bar.close()
            say(f"{journal.saved:,} rollouts are saved in {journal.path}; to go on: {command()}")
            raise
        progress.bar.close()
        await finish(config, journal, judge)


async def judge_again(asked: Config) -> None:
    """--regrade and --reuse --calibrate: no request, but the judge."""
    with Journal.read(asked.folder) as saved:
        config = saved_config(saved, asked)
        settings = saved.settings
    if asked.regrade:
        config = replace(config, limits=asked.limits, sandbox=asked.sandbox)
    config = replace(config, judge_workers=asked.judge_workers)
    async with contextlib.AsyncExitStack() as stack:
        judge, sandbox_line = await open_judge(config, stack)
        journal = stack.enter_context(Journal.open(config.folder, settings))
        if asked.regrade:
            calibrated = any(kind == "hidden" for kind, _, _ in journal.checks)
            config = replace(config, calibrate=asked.calibrate or calibrated)
            await regrade_all(config, journal, judge, sandbox_line)
        await finish(config, journal, judge)


async def regrade_all(config: Config, journal: Journal, judge: Judge, sandbox_line: str) -> None:
    """Today's judge and limits take the place of those of the run."""
    tasks = {task.id: task for task in read_tasks(config, ids=journal.facts).tasks}
    today = {"limits": asdict(config.limits), "sandbox": config.sandbox}
    say(f"judging the programs of {journal.saved:,} rollouts again")
    settings = {**journal.settings, **today, "python": PYTHON}
    with tqdm(total=journal.saved, unit=" programs", disable=not sys.stderr.isatty()) as bar:
        graded = await regrade(journal, judge, tasks, settings, bar.update)
    load = journal.load or {}
    python = platform.python_version()
    environment = {**load["environment"], "sandbox": sandbox_line, "python": python}
    journal.add_load({**load, "config": {**load["config"], **today}, "environment": environment})
    changes = ", ".join(f"{change} {count}" for change, count in sorted(graded.by_verdict.items()))
    say(f"{graded.changed} of {graded.total} verdicts changed{': ' if changes else ''}{changes}")


async def finish(config: Config, journal: Journal, judge: Judge) -> None:
    """The checks that need the judge, then the report."""
    await judge_extra(config, journal, judge)
    if config.calibrate:
        await calibrate(config, journal, judge)
    write_report(journal)


async def judge_extra(config: Config, journal: Journal, judge: Judge) -> None:
    """Judge each rescued program on the cases that are neither visible nor hidden."""
    missing = [
        record
        for record in rescues(journal)
        if ("extra", record.key.task, record.program_hash) not in journal.checks
    ]
    if not missing:
        return
    ids = {record.key.task for record in missing}
    tasks = {task.id: task for task in read_tasks(config, ids=ids, extra=True).tasks}

    async def one(record: Record) -> None:
        task, rollout = tasks[record.key.task], journal.get(record.key)
        if rollout is None:
            raise RuntimeError(f"{record.key} is in the records and not in the journal")
        extra = replace(task, id=f"{task.id} extra", visible=task.extra, hidden=(), extra=())
        passed = 0
        if task.extra:
            passed = (await judge.grade(rollout.program, extra)).visible_passed
        journal.add_check("extra", task.id, record.program_hash, passed, len(task.extra))

    await asyncio.gather(*map(one, missing))


async def calibrate(config: Config, journal: Journal, judge: Judge) -> None:
    """Judge a seeded sample of the base rollouts' programs on every hidden case."""
    programs = sorted(
        {
            (record.key.task, record.program_hash): record.key
            for (arm, _), records in sorted(journal.records.items())
            if arm == "base"
            for record in records.values()
            if record.program_hash
        }.items()
    )
    random.Random(f"calibrate {config.seed}").shuffle(programs)
    chosen = [
        key
        for (task, program), key in programs[:CALIBRATION_SIZE]
        if ("hidden", task, program) not in journal.checks
    ]
    ids = {key.task for key in chosen}
    tasks = {task.id: task for task in read_tasks(config, ids=ids).tasks} if chosen else {}

    async def one(key: Key) -> None:
        rollout = journal.get(key)
        if rollout is None:
            raise RuntimeError(f"{key} is in the records and not in the journal")
        found = await judge.grade(rollout.program, tasks[key.task], every_case=True)
        program = Record.of(rollout).program_hash
        journal.add_check("hidden", key.task, program, found.hidden_passed, found.hidden_total)

    await asyncio.gather(*map(one, chosen))


# --- report -----------------------------------------------------------------------------------


def rescues(journal: Journal) -> list[Record]:
    """The first record of each distinct passing program of the arms, on the all-fail tasks."""
    first: dict[tuple[str, int], Record] = {}
    for (arm, task), records in sorted(journal.records.items()):
        base = journal.records.get(("base", task), {})
        if arm == "base" or len(base) < GROUP or not in_band(base.values(), 0, "all-fail"):
            continue
        for _, record in sorted(records.items()):
            if record.accepted:
                first.setdefault((task, record.program_hash), record)
    return list(first.values())


def rescued_rows(journal: Journal) -> Iterator[dict[str, Any]]:
    """The rows of rescued.jsonl: the bare problem in, the passing program out."""
    for record in rescues(journal):
        rollout = journal.get(record.key)
        if rollout is None or rollout.program is None:
            raise RuntimeError(f"{record.key} is in the records and not in the journal")
        passed, total = journal.checks.get(
            ("extra", record.key.task, record.program_hash), (None, None)
        )
        answer = {"role": "assistant", "content": fenced(rollout.program)}
        yield {
            "messages": [*journal.fresh_messages(record.key.task), answer],
            "task_id": record.key.task,
            "arm": record.key.arm,
            "round": record.key.round,
            "particle": record.key.particle,
            "seed": rollout.seed,
            "extra_passed": passed,
            "extra_total": total,
        }


def write_report(journal: Journal) -> None:
    """results.json, rescued.jsonl and the terminal report, all from the journal alone."""
    config = saved_config(journal, Config())
    rows = list(rescued_rows(journal))
    report.write_lines(rows, journal.path.parent / "rescued.jsonl")
    present = {arm for arm, _ in journal.records} - {"base"}
    load = journal.load or {}
    results = report.build(
        facts=journal.facts,
        records=journal.records,
        checks=journal.checks,
        load={name: load.get(name) for name in ("source", "read", "kept", "dropped")},
        settings={
            "policy": "scripted" if config.dry_run else "endpoint",
            **{name: value for name, value in load["config"].items() if name != "out"},
            **journal.settings,
        },
        environment=load["environment"],
        arms=[arm for arm in TOPOLOGIES if arm in present or arm in config.arms],
        noise_runs=max(
            [config.noise_runs, *(int(a[6:]) for a in present if a.startswith("noise-"))]
        ),
        band=config.band,
        times={"wall_seconds": journal.wall_seconds, "out": str(journal.path.parent)},
        seed=config.seed,
        rescued_rows=rows,
    )
    report.write(results, journal.path.parent / "results.json")
    text = report.render(results, colour=report.wants_colour(sys.stdout))
    encoding = sys.stdout.encoding or "ascii"  # bars become ? on a terminal without Unicode
    print(text.encode(encoding, "replace").decode(encoding))


def saved_config(journal: Journal, asked: Config) -> Config:
    """The configuration that the journal's run was started with, with today's phase flags."""
    if journal.load is None:
        raise JournalError(f"{journal.path} holds no run yet; start one without --reuse")
    saved = dict(journal.load["config"])
    saved["limits"] = Limits(**saved["limits"])
    for name in ("arms", "splits"):
        saved[name] = tuple(saved[name])
    today = {name: getattr(asked, name) for name in ("out", "reuse", "regrade", "calibrate")}
    return replace(Config(**saved), **today)


def read_tasks(
    config: Config, *, ids: Collection[str] | None = None, extra: bool = False
) -> Loaded:
    """The run's tasks, or those with these ids."""
    limit = config.limit if ids is None else None
    return load_tasks(
        config.tasks, config.splits, limit=limit, seed=config.seed, ids=ids, extra=extra
    )


def command() -> str:
    """The command line that runs this again."""
    return shlex.join(["python", *sys.argv])


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 an error of the user's or the endpoint's, 130 interrupted."""
    config = parse(argv)
    try:
        if config.regrade or (config.reuse and config.calibrate):
            asyncio.run(judge_again(config))
        elif config.reuse:
            with Journal.read(config.folder) as journal:
                write_report(journal)
        else:
            loaded = read_tasks(config)
            say(loaded.line)
            asyncio.run(sample(config, loaded))
    except (Stopped, BudgetSpent) as error:
        say(f"stopped: {error}")
        return 130
    except KeyboardInterrupt:
        say(f"stopped; to go on: {command()}")
        return 130
    except USER_ERRORS as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
