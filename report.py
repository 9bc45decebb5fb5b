"""What a run found: saved records -> results.json and the report on the terminal.

build() counts everything once and returns a dict that json can write; render() and readme_table()
only lay out what is in it, so that no number exists twice. Two runs that saved the same rollouts
give the same results but for "times", in whatever order the rollouts were saved.

Only complete data enters a rate: all 8 base rollouts of a task, and searches that ended, by a
rescue or after 24 samples. What was left out is counted and said first, since a search ends
early when it rescues, so that leaving out the unfinished ones flatters an arm.
"""

from __future__ import annotations

import contextlib
import json
import os
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import stats
from data import RATING_BANDS, rating_band
from swarm import BANDS, GROUP, ROUNDS, first_rescue, in_band

if TYPE_CHECKING:
    from swarm import Record, TaskFacts

Records = Mapping[tuple[str, str], Mapping[tuple[int, int], "Record"]]
Checks = Mapping[tuple[str, str, int], tuple[int, int]]

CONTROL = "resample"
FEW_CLUSTERS = 20  # below this many contests a cluster bootstrap is known to run narrow
HILL_PROGRAMS = 20  # fewer programs in a half of the partial scores say nothing of its shape
CLIFF = 0.1  # a cliff when at most this share can pass from just below the top

PASS, BAD, FAINT, BOLD = "32", "31", "2", "1"  # ANSI colours


class ReportError(Exception):
    """A file of the report cannot be written; its text is one line for the user."""


# --- counting ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """Adds up rollouts: how many, what became of them, what they cost."""

    samples: int = 0
    truncated: int = 0
    no_program: int = 0
    without_usage: int = 0
    prompt: int = 0
    completion: int = 0
    reasoning: int = 0
    sample_seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self.samples += 1
            self.truncated += record.finish_reason == "length"
            self.no_program += record.verdict == "no program"
            self.sample_seconds += record.sample_seconds
            self.reasoning += record.reasoning_tokens or 0
            if record.outcome is not None:
                self.outcomes[record.outcome] += 1
            if record.prompt_tokens is not None and record.completion_tokens is not None:
                self.prompt += record.prompt_tokens
                self.completion += record.completion_tokens
            elif record.outcome is None:
                self.without_usage += 1

    def tokens(self) -> dict[str, int] | None:
        """Sums over the rollouts that the server sent counts for; None when it sent none."""
        if not self.prompt + self.completion:
            return None
        sums = {"prompt": self.prompt, "completion": self.completion, "reasoning": self.reasoning}
        return {**sums, "total": self.prompt + self.completion}

    def summary(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "tokens": self.tokens(),
            "without_usage": self.without_usage,
            "truncated": self.truncated,
            "truncated_share": _share(self.truncated, self.samples),
            "no_program": self.no_program,
            "no_program_share": _share(self.no_program, self.samples),
            "outcomes": dict(sorted(self.outcomes.items())),
        }


@dataclass(frozen=True, slots=True)
class Search:
    """One arm on one task, ended.

    Attributes:
        rescue_round: round of the first rescue, or None.
        best: best share of visible cases passed up to each round; after a rescue it stays 1.
        records: the rollouts up to and with the round of the first rescue.
    """

    rescue_round: int | None
    best: tuple[float, ...]
    records: list[Record]


def _search(saved: Mapping[tuple[int, int], Record]) -> Search | None:
    """The search that these rollouts are, or None when it has not ended."""
    rescue_round = first_rescue(saved)
    if rescue_round is None and len(saved) < GROUP * ROUNDS:
        return None
    rounds = ROUNDS if rescue_round is None else rescue_round + 1
    records = [record for (number, _), record in sorted(saved.items()) if number < rounds]
    best = [0.0] * ROUNDS
    for record in records:
        fitness = record.visible_passed / record.visible_total
        for number in range(record.key.round, ROUNDS):
            best[number] = max(best[number], fitness)
    return Search(rescue_round, tuple(best), records)


