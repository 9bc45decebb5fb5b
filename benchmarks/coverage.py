"""Do the intervals and p-values hold what they say? A simulation of 3 to 4 minutes on one core.

    python benchmarks/coverage.py [--repeats 2000]

Task i has a chance p_i of a rescue, the same in every run of an arm that does not differ from
resample; whether an arm rescues it is a coin of that chance. The p_i are drawn from a beta
distribution whose mean is 7% and whose spread is such that 6 runs rescue the share of tasks that
6 published runs did together (43 of 223): a task that one run rescues is often rescued by the
next. In the rows with contests, tasks come in contests of 1 to 9 and the p_i of a contest share a
part of their spread, so that outcomes within it correlate by about 0.1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaln

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import stats

N, RATE = 223, 0.07
PUBLISHED = (16, 15, 22, 22, 20, 24)  # rescues of six runs on the same 223 tasks
UNION = 43  # tasks that any of them rescued

Floats = NDArray[np.float64]
Labels = list[int] | None


def spread() -> float:
    """a + b of the beta distribution that explains the published union."""
    mean = sum(PUBLISHED) / len(PUBLISHED) / N

    def excess(total: float) -> float:
        a, b = mean * total, (1 - mean) * total
        none = np.exp(betaln(a, b + len(PUBLISHED)) - betaln(a, b))
        return float(1 - none - UNION / N)

    return float(brentq(excess, 0.01, 100))


class World:
    """Draws the chances of N tasks, with their contests or independent of each other."""

    def __init__(self, generator: np.random.Generator, contests: bool, n: int = N) -> None:
        self.generator, self.contests, self.n = generator, contests, n
        self.total = spread()

    def chances(self) -> tuple[Floats, Labels]:
        if not self.contests:
            return self.generator.beta(RATE * self.total, (1 - RATE) * self.total, self.n), None
        sizes = 1 + self.generator.binomial(8, 0.45, self.n)
        labels = np.repeat(np.arange(self.n), sizes)[: self.n]
        # A contest's mean is itself beta: correlation 0.1 of outcomes between its tasks.
        outer = 1 / 0.1 - 1
        means = self.generator.beta(RATE * outer, (1 - RATE) * outer, self.n)[labels]
        means = np.clip(means, 1e-9, 1 - 1e-9)
        return self.generator.beta(means * self.total, (1 - means) * self.total), labels.tolist()

    def run(self, chances: Floats, gain: float = 0.0) -> list[int]:
        """One run; an arm with a gain also rescues that share of what it would have missed."""
        rescued = self.generator.random(self.n) < chances + gain * (1 - chances)
        return [int(value) for value in rescued]


def other_interval(values: Sequence[float], labels: Labels, bca: bool) -> tuple[float, float]:
    """The interval that stats does not use for this kind of number."""
    sums, sizes = stats._by_cluster(np.asarray(values, dtype=np.float64), labels)
    if stats._spreadless(sums, sizes):
        return 0.0, 0.0
    means = stats._bootstrap(sums, sizes, 0)
    if bca:
        return stats._bca(sums, sizes, means)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def coverage(
    name: str, intervals: Iterable[dict[str, tuple[float, float]]], truth: float
) -> list[tuple[str, ...]]:
    """One row an interval: how often it holds the truth, lies below it, lies above it."""
    counts: dict[str, list[int]] = {}
    repeats = 0
    for found in intervals:
        repeats += 1
        for kind, (low, high) in found.items():
            tally = counts.setdefault(kind, [0, 0, 0])
            tally[0] += low - 1e-12 <= truth <= high + 1e-12
            tally[1] += high + 1e-12 < truth
            tally[2] += truth < low - 1e-12
    return [(name, kind, *(f"{x / repeats:.1%}" for x in tally)) for kind, tally in counts.items()]


def rates(world: World, repeats: int) -> Iterable[dict[str, tuple[float, float]]]:
    for _ in range(repeats):
        chances, labels = world.chances()
        values = world.run(chances)
        estimate = stats.rescue_rate(values, clusters=labels)
        found = {"BCa (low, high)": (estimate.low, estimate.high)}
        found["percentile"] = other_interval(values, labels, bca=False)
        if labels:
            single = stats.rescue_rate(values)
            found["BCa, contests ignored"] = (single.low, single.high)
        found["Wilson (wilson_low, wilson_high)"] = (estimate.wilson_low, estimate.wilson_high)
        yield found


def differences(
    world: World, repeats: int, gain: float
) -> Iterable[dict[str, tuple[float, float]]]:
    for _ in range(repeats):
        chances, labels = world.chances()
        control, treated = world.run(chances), world.run(chances, gain)
        delta = stats.paired_delta(control, treated, clusters=labels)
        found = {"percentile (low, high)": (delta.low, delta.high)}
        paired = [b - a for a, b in zip(control, treated, strict=True)]
        found["BCa"] = other_interval(paired, labels, bca=True)
        yield found


def false_alarms(world: World, repeats: int, runs: int) -> dict[str, float]:
    """Shares of repeats in which arms that do not differ from resample seem to."""
    counts = dict.fromkeys(
        (
            "p of one arm under 0.05",
            "Holm p of any of 3 arms under 0.05",
            "p against the mean of all runs under 0.05",
            "delta of one arm beyond the noise band",
            "any of 3 arms is called different",
        ),
        0,
    )
    for _ in range(repeats):
        chances, labels = world.chances()
        controls = [world.run(chances) for _ in range(runs)]
        arms = [world.run(chances) for _ in range(3)]
        deltas = [stats.paired_delta(controls[0], arm, clusters=labels) for arm in arms]
        mean = [sum(values) / runs for values in zip(*controls, strict=True)]
        band = stats.noise_band([sum(run) / world.n for run in controls]).band
        adjusted = stats.holm([delta.p_value for delta in deltas])
        found = (
            deltas[0].p_value < 0.05,
            min(adjusted) < 0.05,
            stats.paired_delta(mean, arms[0], clusters=labels).p_value < 0.05,
            abs(deltas[0].delta) > band,
            any(
                p < 0.05 and (d.low > 0 or d.high < 0) and abs(d.delta) > band
                for d, p in zip(deltas, adjusted, strict=True)
            ),
        )
        for name, value in zip(counts, found, strict=True):
            counts[name] += value
    return {name: count / repeats for name, count in counts.items()}


def power(generator: np.random.Generator, repeats: int, gain: float) -> float:
    """How often the exact test sees a gain on the number of tasks that holdout_size asks for."""
    n = stats.holdout_size(RATE, gain)
    world = World(generator, contests=False, n=n)
    seen = 0
    for _ in range(repeats):
        chances, _ = world.chances()
        control, treated = world.run(chances), world.run(chances, gain / (1 - RATE))
        seen += stats.paired_delta(control, treated).p_value < 0.05
    return seen / repeats


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    cells.insert(1, ["-" * width for width in widths])
    for row in cells:
        print("| " + " | ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)) + " |")
    print()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Coverage and false alarms, by simulation.")
    parser.add_argument("--repeats", type=int, default=2000, help="simulated runs (default: 2000)")
    repeats = parser.parse_args(argv).repeats
    stats.DRAWS = 2000  # a fifth of what a report takes: bounds a little noisier, not shifted
    generator = np.random.default_rng(0)
    kinds: tuple[tuple[str, bool], ...] = (("independent", False), ("contests", True))
    rows: list[tuple[str, ...]] = []
    for name, contests in kinds:
        world = World(generator, contests)
        rows += coverage(f"rate 7%, {name}", rates(world, repeats), RATE)
    for name, contests in kinds:
        world = World(generator, contests)
        for gain in (0.0, 0.05):
            label = f"delta {100 * gain * (1 - RATE):+.1f} points, {name}"
            rows += coverage(label, differences(world, repeats, gain), gain * (1 - RATE))
    print(f"n = {N}, {repeats} repeats; 95% intervals\n")
    table(("truth", "interval", "holds it", "is below", "is above"), rows)

    found = [
        (f"{name}, {runs} runs", false_alarms(World(generator, contests), repeats, runs))
        for runs in (3, 2)
        for name, contests in kinds
    ]
    print("no arm differs from resample: how often it seems so\n")
    table(
        ("", *(name for name, _ in found)),
        [(name, *(f"{shares[name]:.1%}" for _, shares in found)) for name in found[0][1]],
    )
    print("power of the exact test on the tasks that holdout_size asks for (it promises 80%)\n")
    table(
        ("gain", "tasks", "seen"),
        [
            (f"{100 * gain:+.0f} points", f"{stats.holdout_size(RATE, gain)}", f"{seen:.1%}")
            for gain in (0.05, 0.03)
            for seen in [power(generator, repeats, gain)]
        ],
    )


if __name__ == "__main__":
    main()
