"""The report on records written by hand, whose counts are known."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import equal_cost
import power
import report
import stats
from data import RATING_BANDS
from report.deltas import verdict
from report.words import columns
from swarm import Key, Record, TaskFacts

VISIBLE = 4


@pytest.fixture(autouse=True)
def _fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of what a report takes: bounds a little noisier, and tests far faster."""
    monkeypatch.setattr(stats, "DRAWS", 1_000)
    monkeypatch.setattr(equal_cost, "DRAWS", 200)
    monkeypatch.setattr(power, "REPEATS", 50)


ARMS = ("resample", "solo", "ring", "star")
Saved = dict[tuple[str, str], dict[tuple[int, int], Record]]


def record(
    arm: str, task: str, number: int, particle: int, *, passed: int = 0, accepted: bool = False
) -> Record:
    key = Key(arm, task, number, particle)
    return Record(
        key=key,
        verdict="accepted" if accepted else "wrong answer",
        visible_passed=VISIBLE if accepted else passed,
        visible_total=VISIBLE,
        finish_reason="stop",
        outcome=None,
        prompt_tokens=100,
        completion_tokens=10,
        reasoning_tokens=None,
        reply_hash=hash(key),
        program_hash=hash(key) | 1,
        sample_seconds=2.0,
        judge_seconds=0.5,
    )


def group(task: str, accepted: int = 0, passed: int = 0) -> dict[tuple[int, int], Record]:
    return {
        (0, i): record("base", task, 0, i, passed=passed, accepted=i < accepted) for i in range(8)
    }


def search(
    arm: str, task: str, rescue: int | None, passed: int = 0
) -> dict[tuple[int, int], Record]:
    """A search whose last particle of round `rescue` passes."""
    return {
        (number, i): record(
            arm, task, number, i, passed=passed, accepted=(number, i) == (rescue, 7)
        )
        for number in range(3 if rescue is None else rescue + 1)
        for i in range(8)
    }


def facts(task: str, contest: str | None = None, rating: int = 0, floor: int = 1) -> TaskFacts:
    return TaskFacts(task, contest or task, rating, VISIBLE, 20, floor, "c", "m")


def tasks_named(count: int) -> dict[str, TaskFacts]:
    return {f"t{i:03}": facts(f"t{i:03}") for i in range(count)}


def saved(
    names: Sequence[str],
    rescues: Mapping[str, Sequence[int | None]],
) -> Saved:
    """All-fail base groups on all tasks, and one search an arm with these rescue rounds."""
    records: Saved = {("base", task): group(task) for task in names}
    for arm, rounds in rescues.items():
        for task, rescue in zip(names, rounds, strict=True):
            records[arm, task] = search(arm, task, rescue)
    return records


def rounds_of(n: int, by_round: Sequence[int], start: int = 0) -> list[int | None]:
    """Rescue rounds of n tasks: by_round[0] tasks in round 0 and so on, from task `start` on."""
    rescued: list[int | None] = [number for number, m in enumerate(by_round) for _ in range(m)]
    return [None] * start + rescued + [None] * (n - start - len(rescued))


def built(known: Mapping[str, TaskFacts], records: Saved, **changed: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "facts": known,
        "records": records,
        "checks": {},
        "load": {"source": "toy", "read": 12, "kept": 10, "dropped": {"interactive": 2}},
        "settings": {"policy": "endpoint", "model": "some/model", "seed": 0, "temperature": 1.0},
        "environment": {
            "python": "3.11.7",
            "packages": {"numpy": "2.0"},
            "git_commit": "0123456789abcdef",
            "sandbox": "holds",
            "endpoint": "http://localhost",
        },
        "arms": ARMS,
        "noise_runs": 0,
        "band": "all-fail",
        "times": {"wall_seconds": 61.0},
        "seed": 0,
    }
    results = report.build(**{**arguments, **changed})
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    for width in (80, 100, 140):
        text = report.render(results, colour=False, width=width, details=True)
        assert max(map(columns, text.splitlines())) <= width
        assert "\x1b" not in text
        assert "None" not in text
        assert "nan" not in text
        assert not re.search(r"(?<![.\d])1 (tasks|runs|rows|programs|arms|contests|calls)\b", text)
    return results


def shown(results: Mapping[str, Any]) -> str:
    """The report in one line, so that wrapping does not matter."""
    return " ".join(report.render(results, colour=False, details=True).split())


# --- counts -----------------------------------------------------------------------------------


def published() -> tuple[dict[str, TaskFacts], Saved]:
    """275 tasks with the published histogram and the published rescues by round."""
    known = tasks_named(275)
    names = list(known)
    by_round = {"resample": (8, 4, 4), "solo": (6, 6, 3), "ring": (5, 12, 5), "star": (6, 13, 3)}
    # Rescues overlap so that 43 tasks are rescued by any of the six runs.
    starts = {"resample": 0, "solo": 5, "ring": 10, "star": 12}
    rescues = {arm: rounds_of(223, by_round[arm], starts[arm]) for arm in ARMS}
    rescues |= {"noise-1": rounds_of(223, (8, 6, 6), 23), "noise-2": rounds_of(223, (9, 9, 6), 4)}
    records = saved(names[:223], rescues)
    histogram = (17, 14, 4, 3, 1, 3, 4, 6)
    passes = [count + 1 for count, n in enumerate(histogram) for _ in range(n)]
    for task, accepted in zip(names[223:], passes, strict=True):
        records["base", task] = group(task, accepted)
    return known, records