@dataclass(frozen=True)
class Run:
    """The parts of a run that every section below reads.

    Attributes:
        facts: of all tasks, in the order of their ids.
        base: complete base groups, by task.
        cohort: the tasks that the arms search, in the order of their ids.
        searches: arm (noise runs too) -> task -> search that ended.
        records: all of them, also of groups and searches that are not complete.
    """

    facts: Mapping[str, TaskFacts]
    base: Mapping[str, list[Record]]
    cohort: list[str]
    searches: Mapping[str, Mapping[str, Search]]
    records: Records
    seed: int

    def outcomes(self, arm: str, tasks: Iterable[str]) -> list[int]:
        found = self.searches[arm]
        return [int(found[task].rescue_round is not None) for task in tasks]

    def contests(self, tasks: Iterable[str]) -> list[str]:
        return [self.facts[task].contest for task in tasks]

    def both(self, *arms: str) -> list[str]:
        """The tasks on which all these arms' searches ended."""
        return [task for task in self.cohort if all(task in self.searches[arm] for arm in arms)]

    def floors(self, tasks: Iterable[str]) -> list[float]:
        return [self.facts[task].floor / self.facts[task].visible for task in tasks]


def _run(
    facts: Mapping[str, TaskFacts], records: Records, runs: Sequence[str], band: str, seed: int
) -> Run:
    facts = dict(sorted(facts.items()))
    base = {}
    for task in facts:
        group = records.get(("base", task), {})
        if len(group) == GROUP:
            base[task] = [record for _, record in sorted(group.items())]
    cohort = [task for task, group in base.items() if in_band(group, facts[task].floor, band)]
    searches: dict[str, dict[str, Search]] = {}
    for arm in runs:
        found = {task: _search(records.get((arm, task), {})) for task in cohort}
        searches[arm] = {task: search for task, search in found.items() if search is not None}
    return Run(facts, base, cohort, searches, records, seed)


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
    """
    repeats = [f"noise-{i + 1}" for i in range(noise_runs)]
    controls, runs = [CONTROL, *repeats] if CONTROL in arms else [], [*arms, *repeats]
    run = _run(facts, records, runs, band, seed)
    passes = [sum(record.accepted for record in group) for group in run.base.values()]
    histogram = [passes.count(count) for count in range(GROUP + 1)]
    in_bands = {
        name: sum(in_band(group, run.facts[task].floor, name) for task, group in run.base.items())
        for name in BANDS
    }
    total, judge_seconds = _total(run, runs)
    noise, contests = _noise(run, controls), len(set(run.contests(run.cohort)))
    results: dict[str, Any] = {
        "scripted": settings.get("policy") == "scripted",
        "warnings": [],
        "load": dict(load) if load else None,
        "tasks": len(run.base),
        "histogram": histogram,
        "all_fail": in_bands["all-fail"],
        "near_miss": in_bands["near-miss"],
        "above_floor": in_bands["above-floor"],
        "incomplete": {
            "base": len(run.facts) - len(run.base),
            "searches": {arm: len(run.cohort) - len(run.searches[arm]) for arm in runs},
        },
        "base": _base(run, histogram),
        "cohort": {"band": band, "tasks": len(run.cohort), "contests": contests},
        "arms": {arm: _arm(run, arm) for arm in arms},
        "deltas": _deltas(run, arms, controls, noise),
        "noise": noise,
        "union": _union(run, runs),
        "rating_bands": _rating_bands(run, arms),
        "fitness": _fitness(run, arms),
        "hill": _hill(records, checks),
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


def _total(run: Run, runs: Sequence[str]) -> tuple[Tally, float]:
    """All rollouts, also of groups and searches that are not complete, and CPU seconds judged."""
    total, judge_seconds = Tally(), 0.0
    for task in run.facts:
        programs: dict[int, float] = {}  # the judge runs equal programs of a task once
        for arm in ("base", *runs):
            saved = run.records.get((arm, task), {}).values()
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
        sum(n * stats.pass_at_k(GROUP, c, k) for c, n in enumerate(histogram)) / groups
        for k in range(1, GROUP + 1)
        if groups
    ]
    return {"pass_at": pass_at or None, **tally.summary()}


def _arm(run: Run, arm: str) -> dict[str, Any]:
    """The row of an arm; rates are shares of the tasks on which its search ended."""
    searches = run.searches[arm]
    tasks = list(searches)
    by_round = [
        sum(search.rescue_round == number for search in searches.values())
        for number in range(ROUNDS)
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
        "cumulative": [sum(by_round[: number + 1]) for number in range(ROUNDS)],
        **summary,
        "tokens_per_rescue": _share(tokens["total"], rescued) if tokens else None,
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
    interval = f"{_points(low)} to {_points(high)}"
    measured = f"{_points(delta)} points, 95% interval {interval}, Holm p {_p(p)}"
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
        for arm in runs:
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
                for number in range(ROUNDS)
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


# (task, program) -> (share of visible cases passed, whether it passes all hidden ones)
Programs = Mapping[tuple[str, int], tuple[float, bool]]

# Buckets of the share of visible cases passed.
SHARES: dict[str, Callable[[float], bool]] = {
    "none": lambda share: share == 0,
    "under 1/4": lambda share: 0 < share < 0.25,
    "1/4 to 1/2": lambda share: 0.25 <= share < 0.5,
    "1/2 to 3/4": lambda share: 0.5 <= share < 0.75,
    "3/4 and up": lambda share: 0.75 <= share < 1,
    "all": lambda share: share == 1,
}


def _hill(records: Records, checks: Checks) -> dict[str, Any] | None:
    """Does a higher fitness lead to a solution? None when no program was calibrated.

    Over distinct base programs: those that passed all visible cases, whose hidden cases have run
    anyway, and the calibrated ones of the others.
    """
    if not any(kind == "hidden" for kind, _, _ in checks):
        return None
    programs: dict[tuple[str, int], tuple[float, bool]] = {}
    for (arm, task), saved in records.items():
        if arm != "base":
            continue
        for record in saved.values():
            check = checks.get(("hidden", task, record.program_hash))
            share = record.visible_passed / record.visible_total
            if share == 1:
                programs[task, record.program_hash] = (share, record.accepted)
            elif check is not None and record.program_hash:
                programs[task, record.program_hash] = (share, check[0] == check[1])
    buckets = [_bucket(name, programs, test) for name, test in SHARES.items()]
    shape, sentence = _shape(programs)
    return {"programs": len(programs), "buckets": buckets, "shape": shape, "sentence": sentence}


def _bucket(name: str, programs: Programs, test: Callable[[float], bool]) -> dict[str, Any]:
    inside = {key: passed for key, (share, passed) in programs.items() if test(share)}
    count, passed = len(inside), sum(inside.values())
    low, high = stats.wilson_interval(passed, count) if count else (None, None)
    return {
        "visible_share": name,
        "programs": count,
        "tasks": len({task for task, _ in inside}),
        "pass_hidden": passed,
        "rate": _share(passed, count),
        "low": low,
        "high": high,
    }


def _shape(programs: Programs) -> tuple[str, str]:
    """Hill, cliff, unclear or too few, and why.

    Compares the programs that passed at least half of the visible cases, but not all, with those
    that passed fewer: a hill when the Wilson interval of the former lies above that of the
    latter, a cliff when it does not and ends below CLIFF.
    """
    upper = _bucket("1/2 and up", programs, lambda share: 0.5 <= share < 1)
    lower = _bucket("under 1/2", programs, lambda share: share < 0.5)
    if min(upper["programs"], lower["programs"]) < HILL_PROGRAMS:
        return "too few", (
            f"Too few programs to tell a hill from a cliff: {upper['programs']} passed half or "
            f"more of the visible cases but not all, {lower['programs']} fewer; "
            f"{HILL_PROGRAMS} each are needed."
        )
    found = (
        f"of {upper['programs']} programs that passed half or more of the visible cases but not "
        f"all, {upper['pass_hidden']} ({_percent(upper['low'])} to {_percent(upper['high'])}) "
        f"pass the hidden ones, of {lower['programs']} below half {lower['pass_hidden']} "
        f"({_percent(lower['low'])} to {_percent(lower['high'])})"
    )
    if upper["low"] > lower["high"]:
        return "hill", f"Hill: {found}. A higher fitness goes with a better chance of a solution."
    if upper["high"] < CLIFF:
        return "cliff", f"Cliff: {found}. A higher fitness brings a solution no nearer."
    return "unclear", f"Unclear, neither hill nor cliff: {found}."


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
    """Equal replies among the 8 that answer one fresh prompt in one round.

    How often chance repeats a reply depends on its length and the temperature, which nothing here
    can know; that it leaves no more than half of the replies distinct it explains for very short
    replies only. Such groups are counted as repetitive.
    """
    groups = repeats = repetitive = 0
    for arm in ("base", *runs):
        all_fresh = arm in ("base", CONTROL) or arm.startswith("noise-")
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


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _or_none(function: Callable[..., float], *args: float) -> float | None:
    """What stats refuses to compute (its ValueError says why) is null."""
    try:
        return function(*args)
    except ValueError:
        return None


# --- files ------------------------------------------------------------------------------------


def write(results: Mapping[str, Any], path: Path) -> None:
    """Write results.json whole or not at all. Raises ReportError."""
    _write(json.dumps(results, indent=2, allow_nan=False) + "\n", path)


def write_lines(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write rows as JSON lines, whole or not at all. Raises ReportError."""
    _write("".join(json.dumps(row, allow_nan=False) + "\n" for row in rows), path)


