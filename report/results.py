"""Saved records -> results.json.

build() counts everything once and returns a dict that json can write; the terminal and the page
only lay out what is in it, so that no number exists twice. Two runs that saved the same rollouts
give the same results but for "times", in whatever order the rollouts were saved.

Only complete data enters a rate: whole base groups, and searches that ended, by a rescue or
after their last round. What was left out is counted and said first, since a search ends
early when it rescues, so that leaving out the unfinished ones flatters an arm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

import stats
from data import RATING_BANDS, rating_band
from report.hill import hill
from report.tally import Checks, Run, Tally, run_of, share_of
from report.words import p_text, points
from swarm import BANDS, BASE, START, Shape, in_band

if TYPE_CHECKING:
    from swarm import Records, TaskFacts

CONTROL = "resample"
FEW_CLUSTERS = 20  # below this many contests a cluster bootstrap is known to run narrow


def build(
    *,
    facts: Mapping[str, TaskFacts],
    records: Records,
    checks: Checks,
    load: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    environment: Mapping[str, Any],
    arms: Sequence[str],
    noise_runs: int,
    band: str,
    times: Mapping[str, Any],
    seed: int,
    rescued_rows: Sequence[Mapping[str, Any]] = (),
    left_out: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The results of a run, ready for json: no NaN, and null for what cannot be said.

    Args:
        facts, records, checks: as journal.Journal holds them.
        load: "source", "read", "kept" and "dropped" of the loader, or None.
        settings, environment: taken over as they are.
        arms: the arms in the order of the report; "resample" is what the others are compared to.
        noise_runs: number of repeats of resample, saved as the arms "noise-1", "noise-2", ...
        band: which all-fail tasks the arms search, as swarm.in_band names it.
        times: seconds and whatever else differs between two runs of the same rollouts.
        seed: of the bootstrap draws.
        rescued_rows: the rows of rescued.jsonl.
        left_out: task id -> why nothing can be said of it; its rollouts count in the costs only.
    """
    everything, left_out = (facts, records), left_out or {}
    facts = {task: found for task, found in facts.items() if task not in left_out}
    records = {place: found for place, found in records.items() if place[1] not in left_out}
    repeats = [f"noise-{i + 1}" for i in range(noise_runs)]
    controls, runs = [CONTROL, *repeats] if CONTROL in arms else [], [*arms, *repeats]
    run = run_of(facts, records, runs, band, Shape.of(settings), seed)
    passes = [sum(record.accepted for record in group) for group in run.base.values()]
    histogram = [passes.count(count) for count in range(run.shape.group + 1)]
    in_bands = {
        name: sum(in_band(group, run.facts[task].floor, name) for task, group in run.base.items())
        for name in BANDS
    }
    total, judge_seconds = _total(*everything, runs)
    noise, contests = _noise(run, controls), len(set(run.contests(run.cohort)))
    results: dict[str, Any] = {
        "scripted": settings.get("policy") == "scripted",
        "warnings": [],
        "load": dict(load) if load else None,
        "shape": asdict(run.shape),
        "tasks": len(run.base),
        "histogram": histogram,
        "all_fail": in_bands["all-fail"],
        "near_miss": in_bands["near-miss"],
        "above_floor": in_bands["above-floor"],
        "incomplete": {
            "base": len(run.facts) - len(run.base),
            "searches": {arm: len(run.cohort) - len(run.searches[arm]) for arm in runs},
        },
        "left_out": {"tasks": len(left_out), "reasons": dict(sorted(left_out.items()))},
        "base": _base(run, histogram),
        "cohort": {"band": band, "tasks": len(run.cohort), "contests": contests},
        "arms": {arm: _arm(run, arm) for arm in arms},
        "deltas": _deltas(run, arms, controls, noise),
        "noise": noise,
        "union": _union(run, runs),
        "rating_bands": _rating_bands(run, arms),
        "fitness": _fitness(run, arms),
        "hill": hill(records, checks),
        "power": _power(run, arms),
        "duplicates": _duplicates(run, runs),
        "rescued_rows": _rescued_rows(rescued_rows),
        "cost": {"calls": total.samples, "tokens": total.tokens()},
        "settings": dict(settings),
        "environment": dict(environment),
        "times": {
            **times,
            "sample_seconds": total.sample_seconds,
            "judge_seconds": judge_seconds,
        },
    }
    results["warnings"] = _warnings(results, total)
    return results