def test_the_published_report_follows_from_its_counts() -> None:
    known, records = published()
    results = built(known, records, noise_runs=2)
    assert results["tasks"] == 275
    assert results["histogram"] == [223, 17, 14, 4, 3, 1, 3, 4, 6]
    assert (results["all_fail"], results["near_miss"], results["above_floor"]) == (223, 0, 0)
    arms = results["arms"]
    assert [arms[arm]["rescued"] for arm in ARMS] == [16, 15, 22, 22]
    assert [round(100 * arms[arm]["rate"], 1) for arm in ARMS] == [7.2, 6.7, 9.9, 9.9]
    assert [arms[arm]["samples"] for arm in ARMS] == [5192, 5208, 5176, 5152]
    assert arms["ring"]["by_round"] == [5, 12, 5]
    assert arms["ring"]["cumulative"] == [5, 17, 22]
    assert results["noise"]["rescued"] == [16, 20, 24]
    assert round(100 * results["noise"]["std"], 2) == 1.79
    assert round(100 * results["noise"]["band"], 1) == 10.9
    assert (results["union"]["rescued"], results["union"]["of"]) == (43, 223)
    assert "43 of 223 all-fail prompts became learnable" in shown(results)
    assert results["power"]["tasks_for_5_points"] == 545  # 16/223 is a little below 0.072
    assert "| ring | 22 of 223 | 9.9% |" in report.readme_table(results)
    assert results["warnings"] == []


def test_tokens_samples_and_shares_count_up_to_the_rescue_only() -> None:
    known = tasks_named(2)
    records = saved(list(known), {"resample": (None, None), "ring": (1, None)})
    late = search("ring", "t000", 2)
    for place in ((2, 3), (2, 4)):  # saved by an interrupted run of other rules: not counted
        records["ring", "t000"][place] = late[place]
    cut = records["ring", "t001"]
    cut[0, 0] = replace(cut[0, 0], finish_reason="length", verdict="no program", program_hash=0)
    cut[0, 1] = replace(cut[0, 1], outcome="refusal", verdict="no program", program_hash=0)
    results = built(known, records, arms=("resample", "ring"))
    ring = results["arms"]["ring"]
    assert ring["samples"] == 16 + 24
    assert ring["tokens"] == {"prompt": 4000, "completion": 400, "reasoning": 0, "total": 4400}
    assert ring["tokens_per_rescue"] == 4400
    assert (ring["truncated"], ring["truncated_share"]) == (1, 1 / 40)
    assert (ring["no_program"], ring["no_program_share"]) == (2, 2 / 40)
    assert ring["outcomes"] == {"refusal": 1}
    assert results["arms"]["resample"]["tokens_per_rescue"] is None
    assert results["cost"]["calls"] == 16 + 48 + 42
    assert results["times"]["sample_seconds"] == 2.0 * 106
    assert "ring has samples without a usable reply: refusal 1" in shown(results)


def test_equal_programs_of_a_task_are_judged_and_timed_once() -> None:
    known = tasks_named(1)
    records = saved(["t000"], {})
    same = {place: replace(r, program_hash=7) for place, r in records["base", "t000"].items()}
    results = built(known, {("base", "t000"): same}, arms=())
    assert results["times"]["judge_seconds"] == 0.5


def test_bands_of_tasks() -> None:
    known = {
        "a": facts("a", rating=0, floor=2),
        "b": facts("b", rating=1499, floor=2),
        "c": facts("c", rating=1500, floor=2),
        "d": facts("d", rating=2200, floor=2),
    }
    records = saved(list("abcd"), {"resample": (None, None, 0, None)})
    records["base", "b"] = group("b", passed=2)
    records["base", "c"] = group("c", passed=3)
    records["base", "d"] = group("d", accepted=1)
    counts = {}
    for band in ("all-fail", "near-miss", "above-floor"):
        results = built(known, records, arms=("resample",), band=band)
        counts[band] = (results["cohort"]["tasks"], results["arms"]["resample"]["n"])
    assert counts == {"all-fail": (3, 3), "near-miss": (2, 2), "above-floor": (1, 1)}
    assert (results["all_fail"], results["near_miss"], results["above_floor"]) == (3, 2, 1)
    bands = results["rating_bands"]
    assert [bands[band]["all_fail"] for band in RATING_BANDS] == [1, 1, 1, 0]
    assert bands["1500 to 2199"]["rescued"] == {"resample": 1}
    assert "1 of 1 above-floor prompts became learnable" in shown(results)


def test_fitness_is_the_best_so_far_and_a_rescue_keeps_it_at_1() -> None:
    known = {"a": facts("a", floor=1), "b": facts("b", floor=3)}
    records = saved(["a", "b"], {"resample": (0, None)})
    tried = records["resample", "b"]
    tried[0, 3] = replace(tried[0, 3], visible_passed=2)
    tried[1, 5] = replace(tried[1, 5], visible_passed=1)
    tried[2, 0] = replace(tried[2, 0], visible_passed=3)
    fitness = built(known, records, arms=("resample",))["fitness"]
    assert fitness["floor"] == (1 / 4 + 3 / 4) / 2
    assert fitness["base_best"] == 0
    assert fitness["arms"]["resample"] == {
        "by_round": [(1 + 0.5) / 2, (1 + 0.5) / 2, (1 + 0.75) / 2],
        "unrescued": 1,
        "unrescued_best": 0.75,
        "unrescued_floor": 0.75,
    }


def test_rows_of_the_export_are_counted() -> None:
    known = tasks_named(1)
    rows = [
        {"task_id": "a", "extra_passed": 3, "extra_total": 3},
        {"task_id": "a", "extra_passed": 2, "extra_total": 3},
        {"task_id": "b", "extra_passed": 0, "extra_total": 0},
        {"task_id": "c", "extra_passed": None, "extra_total": None},
    ]
    results = built(known, saved(["t000"], {}), arms=(), rescued_rows=rows)
    assert results["rescued_rows"] == {
        "rows": 4,
        "tasks": 3,
        "with_extra_cases": 2,
        "failing_extra": 1,
    }
    assert "1 fail some of them" in shown(results)


