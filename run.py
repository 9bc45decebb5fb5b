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

if __name__ == "__main__":
    import signal
    import sys

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # While modules are imported there is nothing to save: Ctrl-C ends it without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.flags.safe_path:  # python -P leaves out the folder of the script
        sys.path.insert(0, __file__.rpartition("/")[0] or ".")

import asyncio
import contextlib
import os
import platform
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import report
from agree import as_saved
from audits import sound_tasks
from checks import audit, calibrate, judge_extra, not_audited
from data import DataError, Loaded
from descriptors import A_WORKER, SPARE, raise_limit
from export import Export, write_exports
from flags import AUDIT, CALIBRATE, REGRADE, REUSE, RUN
from folder import NAME, JournalError, check_folder
from journal import Journal
from judge import Judge, JudgeFault, SandboxError
from looks import check_looks, look, parts_of
from policy import BudgetSpent, PolicyError, Sampling, Stopped
from policy.key import find_key
from policy.local import Local, find_model
from policy.scripted import Scripted, ScriptedPolicy
from progress import Progress, bar, plan_line, say, time_line
from publish import OUTPUTS, publish, publish_so_far
from regrade import regrade
from settings import (
    PYTHON,
    RECIPE_VERSION,
    Config,
    kind_of_source,
    parse,
    place_of,
    read_tasks,
    saved_config,
    saved_tasks,
    shaping_settings,
)
from stopping import LeavingJudge, LeavingRayJudge, stopping_on_signals, to_go_on
from streams import fill, settle
from swarm import (
    Prompts,
    SearchError,
    Shape,
    Swarm,
    TaskFacts,
)
from versions import environment

if TYPE_CHECKING:
    from policy.endpoint import Endpoint

    Sampled = Endpoint | Local | ScriptedPolicy

JUDGED_BY = ("recipe", "python")  # settings that come from no flag, and decide verdicts
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


def make_policy(config: Config) -> Sampled:
    """The endpoint, its address and key looked at, or the model or the replies of another mode."""
    if config.dry_run:
        from toy import replies

        written = {title: [Scripted(*row) for row in rows] for title, rows in replies().items()}
        return ScriptedPolicy(written)
    sampling = Sampling(config.temperature, config.max_tokens, config.thinking)
    if config.local:
        return Local(find_model(config.gguf), sampling, config.concurrency)
    keys = [find_key(url) for url in config.base_url]  # before what is slow to import
    from policy.endpoint import Endpoint  # --reuse and the dry run do without

    return Endpoint(
        config.base_url,
        keys,
        config.model,
        sampling,
        extra_body=config.extra_body,
        stream=config.stream,
        concurrency=config.concurrency,
        read_timeout_seconds=config.read_timeout,
        sample_deadline_seconds=config.sample_timeout,
        give_up_after_minutes=config.give_up_after,
        max_total_tokens=config.max_total_tokens,
        notify=say,
    )


@contextlib.asynccontextmanager
async def probed(policy: Sampled) -> AsyncIterator[Sampled]:
    """The policy, ready to be sampled."""
    if isinstance(policy, ScriptedPolicy):
        yield policy
        return
    async with policy:
        await policy.probe()
        yield policy


async def open_judge(config: Config, stack: contextlib.AsyncExitStack) -> tuple[LeavingJudge, str]:
    """A judge that has attacked itself, and the line that says what holds."""
    settings = config.judge_workers, config.limits, config.sandbox
    judge = (
        LeavingRayJudge(*settings, config.ray_address)
        if config.judge == "ray"
        else LeavingJudge(*settings)
    )
    await stack.enter_async_context(judge)
    found = await asyncio.to_thread(judge.self_check)
    say(found.line)
    if not config.dry_run:
        found.check()
    return judge, found.line


async def sample(config: Config, policy: Sampled, loaded: Loaded) -> None:
    """Everything that makes requests, then the checks and the report."""
    prompts = Prompts(PROMPTS, no_comments=config.no_comments)
    async with contextlib.AsyncExitStack() as stack:
        judge, sandbox_line = await open_judge(config, stack)
        await stack.enter_async_context(probed(policy))
        say(policy.line)
        settings = shaping_settings(config, loaded, prompts, policy.sent)
        journal = stack.enter_context(
            Journal.open(config.folder, settings, overwrite=config.overwrite)
        )
        if config.limit is None:  # a limit chooses by ids
            loaded = replace(loaded, tasks=as_saved(loaded.tasks, journal.facts))
        extra = ["llama-cpp-python"] if config.local else []
        begin(config, journal, loaded, prompts, environment(sandbox_line, policy.line, *extra))
        try:
            if "sound" in config.band:
                await audit_all(config, journal, judge)
            await search(config, journal, loaded, prompts, policy, judge)
            await finish(config, journal, judge, config)
        except BaseException as error:
            waiting = f", and {journal.waiting:,} replies for the judge" if journal.waiting else ""
            say(f"{journal.saved:,} rollouts are saved in {journal.path}{waiting}")
            say(f"to go on: {to_go_on(config, error, judge.workers)}")
            raise


