"""Arms compared: against resample, with each other, and resample with itself.

Which test is the primary one: where resample was run again, the label permutation against all its
runs; else the sign-flip test against the one run. Holm's p is over the arms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import stats
from report.tally import CONTROL, Run
from report.words import between, counted, listed, p_text, points
from swarm import topology_of

SOLO = "solo"


def controls_of(run: Run, arms: Sequence[str], noise_runs: int) -> tuple[list[str], list[str]]:
    """Resample and its complete repeats; and the repeats that are left out.

    A repeat whose searches have not all ended would change what every arm is compared on.
    """
    if CONTROL not in arms:
        return [], []
    repeats = [f"noise-{i + 1}" for i in range(noise_runs)]
    whole = [repeat for repeat in repeats if len(run.searches[repeat]) == len(run.cohort)]
    return [CONTROL, *whole], [repeat for repeat in repeats if repeat not in whole]


def noise(run: Run, controls: Sequence[str], left_out: Sequence[str]) -> dict[str, Any] | None:
    """How far the runs of resample lie apart; None when it was not run again."""
    tasks = run.both(*controls)
    if not tasks or len(controls) + len(left_out) < 2:
        return None
    outcomes = [run.outcomes(arm, tasks) for arm in controls]
    rescued = [sum(values) for values in outcomes]
    rates = [count / len(tasks) for count in rescued]
    several = len(rates) > 1
    band = asdict(stats.noise_band(rates)) if several else {"std": None, "band": None, "runs": 1}
    return {
        "rates": rates,
        "rescued": rescued,
        "n": len(tasks),
        **band,
        "within_band": stats.within_task_band(outcomes) if several else None,
        "left_out": list(left_out),
    }


def against(run: Run, arms: Sequence[str], controls: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Each arm minus the mean of the control runs, with Holm's p over the arms."""
    found: dict[str, dict[str, Any]] = {}
    for arm in arms:
        tasks = run.both(arm, *controls)
        if arm not in controls and controls and tasks:
            found[arm] = _delta(run, arm, controls, tasks)
    return with_holm(found)


def _delta(run: Run, arm: str, controls: Sequence[str], tasks: Sequence[str]) -> dict[str, Any]:
    outcomes = [run.outcomes(control, tasks) for control in controls]
    delta = stats.paired_delta(
        [sum(values) / len(values) for values in zip(*outcomes, strict=True)],
        run.outcomes(arm, tasks),
        runs=len(controls),
        seed=run.seed,
        clusters=run.contests(tasks),
    )
    return asdict(delta)


def with_holm(entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    if entries:
        adjusted = stats.holm([entry["p_value"] for entry in entries.values()])
        for entry, p_value in zip(entries.values(), adjusted, strict=True):
            entry["holm_p"] = p_value
    return entries


def deltas(
    run: Run,
    arms: Sequence[str],
    controls: Sequence[str],
    *,
    margin: float | None,
    looked: Mapping[str, Mapping[str, Any]] | None,
) -> dict[str, Any]:
    """Each arm against one run of resample and against all, which of them counts, and a verdict.

    looked: what a group-sequential design says of each arm (report.looks); its p-value and its
    interval take the place of those that the primary test has without it.
    """
    single = against(run, arms, controls[:1])
    several = against(run, arms, controls) if len(controls) > 1 else {}
    result = {}
    for arm, entry in single.items():
        missing = 2 * len(run.cohort) - len(run.searches[arm]) - len(run.searches[CONTROL])
        primary = several.get(arm, entry)
        by_looks = (looked or {}).get(arm, {})
        primary.update((name, by_looks[name]) for name in by_looks if name in primary)
        conclusion, words = verdict(arm, primary, len(single), missing, margin)
        result[arm] = {
            **entry,
            "against_mean": several.get(arm),
            "primary": "all runs" if several else "one run",
            "conclusion": conclusion,
            "verdict": words,
        }
    return result


def verdict(
    arm: str, entry: Mapping[str, Any], arms: int, missing: int, margin: float | None = None
) -> tuple[str, str]:
    """ "more", "fewer", "equivalent", "not shown" or "no verdict", and a sentence that says why.

    A difference is shown when the interval leaves out 0 and Holm's p is under 5%. Equivalent: it
    is not shown, and both one-sided 95% bounds lie within the margin (Schuirmann 1987, J.
    Pharmacokinet. Biopharm. 15:657).
    """
    if missing:
        return "no verdict", (
            f"{arm}: no verdict, since {missing:,} of its and resample's searches have not ended."
        )
    delta, low, high, p = (entry[name] for name in ("delta", "low", "high", "holm_p"))
    measured = f"{points(delta)} points, 95% interval {between(low, high)}, Holm p {p_text(p)}"
    out = low > 0 or high < 0
    if out and p < stats.ALPHA:
        word = "more" if delta > 0 else "fewer"
        return word, f"{arm}: it rescued {word} than resample ({measured})."
    lower, upper = entry["lower"], entry["upper"]
    if margin is not None and -margin < lower and upper < margin:
        return "equivalent", (
            f"{arm}: it does not differ from resample by {100 * margin:g} points or more "
            f"({measured}; one-sided 95% bounds {between(lower, upper)})."
        )
    sentence = f"{arm}: no difference from resample is shown ({measured}). "
    if out:
        why = f"with {counted(arms, 'arm')} compared" if arms > 1 else "by the exact test"
        sentence += (
            f"The interval leaves out 0, but {why} chance alone explains a difference this large "
            "too well."
        )
    else:
        ruled_out = []
        if upper < 1:
            ruled_out.append(f"a gain above {100 * upper:.1f} points" if upper > 0 else "a gain")
        if lower > -1:
            ruled_out.append(f"a loss beyond {-100 * lower:.1f} points" if lower < 0 else "a loss")
        sentence += f"Ruled out (one-sided 95%): {listed(ruled_out or ['nothing'])}."
    return "not shown", sentence


def contrasts(run: Run, arms: Sequence[str], controls: Sequence[str]) -> dict[str, Any]:
    """What feedback adds to resampling, and what sharing adds to feedback: secondary questions.

    They are a Holm family of their own. Feedback: solo minus resample, by the primary test.
    Sharing: each arm that sees its neighbours' attempts minus solo, by the sign-flip test.
    """
    if SOLO not in arms:
        return {}
    pairs = [("feedback", SOLO, list(controls))] if controls else []
    pairs += [("sharing", arm, [SOLO]) for arm in arms if _shares(arm, run.shape.group)]
    found: dict[str, dict[str, Any]] = {}
    for question, arm, base in pairs:
        tasks = run.both(arm, *base)
        if tasks:
            name = f"{arm} - {SOLO if base == [SOLO] else CONTROL}"
            found[name] = {"question": question, **_delta(run, arm, base, tasks)}
    return with_holm(found)


def _shares(arm: str, group: int) -> bool:
    return any(topology_of(arm, group) or ())


def round_0(run: Run, runs: Sequence[str]) -> dict[str, Any] | None:
    """Rescues by round 0, in which all arms and repeats do the same; None where there is no check.

    A small p-value says that something differs that should not: the endpoint, say.
    """
    begun = [arm for arm in runs if run.searches[arm]]
    tasks = run.both(*begun)
    if run.shape.common_start or len(begun) < 2 or not tasks:
        return None
    outcomes = [[int(run.searches[arm][task].rescue_round == 0) for task in tasks] for arm in begun]
    return {
        "n": len(tasks),
        "rescued": {arm: sum(values) for arm, values in zip(begun, outcomes, strict=True)},
        "p_value": stats.same_rates(outcomes, seed=run.seed),
    }