def test_the_order_of_the_records_does_not_matter() -> None:
    known, records = published()
    results = built(known, records, noise_runs=2)
    shuffle = random.Random(0)

    def shuffled(mapping: Mapping[Any, Any]) -> dict[Any, Any]:
        items = list(mapping.items())
        shuffle.shuffle(items)
        return dict(items)

    mixed = {place: shuffled(part) for place, part in shuffled(records).items()}
    again = built(shuffled(known), mixed, noise_runs=2)
    assert {**again, "times": 0} == {**results, "times": 0}


# --- comparisons ------------------------------------------------------------------------------


def test_deltas_are_paired_and_holm_is_over_the_arms() -> None:
    known = tasks_named(30)
    names = list(known)
    rescues = {
        "resample": rounds_of(30, (3,)),
        "solo": rounds_of(30, (3,), 2),
        "ring": rounds_of(30, (12,)),
    }
    results = built(known, saved(names, rescues), arms=("resample", "solo", "ring"))
    solo, ring = results["deltas"]["solo"], results["deltas"]["ring"]
    assert (solo["wins"], solo["losses"], solo["delta"], solo["p_value"]) == (2, 2, 0, 1)
    assert (ring["wins"], ring["losses"], ring["n"]) == (9, 0, 30)
    assert ring["delta"] == pytest.approx(0.3)
    assert ring["p_value"] == pytest.approx(2 / 2**9)
    assert ring["holm_p"] == pytest.approx(4 / 2**9)
    assert ring["against_mean"] is None
    assert "resample" not in results["deltas"]


def test_all_resample_runs_are_the_control_of_the_primary_test() -> None:
    known = tasks_named(60)
    chance = random.Random(1)
    runs = ("resample", "noise-1", "noise-2", "noise-3")
    rescues: dict[str, list[int | None]] = {
        arm: [0 if chance.random() < 0.4 else None for _ in range(60)] for arm in (*runs, "star")
    }
    results = built(
        known, saved(list(known), rescues), arms=("resample", "star"), noise_runs=3
    )  # fmt: skip
    star = results["deltas"]["star"]
    mean = star["against_mean"]
    outcomes = {arm: [int(r is not None) for r in rescues[arm]] for arm in rescues}
    rates = [sum(outcomes[arm]) / 60 for arm in runs]
    assert results["noise"]["rates"] == pytest.approx(rates)
    assert mean["delta"] == pytest.approx(results["arms"]["star"]["rate"] - sum(rates) / 4)
    assert star["delta"] == pytest.approx(results["arms"]["star"]["rate"] - rates[0])
    assert mean["high"] - mean["low"] < star["high"] - star["low"]
    assert (star["primary"], star["runs"], mean["runs"]) == ("all runs", 1, 4)
    controls = [outcomes[run] for run in runs]
    assert mean["p_value"] == stats.label_permutation(outcomes["star"], controls)
    assert (mean["wins"] - mean["losses"]) / 240 == pytest.approx(mean["delta"])
    assert "label permutation against all 4 runs of resample" in shown(results)


def test_a_repeat_that_has_not_ended_has_no_part_and_that_is_said() -> None:
    known = tasks_named(60)
    rescues = {
        "resample": rounds_of(60, (6,)),
        "noise-1": rounds_of(60, (7,)),
        "noise-2": rounds_of(60, (5,)),
        "star": rounds_of(60, (8,)),
    }
    records = saved(list(known), rescues)
    whole = built(known, records, arms=("resample", "star"), noise_runs=1)
    del records["noise-2", "t050"]
    results = built(known, records, arms=("resample", "star"), noise_runs=2)
    assert results["noise"]["left_out"] == ["noise-2"]
    assert results["noise"]["runs"] == 2
    assert results["deltas"] == whole["deltas"]
    assert any("noise-2 has searches that have not ended" in w for w in results["warnings"])
    del records["noise-1", "t050"]
    results = built(known, records, arms=("resample", "star"), noise_runs=2)
    assert (results["noise"]["runs"], results["noise"]["band"]) == (1, None)
    assert results["deltas"]["star"]["primary"] == "one run"
    assert "No repeat of resample is complete" in shown(results)
    assert "was not run again" not in shown(results)


def judged(
    delta: float, low: float, high: float, holm_p: float, missing: int = 0, **changed: Any
) -> tuple[str, str]:
    half = 0.84 * (high - low) / 2
    entry = {"delta": delta, "low": low, "high": high, "holm_p": holm_p}
    entry |= {"lower": delta - half, "upper": delta + half}
    return verdict("ring", entry, 3, missing, **changed)


@pytest.mark.parametrize(
    ("case", "conclusion", "words"),
    [
        ((0.03, -0.01, 0.07, 0.4), "not shown", "a gain above 6.4 points and a loss beyond 0.4"),
        ((0.03, -0.01, 0.07, 0.01), "not shown", "no difference from resample is shown"),
        ((0.03, 0.0, 0.07, 0.01), "not shown", "Ruled out (one-sided 95%)"),
        ((-0.03, -0.07, 0.0, 0.2), "not shown", "95%): a gain and a loss beyond 5.9"),
        ((0.05, 0.01, 0.09, 0.06), "not shown", "with 3 arms compared chance alone"),
        ((0.05, 0.01, 0.09, 0.01), "more", "it rescued more than resample (+5.0 points"),
        ((-0.12, -0.2, -0.05, 0.001), "fewer", "it rescued fewer than resample (-12.0 points"),
        ((0.12, 0.05, 0.2, 0.001, 4), "no verdict", "4 of its and resample's searches"),
        ((0.5, -0.8, 1.0, 0.5), "not shown", "a loss beyond"),
    ],
)
def test_a_verdict_says_no_more_than_interval_and_p(case: Any, conclusion: str, words: str) -> None:
    found, sentence = judged(*case)
    assert found == conclusion
    assert words in sentence
    assert ("no difference" in sentence) == (conclusion == "not shown")


