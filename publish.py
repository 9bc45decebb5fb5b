"""What a run leaves: results.json, rescued.jsonl and the report on the terminal.

All of it comes from the journal, so that --reuse makes it again. The report is worth more than
its files: it is shown also where they cannot be written.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import report
from journal import Journal, JournalError
from rows import rescued_rows
from settings import SAVED, Config, saved_config
from streams import show
from swarm import BASE, START, TOPOLOGIES

OUTPUTS = ("results.json", "rescued.jsonl")  # beside the journal
LOAD = ("source", "read", "kept", "dropped", "time_limits")  # of what was read, for the report
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
        load={name: load.get(name) for name in LOAD},
        settings={
            "policy": "scripted" if config.dry_run else "endpoint",
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
    results_path, rows_path = (journal.path.parent / name for name in OUTPUTS)
    problem: report.ReportError | None = None
    try:
        report.write(results, results_path)
        report.write_lines(rows, rows_path)
    except report.ReportError as error:
        problem = error  # the report is worth more than its files: it is shown all the same
    width = min(max(shutil.get_terminal_size((WIDTHS[1], 24)).columns, WIDTHS[0]), WIDTHS[1])
    colour = sys.stdout is not None and report.wants_colour(sys.stdout)
    text = report.render(results, colour=colour, width=width, details=asked.details)
    if not problem:
        text += f"\n\nFiles: {results_path}, {rows_path}, {journal.path}"
    try:
        show(text)
    except OSError as error:
        raise report.ReportError(
            f"cannot print the report: {error.strerror}; {results_path} has its numbers"
        ) from error
    if problem:
        raise problem


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