def begin(
    config: Config, journal: Journal, loaded: Loaded, prompts: Prompts, environment: dict[str, Any]
) -> None:
    """Save what the run is, and refuse tasks that are not those of a run that goes on."""
    if journal.moved:
        say(f"the run that was there is set aside as {journal.moved}")
    if journal.facts and not any(task.id in journal.facts for task in loaded.tasks):
        raise JournalError(
            f"{journal.path} has rollouts of other tasks, such as {next(iter(journal.facts))}, "
            f"and {loaded.source} has {loaded.tasks[0].id}: use the tasks of that run (with "
            "--limit also the file's old name, which is in the ids), --out for another folder, or "
            "--overwrite to begin anew"
        )
    for task in loaded.tasks:
        messages = prompts.fresh(task)
        journal.add_task(TaskFacts.of(task, messages), messages)
    journal.add_load(
        {
            "source": loaded.source,
            "read": loaded.read,
            "kept": len(loaded.tasks),
            "time_limits": sum(task.time_limit is not None for task in loaded.tasks),
            "dropped": loaded.dropped,
            "config": {**config.saved, "tasks": place_of(config, loaded)},
            "environment": environment,
        }
    )


async def search(
    config: Config,
    journal: Journal,
    loaded: Loaded,
    prompts: Prompts,
    policy: Sampled,
    judge: LeavingJudge,
) -> None:
    """The base groups and the arms, with a bar."""
    planned, line = plan_line(loaded.tasks, prompts, config)
    say(line)
    if isinstance(policy, Local):
        say(time_line((planned - journal.saved) * config.max_tokens / policy.rate))
    # A budget is for the whole run: what earlier sittings spent counts.
    policy.tokens_used += sum(
        (record.prompt_tokens or 0) + (record.completion_tokens or 0)
        for records in journal.records.values()
        for record in records.values()
    )
    parts = parts_of(loaded.tasks, config.looks)
    check_looks(journal, parts)
    progress = Progress(planned, journal.saved, policy, config.group, config.max_tokens)
    swarm = Swarm(
        policy,
        judge,
        journal,
        prompts,
        config.seed,
        config.shape,
        progress.add,
        progress.skip,
        left_out=dict(journal.left_out),
        on_left_out=journal.leave_out,
        sound=sound_tasks(journal.audits),
    )
    tasks = {task.id: task for task in loaded.tasks}
    page = asyncio.create_task(publish_so_far(config.folder, config, tasks, say))
    try:
        with stopping_on_signals(policy, judge, say):
            for number, part in enumerate(parts, 1):
                await swarm.run(part, config.all_arms, config.band)
                if look(config, journal, part, len(parts)) and config.stop_when_decided:
                    left = sum(map(len, parts[number:]))
                    progress.skip(left * config.shape.most_rollouts(len(config.all_arms)))
                    break
    finally:
        page.cancel()
        progress.close()
        if not isinstance(policy, (Local, ScriptedPolicy)):
            with contextlib.suppress(JournalError):  # a full disk has been told
                journal.add_served(policy.served)


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
        judge=asked.judge,
        ray_address=asked.ray_address,
    )
    judged_by, now = [settings.get(name) for name in JUDGED_BY], [RECIPE_VERSION, PYTHON]
    if not asked.regrade and judged_by != now:
        raise JournalError(
            f"the programs of {saved.path} were judged by recipe {judged_by[0]} and Python "
            f"{judged_by[1]}, and this is recipe {now[0]} and Python {now[1]}: use those, or judge "
            "all of them again with --regrade --calibrate"
        )
    async with contextlib.AsyncExitStack() as stack:
        judge, sandbox_line = await open_judge(config, stack)
        journal = stack.enter_context(Journal.open(config.folder, settings))
        if asked.regrade:
            calibrated = any(kind == "hidden" for kind, _, _ in journal.checks)
            audited = max((found.known for found in journal.audits.values()), default=None)
            config = replace(
                config, calibrate=asked.calibrate or calibrated, audit=asked.audit or audited
            )
            await regrade_all(config, journal, judge, sandbox_line)
        await finish(config, journal, judge, asked)