def test_a_margin_calls_small_differences_equivalent_and_no_other() -> None:
    assert judged(0.01, -0.02, 0.04, 0.6, margin=0.05)[0] == "equivalent"
    assert judged(0.01, -0.02, 0.04, 0.6)[0] == "not shown"
    assert judged(0.01, -0.06, 0.08, 0.6, margin=0.05)[0] == "not shown"
    assert judged(0.02, 0.01, 0.03, 0.01, margin=0.05)[0] == "more"


def test_a_single_win_rules_out_no_loss() -> None:
    known = tasks_named(60)
    rescues = {"resample": rounds_of(60, ()), "star": rounds_of(60, (1,))}
    star = built(known, saved(list(known), rescues), arms=("resample", "star"))["deltas"]["star"]
    assert star["low"] <= star["lower"] < 0 < star["delta"] < star["upper"] <= star["high"]


def test_a_clear_difference_is_called_one() -> None:
    known = tasks_named(60)
    rescues = {
        "resample": rounds_of(60, (6,)),
        "noise-1": rounds_of(60, (7,)),
        "noise-2": rounds_of(60, (6,), 1),
        "star": rounds_of(60, (40,)),
    }
    results = built(known, saved(list(known), rescues), arms=("resample", "star"), noise_runs=2)
    assert results["deltas"]["star"]["conclusion"] == "more"
    assert "star: it rescued more than resample (+" in shown(results)


# --- what is missing --------------------------------------------------------------------------


def test_incomplete_groups_and_searches_are_left_out_and_said_first() -> None:
    known = tasks_named(6)
    names = list(known)
    rescues = {"resample": rounds_of(6, (1,)), "ring": rounds_of(6, (2,))}
    records = saved(names, rescues)
    del records["base", "t005"][0, 3]
    del records["ring", "t004"][2, 7]
    del records["resample", "t003"]
    results = built(known, records, arms=("resample", "ring", "star"))
    assert results["tasks"] == 5
    assert results["incomplete"] == {"base": 1, "searches": {"resample": 1, "ring": 1, "star": 5}}
    assert results["arms"]["ring"]["n"] == 4
    assert results["arms"]["star"]["n"] == 0
    assert results["arms"]["star"]["rate"] is None
    assert results["deltas"]["ring"]["n"] == 3
    assert results["deltas"]["ring"]["conclusion"] == "no verdict"
    assert "star" not in results["deltas"]
    text = report.render(results, colour=False)
    assert text.index("! Base groups that are not complete, left out: 1") < text.index(
        "What was run"
    )
    assert "left out: resample 1, ring 1, star 5" in shown(results)


def test_a_task_without_an_answer_of_its_checker_is_in_no_rate_and_in_the_bill() -> None:
    known = tasks_named(3)
    first, *others = known
    whole = saved(known, {"resample": [0, None, 1]})
    reason = f"the checker of {first} gave no answer: line 1: ValueError"
    results = built(known, whole, left_out={first: reason})
    rest = built({t: known[t] for t in others}, {k: v for k, v in whole.items() if k[1] != first})
    assert results["left_out"] == {"tasks": 1, "reasons": {first: reason}}
    for name in ("tasks", "histogram", "all_fail", "cohort", "arms", "union", "incomplete", "base"):
        assert results[name] == rest[name]
    assert results["cost"]["calls"] == built(known, whole)["cost"]["calls"]
    assert f"checkers gave no answer: 1 ({reason})" in results["warnings"][0]
    assert "checkers gave no answer" in shown(results)


def test_nothing_rescued_has_an_interval_all_the_same() -> None:
    known = tasks_named(12)
    rescues = {arm: rounds_of(12, ()) for arm in (*ARMS, "noise-1")}
    results = built(known, saved(list(known), rescues), noise_runs=1)
    arm = results["arms"]["ring"]
    assert (arm["rescued"], arm["rate"], arm["low"], arm["method"]) == (0, 0, 0, "wilson")
    assert arm["high"] == arm["wilson_high"] > 0.2
    assert (arm["tokens_per_rescue"], results["union"]["programs"]) == (None, 0)
    ring = results["deltas"]["ring"]
    assert (ring["p_value"], ring["conclusion"]) == (1, "not shown")
    assert ring["low"] < 0 < ring["high"]
    assert results["noise"]["band"] == 0
    assert "0 of 12 all-fail prompts" in shown(results)


def test_no_all_fail_task() -> None:
    known = tasks_named(2)
    records = {("base", task): group(task, accepted=8) for task in known}
    results = built(known, records, noise_runs=1)
    assert results["all_fail"] == 0
    assert results["deltas"] == {}
    assert (results["noise"], results["power"], results["fitness"]["floor"]) == (None, None, None)
    assert results["base"]["pass_at"] == [1.0] * 8
    assert report.readme_table(results).count("\n") == 5


def test_nothing_at_all() -> None:
    results = built({}, {}, load=None, environment={}, settings={})
    assert results["tasks"] == 0
    assert results["base"]["pass_at"] is None
    assert results["cost"] == {"calls": 0, "tokens": None}


def test_without_resample_nothing_is_compared() -> None:
    known = tasks_named(2)
    results = built(known, saved(list(known), {"star": (0, None)}), arms=("star",))
    assert (results["deltas"], results["noise"], results["power"]) == ({}, None, None)
    assert results["arms"]["star"]["rescued"] == 1


def test_a_server_that_sends_no_token_counts() -> None:
    known = tasks_named(30)
    records = saved(list(known), {"resample": rounds_of(30, (2,)), "star": rounds_of(30, (3,))})
    silent = {
        place: {
            key: replace(r, prompt_tokens=None, completion_tokens=None) for key, r in part.items()
        }
        for place, part in records.items()
    }
    results = built(known, silent, arms=("resample", "star"))
    assert results["cost"]["tokens"] is None
    assert results["arms"]["star"]["tokens"] is None
    assert results["arms"]["star"]["tokens_per_rescue"] is None
    assert any("no token counts" in warning for warning in results["warnings"])
    assert "tokens unknown" in shown(results)


