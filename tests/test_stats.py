"""The statistics, against published figures, scipy and cases that can be done by hand."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap, fisher_exact

import stats
from stats import (
    detectable_effect,
    holdout_size,
    holm,
    label_permutation,
    noise_band,
    paired_delta,
    pass_at_k,
    rescue_rate,
    stratified,
    wilson_interval,
    within_task_band,
)


def outcomes(rescued: int, n: int) -> list[int]:
    return [1] * rescued + [0] * (n - rescued)


def random_outcomes(seed: int, n: int, rate: float) -> list[int]:
    return [int(x < rate) for x in np.random.default_rng(seed).random(n)]


# --- published figures ------------------------------------------------------------------------

SEED_0 = {"resample": (8, 4, 4), "solo": (6, 6, 3), "ring": (5, 12, 5), "star": (6, 13, 3)}
SEED_1 = {"resample": (17, 5, 4), "solo": (14, 11, 0), "ring": (13, 5, 5), "star": (14, 8, 4)}
NEAR_MISS = {"resample": (11, 4, 3), "solo": (8, 7, 1), "ring": (13, 3, 1), "star": (12, 5, 2)}


@pytest.mark.parametrize(
    ("arms", "rescued"),
    [(SEED_0, [16, 15, 22, 22]), (SEED_1, [26, 25, 23, 26]), (NEAR_MISS, [18, 16, 17, 19])],
)
def test_published_rescues_are_the_sums_over_rounds(
    arms: dict[str, tuple[int, int, int]], rescued: list[int]
) -> None:
    assert [sum(by_round) for by_round in arms.values()] == rescued


@pytest.mark.parametrize(
    ("arm", "percent"), [("resample", 7.2), ("solo", 6.7), ("ring", 9.9), ("star", 9.9)]
)
def test_published_rates(arm: str, percent: float) -> None:
    estimate = rescue_rate(outcomes(sum(SEED_0[arm]), 223))
    assert round(100 * estimate.mean, 1) == percent
    assert estimate.low < estimate.mean < estimate.high


@pytest.mark.parametrize(
    ("rescued", "n", "std", "band"),
    [((16, 20, 24), 223, 1.79, 10.9), ((26, 23, 27), 228, 0.91, 5.6), ((18, 17), 57, 1.24, 22.3)],
)
def test_published_noise(rescued: tuple[int, ...], n: int, std: float, band: float) -> None:
    noise = noise_band([count / n for count in rescued])
    assert round(100 * noise.std, 2) == std
    assert round(100 * noise.band, 1) == band
    assert noise.runs == len(rescued)


def test_published_holdout_sizes() -> None:
    assert holdout_size(0.072, 0.05) == 547
    assert holdout_size(0.072, 0.03) == 1382


@pytest.mark.parametrize(
    ("arms", "n", "samples"),
    [(SEED_0, 223, [5192, 5208, 5176, 5152]), (SEED_1, 228, [5160, 5160, 5224, 5184])],
)
def test_published_samples_follow_from_the_rescues_by_round(
    arms: dict[str, tuple[int, int, int]], n: int, samples: list[int]
) -> None:
    assert [24 * n - 16 * first - 8 * second for first, second, _ in arms.values()] == samples


def test_published_histograms_give_the_tasks_and_pass_at_1() -> None:
    histogram = (223, 17, 14, 4, 3, 1, 3, 4, 6)
    assert sum(histogram) == sum((107, 33, 30, 26, 21, 14, 20, 13, 11)) == 275
    rates = [pass_at_k(8, passes, 1) for passes in range(9)]
    assert rates == [passes / 8 for passes in range(9)]
    unsolved = 1 - sum(n * pass_at_k(8, c, 8) for c, n in enumerate(histogram)) / 275
    assert unsolved == pytest.approx(223 / 275)


# --- rescue_rate ------------------------------------------------------------------------------


def test_rate_agrees_with_scipys_bca_bootstrap() -> None:
    for seed, (n, rate) in enumerate(((60, 0.3), (223, 0.07), (500, 0.5))):
        values = random_outcomes(seed, n, rate)
        ours = rescue_rate(values, seed=seed)
        theirs = bootstrap(
            (values,), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(1)
        ).confidence_interval
        # Bootstrap means lie on a grid of 1/n, and two sets of draws may end one step apart.
        assert ours.low == pytest.approx(theirs.low, abs=1.01 / n)
        assert ours.high == pytest.approx(theirs.high, abs=1.01 / n)


def test_wilson_agrees_with_its_formula() -> None:
    for k, n in ((0, 10), (3, 10), (10, 10), (16, 223)):
        z, p = 1.959963984540054, k / n
        centre = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        assert wilson_interval(k, n) == pytest.approx((centre - half, centre + half), abs=1e-12)


@pytest.mark.parametrize("rescued", [0, 5])
def test_equal_outcomes_have_wilsons_interval_and_not_an_empty_one(rescued: int) -> None:
    estimate = rescue_rate(outcomes(rescued, 5))
    assert estimate.method == "wilson"
    assert (estimate.low, estimate.high) == (estimate.wilson_low, estimate.wilson_high)
    assert estimate.high - estimate.low > 0.4


def test_one_task_and_one_contest_have_wilsons_interval() -> None:
    assert rescue_rate([1]).method == "wilson"
    assert rescue_rate([1, 0, 0], clusters=["a", "a", "a"]).method == "wilson"


def test_clusters_of_one_task_change_nothing_and_alike_tasks_widen_the_interval() -> None:
    values = outcomes(30, 200)
    alone = rescue_rate(values)
    assert rescue_rate(values, clusters=list(range(200))) == alone
    alike = rescue_rate(values, clusters=[i // 10 for i in range(200)])
    assert alike.mean == alone.mean
    assert alike.high - alike.low > 2 * (alone.high - alone.low)


def test_cluster_bootstrap_agrees_with_drawing_clusters_one_by_one() -> None:
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 40, 180).tolist()
    values = random_outcomes(4, 180, 0.3)
    control = random_outcomes(5, 180, 0.3)
    sums, sizes = np.zeros(40), np.zeros(40)
    for label, treated, before in zip(labels, values, control, strict=True):
        sums[label] += treated - before
        sizes[label] += 1
    drawn = generator.integers(0, 40, (20_000, 40))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    delta = paired_delta(control, values, clusters=labels)
    assert (delta.low, delta.high) == pytest.approx(np.quantile(means, (0.025, 0.975)), abs=0.006)


def test_the_same_seed_gives_the_same_interval_and_order_does_not_matter() -> None:
    values, labels = random_outcomes(6, 300, 0.2), [i // 7 for i in range(300)]
    estimate = rescue_rate(values, seed=5, clusters=labels)
    assert rescue_rate(values, seed=5, clusters=labels) == estimate
    assert rescue_rate(values[::-1], seed=5, clusters=labels[::-1]) == estimate
    assert rescue_rate(values, seed=6, clusters=labels) != estimate


# --- paired_delta -----------------------------------------------------------------------------


def test_p_is_that_of_all_sign_flips() -> None:
    generator = np.random.default_rng(7)
    for _ in range(20):
        control, treated = generator.integers(0, 2, (2, 9))
        differences = treated - control
        flips = [abs(np.dot(signs, differences)) for signs in product((-1, 1), repeat=9)]
        share = np.mean([flip >= abs(differences.sum()) for flip in flips])
        delta = paired_delta(control.tolist(), treated.tolist())
        assert delta.p_value == pytest.approx(share)
        assert (delta.test, delta.runs) == ("sign flip", 1)


def test_p_is_the_exact_binomial_over_discordant_tasks() -> None:
    control = [0] * 9 + [1] * 2 + [0] * 100 + [1] * 5
    treated = [1] * 9 + [0] * 2 + [0] * 100 + [1] * 5
    delta = paired_delta(control, treated)
    assert (delta.wins, delta.losses, delta.n) == (9, 2, 116)
    assert delta.delta == pytest.approx(7 / 116)
    assert delta.p_value == pytest.approx(binomtest(9, 11).pvalue)
    back = paired_delta(treated, control)
    assert (back.wins, back.losses, back.p_value) == (2, 9, delta.p_value)
    assert back.delta == -delta.delta


def test_label_permutation_is_that_of_all_labels() -> None:
    """Each task's runs in each of their orders, 3^6 cases, the first run being the treated one."""
    generator = np.random.default_rng(20)
    for _ in range(10):
        runs = (generator.random((3, 6)) < 0.4).astype(int)
        observed = abs(runs[0].sum() - runs[1:].mean(axis=0).sum())
        far = []
        for labels in product(range(3), repeat=6):
            treated = runs[list(labels), range(6)]
            rest = (runs.sum(axis=0) - treated) / 2
            far.append(abs(treated.sum() - rest.sum()) >= observed - 1e-9)
        p_value = label_permutation(runs[0].tolist(), runs[1:].tolist())
        assert p_value == pytest.approx(np.mean(far))


