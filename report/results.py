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
from audits import Audit, sound_tasks
from data import RATING_BANDS, rating_band
from power import Design, correlation, smallest_p
from report.audit import audited
from report.budget import equal_cost, plain_sampling
from report.deltas import contrasts, controls_of, deltas, noise, round_0
from report.hill import hill
from report.looks import Look, history, planned
from report.tally import CONTROL, Checks, Run, Tally, run_of, share_of
from report.window import window, window_warning
from report.words import counted, listed
from swarm import BANDS, BASE, START, Shape, in_band

if TYPE_CHECKING:
    from swarm import Records, TaskFacts

FEW_CLUSTERS = 10  # contests; with fewer an interval rests on too little
SUSPICIOUS = 0.01  # p-value of the check of round 0 below which a warning is due


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
    band: str | Sequence[str],
    times: Mapping[str, Any],
    seed: int,
    rescued_rows: Sequence[Mapping[str, Any]] = (),
    left_out: Mapping[str, str] | None = None,
    looks: Sequence[Look] = (),
    margin: float | None = None,
    audits: Mapping[str, Audit] | None = None,
) -> dict[str, Any]:
    """The results of a run, ready for json: no NaN, and null for what cannot be said.

    Args:
        facts, records, checks: as journal.Journal holds them.
        load: "source", "read", "kept" and "dropped" of the loader, or None.
        settings, environment: taken over as they are.
        arms: the arms in the order of the report; "resample" is what the others are compared to.
        noise_runs: number of repeats of resample, saved as the arms "noise-1", "noise-2", ...
        band: which all-fail tasks the arms search, as swarm.in_band names them.
        times: seconds and whatever else differs between two runs of the same rollouts.
        seed: of the bootstrap draws.
        rescued_rows: the rows of rescued.jsonl.
        left_out: task id -> why nothing can be said of it; its rollouts count in the costs only.
        looks: at the run so far, as journal.Journal holds them. With a plan for them only the
            tasks of the looks done count: what came in since is for the next.
        margin: a difference this small (0.05: 5 points) makes an arm equivalent to resample.
        audits: task id -> what its known programs came to.
    """
    band = (band,) if isinstance(band, str) else tuple(band)
    everything, left_out = (facts, records), left_out or {}
    facts = {task: found for task, found in facts.items() if task not in left_out}
    records = {place: found for place, found in records.items() if place[1] not in left_out}
    runs = [*arms, *(f"noise-{i + 1}" for i in range(noise_runs))]
    plan = looks[0]["of"] if looks else settings.get("looks", 1)
    if plan > 1:
        seen = {task for look in looks for task in look["tasks"]}
        facts = {task: found for task, found in facts.items() if task in seen}
    sound = sound_tasks(audits or {})
    run = run_of(facts, records, runs, band, Shape.of(settings), seed, sound)
    controls, unfinished = controls_of(run, arms, noise_runs)
    looked = planned(run, looks, plan, arms, controls) if plan > 1 else None
    passes = [sum(record.accepted for record in group) for group in run.base.values()]
    histogram = [passes.count(count) for count in range(run.shape.group + 1)]
    in_bands = {
        name: sum(
            in_band(group, run.facts[task].floor, name, sound.get(task))
            for task, group in run.base.items()
        )
        for name in BANDS
    }
    total, judge_seconds = _total(*everything, runs)
    contests = len(set(run.contests(run.cohort)))
    scripted = settings.get("policy") == "scripted"
    results: dict[str, Any] = {
        "scripted": scripted,
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
        "cohort": {"band": " and ".join(band), "tasks": len(run.cohort), "contests": contests},
        "arms": {arm: _arm(run, arm) for arm in arms},
        "deltas": deltas(run, arms, controls, margin=margin, looked=looked and looked["arms"]),
        "margin": margin,
        "looks": looked,
        "contrasts": contrasts(run, arms, controls),
        "round_0": round_0(run, runs),
        "noise": noise(run, controls, unfinished),
        "equal_cost": equal_cost(run, arms, controls),
        "plain_sampling": plain_sampling(run, controls),
        "union": _union(run, runs),
        "rating_bands": _rating_bands(run, arms),
        "audit": audited(facts, audits or {}),
        "sound": _sound(run, arms, controls, band, sound, margin) if audits else None,
        "fitness": _fitness(run, arms),
        "hill": hill(records, checks),
        "power": _power(run, arms, controls),
        "duplicates": _duplicates(run, runs),
        "window": None if scripted else window(records, settings.get("max_tokens")),
        "rescued_rows": _rescued_rows(rescued_rows),
        "cost": {"calls": total.samples, "tokens": total.tokens()},
        "settings": dict(settings),
        "environment": dict(environment),
        "times": {
            **times,
            "sample_seconds": total.sample_seconds,
            "judge_seconds": judge_seconds,
            "looks": history(looks),
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


def _sound(
    run: Run,
    arms: Sequence[str],
    controls: Sequence[str],
    band: Sequence[str],
    sound: Mapping[str, bool],
    margin: float | None,
) -> dict[str, Any]:
    """What is said of all searched tasks, of the sound ones alone."""
    facts = {task: found for task, found in run.facts.items() if sound.get(task)}
    runs = [*run.searches]
    part = run_of(facts, run.records, runs, band, run.shape, run.seed, sound)
    names = ("n", "rescued", "rate", "low", "high", "method", "wilson_low", "wilson_high")
    return {
        "tasks": len(part.base),
        "all_fail": sum(in_band(group, 0, "all-fail") for group in part.base.values()),
        "near_miss": sum(in_band(group, 0, "near-miss") for group in part.base.values()),
        "cohort": len(part.cohort),
        "arms": {arm: {n: _arm(part, arm)[n] for n in names} for arm in arms},
        "deltas": deltas(part, arms, controls, margin=margin, looked=None),
    }


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


def _power(run: Run, arms: Sequence[str], controls: Sequence[str]) -> dict[str, Any] | None:
    """What this many tasks can show: by the published formula, and by the test that is used."""
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
        "test": _power_of_test(run, arms, controls),
    }


def _power_of_test(run: Run, arms: Sequence[str], controls: Sequence[str]) -> dict[str, Any] | None:
    """Power of the primary test for one arm that differs, at Holm's level for it alone.

    How alike runs are on one task is taken from the control runs, or from all arms where resample
    was run once: less alike, when the arms do differ.
    """
    tasks = run.both(*controls)
    if not tasks:
        return None
    outcomes = [run.outcomes(control, tasks) for control in controls]
    base = sum(map(sum, outcomes)) / (len(outcomes) * len(tasks))
    begun = [arm for arm in arms if run.searches[arm]]
    if len(controls) < 2:
        shared = run.both(*begun)
        outcomes = [run.outcomes(arm, shared) for arm in begun] if shared else outcomes
    compared = max(1, len([arm for arm in begun if arm != CONTROL]))
    design = Design(base, correlation(outcomes), len(controls), stats.ALPHA / compared)
    return {
        "base": base,
        "correlation": design.correlation,
        "runs": design.runs,
        "alpha": design.alpha,
        "smallest_p": smallest_p(len(tasks), design.runs),
        "detectable_effect": design.effect(len(tasks)),
        "tasks_for_5_points": design.tasks(0.05),
        "tasks_for_3_points": design.tasks(0.03),
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
    if incomplete["base"] and total.samples:  # and not an audit alone
        found.append(f"Base groups that are not complete, left out: {incomplete['base']:,}.")
    if any(incomplete["searches"].values()):
        names = ", ".join(f"{arm} {n:,}" for arm, n in incomplete["searches"].items() if n)
        found.append(
            f"Searches that have not ended, left out: {names}. A search ends early when it "
            "rescues, so the rates of these arms read too high until the run is complete."
        )
    found += _warnings_of_comparisons(results)
    if total.without_usage:
        found.append(
            f"The server sent no token counts for {total.without_usage:,} of {total.samples:,} "
            "replies: sums stand for them by the other replies of their round, or are unknown."
        )
    if cut := window_warning(results["window"]):
        found.append(cut)
    copies = results["duplicates"]
    if copies["repetitive_groups"] > max(1, copies["groups"] / 4) and not results["scripted"]:
        found.append(
            f"In {copies['repetitive_groups']:,} of {copies['groups']:,} groups no more than half "
            "of the replies differ: does the server cache, or ignore seeds or the temperature?"
        )
    if cohort["contests"] == 1 < cohort["tasks"]:
        found.append(
            "All tasks searched come from one contest: intervals draw its tasks, and say nothing "
            "of other contests."
        )
    elif 0 < cohort["contests"] < FEW_CLUSTERS and cohort["tasks"] > 1:
        found.append(
            f"The tasks searched come from {cohort['contests']} contests: so few make intervals "
            "wide, and still a little too short."
        )
    return found


def _warnings_of_comparisons(results: Mapping[str, Any]) -> list[str]:
    found, check = [], results["round_0"]
    left_out = (results["noise"] or {}).get("left_out")
    if left_out:
        verb = "has" if len(left_out) == 1 else "have"
        found.append(
            f"{listed(left_out)} {verb} searches that have not ended and {verb} no part in the "
            "comparisons."
        )
    if check and check["p_value"] < SUSPICIOUS:
        counts = ", ".join(f"{arm} {n:,}" for arm, n in check["rescued"].items())
        found.append(
            f"Round 0 is the same in all runs, and yet their rescues in it differ ({counts} of "
            f"{counted(check['n'], 'task')}, p {check['p_value']:.4f}): did the endpoint change?"
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