def test_runs_that_agree_do_not_hide_that_their_band_is_empty() -> None:
    known = tasks_named(60)
    rescues = {
        "resample": rounds_of(60, (6,)),
        "noise-1": rounds_of(60, (6,), 3),
        "star": rounds_of(60, (40,)),
    }
    results = built(known, saved(list(known), rescues), arms=("resample", "star"), noise_runs=1)
    assert results["noise"]["band"] == 0
    assert results["noise"]["within_band"] > 0.05
    assert "equal by chance" in shown(results)
    assert results["deltas"]["star"]["conclusion"] == "more"


# --- what the same money would have bought ----------------------------------------------------


def test_arms_are_compared_at_their_own_spend_with_resample_that_goes_on() -> None:
    known = tasks_named(40)
    rescues = {
        "resample": rounds_of(40, (2, 2, 2)),
        "noise-1": rounds_of(40, (2, 2, 2), 6),
        "star": rounds_of(40, (0, 8, 0)),
    }
    records = saved(list(known), rescues)

    def dear(prompt_tokens: int) -> Saved:
        return {
            place: {key: replace(r, prompt_tokens=prompt_tokens) for key, r in part.items()}
            if place[0] == "star"
            else part
            for place, part in records.items()
        }

    results = built(known, dear(150), arms=("resample", "star"), noise_runs=1)
    budget = results["equal_cost"]
    # A sample costs resample 110 and star 160; the second run begins where the first ended.
    assert budget["long_run"]["samples"] == [8, 16, 24, 32, 40, 48]
    assert budget["long_run"]["rescued"] == pytest.approx([n / 40 for n in (2, 4, 6, 8, 10, 12)])
    left = [40, 38, 36, 34, 32, 30]
    spent = [110 * 8 * sum(left[: i + 1]) / 40 for i in range(6)]
    assert budget["long_run"]["tokens"] == pytest.approx(spent)
    star = budget["arms"]["star"]
    assert star["whole"]
    assert star["spend"] == pytest.approx(160 * (16 * 8 + 24 * 32) / 40)
    part = (star["spend"] - spent[3]) / (spent[4] - spent[3])
    assert 0 < part < 1
    assert star["control"] == pytest.approx((8 + 2 * part) / 40)
    assert star["treated"] == 8 / 40
    assert star["delta"] == pytest.approx(star["treated"] - star["control"])
    assert star["low"] < star["delta"] < star["high"]
    assert star["bill"] == pytest.approx(star["spend"] / spent[2])
    ratio = star["tokens_per_rescue_ratio"]
    assert ratio["ratio"] == pytest.approx(star["bill"] * 6 / 8)
    assert ratio["low"] < ratio["ratio"] < ratio["high"]
    dearer = built(known, dear(210), arms=("resample", "star"), noise_runs=1)
    star = dearer["equal_cost"]["arms"]["star"]
    assert (star["whole"], star["spend"]) == (False, pytest.approx(spent[5]))
    assert star["control"] == pytest.approx(12 / 40)
    assert star["treated"] == 8 / 40  # its last round, which rescues none, was not reached whole
    assert "All that resample spent" in shown(dearer)
    assert results["plain_sampling"]["samples"] == [24, 48]
    assert results["plain_sampling"]["rescued"] == pytest.approx([6, 12])
    assert "24 and 48 fresh samples a task rescue 6.0 and 12.0 of 40 tasks" in shown(results)


def test_some_missing_counts_are_filled_in_and_an_arm_without_any_has_no_bill() -> None:
    known = tasks_named(30)
    records = saved(list(known), {"resample": rounds_of(30, (2,)), "star": rounds_of(30, (3,))})
    whole = built(known, records, arms=("resample", "star"))

    def silent(arm: str, numbers: Sequence[int]) -> Saved:
        return {
            place: {
                key: replace(r, prompt_tokens=None, completion_tokens=None)
                if place[0] == arm and key[0] in numbers and key[1] < 7
                else r
                for key, r in part.items()
            }
            for place, part in records.items()
        }

    results = built(known, silent("star", (0, 1)), arms=("resample", "star"))
    assert results["arms"]["star"]["tokens"] == whole["arms"]["star"]["tokens"]
    assert results["equal_cost"] == whole["equal_cost"]
    assert "~" in shown(results)
    assert any("no token counts for 630 of" not in w for w in results["warnings"])
    none = {
        place: {key: replace(r, prompt_tokens=None) if place[0] == "star" else r
                for key, r in part.items()}
        for place, part in records.items()
    }  # fmt: skip
    results = built(known, none, arms=("resample", "star"))
    assert results["arms"]["star"]["tokens"] is None
    assert results["equal_cost"]["arms"]["star"] is None
    assert "so the bill is unknown" in shown(results)


def test_a_common_start_is_in_the_long_run_once() -> None:
    known = tasks_named(20)
    names = list(known)
    records: Saved = {("base", task): group(task) for task in names}
    for task in names:
        records["start", task] = {(0, i): record("start", task, 0, i) for i in range(8)}
        for arm in ("resample", "noise-1"):
            records[arm, task] = {
                (n, i): record(arm, task, n, i, accepted=arm == "noise-1" and task == "t000"
                               and (n, i) == (2, 7))
                for n in (1, 2) for i in range(8)
            }  # fmt: skip
    results = built(
        known, records, arms=("resample",), noise_runs=1, settings={"common_start": True}
    )
    assert results["equal_cost"]["long_run"]["samples"] == [8, 16, 24, 32, 40]
    assert results["equal_cost"]["long_run"]["tokens"][-1] == 40 * 110
    assert results["plain_sampling"]["samples"] == [24, 40]
    assert results["round_0"] is None
    assert "go on from this start" in shown(results)


# --- secondary comparisons --------------------------------------------------------------------