def _total(
    facts: Mapping[str, TaskFacts], records: Records, runs: Sequence[str]
) -> tuple[Tally, float]:
    """All rollouts, also of groups and searches that are not complete, and CPU seconds judged."""
    total, judge_seconds = Tally(), 0.0
    for task in sorted(facts):
        programs: dict[int, float] = {}  # the judge runs equal programs of a task once
        for arm in (BASE, START, *runs):
            saved = records.get((arm, task), {}).values()
            total.add(saved)
            programs.update((record.program_hash, record.judge_seconds) for record in saved)
        judge_seconds += sum(programs.values())
    return total, judge_seconds


def _base(run: Run, histogram: Sequence[int]) -> dict[str, Any]:
    tally = Tally()
    for group in run.base.values():
        tally.add(group)
    groups = sum(histogram)
    pass_at = [
        sum(n * stats.pass_at_k(run.shape.group, c, k) for c, n in enumerate(histogram)) / groups
        for k in range(1, run.shape.group + 1)
        if groups
    ]
    return {"pass_at": pass_at or None, **tally.summary()}


def _arm(run: Run, arm: str) -> dict[str, Any]:
    """The row of an arm; rates are shares of the tasks on which its search ended."""
    searches = run.searches[arm]
    tasks = list(searches)
    by_round = [
        sum(search.rescue_round == number for search in searches.values())
        for number in range(run.shape.rounds)
    ]
    tally = Tally()
    for search in searches.values():
        tally.add(search.records)
    estimate: dict[str, Any] = dict.fromkeys(f.name for f in fields(stats.Estimate))
    if tasks:
        outcomes, contests = run.outcomes(arm, tasks), run.contests(tasks)
        estimate = asdict(stats.rescue_rate(outcomes, seed=run.seed, clusters=contests))
    summary = tally.summary()
    tokens, rescued = summary["tokens"], sum(by_round)
    return {
        "n": len(tasks),
        "rescued": rescued,
        "rate": estimate["mean"],
        **{name: estimate[name] for name in estimate if name not in ("mean", "n")},
        "by_round": by_round,
        "cumulative": [sum(by_round[: number + 1]) for number in range(run.shape.rounds)],
        **summary,
        "tokens_per_rescue": share_of(tokens["total"], rescued) if tokens else None,
    }


def _noise(run: Run, controls: Sequence[str]) -> dict[str, Any] | None:
    """Rates of resample and its repeats over the tasks on which all of them ended."""
    tasks = run.both(*controls)
    if len(controls) < 2 or not tasks:
        return None
    rescued = [sum(run.outcomes(arm, tasks)) for arm in controls]
    rates = [count / len(tasks) for count in rescued]
    return {"rates": rates, "rescued": rescued, "n": len(tasks), **asdict(stats.noise_band(rates))}


