"""The sections of the terminal report that compare: differences, looks, noise, bill and power."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from report.layout import BAD, PASS, Page
from report.words import (
    between,
    counted,
    listed,
    p_text,
    percent,
    points,
    slashed,
    times,
    tokens,
)

NEEDED = {"tasks_for_5_points": 5, "tasks_for_3_points": 3}
COLOURS = {"more": PASS, "fewer": BAD}


def deltas(page: Page, results: Mapping[str, Any], details: bool) -> None:
    found = results["deltas"]
    several = next((row["against_mean"] for row in found.values() if row["against_mean"]), None)
    test = "the exact sign-flip test against the one run of resample"
    if several:
        test = f"the exact label permutation against all {several['runs']} runs of resample"
    page.heading(
        "Against resample, on the same tasks, in points",
        f"The primary test is {test}; Holm's p is over the arms."
        + (" Won and lost against several runs are sums over them." if several else ""),
    )
    if not found:
        page.text("No two arms to compare.")
        return
    rows = [
        (arm, f"all {several['runs']} runs", *_cells(row["against_mean"]))
        for arm, row in found.items()
        if several and row["against_mean"]
    ]
    if details or not several:
        rows += [(arm, "one run", *_cells(row)) for arm, row in found.items()]
    page.table(
        ("arm", "against", "tasks", "delta", "95% interval", "won", "lost", "p", "Holm p"), rows
    )
    page.lines.append("")
    for row in found.values():
        page.text(row["verdict"], COLOURS.get(row["conclusion"], ""), "  > ")
    _round_0(page, results)
    if details:
        _contrasts(page, results)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['n']:,}",
        points(row["delta"]),
        between(row["low"], row["high"]),
        f"{row['wins']:,}",
        f"{row['losses']:,}",
        p_text(row["p_value"]),
        p_text(row["holm_p"]),
    )


def _round_0(page: Page, results: Mapping[str, Any]) -> None:
    check = results["round_0"]
    if check:
        counts = ", ".join(f"{run} {n:,}" for run, n in check["rescued"].items())
        page.text(
            f"Check: round 0 is the same in all runs. Its rescues, of "
            f"{counted(check['n'], 'task')}: {counts}; p {p_text(check['p_value'])}."
        )


def _contrasts(page: Page, results: Mapping[str, Any]) -> None:
    found = results["contrasts"]
    if not found:
        return
    page.heading(
        "Secondary: what feedback and what sharing add, in points",
        "A Holm family of their own; feedback by the primary test, sharing by the sign-flip test.",
    )
    page.table(
        ("contrast", "adds", "delta", "95% interval", "won", "lost", "p", "Holm p"),
        [(name, row["question"], *_cells(row)[1:]) for name, row in found.items()],
    )


def looks(page: Page, results: Mapping[str, Any], details: bool) -> None:
    """Only of a run with a plan for looks."""
    found = results["looks"]
    if found is None:
        return
    page.heading(f"Looks: {found['done']} of {found['planned']} (O'Brien-Fleming spending)")
    if not found["searched"]:
        page.text("No look yet, or no task searched by then.")
        return
    page.text(
        f"After {slashed(found['tasks'])} tasks ({slashed(found['searched'])} searched) |z| must "
        f"exceed {', '.join(f'{bound:.2f}' for bound in found['bounds'])}. The intervals and "
        "p-values of the primary test above are for all looks."
    )
    page.table(
        ("arm", "z", "p", "Holm p", "chance to show yet", "so"),
        [
            (
                arm,
                ", ".join(f"{z:+.2f}" for z in row["z"]),
                p_text(row["p_value"]),
                p_text(row["holm_p"]),
                "-" if found["done"] == found["planned"] else percent(row["conditional_power"]),
                row["conclusion"],
            )
            for arm, row in found["arms"].items()
        ],
    )


def looked_too_often(results: Mapping[str, Any]) -> str | None:
    """The warning that a run without a plan for looks needs when it was looked at again."""
    found = results["times"]["looks"]
    if results["looks"] is not None or len(found["tasks"]) < 2:
        return None
    sizes = ", ".join(f"{size:,}" for size in found["tasks"])
    return (
        f"This run was looked at {len(found['tasks'])} times as it grew ({sizes} tasks) without "
        "--looks: an arm that does not differ gets a p under 5% at one of these looks with a "
        f"chance of {100 * found['false_alarms']:.0f}%."
    )


def look_line(results: Mapping[str, Any]) -> str:
    """What a look says, in one line."""
    found = results["looks"]
    said = ", ".join(f"{arm} {row['conclusion']}" for arm, row in found["arms"].items())
    return (
        f"look {found['done']} of {found['planned']}, "
        f"{counted(sum(found['tasks'][-1:]), 'task')}: {said or 'nothing to compare'}"
    )


def noise(page: Page, results: Mapping[str, Any], details: bool) -> None:
    found = results["noise"]
    page.heading("Noise: resample again, with other seeds")
    if found is None:
        page.text("Resample was not run again: how far two runs of one arm lie apart is unknown.")
        return
    if found["left_out"]:
        page.text(f"Not complete, and left out: {listed(found['left_out'])}.")
    if found["band"] is None:
        page.text("No repeat of resample is complete: how far two runs lie apart is unknown.")
        return
    rates = ", ".join(percent(rate) for rate in found["rates"])
    text = (
        f"{found['runs']} runs: {rates} ({slashed(found['rescued'])} of "
        f"{counted(found['n'], 'task')}), standard deviation {100 * found['std']:.2f} points. "
        f"Noise band, as published: {100 * found['band']:.1f} points, which two further runs "
        f"exceed in 5% of the cases; it rests on {found['runs']} numbers. "
    )
    if not found["std"]:
        text += "They are equal by chance, so that it bounds nothing. "
    text += (
        f"From the variance within tasks: {100 * found['within_band']:.1f} points. Neither decides "
        "a verdict."
    )
    page.text(text)
    if results["shape"]["common_start"]:
        page.text(
            "The runs share their round 0: these are bands of runs that go on from this start, and "
            "narrower than those of whole runs."
        )


def budget(page: Page, results: Mapping[str, Any], details: bool) -> None:
    found = results["equal_cost"]
    if not found or not found["arms"]:
        return
    page.heading("At an equal bill: resample that spends as much as the arm")
    rows = {arm: row for arm, row in found["arms"].items() if row}
    if not rows:
        page.text("Token counts are missing, so the bill is unknown.")
        return
    runs, samples = found["runs"], found["long_run"]["samples"][-1]
    page.text(
        f"{counted(runs, 'run')} of resample in a row, up to {samples} samples a task, as far as "
        "the arm's spend goes, in tokens a task; tokens a rescue as a multiple of resample's."
    )
    page.table(
        ("arm", "spend", "rescued", "resample", "delta", "95% interval", "tokens a rescue"),
        [
            (
                arm,
                tokens(row["spend"]) + ("" if row["whole"] else "*"),
                percent(row["treated"]),
                percent(row["control"]),
                points(row["delta"]),
                between(row["low"], row["high"]),
                _ratio(row["tokens_per_rescue_ratio"]),
            )
            for arm, row in rows.items()
        ],
    )
    if not all(row["whole"] for row in rows.values()):
        page.text("* All that resample spent; the arm spent more. --noise-runs lets it go on.")
    luck = found["equal_arms_ratio"]
    if luck:
        page.text(f"Of two equal arms one run in ten is {luck:.1f} times apart in tokens a rescue.")
    if details:
        _curves(page, found)


def _curves(page: Page, found: Mapping[str, Any]) -> None:
    page.heading("Rescued by a spend of so many tokens a task, after each round")
    curves = {**found["curves"], "resample, in a row": found["long_run"]}
    for arm, curve in curves.items():
        if curve:
            steps = zip(curve["tokens"], curve["rescued"], strict=True)
            shown = ", ".join(f"{tokens(spent)} {percent(share)}" for spent, share in steps)
            page.text(f"{arm}: {shown}")


def _ratio(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "-"
    low, high = (times(row[name]) for name in ("low", "high"))
    return f"{times(row['ratio'])} ({low} to {high})"


def power(page: Page, results: Mapping[str, Any], details: bool) -> None:
    found = results["power"]
    if found is None:
        return
    page.heading("What this many tasks can show (power 80%, two-sided 5%)")
    test = found["test"]
    published = [
        f"{found[name]:,} for +{gain}" for name, gain in NEEDED.items() if found[name] is not None
    ]
    text = _power_of_test(found["n"], test) if test else ""
    if published:
        text += f" (The published formula, for two independent arms: {listed(published)}.)"
    page.text(text)


def _power_of_test(n: int, test: Mapping[str, Any]) -> str:
    kind = "sign-flip test against one run"
    if test["runs"] > 1:
        kind = f"label permutation against {test['runs']} runs"
    text = (
        f"By simulation of the primary test ({kind}; two runs correlate by "
        f"{test['correlation']:.2f} on a task; level {100 * test['alpha']:.1f}%, as Holm asks of "
        "an arm that differs alone): "
    )
    if test["smallest_p"] > test["alpha"]:
        return text + (
            f"{counted(n, 'task')} can show nothing, since no p below {test['smallest_p']:.3f} "
            "exists." + _needed(test)
        )
    effect = test["detectable_effect"]
    seen = "show no gain" if effect is None else f"show a gain of {points(effect)} points"
    return text + f"{counted(n, 'task')} {seen}." + _needed(test)


def _needed(found: Mapping[str, Any]) -> str:
    return "".join(
        f" A gain of +{gain} needs {counted(found[name], 'task')}."
        for name, gain in NEEDED.items()
        if found[name] is not None
    )
