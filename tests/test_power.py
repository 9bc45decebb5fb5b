"""Power by simulation, against exact powers and the exact test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

import power
import stats
from power import Design, correlation, label_p_values, smallest_p


@pytest.mark.parametrize("runs", [1, 2, 3, 6])
def test_many_p_values_at_once_are_those_of_the_exact_test(runs: int) -> None:
    generator = np.random.default_rng(runs)
    tasks, observed, exact = [], [], []
    for _ in range(20):
        chances = generator.beta(0.5, 2, 70)
        controls = (generator.random((runs, 70)) < chances).astype(int)
        treated = (generator.random(70) < chances + 0.1).astype(int)
        rescued = controls.sum(axis=0) + treated
        tasks.append([int((rescued == r).sum()) for r in range(1, runs + 1)])
        observed.append(int(treated[(rescued > 0) & (rescued <= runs)].sum()))
        exact.append(stats.label_permutation(treated.tolist(), controls.tolist()))
    found = label_p_values(np.array(tasks), np.array(observed))
    assert found == pytest.approx(exact, abs=1e-12)


def test_power_agrees_with_the_exact_power_of_the_sign_flip_test() -> None:
    """Independent runs at 10% and 25%: discordant tasks are binomial, and so are wins in them."""
    n, p, q = 60, 0.1, 0.25
    won, lost = (1 - p) * q, p * (1 - q)
    exact = 0.0
    for m in range(n + 1):
        wins = np.arange(m + 1)
        p_values = np.array([min(1, 2 * binom.cdf(min(w, m - w), m, 0.5)) for w in wins])
        rejected = binom.pmf(wins, m, won / (won + lost)) @ (p_values <= 0.05)
        exact += binom.pmf(m, n, won + lost) * rejected
    assert Design(p, 0.0, 1, 0.05).power(n, q - p) == pytest.approx(exact, abs=0.08)


def test_more_runs_and_likeness_help_and_the_answers_fit_each_other() -> None:
    one, three = (Design(0.07, 0.5, runs, 0.05) for runs in (1, 3))
    loose = Design(0.07, 0.0, 1, 0.05)
    sizes = [design.tasks(0.05) for design in (three, one, loose)]
    assert None not in sizes
    assert sizes == sorted(sizes, key=float)
    assert 0.7 < sizes[0] / 250 < 1.4
    effect = one.effect(400)
    assert effect is not None
    assert one.power(400, effect) >= power.POWER > one.power(400, effect / 2)


def test_few_tasks_can_show_nothing() -> None:
    assert smallest_p(4, 1) == 0.125
    assert smallest_p(4, 3) == 1 / 256
    assert Design(0.0, 0.0, 1, 0.05).effect(4) is None
    assert Design(0.0, 0.0, 1, 0.05).effect(12) is not None
    assert Design(0.98, 0.0, 1, 0.05).tasks(0.05) is None


def test_correlation_of_runs() -> None:
    assert correlation([[1, 0, 1, 0]]) == 0
    assert correlation([[1, 0, 1, 0]] * 3) == 0.99
    assert correlation([[1, 1, 0, 0], [1, 0, 1, 0]]) == pytest.approx(0)
    assert correlation([[0, 0], [0, 0]]) == 0