def _deltas(
    run: Run, arms: Sequence[str], controls: Sequence[str], noise: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Each arm against resample, and against the mean of all resample runs."""
    single = _against(run, arms, controls[:1])
    mean = _against(run, arms, controls) if len(controls) > 1 else {}
    band = noise["band"] if noise else None
    result = {}
    for arm, entry in single.items():
        missing = 2 * len(run.cohort) - len(run.searches[arm]) - len(run.searches[CONTROL])
        conclusion, verdict = _verdict(arm, entry, band, len(single), missing)
        words = {"conclusion": conclusion, "verdict": verdict}
        result[arm] = {**entry, "against_mean": mean.get(arm), **words}
    return result


def _against(run: Run, arms: Sequence[str], controls: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Paired differences to the mean of the controls, with Holm's p over the arms."""
    entries: dict[str, dict[str, Any]] = {}
    for arm in arms:
        tasks = run.both(arm, *controls)
        if arm == CONTROL or not controls or not tasks:
            continue
        outcomes = [run.outcomes(control, tasks) for control in controls]
        delta = stats.paired_delta(
            [sum(values) / len(values) for values in zip(*outcomes, strict=True)],
            run.outcomes(arm, tasks),
            seed=run.seed,
            clusters=run.contests(tasks),
        )
        entries[arm] = asdict(delta)
    if entries:
        p_values = [float(entry["p_value"]) for entry in entries.values()]
        adjusted = stats.holm(p_values)
        for entry, p_value in zip(entries.values(), adjusted, strict=True):
            entry["holm_p"] = p_value
    return entries


def _verdict(
    arm: str, entry: Mapping[str, Any], band: float | None, arms: int, missing: int
) -> tuple[str, str]:
    """One conclusion of "more", "fewer", "not shown" and "no verdict", and a sentence.

    A difference is shown when the interval leaves out 0, Holm's p is under 5% and, where resample
    was run again, the difference is larger than the noise band.
    """
    if missing:
        return "no verdict", (
            f"{arm}: no verdict, since {missing} of its and resample's searches have not ended."
        )
    delta, low, high, p = (entry[name] for name in ("delta", "low", "high", "holm_p"))
    interval = f"{points(low)} to {points(high)}"
    measured = f"{points(delta)} points, 95% interval {interval}, Holm p {p_text(p)}"
    if low <= 0 <= high:
        return "not shown", (
            f"{arm}: no difference from resample is shown ({measured}). The interval holds 0 and "
            f"rules out neither a gain of {100 * high:.1f} points nor a loss of "
            f"{100 * abs(low):.1f}."
        )
    word = "more" if delta > 0 else "fewer"
    if p >= stats.ALPHA:
        why = f"with {arms} arms compared" if arms > 1 else "by the exact test"
        return "not shown", (
            f"{arm}: no difference from resample is shown ({measured}). The interval leaves out 0, "
            f"but {why} chance alone explains a difference this large too well."
        )
    if band is not None and band > 0 and abs(delta) <= band:
        return "not shown", (
            f"{arm}: it rescued {word} than resample here ({measured}), but two runs of resample "
            f"can lie {100 * band:.1f} points apart, so that no difference of the arms is shown."
        )
    beyond = "Resample was not run again, so the noise between two runs is not known."
    if band == 0:
        beyond = "The runs of resample rescued equally many, which bounds their noise badly."
    elif band is not None:
        beyond = f"That is beyond the noise band of {100 * band:.1f} points."
    return word, f"{arm}: it rescued {word} than resample ({measured}). {beyond}"


def _union(run: Run, runs: Sequence[str]) -> dict[str, Any]:
    """What all runs together rescued; a search that has not ended can have a rescue."""
    programs: set[tuple[str, int]] = set()
    for task in run.cohort:
        for arm in (START, *runs):
            for record in run.records.get((arm, task), {}).values():
                if record.accepted:
                    programs.add((task, record.program_hash))
    rescued = len({task for task, _ in programs})
    return {"rescued": rescued, "of": len(run.cohort), "runs": len(runs), "programs": len(programs)}


def _rating_bands(run: Run, arms: Sequence[str]) -> dict[str, Any]:
    bands = {task: rating_band(run.facts[task].rating) for task in run.base}
    searched = set(run.cohort)
    result: dict[str, Any] = {}
    for name in RATING_BANDS:
        tasks = [task for task, band in bands.items() if band == name]
        failed = [task for task in tasks if in_band(run.base[task], 0, "all-fail")]
        result[name] = {
            "tasks": len(tasks),
            "all_fail": len(failed),
            "searched": len(searched.intersection(tasks)),
            "rescued": {
                arm: sum(run.outcomes(arm, (t for t in tasks if t in run.searches[arm])))
                for arm in arms
            },
        }
    return result


def _fitness(run: Run, arms: Sequence[str]) -> dict[str, Any]:
    """Best shares of visible cases, beside the floor: the share of the best constant answer."""
    best_base = [max(r.visible_passed / r.visible_total for r in run.base[t]) for t in run.cohort]
    by_arm = {}
    for arm in arms:
        searches = run.searches[arm]
        failed = [task for task, search in searches.items() if search.rescue_round is None]
        by_arm[arm] = {
            "by_round": [
                _mean([search.best[number] for search in searches.values()])
                for number in range(run.shape.rounds)
            ],
            "unrescued": len(failed),
            "unrescued_best": _mean([searches[task].best[-1] for task in failed]),
            "unrescued_floor": _mean(run.floors(failed)),
        }
    return {
        "floor": _mean(run.floors(run.cohort)),
        "base_best": _mean(best_base),
        "arms": by_arm,
    }


def _power(run: Run, arms: Sequence[str]) -> dict[str, Any] | None:
    """What this many tasks could have seen, at 80% power and the rate of resample."""
    n = len(run.searches[CONTROL]) if CONTROL in arms else 0
    if not n:
        return None
    base = sum(run.outcomes(CONTROL, run.searches[CONTROL])) / n
    return {
        "base": base,
        "n": n,
        "detectable_effect": _or_none(stats.detectable_effect, base, n),
        "tasks_for_5_points": _or_none(stats.holdout_size, base, 0.05),
        "tasks_for_3_points": _or_none(stats.holdout_size, base, 0.03),
    }


def _duplicates(run: Run, runs: Sequence[str]) -> dict[str, Any]:
    """Equal replies among those of a group that answer one fresh prompt in one round.

    How often chance repeats a reply depends on its length and the temperature, which nothing here
    can know; that it leaves no more than half of the replies distinct it explains for very short
    replies only. Such groups are counted as repetitive.
    """
    groups = repeats = repetitive = 0
    for arm in (BASE, START, *runs):
        all_fresh = arm in (BASE, CONTROL) or arm.startswith("noise-")
        for task in run.facts:
            replies: dict[int, list[int]] = {}
            for (number, _), record in run.records.get((arm, task), {}).items():
                if record.outcome is None and (number == 0 or all_fresh):
                    replies.setdefault(number, []).append(record.reply_hash)
            for hashes in replies.values():
                distinct = len(set(hashes))
                groups += 1
                repeats += len(hashes) - distinct
                repetitive += len(hashes) > 1 and 2 * distinct <= len(hashes)
    return {"groups": groups, "repeated_replies": repeats, "repetitive_groups": repetitive}


def _rescued_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    judged = [row for row in rows if row["extra_total"] is not None]
    return {
        "rows": len(rows),
        "tasks": len({row["task_id"] for row in rows}),
        "with_extra_cases": sum(row["extra_total"] > 0 for row in judged),
        "failing_extra": sum(row["extra_passed"] < row["extra_total"] for row in judged),
    }


def _warnings(results: Mapping[str, Any], total: Tally) -> list[str]:
    """What a reader must know before any number, the gravest first."""
    found = []
    incomplete, cohort = results["incomplete"], results["cohort"]
    if results["settings"].get("sandbox") is False:
        found.append("The sandbox was off: programs ran unprotected and could change any verdict.")
    if results["settings"].get("sandbox") == "partial":
        found.append("The sandbox held in part only: see its line for what a program could do.")
    if reasons := results["left_out"]["reasons"]:
        shown = "; ".join(list(reasons.values())[:3])
        found.append(
            f"Tasks left out because their checkers gave no answer: {len(reasons)} ({shown}"
            f"{'; ...' if len(reasons) > 3 else ''})."
        )
    if incomplete["base"]:
        found.append(f"Base groups that are not complete, left out: {incomplete['base']}.")
    if any(incomplete["searches"].values()):
        listed = ", ".join(f"{arm} {n}" for arm, n in incomplete["searches"].items() if n)
        found.append(
            f"Searches that have not ended, left out: {listed}. A search ends early when it "
            "rescues, so the rates of these arms read too high until the run is complete."
        )
    if total.without_usage:
        found.append(
            f"The server sent no token counts for {total.without_usage:,} of {total.samples:,} "
            "replies: no sum of tokens has them."
        )
    copies = results["duplicates"]
    if copies["repetitive_groups"] > max(1, copies["groups"] / 4) and not results["scripted"]:
        found.append(
            f"In {copies['repetitive_groups']:,} of {copies['groups']:,} groups no more than half "
            "of the replies differ: does the server cache, or ignore seeds or the temperature?"
        )
    if 0 < cohort["contests"] < FEW_CLUSTERS:
        found.append(
            f"The tasks searched come from {cohort['contests']} contests: intervals that draw so "
            "few contests come out too narrow."
        )
    return found


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _or_none(function: Callable[..., float], *args: float) -> float | None:
    """What stats refuses to compute (its ValueError says why) is null."""
    try:
        return function(*args)
    except ValueError:
        return None
