"""What a run leaves: results.json, rescued.jsonl and the report on the terminal.

All of it comes from the journal, so that --reuse makes it again. The report is worth more than
its files: it is shown also where they cannot be written.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import report
from audits import sound_tasks
from data import DataError, Task
from flags import SAVED
from folder import JournalError
from journal import Journal
from report import Saved
from rows import rescued_rows
from settings import Config, saved_config, saved_tasks
from streams import show
from swarm import BASE, START, TOPOLOGIES, Prompts, Shape

PROMPTS = Path(__file__).parent / "prompts"
OUTPUTS = ("results.json", "rescued.jsonl", "report.html")  # beside the journal
LOAD = ("source", "read", "kept", "dropped", "time_limits")  # of what was read, for the report
PAGE_SECONDS = 180.0  # between two pages of a run that goes on
WIDTHS = 80, 100  # columns of a report


def results_of(
    journal: Journal, asked: Config, rows: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The numbers of results.json, from the journal alone; `rows` are those of rescued.jsonl."""
    config = saved_config(journal, asked)
    load = journal.load or {}
    arms, noise_runs = runs_shown(config, journal, asked)
    return report.build(
        facts=journal.facts,
        records=journal.records,
        checks=journal.checks,
        left_out=journal.left_out,
        audits=journal.audits,
        load={name: load.get(name) for name in LOAD},
        settings={
            "policy": config.policy,
            **{name: value for name, value in load["config"].items() if name != "out"},
            "band": config.band,
            "margin": config.margin,
            **journal.settings,
        },
        environment=load["environment"],
        arms=arms,
        noise_runs=noise_runs,
        band=config.band,
        times={
            "wall_seconds": journal.wall_seconds,
            "out": str(journal.path.parent),
            "served": dict(sorted(journal.served.items())),
        },
        seed=config.seed,
        rescued_rows=rows,
        looks=journal.looks,
        margin=config.margin and config.margin / 100,
    )


def publish(journal: Journal, asked: Config) -> None:
    """results.json, rescued.jsonl and the terminal report, all from the journal alone."""
    rows = list(rescued_rows(journal))
    results = results_of(journal, asked, rows)
    results_path, rows_path, page_path = (journal.path.parent / name for name in OUTPUTS)
    problem: report.ReportError | None = None
    try:
        report.write(results, results_path)
        report.write_lines(rows, rows_path)
        if journal.records:  # an audit alone has nothing to page through
            write_page(journal, asked, results)
    except report.ReportError as error:
        problem = error  # the report is worth more than its files: it is shown all the same
    width = min(max(shutil.get_terminal_size((WIDTHS[1], 24)).columns, WIDTHS[0]), WIDTHS[1])
    colour = sys.stdout is not None and report.wants_colour(sys.stdout)
    text = report.render(results, colour=colour, width=width, details=asked.details)
    if not problem:
        text += f"\n\nFiles: {results_path}, {rows_path}, {journal.path}"
        text += f"\nPage: {page_path}" if journal.records else ""
    try:
        show(text)
    except OSError as error:
        raise report.ReportError(
            f"cannot print the report: {error.strerror}; {results_path} has its numbers"
        ) from error
    if problem:
        raise problem


def write_page(
    journal: Journal,
    asked: Config,
    results: Mapping[str, Any],
    *,
    tasks: Mapping[str, Task] | None = None,
    finished: bool = True,
) -> None:
    """report.html, with the cases of `tasks`; None: they are read again, and the page does without
    them where that fails."""
    config = saved_config(journal, asked)
    if tasks is None:
        try:
            tasks = saved_tasks(config, journal, set(journal.facts))
        except DataError:
            tasks = {}
    arms, noise_runs = runs_shown(config, journal, asked)
    saved = Saved(
        facts=journal.facts,
        records=journal.records,
        rollout=journal.get,
        fresh=journal.fresh_messages,
        tasks=tasks,
        prompts=Prompts(PROMPTS, no_comments=config.no_comments),
        arms=[*arms, *(f"noise-{i + 1}" for i in range(noise_runs))],
        shape=Shape.of(journal.settings),
        seed=config.seed,
        sound=sound_tasks(journal.audits),
    )
    folder = journal.path.parent
    report.write_page(results, saved, folder, megabytes=asked.page_mb, finished=finished)


async def publish_so_far(
    folder: Path, asked: Config, tasks: Mapping[str, Task], say: Callable[[str], None]
) -> None:
    """Write the page of a run that goes on, again and again, until cancelled.

    In a thread, from the file that the run writes, and never at the cost of the run: what goes
    wrong is said once and is no reason to stop.
    """
    pause = PAGE_SECONDS
    while True:
        await asyncio.sleep(pause)
        started = time.monotonic()
        try:
            await asyncio.to_thread(_page_of, folder, asked, tasks)
        except Exception as error:
            say(f"no page while the run goes on: {error}")
            return
        pause = max(PAGE_SECONDS, 10 * (time.monotonic() - started))


def _page_of(folder: Path, asked: Config, tasks: Mapping[str, Task]) -> None:
    with Journal.read(folder) as journal:
        results = results_of(journal, asked)
        write_page(journal, asked, results, tasks=tasks, finished=False)


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
