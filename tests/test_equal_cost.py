"""Arms at the same bill, on courses that can be done by hand."""

from __future__ import annotations

import numpy as np
import pytest

import equal_cost
from equal_cost import Course, cost_ratio, equal_spend

HALF = Course([[10, 10], [10], [10, 10], [10, 10]], [False, True, True, False])


@pytest.fixture(autouse=True)
def _fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equal_cost, "DRAWS", 400)


def test_a_curve_ends_each_task_at_its_rescue() -> None:
    spent, rescued = HALF.curve()
    assert spent == [10, 17.5]
    assert rescued == [0.25, 0.5]


def test_a_longer_run_goes_on_where_nothing_was_rescued() -> None:
    more = Course([[20], [99], [99], [20, 20]], [True, False, False, False])
    whole = HALF.then(more)
    assert list(whole.tokens) == [[10, 10, 20], [10], [10, 10], [10, 10, 20, 20]]
    assert list(whole.rescued) == [True, True, True, False]


def test_the_dearer_arm_is_compared_with_the_start_of_the_other() -> None:
    treated = Course([[12], [12], [12], [12]], [True, False, False, True])
    found = equal_spend(HALF, treated)
    assert (found.spend, found.whole, found.treated) == (12, True, 0.5)
    # 2 tokens of the 7.5 that the second round costs: as much of its quarter of rescues.
    assert found.control == pytest.approx(0.25 + 0.25 * 2 / 7.5)
    back = equal_spend(treated, HALF)
    assert (back.whole, back.spend, back.control) == (False, 12, 0.5)
    assert back.delta == pytest.approx(-found.delta)
    assert found.low < found.delta < found.high


def test_equal_arms_are_equal_at_any_bill() -> None:
    """Courses of one kind: the difference is 0 in the mean, and the interval holds it."""
    generator = np.random.default_rng(0)

    def course(chances: list[float]) -> Course:
        tokens, rescued = [], []
        for chance in chances:
            hits = generator.random(3) < chance
            rounds = int(hits.argmax()) + 1 if hits.any() else 3
            tokens.append([100.0] * rounds)
            rescued.append(bool(hits.any()))
        return Course(tokens, rescued)

    held, deltas = 0, []
    for _ in range(40):
        chances = generator.beta(0.1, 1.5, 100).tolist()
        found = equal_spend(course(chances).then(course(chances)), course(chances))
        held += found.low <= 0 <= found.high
        deltas.append(found.delta)
    assert held >= 34
    assert abs(float(np.mean(deltas))) < 0.02


def test_tokens_a_rescue_as_a_ratio() -> None:
    twice = Course([[20, 20], [20], [20, 20], [20, 20]], [False, True, True, False])
    same = cost_ratio([HALF, HALF], twice)
    assert same is not None
    assert same.ratio == pytest.approx(2)
    assert cost_ratio([HALF], Course([[5]] * 4, [False] * 4)) is None
    tasks = HALF.tokens * 20
    wide = cost_ratio(
        [Course(list(tasks), list(HALF.rescued) * 20)],
        Course(list(twice.tokens) * 20, [True, False, False, False] * 20),
        clusters=[i // 4 for i in range(80)],
    )
    assert wide is not None
    assert wide.low is not None
    assert wide.high is not None
    assert wide.ratio == pytest.approx(4)
    assert wide.low <= 4 <= wide.high


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="the same tasks"):
        equal_spend(HALF, Course([[1]], [True]))
    with pytest.raises(ValueError, match="no spend"):
        equal_spend(HALF, Course([[0]] * 4, [True] * 4))