def test_contrasts_are_a_family_of_their_own() -> None:
    known = tasks_named(40)
    rescues = {
        "resample": rounds_of(40, (4,)),
        "solo": rounds_of(40, (4,), 2),
        "ring": rounds_of(40, (12,)),
        "star": rounds_of(40, (6,)),
    }
    results = built(known, saved(list(known), rescues))
    found = results["contrasts"]
    assert {name: row["question"] for name, row in found.items()} == {
        "solo - resample": "feedback",
        "ring - solo": "sharing",
        "star - solo": "sharing",
    }
    assert (found["ring - solo"]["wins"], found["ring - solo"]["losses"]) == (8, 2 - 2)
    adjusted = stats.holm([row["p_value"] for row in found.values()])
    assert [row["holm_p"] for row in found.values()] == adjusted
    assert "ring - solo" not in report.render(results, colour=False)
    assert "ring - solo" in shown(results)
    assert built(known, saved(list(known), rescues), arms=("resample", "ring"))["contrasts"] == {}


def test_round_0_is_checked_to_be_the_same_in_all_runs() -> None:
    known = tasks_named(60)
    alike = {"resample": rounds_of(60, (6,)), "ring": rounds_of(60, (5, 20), 3)}
    results = built(known, saved(list(known), alike), arms=("resample", "ring"))
    assert results["round_0"]["rescued"] == {"resample": 6, "ring": 5}
    assert results["round_0"]["p_value"] > 0.5
    assert results["warnings"] == []
    apart = {"resample": rounds_of(60, (3,)), "ring": rounds_of(60, (30,))}
    results = built(known, saved(list(known), apart), arms=("resample", "ring"))
    assert "did the endpoint change?" in results["warnings"][0]


# --- looks ------------------------------------------------------------------------------------


