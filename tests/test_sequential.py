"""The group-sequential design, against published tables."""

from __future__ import annotations

import pytest
from scipy.stats import norm

from sequential import bounds, conditional_power, leaving_chance, sequential_p, spent

# Two-sided 5%, O'Brien-Fleming spending, equal steps (Reboussin, DeMets, Kim & Lan 2000).
SPENDING = {
    2: [2.963, 1.969],
    3: [3.710, 2.511, 1.993],
    4: [4.333, 2.963, 2.359, 2.014],
    5: [4.877, 3.357, 2.680, 2.290, 2.031],
}
# Constants of O'Brien & Fleming's and of Pocock's tests at 5% (Jennison & Turnbull 2000, tables
# 2.3 and 2.1), and what looking again and again at 1.96 does (Armitage, McPherson & Rowe 1969).
OBRIEN_FLEMING = {2: 1.977, 3: 2.004, 4: 2.024, 5: 2.040, 10: 2.087}
POCOCK = {2: 2.178, 3: 2.289, 4: 2.361, 5: 2.413, 10: 2.555}
REPEATED = {2: 0.083, 3: 0.107, 4: 0.126, 5: 0.142, 10: 0.193}


@pytest.mark.parametrize("looks", SPENDING)
def test_bounds_are_the_published_ones(looks: int) -> None:
    found = bounds([i / looks for i in range(1, looks + 1)])
    assert found == pytest.approx(SPENDING[looks], abs=0.001)


def test_one_sided_bounds_are_those_of_another_program() -> None:
    """At 10% on both sides each side has the bounds of a one-sided 5% (SeqBounds.jl)."""
    found = bounds([0.25, 0.5, 0.75, 1], 0.10)
    assert found == pytest.approx([3.7496, 2.5399, 2.0160, 1.7201], abs=0.001)


@pytest.mark.parametrize("looks", OBRIEN_FLEMING)
def test_chances_of_leaving_are_the_published_ones(looks: int) -> None:
    times = range(1, looks + 1)
    limits = [OBRIEN_FLEMING[looks] * (looks / i) ** 0.5 for i in times]
    assert leaving_chance(limits, times) == pytest.approx(0.05, abs=0.0002)
    assert leaving_chance([POCOCK[looks]] * looks, times) == pytest.approx(0.05, abs=0.0002)
    assert leaving_chance([1.96] * looks, times) == pytest.approx(REPEATED[looks], abs=0.0006)


def test_uneven_looks_spend_what_they_may() -> None:
    times, fractions = [20, 90, 100], [0.3, 0.6, 1.0]
    found = bounds(fractions, information=times)
    for i, fraction in enumerate(fractions, 1):
        assert leaving_chance(found[:i], times[:i]) == pytest.approx(spent(fraction), abs=1e-6)


def test_a_single_look_is_the_ordinary_test() -> None:
    assert bounds([1.0]) == pytest.approx([1.95996], abs=1e-4)
    assert sequential_p([2.5], [1.0]) == pytest.approx(2 * norm.sf(2.5), rel=1e-3)


def test_p_over_all_looks_is_small_just_where_a_bound_was_left() -> None:
    fractions = [1 / 3, 2 / 3, 1.0]
    limits = bounds(fractions)
    for j in range(3):
        for gap in (-0.01, 0.01):
            z = [0.0] * j + [-(limits[j] + gap)]
            assert (sequential_p(z, fractions[: j + 1]) < 0.05) == (gap > 0)
    assert sequential_p([4.0], fractions[:1]) == pytest.approx(
        sequential_p([4.0, 0.0, 0.0], fractions), rel=1e-3
    )
    assert sequential_p([0.05], [0.5]) == 1.0


def test_conditional_power_by_hand() -> None:
    drift = 1.959964 + norm.ppf(0.85)
    for z, t, bound in ((0.0, 0.5, 2.0), (1.0, 1 / 3, 1.99), (-1.0, 2 / 3, 1.99)):
        expected = norm.sf((bound - z * t**0.5 - drift * (1 - t)) / (1 - t) ** 0.5)
        assert conditional_power(z, t, bound) == pytest.approx(expected, abs=1e-6)
    assert (conditional_power(2.1, 1.0, 2.0), conditional_power(1.9, 1.0, 2.0)) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: bounds([]), "one fraction"),
        (lambda: bounds([0.5, 1.0], information=[10]), "one fraction"),
        (lambda: bounds([0.5, 1.0], information=[10, 10]), "more tasks than the one before"),
        (lambda: spent(0.0), "above 0"),
        (lambda: spent(0.5, 0.0), "alpha"),
    ],
)
def test_what_is_no_plan_is_refused(call, reason) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=reason):
        call()