def test_label_permutation_by_hand() -> None:
    lost = label_permutation([0] * 60, [[1] * 12 + [0] * 48, [0] * 60, [0] * 60])
    assert lost == pytest.approx(0.086, abs=0.0005)
    assert paired_delta([1 / 3] * 12 + [0] * 48, [0] * 60).p_value == pytest.approx(lost)
    assert label_permutation([1] * 5, [[0] * 5] * 3) == pytest.approx(1 / 4**5)
    assert label_permutation([1, 0, 1], [[1, 0, 1]] * 2) == 1
    against_one = paired_delta([0, 0, 0, 1, 0], [1, 1, 1, 0, 0])
    assert label_permutation([1, 1, 1, 0, 0], [[0, 0, 0, 1, 0]]) == against_one.p_value


def test_label_permutation_keeps_its_level_where_sign_flips_do_not() -> None:
    generator = np.random.default_rng(21)
    p_values = [
        label_permutation(runs[0].tolist(), runs[1:].tolist())
        for runs in (generator.random((400, 7, 300)) < 0.01).astype(int)
    ]
    assert np.mean(np.array(p_values) < 0.05) < 0.07


def test_wins_and_losses_against_several_runs_are_sums_over_them() -> None:
    delta = paired_delta([1, 2 / 3, 1 / 3, 0, 0], [0, 1, 1, 1, 0], runs=3)
    assert (delta.wins, delta.losses, delta.runs) == (0 + 1 + 2 + 3, 3, 3)
    assert delta.delta == pytest.approx((6 - 3) / (3 * 5))
    assert delta.test == "label permutation"