def looks_of(names: Sequence[str], ends: Sequence[int], of: int) -> list[dict[str, Any]]:
    return [
        {"tasks": list(names[start:end]), "of": of}
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def test_looks_by_a_plan_show_an_effect_early_and_say_when_to_give_up() -> None:
    known = tasks_named(90)
    names = list(known)
    strong = [None if i % 10 < 7 else 0 for i in range(90)]
    rescues = {"resample": rounds_of(90, (3,)), "ring": strong, "star": rounds_of(90, (3,), 30)}
    records = saved(names, rescues)
    arms = ("resample", "ring", "star")
    results = built(known, records, arms=arms, looks=looks_of(names, (30, 60), 3))
    looks = results["looks"]
    assert results["cohort"]["tasks"] == 60
    assert (looks["planned"], looks["done"], looks["searched"]) == (3, 2, [30, 60])
    assert looks["bounds"] == pytest.approx([3.710, 2.511], abs=0.001)
    ring, star = looks["arms"]["ring"], looks["arms"]["star"]
    assert (ring["conclusion"], star["conclusion"]) == ("shown", "futile")
    assert results["deltas"]["ring"]["conclusion"] == "more"
    wide = results["deltas"]["ring"]
    once = built({task: known[task] for task in names[:60]}, records, arms=arms)["deltas"]["ring"]
    assert (wide["low"], wide["high"], wide["holm_p"]) == (
        ring["low"],
        ring["high"],
        ring["holm_p"],
    )
    assert wide["high"] - wide["low"] > 1.2 * (once["high"] - once["low"])
    assert looks["decided"]
    assert report.look_line(results) == "look 2 of 3, 60 tasks: ring shown, star futile"
    first = built(known, records, arms=arms, looks=looks_of(names, (30,), 3))
    assert first["looks"]["arms"]["ring"]["conclusion"] == "go on"
    assert first["deltas"]["ring"]["conclusion"] == "not shown"
    assert not first["looks"]["decided"]
    last = built(known, records, arms=arms, looks=looks_of(names, (30, 60, 90), 3))
    assert last["looks"]["arms"]["star"]["conclusion"] == "not shown"
    assert last["looks"]["decided"]


def test_before_the_first_look_nothing_is_compared() -> None:
    known = tasks_named(9)
    rescues = {"resample": rounds_of(9, ()), "ring": rounds_of(9, (9,))}
    records = saved(list(known), rescues)
    results = built(known, records, arms=("resample", "ring"), settings={"looks": 3}, looks=())
    assert (results["deltas"], results["cohort"]["tasks"]) == ({}, 0)
    assert "No look yet" in shown(results)
    assert results["cost"]["calls"] == 9 * (8 + 24 + 8)


def test_looking_again_without_a_plan_is_counted_and_warned_of() -> None:
    known = tasks_named(60)
    names = list(known)
    records = saved(names, {"resample": rounds_of(60, (3,)), "ring": rounds_of(60, (4,))})
    arms = ("resample", "ring")
    once = built(known, records, arms=arms, looks=looks_of(names, (60,), 1))
    assert "without --looks" not in shown(once)
    results = built(known, records, arms=arms, looks=looks_of(names, (20, 40, 60), 1))
    found = results["times"]["looks"]
    assert found["tasks"] == [20, 40, 60]
    assert found["false_alarms"] == pytest.approx(0.107, abs=0.001)
    assert {**results, "times": 0} == {**once, "times": 0}
    assert "looked at 3 times as it grew (20, 40, 60 tasks)" in shown(results)
    assert "a chance of 11%" in shown(results)


# --- warnings ---------------------------------------------------------------------------------


def test_a_cache_is_noticed_and_chance_repeats_are_not() -> None:
    known = tasks_named(30)
    records = saved(list(known), {"resample": rounds_of(30, ())})
    records["resample", "t000"] = {
        place: replace(r, reply_hash=1) for place, r in records["resample", "t000"].items()
    }
    results = built(known, records, arms=("resample",))
    assert results["duplicates"] == {
        "groups": 30 + 90,
        "repeated_replies": 21,
        "repetitive_groups": 3,
    }
    assert results["warnings"] == []
    cached = {
        place: {key: replace(r, reply_hash=hash(key) % 2) for key, r in part.items()}
        for place, part in records.items()
    }
    results = built(known, cached, arms=("resample",))
    assert results["duplicates"]["repetitive_groups"] == 120
    assert "does the server cache" in results["warnings"][0]
    scripted = built(known, cached, arms=("resample",), settings={"policy": "scripted"})
    assert scripted["warnings"] == []


def test_prompts_of_later_swarm_rounds_are_not_fresh() -> None:
    known = tasks_named(1)
    records = saved(["t000"], {"ring": (None,)})
    results = built(known, records, arms=("ring",))
    assert results["duplicates"]["groups"] == 2


def test_few_contests_and_an_open_sandbox_are_said() -> None:
    known = {f"t{i}": facts(f"t{i}", contest=str(i % 3)) for i in range(30)}
    records = saved(list(known), {"resample": rounds_of(30, (4,))})
    results = built(known, records, arms=("resample",), settings={"sandbox": False})
    assert results["cohort"] == {"band": "all-fail", "tasks": 30, "contests": 3}
    sandbox, contests = results["warnings"]
    assert "sandbox was off" in sandbox
    assert "come from 3 contests" in contests


def test_the_first_line_of_a_scripted_run_says_so() -> None:
    results = built(tasks_named(1), saved(["t000"], {}), arms=(), settings={"policy": "scripted"})
    first = report.render(results, colour=True).splitlines()[0]
    assert "SCRIPTED POLICY" in first
    assert "numbers mean nothing" in first


# --- hill or cliff ----------------------------------------------------------------------------


def calibrated(pass_upper: int, pass_lower: int, each: int = 40) -> dict[str, Any]:
    """`each` programs at 3/4 and none of the visible cases, of which so many pass the hidden."""
    known = tasks_named(each // 4 + 1)
    records: Saved = {}
    checks = {}
    for number, task in enumerate(list(known)[:-1]):
        records["base", task] = {}
        for i in range(8):
            base = record("base", task, 0, i, passed=3 if i < 4 else 0)
            records["base", task][0, i] = base
            limit = pass_upper if i < 4 else pass_lower
            passes = number * 4 + i % 4 < limit
            checks["hidden", task, base.program_hash] = (20 if passes else 7, 20)
    last = list(known)[-1]
    records["base", last] = group(last, accepted=5, passed=VISIBLE)
    checks["extra", last, 1] = (1, 1)
    return built(known, records, arms=(), checks=checks)


@pytest.mark.parametrize(
    ("upper", "lower", "each", "shape"),
    [
        (25, 2, 40, "hill"),
        (0, 0, 40, "cliff"),
        (0, 0, 60, "cliff"),
        (8, 8, 40, "unclear"),
        (9, 0, 12, "too few"),
    ],
)
def test_hill_or_cliff(upper: int, lower: int, each: int, shape: str) -> None:
    results = calibrated(upper, lower, each)
    hill = results["hill"]
    assert hill["shape"] == shape
    assert hill["programs"] == 2 * each + 8
    buckets = {row["visible_share"]: row for row in hill["buckets"]}
    assert (buckets["3/4 and up"]["programs"], buckets["3/4 and up"]["pass_hidden"]) == (
        each,
        upper,
    )
    assert buckets["none"]["rate"] == lower / each
    # Programs that passed all visible cases ran the hidden ones anyway.
    assert (buckets["all"]["programs"], buckets["all"]["pass_hidden"]) == (8, 5)
    assert buckets["1/4 to 1/2"]["rate"] is None
    assert hill["within_tasks"]["tasks"] == each // 4
    assert hill["sentence"] in shown(results)


def test_an_easy_task_makes_no_hill() -> None:
    """Programs of easy tasks pass much and pass the hidden cases; within a task it is one rate."""
    known = tasks_named(20)
    records: Saved = {}
    checks = {}
    for number, task in enumerate(known):
        easy = number < 10
        records["base", task] = {}
        for i in range(8):
            upper = i < (6 if easy else 2)
            base = record("base", task, 0, i, passed=3 if upper else 0)
            records["base", task][0, i] = base
            checks["hidden", task, base.program_hash] = (20 if easy and i % 2 else 7, 20)
    hill = built(known, records, arms=(), checks=checks)["hill"]
    buckets = {row["visible_share"]: row for row in hill["buckets"]}
    assert buckets["3/4 and up"]["low"] > buckets["none"]["high"]
    assert hill["within_tasks"]["difference"] == pytest.approx(0)
    assert hill["shape"] == "unclear"


def test_without_calibration_there_is_no_hill() -> None:
    known = tasks_named(1)
    results = built(known, saved(["t000"], {}), arms=())
    assert results["hill"] is None
    assert "--calibrate" in shown(results)


# --- files and terminals ----------------------------------------------------------------------


def test_write_is_whole_and_loads_back(tmp_path: Path) -> None:
    known, records = published()
    results = built(known, records, noise_runs=2)
    path = tmp_path / "results.json"
    path.write_text("old")
    report.write(results, path)
    assert json.loads(path.read_text(encoding="utf-8")) == results
    assert list(tmp_path.iterdir()) == [path]
    report.write_lines([{"a": "\ud800"}, {"a": 2}], tmp_path / "rows.jsonl")
    assert (tmp_path / "rows.jsonl").read_text().splitlines() == ['{"a": "\\ud800"}', '{"a": 2}']


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(report.ReportError, match=r"cannot write .*results\.json") as caught:
        report.write({}, tmp_path / "file" / "results.json")
    assert "\n" not in str(caught.value)


def test_nan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        report.write({"rate": float("nan")}, tmp_path / "results.json")
    assert list(tmp_path.iterdir()) == []


def test_colour_changes_no_text_and_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known, records = published()
    results = built(known, records, noise_runs=2)
    coloured = report.render(results, colour=True)
    assert re.sub(r"\x1b\[\d+m", "", coloured) == report.render(results, colour=False)
    assert "\x1b[" in coloured

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert report.wants_colour(Terminal())
    assert not report.wants_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not report.wants_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not report.wants_colour(Terminal())


def test_wide_characters_keep_to_the_width() -> None:
    known = tasks_named(1)
    results = built(
        known,
        saved(["t000"], {"resample": (0,)}),
        arms=("resample",),
        settings={"model": "模型" * 60, "policy": "endpoint"},
        load={"source": "/データ/" + "問題 " * 40, "read": 1, "kept": 1, "dropped": {"重複": 1}},
    )
    text = report.render(results, colour=False, width=80)
    assert max(map(columns, text.splitlines())) <= 80
    assert text.count("模型") == 60 - text.count("模\n")
    assert "1 row read, 1 task kept" in shown(results)
    assert "up to 24 more samples on each of 1 all-fail task " in shown(results)
    assert "1 contest," in shown(results)


def test_every_key_that_the_report_writes_is_documented() -> None:
    """Of the sections that compare; {} stands for names of arms and the like."""
    readme = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
    named = set(re.findall(r"`(\w+)`", readme.split("## What a run writes")[1]))
    known, records = published()
    names = sorted(known)
    results = built(known, records, noise_runs=2, looks=looks_of(names, (90, 180, 275), 3))
    results["hill"] = calibrated(25, 2)["hill"]
    free = {*ARMS, "noise-1", "noise-2", *results["contrasts"]}

    def keys(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(keys, value))
        if not isinstance(value, dict):
            return set()
        return {name for name in value if name not in free}.union(*map(keys, value.values()))

    sections = ("deltas", "looks", "contrasts", "round_0", "noise", "equal_cost", "plain_sampling",
                "power", "margin")  # fmt: skip
    found = keys({name: results[name] for name in sections}) | keys(results["times"]["looks"])
    assert found | keys(results["hill"]["within_tasks"]) <= named


def test_counts_of_the_train_split_fit_the_page() -> None:
    known, records = published()
    results = built(known, records, noise_runs=2, arms=(*ARMS, "von-neumann"))
    for row in results["arms"].values():
        row |= {
            "n": 13_328,
            "rescued": 1_234,
            "by_round": [1_001, 1_002, 1_003],
            "cumulative": [1_001, 2_003, 3_006],
            "samples": 319_872,
            "low": 0.1,
            "high": 0.2,
            "outcomes": {"prompt too long": 12_345, "refusal": 1_234, "empty reply": 12_345},
        }
    results["histogram"] = [13_328, 12_345, 9_999, 100, 10, 1, 0, 0, 1_000]
    assert max(map(len, report.render(results, colour=False).splitlines())) <= 100


# --- other shapes of a group --------------------------------------------------------------------


def test_a_common_start_counts_for_every_arm_and_is_paid_for_once() -> None:
    saved: Saved = {}
    for place in range(4):
        saved.setdefault(("base", "t/1"), {})[0, place] = record("base", "t/1", 0, place)
        saved.setdefault(("base", "t/2"), {})[0, place] = record("base", "t/2", 0, place)
        saved.setdefault(("start", "t/1"), {})[0, place] = record("start", "t/1", 0, place)
        saved.setdefault(("start", "t/2"), {})[0, place] = record(
            "start", "t/2", 0, place, accepted=place == 3
        )
        for arm in ("resample", "ring"):
            saved.setdefault((arm, "t/1"), {})[1, place] = record(
                arm, "t/1", 1, place, accepted=arm == "ring" and place == 0
            )
    facts = {task: TaskFacts(task, task, 0, VISIBLE, 4, 0, "", "") for task in ("t/1", "t/2")}
    settings = {"group": 4, "rounds": 2, "common_start": True}
    results = report.build(
        facts=facts, records=saved, checks={}, load=None, settings=settings, environment={},
        arms=("resample", "ring"), noise_runs=0, band="all-fail", times={}, seed=0,
    )  # fmt: skip
    assert results["shape"] == settings
    assert results["arms"]["resample"]["by_round"] == [1, 0]
    assert results["arms"]["ring"]["by_round"] == [1, 1]
    assert results["arms"]["resample"]["samples"] == results["arms"]["ring"]["samples"] == 12
    assert results["cost"]["calls"] == 8 + 8 + 8
    assert results["incomplete"]["searches"] == {"resample": 0, "ring": 0}


@pytest.mark.parametrize(("group", "rounds"), [(4, 2), (64, 1), (16, 5)])
def test_the_report_follows_the_shape_of_the_group(group: int, rounds: int) -> None:
    saved: Saved = {
        ("base", "t/1"): {(0, i): record("base", "t/1", 0, i) for i in range(group)},
        ("base", "t/2"): {
            (0, i): record("base", "t/2", 0, i, accepted=i < 3) for i in range(group)
        },
        ("resample", "t/1"): {
            (n, i): record("resample", "t/1", n, i) for n in range(rounds) for i in range(group)
        },
    }
    facts = {task: TaskFacts(task, task, 0, VISIBLE, 4, 0, "", "") for task in ("t/1", "t/2")}
    results = report.build(
        facts=facts, records=saved, checks={}, load=None, environment={},
        settings={"group": group, "rounds": rounds}, arms=("resample",), noise_runs=0,
        band="all-fail", times={}, seed=0,
    )  # fmt: skip
    assert len(results["histogram"]) == group + 1
    assert results["histogram"][3] == 1
    assert len(results["base"]["pass_at"]) == group
    assert results["arms"]["resample"]["by_round"] == [0] * rounds
    assert results["arms"]["resample"]["samples"] == group * rounds
    text = report.render(results, colour=False)
    assert f"fails {group} times of {group}?" in text
    assert f"up to {group * rounds} more samples" in text