async def audit_all(config: Config, journal: Journal, judge: Judge) -> None:
    """The known programs of all tasks, with a bar; what is left without them is told."""
    known = config.audit or 0
    with bar(len(not_audited(journal, known)), "tasks audited") as shown:
        await audit(config, journal, judge, shown.update)
    if left := len(not_audited(journal, known)):
        say(f"{left} tasks could not be audited: they are gone from {config.tasks}, or changed")


async def audit_alone(config: Config, loaded: Loaded) -> None:
    """The known programs of the tasks, judged and reported without a policy."""
    prompts = Prompts(PROMPTS, no_comments=config.no_comments)
    if (config.folder / NAME).exists() and not config.overwrite:
        with Journal.read(config.folder) as saved:
            if saved.settings["sampling"]:
                raise JournalError(
                    f"{saved.path} holds a run: to audit its tasks, give --reuse --audit --out "
                    f"{shlex.quote(str(config.folder))}; or use --out for another folder"
                )
    async with contextlib.AsyncExitStack() as stack:
        judge, sandbox_line = await open_judge(config, stack)
        settings = shaping_settings(config, loaded, prompts, {})
        journal = stack.enter_context(
            Journal.open(config.folder, settings, overwrite=config.overwrite)
        )
        begin(config, journal, loaded, prompts, environment(sandbox_line, "none: an audit alone"))
        await finish(config, journal, judge, config)


async def regrade_all(config: Config, journal: Journal, judge: Judge, sandbox_line: str) -> None:
    """Today's judge and limits take the place of those of the run."""
    tasks = saved_tasks(config, journal, journal.facts)
    today = {"limits": asdict(config.limits), "sandbox": config.sandbox}
    say(f"judging the programs of {journal.saved + journal.waiting:,} rollouts again")
    settings = {
        **asdict(Shape.of(journal.settings)),
        "visible": config.visible,
        **journal.settings,
        **today,
        "tasks": kind_of_source(journal.settings["tasks"]),
        **dict(zip(JUDGED_BY, (RECIPE_VERSION, PYTHON), strict=True)),
    }
    with bar(journal.saved + journal.waiting, "programs") as shown:
        graded = await regrade(journal, judge, tasks, settings, shown.update)
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
    if config.audit:
        await audit_all(config, journal, judge)
    publish(journal, asked)
    export_rows(asked, journal)


def export_rows(asked: Config, journal: Journal) -> None:
    """The kinds of rows that --export asks for."""
    if not asked.export:
        return
    config = saved_config(journal, asked)
    export = Export(
        journal,
        lambda: list(saved_tasks(config, journal, journal.facts).values()),
        asked.max_rows_per_task,
        asked.require_extra,
        sound_tasks(journal.audits),
    )
    for kind, count in write_exports(export, asked.export).items():
        say(f"exported {count:,} rows: {kind}, in {journal.path.parent / 'export'}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 an error of the user's or the endpoint's, 130 interrupted."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    fill()
    config = parse(argv)
    try:
        if config.mode in (CALIBRATE, REGRADE):
            asyncio.run(judge_again(config))
        elif config.mode == REUSE:
            os.environ["HF_HUB_OFFLINE"] = "1"  # the page shows tasks that are here, or none
            with Journal.read(config.folder) as journal:
                publish(journal, config)
                export_rows(config, journal)
        elif config.mode == AUDIT:
            check_folder(config.folder, OUTPUTS)
            loaded = read_tasks(config)
            say(loaded.line)
            asyncio.run(audit_alone(config, loaded))
        else:
            # What can be said at once is said before the tasks are downloaded.
            allow_descriptors(config)
            check_folder(config.folder, OUTPUTS)
            policy = make_policy(config)
            loaded = read_tasks(config)
            say(loaded.line)
            asyncio.run(sample(config, policy, loaded))
    except (Stopped, BudgetSpent) as error:
        say(f"stopped: {error}")
        return 130
    except KeyboardInterrupt:
        say("stopped")
        return 130
    except USER_ERRORS as error:
        say(f"error: {error}")
        return 1
    return 0


def allow_descriptors(config: Config) -> None:
    """Raise the limit of file descriptors to what the run needs; PolicyError when it cannot."""
    workers = config.judge_workers or os.cpu_count() or 1
    requests = config.concurrency * len(config.base_url) if config.mode == RUN else 0
    needed = requests + A_WORKER * workers + SPARE
    allowed = raise_limit(needed)
    if requests and allowed < needed - SPARE // 2:
        raise PolicyError(
            f"{requests} requests in flight need {needed} file descriptors and this system allows "
            f"{allowed}: use --concurrency "
            f"{max(1, (allowed - needed + requests) // len(config.base_url))}, or raise the "
            "limit (ulimit -Hn)"
        )


if __name__ == "__main__":
    try:
        code = main()
    finally:
        settle(sys.stdout)
        settle(sys.stderr)
    sys.exit(code)
