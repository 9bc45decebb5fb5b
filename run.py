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

import asyncio
import contextlib
import os
import platform
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

import report
from checks import calibrate, judge_extra
from data import DataError, Loaded
from export import Export, write_exports
from journal import Journal, JournalError
from judge import Judge, JudgeFault, SandboxError
from policy import BudgetSpent, PolicyError, Sampling, Stopped
from policy.key import find_key
from policy.scripted import Scripted, ScriptedPolicy
from progress import Progress, plan_line, say
from regrade import regrade
from rows import rescued_rows
from settings import PYTHON, SAVED, Config, parse, read_tasks, saved_config, shaping_settings
from swarm import (
    BASE,
    START,
    TOPOLOGIES,
    Prompts,
    SearchError,
    Swarm,
    TaskFacts,
)

if TYPE_CHECKING:
    from policy.endpoint import Endpoint

PROMPTS = Path(__file__).parent / "prompts"

USER_ERRORS = (
    DataError,
    JournalError,
    JudgeFault,
    PolicyError,
    SandboxError,
    SearchError,
    report.ReportError,
)


# --- what is recorded -------------------------------------------------------------------------


def git_commit() -> str | None:
    """The checkout's commit, read from .git; None outside a checkout."""
    git = Path(__file__).parent / ".git"
    try:
        if git.is_file():  # a linked work tree or a submodule: "gitdir: PATH"
            git = git.parent / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        ref = head.removeprefix("ref: ")
        if (git / "commondir").exists():  # where a linked work tree keeps its branches
            git /= (git / "commondir").read_text().strip()
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
                "config": config.saved,
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
        progress = Progress(planned, journal.saved, policy, config.group)
        swarm = Swarm(
            policy,
            judge,
            journal,
            prompts,
            config.seed,
            config.shape,
            progress.add,
            progress.skip,
        )
        try:
            with stopping_on_signals(policy):
                await swarm.run(loaded.tasks, config.all_arms, config.band)
        except BaseException:
            progress.bar.close()
            say(f"{journal.saved:,} rollouts are saved in {journal.path}; to go on: {command()}")
            raise
        progress.bar.close()
        await finish(config, journal, judge, config)


async def judge_again(asked: Config) -> None:
    """--regrade and --reuse --calibrate: no request, but the judge."""
    with Journal.read(asked.folder) as saved:
        config = saved_config(saved, asked)
        settings = saved.settings
    limits = {name: value for name, value in asdict(asked.limits).items() if name in asked.given}
    sandbox = asked.sandbox if "sandbox" in asked.given else config.sandbox
    config = replace(
        config,
        limits=replace(config.limits, **limits),
        sandbox=sandbox,
        judge_workers=asked.judge_workers,
    )
    if not asked.regrade and settings["python"] != PYTHON:
        raise JournalError(
            f"the programs of {saved.path} were judged by Python {settings['python']} and this is "
            f"{PYTHON}: use that one, or judge all of them again with --regrade --calibrate"
        )
    async with contextlib.AsyncExitStack() as stack:
        judge, sandbox_line = await open_judge(config, stack)
        journal = stack.enter_context(Journal.open(config.folder, settings))
        if asked.regrade:
            calibrated = any(kind == "hidden" for kind, _, _ in journal.checks)
            config = replace(config, calibrate=asked.calibrate or calibrated)
            await regrade_all(config, journal, judge, sandbox_line)
        await finish(config, journal, judge, asked)


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


async def finish(config: Config, journal: Journal, judge: Judge, asked: Config) -> None:
    """The checks that need the judge, then the report."""
    await judge_extra(config, journal, judge)
    if config.calibrate:
        await calibrate(config, journal, judge)
    write_report(journal, asked)
    export_rows(asked, journal)


# --- report -----------------------------------------------------------------------------------


def write_report(journal: Journal, asked: Config) -> None:
    """results.json, rescued.jsonl and the terminal report, all from the journal alone."""
    config = saved_config(journal, asked)
    rows = list(rescued_rows(journal))
    report.write_lines(rows, journal.path.parent / "rescued.jsonl")
    load = journal.load or {}
    arms, noise_runs = runs_shown(config, journal, asked)
    results = report.build(
        facts=journal.facts,
        records=journal.records,
        checks=journal.checks,
        load={name: load.get(name) for name in ("source", "read", "kept", "dropped")},
        settings={
            "policy": "scripted" if config.dry_run else "endpoint",
            **{name: value for name, value in load["config"].items() if name != "out"},
            "band": config.band,
            **journal.settings,
        },
        environment=load["environment"],
        arms=arms,
        noise_runs=noise_runs,
        band=config.band,
        times={"wall_seconds": journal.wall_seconds, "out": str(journal.path.parent)},
        seed=config.seed,
        rescued_rows=rows,
    )
    report.write(results, journal.path.parent / "results.json")
    text = report.render(results, colour=report.wants_colour(sys.stdout))
    encoding = sys.stdout.encoding or "ascii"  # bars become ? on a terminal without Unicode
    print(text.encode(encoding, "replace").decode(encoding))


def runs_shown(config: Config, journal: Journal, asked: Config) -> tuple[list[str], int]:
    """The arms of the report and its number of noise runs: what is saved, or what is asked for.

    Raises JournalError when an arm that is asked for is not saved.
    """
    present = {arm for arm, _ in journal.records} - {BASE, START}
    noise = {int(arm[6:]) for arm in present if arm.startswith("noise-")}
    arms = {*present, *config.arms}
    if asked.mode in SAVED:
        if "noise_runs" in asked.given:
            noise = set(range(1, asked.noise_runs + 1))
        if "arms" in asked.given:
            arms = set(asked.arms)
            noise = noise if "resample" in arms else set()
        wanted = {*(arms if "arms" in asked.given else ()), *(f"noise-{n}" for n in noise)}
        if wanted - present:
            raise JournalError(
                f"no rollouts of {', '.join(sorted(wanted - present))} are saved in "
                f"{journal.path}; of these there are some: {', '.join(sorted(present)) or 'none'}"
            )
    else:
        noise |= {config.noise_runs}
    return [arm for arm in TOPOLOGIES if arm in arms], max(noise, default=0)


def export_rows(asked: Config, journal: Journal) -> None:
    """The kinds of rows that --export asks for."""
    if not asked.export:
        return
    config = saved_config(journal, asked)
    export = Export(
        journal,
        lambda: read_tasks(config, ids=journal.facts).tasks,
        asked.max_rows_per_task,
        asked.require_extra,
    )
    for kind, count in write_exports(export, asked.export).items():
        say(f"exported {count:,} rows: {kind}, in {journal.path.parent / 'export'}")


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
                write_report(journal, config)
                export_rows(config, journal)
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