def test_the_number_of_runs_matters_where_shares_do_not_show_it() -> None:
    treated, control = [1] * 4 + [0] * 20, [0] * 24
    assert paired_delta(control, treated).p_value == pytest.approx(2 / 2**4)
    assert paired_delta(control, treated, runs=3).p_value == pytest.approx(1 / 4**4)


def test_few_clusters_and_few_discordant_tasks_widen_the_interval() -> None:
    control, treated = random_outcomes(30, 40, 0.3), random_outcomes(31, 40, 0.4)
    many = paired_delta(control, treated, clusters=list(range(40)))
    few = paired_delta(control, treated, clusters=[i % 4 for i in range(40)])
    two = paired_delta(control, treated, clusters=[i % 2 for i in range(40)])
    alone = paired_delta(control, treated, clusters=["a"] * 40)
    assert many == alone == paired_delta(control, treated)
    assert few.low <= few.delta <= few.high
    assert two.high - two.low > many.high - many.low
    single = paired_delta([0] * 60, [1] + [0] * 59)
    assert single.low < -1 / 60 < single.delta < single.high


def test_one_sided_bounds_lie_within_the_interval() -> None:
    delta = paired_delta(random_outcomes(32, 200, 0.1), random_outcomes(33, 200, 0.15))
    assert delta.low < delta.lower < delta.delta < delta.upper < delta.high
    nothing = paired_delta([0] * 50, [0] * 50)
    assert nothing.upper == -nothing.lower == pytest.approx(2.706 / 52.706, abs=1e-4)


def test_delta_agrees_with_scipys_percentile_bootstrap() -> None:
    control, treated = random_outcomes(10, 223, 0.07), random_outcomes(11, 223, 0.12)
    delta = paired_delta(control, treated)
    theirs = bootstrap(
        (np.subtract(treated, control),),
        np.mean,
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(12),
    ).confidence_interval
    # One step of 1/n, and the two tasks more that are drawn from.
    assert (delta.low, delta.high) == pytest.approx((theirs.low, theirs.high), abs=1.5 / 223)
    assert delta.high - delta.low > theirs.high - theirs.low - 1e-9


def test_without_a_discordant_task_p_is_1_and_the_interval_is_not_empty() -> None:
    delta = paired_delta([0, 1, 0, 0], [0, 1, 0, 0])
    assert (delta.delta, delta.wins, delta.losses, delta.p_value) == (0, 0, 0, 1)
    assert delta.method == "score"
    assert delta.high == -delta.low == pytest.approx(wilson_interval(0, 4)[1])


def test_one_task_says_nothing() -> None:
    delta = paired_delta([0], [1])
    assert (delta.delta, delta.p_value, delta.high) == (1, 1, 1)
    assert delta.low < 0


def test_shares_that_are_equal_but_for_rounding_are_equal() -> None:
    delta = paired_delta([(0.1 + 0.2) / 0.9, 1 / 3], [0, 1], runs=3)
    assert (delta.wins, delta.losses, delta.p_value) == (2, 1, 1)


# --- the rest ---------------------------------------------------------------------------------


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1, 1]
    assert holm([0.2]) == [0.2]


def test_runs_that_differ_where_they_cannot_are_noticed() -> None:
    alike = [random_outcomes(40 + i, 300, 0.1) for i in range(4)]
    assert stats.same_rates(alike) > 0.05
    assert stats.same_rates([*alike, random_outcomes(50, 300, 0.3)]) < 0.001
    assert stats.same_rates([[1, 0, 1]] * 3) == 1


