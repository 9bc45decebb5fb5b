"""The numbers of results.json -> the report on a terminal, and the README's table.

By itself it shows what decides; with the details also what is secondary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from report import answers, audit
from report.layout import BAD, BOLD, Page
from report.tally import share_of
from report.words import (
    between,
    counted,
    duration,
    interval,
    listed,
    p_text,
    percent,
    points,
    slashed,
    tokens,
    two,
)
from swarm import Shape

LONG_GROUP = 16  # above it the histogram leaves out empty lines, and pass@k goes by powers of two


def render(
    results: Mapping[str, Any], *, colour: bool, width: int = 100, details: bool = False
) -> str:
    """The report for a terminal, top down: what was run, what it found, what it cost.

    Args:
        results: as build() returns them.
        colour: whether to use ANSI colours.
        width: columns that no line exceeds; 80 is enough for every table to stay readable.
        details: show what is secondary too.
    """
    page = Page(width, colour)
    if results["scripted"]:
        page.text("SCRIPTED POLICY: its replies are written; the numbers mean nothing.", BAD, "")
    group = results["shape"]["group"]
    alone = results["audit"] and not results["cost"]["calls"]  # without a policy
    title = f"Does a swarm rescue the tasks that the policy fails {group} times of {group}?"
    if alone:
        title = "Which tasks can be rescued at all?"
    page.text(title, BOLD, "")
    again = answers.looked_too_often(results)
    for warning in [*results["warnings"], *([again] if again else [])]:
        page.text(warning, BAD, "! ")
    sections: tuple[Callable[[Page, Mapping[str, Any], bool], None], ...] = (
        _setup,
        _base,
        _arms,
        answers.deltas,
        answers.looks,
        answers.noise,
        answers.budget,
        _union,
        _fitness,
        audit.show,
        _hill,
        answers.power,
        _cost,
    )
    if alone:
        sections = (_setup, audit.show)
    for section in sections:
        section(page, results, details)
    if not details:
        page.lines.append("")
        page.text("More with --details: single runs, contrasts, rating bands, fitness by round.")
    return "\n".join(page.lines)


def _setup(page: Page, results: Mapping[str, Any], details: bool) -> None:
    settings, environment, load = (results[k] for k in ("settings", "environment", "load"))
    page.heading("What was run")
    if load:
        dropped = ", ".join(f"{why} {count:,}" for why, count in (load["dropped"] or {}).items())
        page.text(
            f"{load['source']}: {counted(load['read'], 'row')} read, "
            f"{counted(load['kept'], 'task')} kept; dropped: {dropped or 'none'}",
            mark="  tasks     ",
        )
        if load.get("time_limits"):
            own = "--time-factor" if settings["limits"].get("time_factor") else "not used here"
            page.text(
                f"{load['time_limits']:,} give a time limit of their own ({own})", mark=" " * 12
            )
    names = ("temperature", "max_tokens", "thinking", "no_comments", "seed")
    model = settings.get("model") or settings.get("sampling", {}).get("model", "-")
    shown = [f"model {model}", *(f"{name} {settings.get(name, '-')}" for name in names)]
    shown.append(f"band {results['cohort']['band']}")
    page.text(", ".join(shown), mark="  settings  ")
    for name in ("endpoint", "sandbox"):
        line = str(environment.get(name, "-")).removeprefix(name).lstrip(": ")
        page.text(line, mark=f"  {name:8}  ")
    versions = [f"Python {environment.get('python', '-')}"]
    if details:
        packages = environment.get("packages", {}).items()
        versions += [f"{name} {version}" for name, version in packages]
    versions.append(f"commit {str(environment.get('git_commit') or 'unknown')[:12]}")
    page.text(", ".join(versions), mark="  versions  ")


def _base(page: Page, results: Mapping[str, Any], details: bool) -> None:
    tasks, histogram, base = results["tasks"], results["histogram"], results["base"]
    group = results["shape"]["group"]
    page.heading(f"Base group: passes of {group} rollouts, {counted(tasks, 'task')}")
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
            + ", ".join(
                f"{k}: {percent(value)}"
                for k, value in enumerate(base["pass_at"], 1)
                if group <= LONG_GROUP or k == group or k & (k - 1) == 0
            )
        )
    outcomes = "".join(f", {why} {count:,}" for why, count in base["outcomes"].items())
    page.text(
        f"{counted(base['samples'], 'base rollout')}: {percent(base['truncated_share'])} cut off "
        f"at the token limit, {percent(base['no_program_share'])} without a program{outcomes}"
    )


def _arms(page: Page, results: Mapping[str, Any], details: bool) -> None:
    cohort, arms, shape = results["cohort"], results["arms"], Shape.of(results["shape"])
    page.heading(
        f"Rescue: up to {shape.samples} more samples on each of "
        f"{counted(cohort['tasks'], cohort['band'] + ' task')}",
        f"95% intervals: bootstrap over {counted(cohort['contests'], 'contest')}, and Wilson's, "
        "which takes tasks as independent.",
    )
    samples = slashed(shape.group * (number + 1) for number in range(shape.rounds))
    page.table(
        ("arm", "rescued", "rate", "interval", "Wilson", "by round", f"after {samples}"),
        [
            (
                arm,
                f"{row['rescued']:,}/{row['n']:,}",
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
    _bill(page, results)


def _bill(page: Page, results: Mapping[str, Any]) -> None:
    arms = results["arms"]
    scaled = {arm for arm, row in arms.items() if row["without_usage"] and row["tokens"]}
    page.table(
        ("arm", "samples", "tokens", "tokens a rescue", "cut off", "no program"),
        [
            (
                arm,
                f"{row['samples']:,}",
                "~" * (arm in scaled) + tokens(row["tokens"] and row["tokens"]["total"]),
                tokens(row["tokens_per_rescue"]),
                percent(row["truncated_share"]),
                percent(row["no_program_share"]),
            )
            for arm, row in arms.items()
        ],
    )
    if scaled:
        page.text("~ Some replies came without counts; the others of their round stand for them.")
    for arm, row in arms.items():
        if row["outcomes"]:
            why = ", ".join(f"{why} {n:,}" for why, n in row["outcomes"].items())
            page.text(f"{arm} has samples without a usable reply: {why}")
    compared = (results["equal_cost"] or {}).get("arms", {})
    bills = [f"{arm} {row['bill']:.2f}" for arm, row in compared.items() if row]
    if bills:
        page.text(
            "Equal samples are not an equal bill; tokens on the same tasks, as a multiple of "
            f"resample's: {', '.join(bills)}"
        )


def _union(page: Page, results: Mapping[str, Any], details: bool) -> None:
    union, bands, rows = (results[key] for key in ("union", "rating_bands", "rescued_rows"))
    page.heading("What became learnable")
    page.text(
        f"{union['rescued']:,} of {union['of']:,} {results['cohort']['band']} prompts became "
        f"learnable: {counted(union['runs'], 'run')} together found "
        f"{counted(union['programs'], 'distinct passing program')}."
    )
    plain = results["plain_sampling"]
    if plain and union["runs"] > 1:
        samples = listed(f"{count:,}" for count in plain["samples"])
        found = listed(f"{n:,.1f}" for n in plain["rescued"])
        shares = listed(percent(share) for share in plain["shares"])
        page.text(
            f"Plain sampling alone: {samples} fresh samples a task rescue {found} of "
            f"{counted(plain['n'], 'task')} ({shares}). That much of the union is no merit of a "
            "swarm."
        )
    if rows["rows"]:
        page.text(
            f"rescued.jsonl has {counted(rows['rows'], 'row')} on {counted(rows['tasks'], 'task')}"
            f"; {rows['with_extra_cases']:,} were judged on further generated cases and "
            f"{rows['failing_extra']:,} fail some of them."
        )
    if not details:
        return
    arms = list(results["arms"])
    page.lines.append("")
    page.table(
        ("rating", "tasks", "all-fail", "searched", *arms),
        [
            (
                name,
                *(f"{row[key]:,}" for key in ("tasks", "all_fail", "searched")),
                *(f"{row['rescued'][arm]:,}" for arm in arms),
            )
            for name, row in bands.items()
            if row["tasks"]
        ],
    )


def _fitness(page: Page, results: Mapping[str, Any], details: bool) -> None:
    fitness = results["fitness"]
    page.heading("Fitness: the best share of visible cases passed, mean over tasks")
    ends = [f"{arm} {two(row['by_round'][-1])}" for arm, row in fitness["arms"].items()]
    page.text(
        f"Base group {two(fitness['base_best'])}; floor, the share that the best constant answer "
        f"passes, {two(fitness['floor'])}; at the end {', '.join(ends) or '-'}."
    )
    if not details:
        return
    shape = Shape.of(results["shape"])
    samples = [f"after {shape.group * (number + 1)}" for number in range(shape.rounds)]
    page.table(
        ("arm", *samples, "not rescued", "their best", "their floor"),
        [
            (
                arm,
                *map(two, row["by_round"]),
                f"{row['unrescued']:,}",
                two(row["unrescued_best"]),
                two(row["unrescued_floor"]),
            )
            for arm, row in fitness["arms"].items()
        ],
    )


def _hill(page: Page, results: Mapping[str, Any], details: bool) -> None:
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
    page.text(
        hill["sentence"] + " The table has all tasks together; intervals take programs as "
        "independent."
    )


def _cost(page: Page, results: Mapping[str, Any], details: bool) -> None:
    cost, spent, copies = (results[key] for key in ("cost", "times", "duplicates"))
    page.heading("Cost")
    sums = cost["tokens"]
    bill = "tokens unknown"
    if sums:
        bill = (
            f"{sums['total']:,} tokens ({sums['prompt']:,} prompt, {sums['completion']:,} "
            f"sampled, of these {sums['reasoning']:,} reported as reasoning)"
        )
    page.text(f"{counted(cost['calls'], 'call')}, {bill}")
    page.text(
        f"wall {duration(spent.get('wall_seconds'))}; summed over calls: sampling "
        f"{duration(spent['sample_seconds'])}, judging {duration(spent['judge_seconds'])} of CPU"
    )
    if not details:
        return
    page.text(
        f"{counted(copies['repeated_replies'], 'reply', 'replies')} repeat another of their group "
        f"of fresh prompts ({counted(copies['groups'], 'group')}, {copies['repetitive_groups']:,} "
        "with at most half distinct)"
    )


def readme_table(results: Mapping[str, Any]) -> str:
    """The arms as a markdown table; differences and p are those of the primary test."""
    lines = [
        "| arm | rescued | rate | 95% interval | by round | samples | minus resample | Holm p |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for arm, row in results["arms"].items():
        delta = results["deltas"].get(arm)
        gain = p = ""
        if delta:
            primary = delta["against_mean"] or delta
            gain = f"{points(primary['delta'])} ({between(primary['low'], primary['high'])})"
            p = p_text(primary["holm_p"])
        cells = (
            arm,
            f"{row['rescued']:,} of {row['n']:,}",
            percent(row["rate"]),
            interval(row["low"], row["high"]),
            slashed(row["by_round"]),
            f"{row['samples']:,}",
            gain,
            p,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
