"""The numbers of results.json -> the report on a terminal, and the README's table."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from report.results import CONTROL
from report.tally import share_of
from report.words import duration, interval, p_text, percent, points, slashed, tokens, two
from swarm import Shape

LONG_GROUP = 16  # above it the histogram leaves out empty lines, and pass@k goes by powers of two

PASS, BAD, FAINT, BOLD = "32", "31", "2", "1"  # ANSI colours


def wants_colour(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colour (https://no-color.org)."""
    dumb = os.environ.get("TERM") == "dumb"
    return stream.isatty() and not os.environ.get("NO_COLOR") and not dumb


class Page:
    """Lines of at most `width` columns."""

    def __init__(self, width: int, colour: bool) -> None:
        self.width, self.colour = width, colour
        self.lines: list[str] = []

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text

    def heading(self, title: str, note: str = "") -> None:
        self.lines += ["", self.paint(title, BOLD)]
        if note:
            self.text(note)

    def text(self, text: str, code: str = "", mark: str = "  ") -> None:
        """A paragraph, its first line after `mark`."""
        rest = " " * len(mark)
        for line in textwrap.wrap(text, self.width, initial_indent=mark, subsequent_indent=rest):
            self.lines.append(self.paint(line, code) if code else line)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """First column to the left, the others to the right."""
        cells = [header, *rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
        for number, row in enumerate(cells):
            first, *others = (
                cell.rjust(width) if i else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            line = "  ".join(["  " + first, *others]).rstrip()
            self.lines.append(line if number else self.paint(line, FAINT))


def render(results: Mapping[str, Any], *, colour: bool, width: int = 100) -> str:
    """The report for a terminal, top down: what was run, what it found, what it cost."""
    page = Page(width, colour)
    if results["scripted"]:
        page.text("SCRIPTED POLICY: its replies are written; the numbers mean nothing.", BAD, "")
    group = results["shape"]["group"]
    title = f"Does a swarm rescue the tasks that the policy fails {group} times of {group}?"
    page.text(title, BOLD, "")
    for warning in results["warnings"]:
        page.text(warning, BAD, "! ")
    for section in (
        _render_setup,
        _render_base,
        _render_arms,
        _render_deltas,
        _render_noise,
        _render_union,
        _render_fitness,
        _render_hill,
        _render_power,
        _render_cost,
    ):
        section(page, results)
    return "\n".join(page.lines)


def _render_setup(page: Page, results: Mapping[str, Any]) -> None:
    settings, environment, load = (results[k] for k in ("settings", "environment", "load"))
    page.heading("What was run")
    if load:
        dropped = ", ".join(f"{why} {count}" for why, count in (load["dropped"] or {}).items())
        page.text(
            f"{load['source']}: {load['read']} rows read, {load['kept']} tasks kept; dropped: "
            f"{dropped or 'none'}",
            mark="  tasks     ",
        )
        if load.get("time_limits"):
            own = "--time-factor" if settings["limits"].get("time_factor") else "not used here"
            page.text(
                f"{load['time_limits']:,} give a time limit of their own ({own})", mark=" " * 12
            )
    names = ("temperature", "max_tokens", "thinking", "no_comments", "band", "seed")
    model = settings.get("model") or settings.get("sampling", {}).get("model", "-")
    shown = [f"model {model}", *(f"{name} {settings.get(name, '-')}" for name in names)]
    page.text(", ".join(shown), mark="  settings  ")
    for name in ("endpoint", "sandbox"):
        line = str(environment.get(name, "-")).removeprefix(name).lstrip(": ")
        page.text(line, mark=f"  {name:8}  ")
    versions = [f"Python {environment.get('python', '-')}"]
    versions += [f"{name} {version}" for name, version in environment.get("packages", {}).items()]
    versions.append(f"commit {str(environment.get('git_commit') or 'unknown')[:12]}")
    page.text(", ".join(versions), mark="  versions  ")


def _render_base(page: Page, results: Mapping[str, Any]) -> None:
    tasks, histogram, base = results["tasks"], results["histogram"], results["base"]
    group = results["shape"]["group"]
    page.heading(f"Base group: passes of {group} rollouts, {tasks} tasks")
    longest = max([*histogram, 1])
    for passes, count in enumerate(histogram):
        if not count and group > LONG_GROUP:
            continue
        bar = "█" * -(-count * (page.width - 40) // longest)
        page.lines.append(f"  {passes} {count:7,}  {bar}".rstrip())
    page.text(
        f"all-fail {results['all_fail']:,} ({percent(share_of(results['all_fail'], tasks))} of the "
        f"tasks); of these near-miss (a rollout passes a visible case) {results['near_miss']:,}, "
        f"and above the floor (it beats the best constant answer) {results['above_floor']:,}"
    )
    if base["pass_at"]:
        page.text(
            "pass@k  "
            + "  ".join(
                f"{k}: {percent(value)}"
                for k, value in enumerate(base["pass_at"], 1)
                if group <= LONG_GROUP or k == group or k & (k - 1) == 0
            )
        )
    page.text(_quality("base rollouts", base))


def _quality(name: str, summary: Mapping[str, Any]) -> str:
    outcomes = "".join(f", {why} {count:,}" for why, count in summary["outcomes"].items())
    return (
        f"{summary['samples']:,} {name}: {percent(summary['truncated_share'])} cut off at the "
        f"token limit, {percent(summary['no_program_share'])} without a program{outcomes}"
    )


def _render_arms(page: Page, results: Mapping[str, Any]) -> None:
    cohort, arms, shape = results["cohort"], results["arms"], Shape.of(results["shape"])
    page.heading(
        f"Rescue: up to {shape.samples} more samples on each of {cohort['tasks']:,} "
        f"{cohort['band']} tasks",
        f"95% intervals: bootstrap over {cohort['contests']:,} contests, and Wilson's, which takes "
        "tasks as independent.",
    )
    samples = slashed(shape.group * (number + 1) for number in range(shape.rounds))
    page.table(
        ("arm", "rescued", "rate", "interval", "Wilson", "by round", f"after {samples}"),
        [
            (
                arm,
                f"{row['rescued']}/{row['n']}",
                percent(row["rate"]),
                interval(row["low"], row["high"]) + ("*" if row["method"] == "wilson" else ""),
                interval(row["wilson_low"], row["wilson_high"]),
                slashed(row["by_round"]),
                slashed(row["cumulative"]),
            )
            for arm, row in arms.items()
        ],
    )
    if any(row["method"] == "wilson" for row in arms.values()):
        page.text("* Wilson's: a bootstrap of equal outcomes, or of one contest, has no spread.")
    page.lines.append("")
    _render_bill(page, arms)


def _render_bill(page: Page, arms: Mapping[str, Mapping[str, Any]]) -> None:
    page.table(
        ("arm", "samples", "tokens", "tokens a rescue", "cut off", "no program"),
        [
            (
                arm,
                f"{row['samples']:,}",
                tokens(row["tokens"] and row["tokens"]["total"]),
                tokens(row["tokens_per_rescue"]),
                percent(row["truncated_share"]),
                percent(row["no_program_share"]),
            )
            for arm, row in arms.items()
        ],
    )
    for arm, row in arms.items():
        if row["outcomes"]:
            why = ", ".join(f"{why} {n:,}" for why, n in row["outcomes"].items())
            page.text(f"{arm} has samples without a usable reply: {why}")
    control = (arms.get(CONTROL) or {}).get("tokens")
    bills = [
        f"{arm} {row['tokens']['total'] / control['total']:.2f}"
        for arm, row in arms.items()
        if control and control["total"] and arm != CONTROL and row["tokens"]
    ]
    if bills:
        page.text(
            "Equal samples are not an equal bill; tokens as a multiple of resample's: "
            + ", ".join(bills)
        )


def _render_deltas(page: Page, results: Mapping[str, Any]) -> None:
    deltas = results["deltas"]
    page.heading(
        "Against resample, on the same tasks, in points",
        "p: sign-flip test, exact against one run, sampled against the mean; Holm's p is over the "
        "arms.",
    )
    if not deltas:
        page.text("No two arms to compare.")
        return
    header = ("arm", "against", "delta", "95% interval", "wins", "losses", "p", "Holm p")
    rows = [(arm, "one run", *_delta_cells(row)) for arm, row in deltas.items()]
    rows += [
        (arm, "mean of runs", *_delta_cells(row["against_mean"]))
        for arm, row in deltas.items()
        if row["against_mean"]
    ]
    page.table(header, rows)
    page.lines.append("")
    colours = {"more": PASS, "fewer": BAD}
    for row in deltas.values():
        page.text(row["verdict"], colours.get(row["conclusion"], ""), "  > ")


def _delta_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        points(row["delta"]),
        f"{points(row['low'])} to {points(row['high'])}",
        str(row["wins"]),
        str(row["losses"]),
        p_text(row["p_value"]),
        p_text(row["holm_p"]),
    )


def _render_noise(page: Page, results: Mapping[str, Any]) -> None:
    noise = results["noise"]
    page.heading("Noise: resample again, with other seeds")
    if noise is None:
        page.text("Resample was not run again: how far two runs of one arm lie apart is unknown.")
        return
    rates = ", ".join(percent(rate) for rate in noise["rates"])
    page.text(
        f"{noise['runs']} runs: {rates} ({slashed(noise['rescued'])} of {noise['n']}), standard "
        f"deviation {100 * noise['std']:.2f} points. By noise alone two runs lie up to "
        f"{100 * noise['band']:.1f} points apart (95%)."
    )
    if not noise["std"]:
        page.text("They rescued equally many by chance: that band bounds nothing.")
    elif noise["runs"] == 2:
        page.text("Two runs bound the noise badly; three or more (--noise-runs 2) do better.")


def _render_union(page: Page, results: Mapping[str, Any]) -> None:
    union, bands, rows = (results[key] for key in ("union", "rating_bands", "rescued_rows"))
    page.heading("What became learnable")
    page.text(
        f"{union['rescued']} of {union['of']} {results['cohort']['band']} prompts became "
        f"learnable: {union['runs']} runs together found {union['programs']} distinct passing "
        "programs."
    )
    if rows["rows"]:
        page.text(
            f"rescued.jsonl has {rows['rows']} rows on {rows['tasks']} tasks; "
            f"{rows['with_extra_cases']} were judged on further generated cases and "
            f"{rows['failing_extra']} fail some of them."
        )
    arms = list(results["arms"])
    page.lines.append("")
    page.table(
        ("rating", "tasks", "all-fail", "searched", *arms),
        [
            (
                name,
                *(f"{row[key]:,}" for key in ("tasks", "all_fail", "searched")),
                *(str(row["rescued"][arm]) for arm in arms),
            )
            for name, row in bands.items()
            if row["tasks"]
        ],
    )


def _render_fitness(page: Page, results: Mapping[str, Any]) -> None:
    fitness = results["fitness"]
    page.heading(
        "Fitness: the best share of visible cases passed, mean over tasks",
        f"Base group {two(fitness['base_best'])}; floor, the share that the best constant answer "
        f"passes, {two(fitness['floor'])}.",
    )
    shape = Shape.of(results["shape"])
    samples = [f"after {shape.group * (number + 1)}" for number in range(shape.rounds)]
    page.table(
        ("arm", *samples, "not rescued", "their best", "their floor"),
        [
            (
                arm,
                *map(two, row["by_round"]),
                str(row["unrescued"]),
                two(row["unrescued_best"]),
                two(row["unrescued_floor"]),
            )
            for arm, row in fitness["arms"].items()
        ],
    )


def _render_hill(page: Page, results: Mapping[str, Any]) -> None:
    hill = results["hill"]
    page.heading("Is the fitness a hill?")
    if hill is None:
        page.text("Not measured; --calibrate judges base rollouts on every hidden case.")
        return
    page.table(
        ("visible cases passed", "programs", "tasks", "pass hidden", "rate", "interval"),
        [
            (
                row["visible_share"],
                *(f"{row[key]:,}" for key in ("programs", "tasks", "pass_hidden")),
                percent(row["rate"]),
                interval(row["low"], row["high"]),
            )
            for row in hill["buckets"]
        ],
    )
    page.text(hill["sentence"] + " Intervals take programs as independent.")


def _render_power(page: Page, results: Mapping[str, Any]) -> None:
    power = results["power"]
    if power is None:
        return
    page.heading("What this many tasks can see (power 80%, two-sided 5%, independent arms)")
    effect = power["detectable_effect"]
    seen = "are too few to see any gain"
    if effect is not None:
        seen = f"could have seen a gain of {points(effect)} points or more"
    text = f"{power['n']:,} tasks at resample's {percent(power['base'])} {seen}."
    for gain in (5, 3):
        if power[f"tasks_for_{gain}_points"] is not None:
            text += f" A gain of +{gain} needs {power[f'tasks_for_{gain}_points']:,} tasks."
    page.text(text)


def _render_cost(page: Page, results: Mapping[str, Any]) -> None:
    cost, times, copies = (results[key] for key in ("cost", "times", "duplicates"))
    page.heading("Cost")
    tokens = cost["tokens"]
    spent = "tokens unknown"
    if tokens:
        spent = (
            f"{tokens['total']:,} tokens ({tokens['prompt']:,} prompt, {tokens['completion']:,} "
            f"sampled, of these {tokens['reasoning']:,} reported as reasoning)"
        )
    page.text(f"{cost['calls']:,} calls, {spent}")
    wall = times.get("wall_seconds")
    page.text(
        f"wall {duration(wall)}; summed over calls: sampling "
        f"{duration(times['sample_seconds'])}, judging {duration(times['judge_seconds'])} of CPU"
    )
    page.text(
        f"{copies['repeated_replies']:,} replies repeat another of their group of fresh prompts "
        f"({copies['groups']:,} groups, {copies['repetitive_groups']:,} with at most half distinct)"
    )


def readme_table(results: Mapping[str, Any]) -> str:
    """The arms as a markdown table."""
    lines = [
        "| arm | rescued | rate | 95% interval | by round | samples | minus resample | Holm p |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for arm, row in results["arms"].items():
        delta = results["deltas"].get(arm)
        gain = p = ""
        if delta:
            bounds = f"{points(delta['low'])} to {points(delta['high'])}"
            gain, p = f"{points(delta['delta'])} ({bounds})", p_text(delta["holm_p"])
        cells = (
            arm,
            f"{row['rescued']} of {row['n']}",
            percent(row["rate"]),
            interval(row["low"], row["high"]),
            slashed(row["by_round"]),
            f"{row['samples']:,}",
            gain,
            p,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