def _write(text: str, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ReportError(f"cannot write {path}: {error.strerror or error}") from error


# --- layout -----------------------------------------------------------------------------------


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


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f}%"


def _points(share: float) -> str:
    return f"{round(100 * share, 1) + 0:+.1f}"  # + 0 makes 0 of -0


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _slashed(counts: Iterable[int]) -> str:
    return "/".join(map(str, counts))


def _tokens(count: float | None) -> str:
    if count is None:
        return "-"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            return f"{count / limit:.1f}{unit}"
    return f"{count:.0f}"


def render(results: Mapping[str, Any], *, colour: bool, width: int = 100) -> str:
    """The report for a terminal, top down: what was run, what it found, what it cost."""
    page = Page(width, colour)
    if results["scripted"]:
        page.text("SCRIPTED POLICY: its replies are written; the numbers mean nothing.", BAD, "")
    title = f"Does a swarm rescue the tasks that the policy fails {GROUP} times of {GROUP}?"
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
    page.heading(f"Base group: passes of {GROUP} rollouts, {tasks} tasks")
    longest = max([*histogram, 1])
    for passes, count in enumerate(histogram):
        bar = "█" * -(-count * (page.width - 40) // longest)
        page.lines.append(f"  {passes} {count:7,}  {bar}".rstrip())
    page.text(
        f"all-fail {results['all_fail']:,} ({_percent(_share(results['all_fail'], tasks))} of the "
        f"tasks); of these near-miss (a rollout passes a visible case) {results['near_miss']:,}, "
        f"and above the floor (it beats the best constant answer) {results['above_floor']:,}"
    )
    if base["pass_at"]:
        page.text(
            "pass@k  " + "  ".join(f"{k + 1}: {_percent(v)}" for k, v in enumerate(base["pass_at"]))
        )
    page.text(_quality("base rollouts", base))


def _quality(name: str, summary: Mapping[str, Any]) -> str:
    outcomes = "".join(f", {why} {count:,}" for why, count in summary["outcomes"].items())
    return (
        f"{summary['samples']:,} {name}: {_percent(summary['truncated_share'])} cut off at the "
        f"token limit, {_percent(summary['no_program_share'])} without a program{outcomes}"
    )


def _render_arms(page: Page, results: Mapping[str, Any]) -> None:
    cohort, arms = results["cohort"], results["arms"]
    page.heading(
        f"Rescue: up to {GROUP * ROUNDS} more samples on each of {cohort['tasks']:,} "
        f"{cohort['band']} tasks",
        f"95% intervals: bootstrap over {cohort['contests']:,} contests, and Wilson's, which takes "
        "tasks as independent.",
    )
    samples = _slashed(GROUP * (number + 1) for number in range(ROUNDS))
    page.table(
        ("arm", "rescued", "rate", "interval", "Wilson", "by round", f"after {samples}"),
        [
            (
                arm,
                f"{row['rescued']}/{row['n']}",
                _percent(row["rate"]),
                _interval(row["low"], row["high"]) + ("*" if row["method"] == "wilson" else ""),
                _interval(row["wilson_low"], row["wilson_high"]),
                _slashed(row["by_round"]),
                _slashed(row["cumulative"]),
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
                _tokens(row["tokens"] and row["tokens"]["total"]),
                _tokens(row["tokens_per_rescue"]),
                _percent(row["truncated_share"]),
                _percent(row["no_program_share"]),
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
        _points(row["delta"]),
        f"{_points(row['low'])} to {_points(row['high'])}",
        str(row["wins"]),
        str(row["losses"]),
        _p(row["p_value"]),
        _p(row["holm_p"]),
    )


def _render_noise(page: Page, results: Mapping[str, Any]) -> None:
    noise = results["noise"]
    page.heading("Noise: resample again, with other seeds")
    if noise is None:
        page.text("Resample was not run again: how far two runs of one arm lie apart is unknown.")
        return
    rates = ", ".join(_percent(rate) for rate in noise["rates"])
    page.text(
        f"{noise['runs']} runs: {rates} ({_slashed(noise['rescued'])} of {noise['n']}), standard "
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
        f"Base group {_two(fitness['base_best'])}; floor, the share that the best constant answer "
        f"passes, {_two(fitness['floor'])}.",
    )
    samples = [f"after {GROUP * (number + 1)}" for number in range(ROUNDS)]
    page.table(
        ("arm", *samples, "not rescued", "their best", "their floor"),
        [
            (
                arm,
                *map(_two, row["by_round"]),
                str(row["unrescued"]),
                _two(row["unrescued_best"]),
                _two(row["unrescued_floor"]),
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
                _percent(row["rate"]),
                _interval(row["low"], row["high"]),
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
        seen = f"could have seen a gain of {_points(effect)} points or more"
    text = f"{power['n']:,} tasks at resample's {_percent(power['base'])} {seen}."
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
        f"wall {_duration(wall)}; summed over calls: sampling "
        f"{_duration(times['sample_seconds'])}, judging {_duration(times['judge_seconds'])} of CPU"
    )
    page.text(
        f"{copies['repeated_replies']:,} replies repeat another of their group of fresh prompts "
        f"({copies['groups']:,} groups, {copies['repetitive_groups']:,} with at most half distinct)"
    )


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"


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
            interval = f"{_points(delta['low'])} to {_points(delta['high'])}"
            gain, p = f"{_points(delta['delta'])} ({interval})", _p(delta["holm_p"])
        cells = (
            arm,
            f"{row['rescued']} of {row['n']}",
            _percent(row["rate"]),
            _interval(row["low"], row["high"]),
            _slashed(row["by_round"]),
            f"{row['samples']:,}",
            gain,
            p,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