def test_the_band_within_tasks_by_hand() -> None:
    runs = [[1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    variance = 1 / 3 + 0 + 0 + 1 / 3
    assert within_task_band(runs) == pytest.approx(1.96 * math.sqrt(2 * variance) / 4, rel=1e-4)
    assert within_task_band([[1, 0], [1, 0]]) == 0


def test_strata_are_compared_within() -> None:
    # Passes go with the stratum and not with the group: pooled it is 9/10 and 1/10 against 1/2.
    difference, p_value = stratified([(10, 9, 10, 9), (2, 0, 30, 0)])
    assert difference == pytest.approx(0)
    assert p_value > 0.5
    by_hand, _ = stratified([(4, 3, 2, 0), (5, 1, 5, 1)])
    assert by_hand == pytest.approx((8 / 6 * 0.75 + 2.5 * 0) / (8 / 6 + 2.5))
    # Fisher's exact test in the only stratum with both groups.
    table = fisher_exact([[6, 1], [2, 5]], alternative="greater")
    assert stratified([(7, 6, 7, 2), (3, 3, 0, 0)])[1] == pytest.approx(table.pvalue)


def test_detectable_effect_is_the_inverse_of_holdout_size() -> None:
    for base in (0.0, 0.01, 0.072, 0.3, 0.6):
        for n in (20, 57, 223, 547, 1382, 13_328):
            effect = detectable_effect(base, n)
            assert holdout_size(base, effect) == n
            assert holdout_size(base, 0.99 * effect) > n


def test_pass_at_k_is_the_share_of_subsets_with_a_pass() -> None:
    assert pass_at_k(8, 0, 8) == 0
    assert pass_at_k(8, 1, 8) == 1
    assert pass_at_k(5, 2, 2) == pytest.approx(1 - 3 / 10)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: rescue_rate([]), "empty"),
        (lambda: rescue_rate([0, 2]), "0 to 1"),
        (lambda: rescue_rate([0, 0.5]), "only 0 and 1"),
        (lambda: rescue_rate([0, math.nan]), "0 to 1"),
        (lambda: rescue_rate([0, 1], clusters=["a"]), "1 cluster labels for 2 tasks"),
        (lambda: paired_delta([], []), "empty"),
        (lambda: paired_delta([0, 0.5], [0, 0.5]), "treated must hold only 0 and 1"),
        (lambda: paired_delta([0, 0.5], [0, 1], runs=3), "3 runs cannot have"),
        (lambda: paired_delta([0, 0.123456], [0, 1]), "shares of a number of runs"),
        (lambda: label_permutation([0], []), "no control run"),
        (lambda: label_permutation([0, 1], [[0]]), "the same tasks"),
        (lambda: label_permutation([0.5], [[0]]), "only 0 and 1"),
        (lambda: stats.same_rates([[0, 1]]), "two runs"),
        (lambda: within_task_band([[0, 1], [0]]), "the same tasks"),
        (lambda: stratified([(3, 1, 0, 0)]), "no stratum"),
        (lambda: paired_delta([0], [0, 1]), "control has 1 tasks and treated 2"),
        (lambda: paired_delta([0, -1], [0, 1]), "control must hold"),
        (lambda: paired_delta([0, 1], [0, math.nan]), "treated must hold"),
        (lambda: paired_delta([0, 1], [0, 1], clusters=["a"]), "cluster labels"),
        (lambda: holm([]), "empty"),
        (lambda: holm([1.2]), "0 to 1"),
        (lambda: noise_band([0.1]), "needs two runs or more"),
        (lambda: noise_band([]), "empty"),
        (lambda: noise_band([7, 9]), "0 to 1"),
        (lambda: holdout_size(0.1, 0), "above 0"),
        (lambda: holdout_size(0.9, 0.2), "at most"),
        (lambda: holdout_size(-0.1, 0.2), "rate of 0 to 1"),
        (lambda: holdout_size(0.1, 0.2, power=1), "power and alpha"),
        (lambda: detectable_effect(0.1, 0), "no task"),
        (lambda: detectable_effect(1.1, 10), "rate of 0 to 1"),
        (lambda: detectable_effect(0.9, 3), "too few"),
        (lambda: pass_at_k(8, 9, 1), "c must be"),
        (lambda: pass_at_k(8, 1, 9), "k must be"),
        (lambda: wilson_interval(0, 0), "no share"),
    ],
)
def test_what_cannot_be_computed_is_an_error_with_the_reason(call, reason) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=reason):
        call()
