"""Do the intervals, p-values and looks hold what they say? A simulation of minutes on one core.

    python benchmarks/coverage.py [--repeats 2000] [--only looks,bill]

Task i has a chance p_i of a rescue, the same in every run of an arm that does not differ from
resample; whether an arm rescues it is a coin of that chance. The p_i are drawn from a beta
distribution whose mean is 7% and whose spread is such that 6 runs rescue the share of tasks that
6 published runs did together (43 of 223): a task that one run rescues is often rescued by the
next. In the rows with contests, tasks come in contests of 1 to 9 and the p_i of a contest share a
part of their spread, so that outcomes within it correlate by about 0.1. An arm with a gain also
rescues a share of what it would have missed.

Rows in brackets are not what the report does: they show why it does not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaln
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import equal_cost
import sequential
import stats
from equal_cost import Course, cost_ratio, equal_spend
from power import Design, label_p_values

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
    """Draws the chances of n tasks, with their contests or independent of each other.

    alike: all tasks have the same chance, the rate.
    """

    def __init__(
        self,
        generator: np.random.Generator,
        contests: bool,
        n: int = N,
        rate: float = RATE,
        *,
        alike: bool = False,
    ) -> None:
        self.alike = alike
        self.generator, self.contests, self.n, self.rate = generator, contests, n, rate
        self.total = spread()

    def chances(self) -> tuple[Floats, Labels]:
        rate = self.rate
        if self.alike:
            return np.full(self.n, rate), None
        if not self.contests:
            return self.generator.beta(rate * self.total, (1 - rate) * self.total, self.n), None
        sizes = 1 + self.generator.binomial(8, 0.45, self.n)
        labels = np.repeat(np.arange(self.n), sizes)[: self.n]
        # A contest's mean is itself beta: correlation 0.1 of outcomes between its tasks.
        outer = 1 / 0.1 - 1
        means = self.generator.beta(rate * outer, (1 - rate) * outer, self.n)[labels]
        means = np.clip(means, 1e-9, 1 - 1e-9)
        return self.generator.beta(means * self.total, (1 - means) * self.total), labels.tolist()

    def run(self, chances: Floats, gain: float = 0.0) -> list[int]:
        """One run; an arm with a gain also rescues that share of what it would have missed."""
        rescued = self.generator.random(self.n) < chances + gain * (1 - chances)
        return [int(value) for value in rescued]


def plain_percentile(values: Sequence[float], labels: Labels) -> tuple[float, float]:
    """The bootstrap without help for few discordant tasks and few clusters."""
    sums, sizes = stats.by_cluster(np.asarray(values, dtype=np.float64), labels)
    if stats._spreadless(sums, sizes):
        return 0.0, 0.0
    low, high = np.quantile(stats._bootstrap(sums, sizes, 0), (0.025, 0.975))
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
        yield {
            "BCa": (estimate.low, estimate.high),
            "[percentile]": plain_percentile(values, labels),
            "Wilson": (estimate.wilson_low, estimate.wilson_high),
        }


def differences(
    world: World, repeats: int, gain: float
) -> Iterable[dict[str, tuple[float, float]]]:
    for _ in range(repeats):
        chances, labels = world.chances()
        controls = [world.run(chances) for _ in range(3)]
        treated = world.run(chances, gain)
        delta = stats.paired_delta(controls[0], treated, clusters=labels)
        mean = [sum(values) / 3 for values in zip(*controls, strict=True)]
        several = stats.paired_delta(mean, treated, runs=3, clusters=labels)
        paired = [b - a for a, b in zip(controls[0], treated, strict=True)]
        yield {
            "against one run": (delta.low, delta.high),
            "[plain percentile]": plain_percentile(paired, labels),
            "against 3 runs": (several.low, several.high),
            "one-sided 95% above": (-1.0, several.upper),
        }


def show_rates(generator: np.random.Generator, repeats: int) -> None:
    rows: list[tuple[str, ...]] = []
    for name, contests, n in (("independent", False, N), ("contests", True, N), ("25", True, 115)):
        label = f"rate 7%, {name if n == N else 'about 25 contests'}"
        rows += coverage(label, rates(World(generator, contests, n), repeats), RATE)
    print(f"rates, n = {N}, {repeats} repeats; 95% intervals\n")
    table(("truth", "interval", "holds it", "is below", "is above"), rows)


def show_deltas(generator: np.random.Generator, repeats: int) -> None:
    rows: list[tuple[str, ...]] = []
    for name, contests, n in (("independent", False, N), ("contests", True, N), ("25", True, 115)):
        world = World(generator, contests, n)
        for gain in (0.0, 0.01, 0.05):
            truth = gain * (1 - RATE)
            label = f"{100 * truth:+.1f} points, {name if n == N else 'about 25 contests'}"
            rows += coverage(label, differences(world, repeats, gain), truth)
    print(f"differences, n = {N} (115 in 25 contests), {repeats} repeats; 95% intervals\n")
    table(("truth", "interval", "holds it", "is below", "is above"), rows)


def sampled_sign_flip(differences: Floats, generator: np.random.Generator) -> float:
    """The test that is not valid for the mean of several runs."""
    values, counts = np.unique(np.abs(differences), return_counts=True)
    flips = (2 * generator.binomial(counts, 0.5, size=(1000, len(values))) - counts) @ values
    return float((1 + (np.abs(flips) >= abs(differences.sum()) - 1e-9).sum()) / 1001)


ALARMS = (
    "p of one arm under 5%: primary test",
    "[p of one arm under 5%: sign flips of the mean]",
    "p of one arm under 5%: one run",
    "any of 3 arms is called different",
    "[any of 3 arms, with the published band as a gate]",
    "delta of two runs beyond the published band",
    "delta of two runs beyond the band within tasks",
    "check of round 0 under 1%",
)


def false_alarms(world: World, repeats: int, runs: int) -> dict[str, float]:
    """Shares of repeats in which arms that do not differ from resample seem to."""
    counts = dict.fromkeys(ALARMS, 0)
    for _ in range(repeats):
        chances, labels = world.chances()
        controls = [world.run(chances) for _ in range(runs)]
        arms = [world.run(chances) for _ in range(3)]
        mean = [sum(values) / runs for values in zip(*controls, strict=True)]
        against = [stats.paired_delta(mean, arm, runs=runs, clusters=labels) for arm in arms]
        single = [stats.paired_delta(controls[0], arm, clusters=labels) for arm in arms]
        band = stats.noise_band([sum(run) / world.n for run in controls]).band
        gap = np.subtract(arms[0], mean)
        starts = [world.run(chances / 2) for _ in range(runs + 3)]
        found = (
            against[0].p_value < 0.05,
            sampled_sign_flip(np.round(gap, 12), world.generator) < 0.05,
            single[0].p_value < 0.05,
            called(against),
            called(single, band),
            abs(single[0].delta) > band,
            abs(single[0].delta) > stats.within_task_band(controls),
            stats.same_rates(starts) < 0.01,
        )
        for name, value in zip(ALARMS, found, strict=True):
            counts[name] += value
    return {name: count / repeats for name, count in counts.items()}


def called(deltas: Sequence[stats.Delta], band: float = 0.0) -> bool:
    """Whether the report calls any of the arms different."""
    adjusted = stats.holm([delta.p_value for delta in deltas])
    return any(
        p < 0.05 and (d.low > 0 or d.high < 0) and abs(d.delta) > band
        for d, p in zip(deltas, adjusted, strict=True)
    )


def show_alarms(generator: np.random.Generator, repeats: int) -> None:
    found = [
        (f"{name}, {runs} runs", false_alarms(world, repeats, runs))
        for name, world, runs in (
            ("7%", World(generator, False), 3),
            ("contests", World(generator, True), 3),
            ("7%", World(generator, False), 2),
            ("1% each", World(generator, False, rate=0.01, alike=True), 3),
            ("1% each", World(generator, False, rate=0.01, alike=True), 6),
        )
    ]
    print(f"no arm differs from resample ({repeats} repeats): how often it seems so\n")
    table(
        ("", *(name for name, _ in found)),
        [(name, *(f"{shares[name]:.1%}" for _, shares in found)) for name in ALARMS],
    )


def show_power(generator: np.random.Generator, repeats: int) -> None:
    """How often +5 points are called "more" by a single arm, with more and more repeats."""
    gain, total = 0.05, spread()
    n = stats.holdout_size(RATE, gain)
    world = World(generator, contests=False, n=n)
    rows = []
    for repeats_of_resample in range(4):
        runs, new, old = 1 + repeats_of_resample, 0, 0
        for _ in range(repeats // 2):
            chances, _ = world.chances()
            controls = [world.run(chances) for _ in range(runs)]
            treated = world.run(chances, gain / (1 - RATE))
            mean = [sum(values) / runs for values in zip(*controls, strict=True)]
            new += called([stats.paired_delta(mean, treated, runs=runs)])
            band = 0.0
            if runs > 1:
                band = stats.noise_band([sum(run) / n for run in controls]).band
            old += called([stats.paired_delta(controls[0], treated)], band)
        design = Design(RATE, 1 / (total + 1), runs, 0.05)
        promised = design.power(n, gain)
        shares = [f"{x / (repeats // 2):.1%}" for x in (old, new)]
        needed = [f"{design.tasks(wanted)}" for wanted in (gain, 0.03)]
        rows.append((f"{repeats_of_resample}", *shares, f"{promised:.1%}", *needed))
    print(
        f"a true gain of 5 points on {n} tasks, the published formula's number: said to be more\n"
    )
    table(
        ("repeats of resample", "[band as a gate]", "primary test", "power.py promises",
         "tasks for +5", "tasks for +3"), rows,
    )  # fmt: skip


def course(world: World, chances: Floats, gain: float = 0.0) -> Course:
    """Three rounds of 8 samples; a task's prompt and replies are of any length."""
    each = 1 - (1 - np.clip(chances + gain * (1 - chances), 0, 1)) ** (1 / 3)
    hits = world.generator.random((world.n, 3)) < each[:, None]
    rounds = np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, 3)
    price = world.generator.lognormal(0, 0.3, (world.n, 3)) * 8
    tokens = [row[:count].tolist() for row, count in zip(price, rounds, strict=True)]
    return Course(tokens, hits.any(axis=1).tolist())


def show_bill(generator: np.random.Generator, repeats: int) -> None:
    """Equal arms at an equal bill: bias and coverage, and how far apart two equal arms come out."""
    repeats //= 4
    equal_cost.DRAWS = 500
    rows = []
    for name, contests in (("independent", False), ("contests", True)):
        world, held, ratio_held, pooled_held = World(generator, contests), 0, 0, 0
        deltas, ratios = [], []
        for _ in range(repeats):
            chances, labels = world.chances()
            runs = [course(world, chances) for _ in range(3)]
            arm = course(world, chances)
            found = equal_spend(runs[0].then(runs[1]).then(runs[2]), arm, clusters=labels)
            held += found.low <= 0 <= found.high
            deltas.append(found.delta)
            for count in (1, 3):
                ratio = cost_ratio(runs[:count], arm, clusters=labels)
                inside = ratio is None or (ratio.low or 0) <= 1 <= (ratio.high or np.inf)
                ratio_held += inside and count == 1
                pooled_held += inside and count == 3
                if count == 1 and ratio:
                    ratios.append(max(ratio.ratio, 1 / ratio.ratio))
        rows.append((name, f"{100 * np.mean(deltas):+.2f}", f"{held / repeats:.1%}",
                     f"{ratio_held / repeats:.1%}", f"{pooled_held / repeats:.1%}",
                     f"{np.mean(np.array(ratios) > 1.5):.1%}"))  # fmt: skip
    print(f"two equal arms at an equal bill ({repeats} repeats)\n")
    table(
        ("", "mean delta", "interval holds 0", "ratio's holds 1", "of 3 runs", "1.5 times apart"),
        rows,
    )


def show_start(generator: np.random.Generator, repeats: int) -> None:
    """Arms that share their round 0 (--common-start): validity, variance and power."""
    total = spread()

    def outcomes(common: bool, gain: float, n: int, runs: int) -> tuple[NDArray[np.int_], ...]:
        chances = generator.beta(RATE * total, (1 - RATE) * total, (repeats, n))
        h = 1 - (1 - chances) ** (1 / 3)
        arms = []
        for number in range(runs + 1):
            later = 1 - (1 - h) ** 2
            if number == runs:  # the gain comes from the rounds that are informed
                later = later + gain / (1 - RATE) * (1 - later)
            if not arms or not common:
                start = generator.random((repeats, n)) < h
            arms.append((start | (generator.random((repeats, n)) < later)).astype(int))
        return sum(arms[:-1]), arms[-1]  # type: ignore[return-value]

    rows = []
    for name, common in (("own starts", False), ("common start", True)):
        controls, treated = outcomes(common, 0.0, N, 3)
        single, again = outcomes(common, 0.0, N, 1)
        alarms = (p_values(controls, treated, 3) < 0.05).mean()
        variance = float((again - single).mean(axis=1).var())
        size = next(
            n for n in range(60, 600, 10)
            if (p_values(*outcomes(common, 0.05, n, 3), 3) < 0.05).mean() >= 0.8
        )  # fmt: skip
        samples = size * (4 * 24 if not common else 8 + 4 * 16)
        rows.append((name, f"{alarms:.1%}", f"{1e4 * variance:.2f}", f"{size}", f"{samples:,}"))
    print(f"--common-start: resample, two repeats and an arm ({repeats} repeats)\n")
    table(
        ("", "p under 5%, no difference", "variance of a delta x 10^4", "tasks for +5, power 80%",
         "samples at most"), rows,
    )  # fmt: skip


def p_values(controls: NDArray[np.int_], treated: NDArray[np.int_], runs: int) -> Floats:
    """Exact p of many data sets: arrays of data sets x tasks."""
    rescued = controls + treated
    tasks = np.stack([(rescued == r).sum(axis=1) for r in range(1, runs + 1)], axis=1)
    inside = (rescued > 0) & (rescued <= runs)
    return label_p_values(tasks, (treated * inside).sum(axis=1))


def looked_at(
    generator: np.random.Generator, repeats: int, looks: int, n: int, gain: float, runs: int
) -> tuple[float, ...]:
    """Shares called more, fewer and futile, tasks saved; and called more by looking at 1.96."""
    total = spread()
    chances = generator.beta(RATE * total, (1 - RATE) * total, (repeats, n))
    controls = (generator.random((runs, repeats, n)) < chances).sum(axis=0)
    chances += gain / (1 - RATE) * (1 - chances)
    treated = (generator.random((repeats, n)) < chances).astype(int)
    fractions = [j / looks for j in range(1, looks + 1)]
    ends = [round(n * fraction) for fraction in fractions]
    bounds = sequential.bounds(fractions, information=ends)
    done, naive = np.zeros(repeats, bool), np.zeros(repeats, bool)
    said = {word: np.zeros(repeats, bool) for word in ("more", "fewer", "futile")}
    used = np.full(repeats, float(n))
    for fraction, end, bound in zip(fractions, ends, bounds, strict=True):
        p = p_values(controls[:, :end], treated[:, :end], runs)
        delta = (treated[:, :end] - controls[:, :end] / runs).sum(axis=1)
        z = np.sign(delta) * norm.isf(np.maximum(p, 1e-15) / 2)
        naive |= z > 1.96
        power = np.array([sequential.conditional_power(x, fraction, bounds[-1]) for x in z])
        now = {"more": z >= bound, "fewer": z <= -bound,
               "futile": (power < sequential.FUTILE) & (end < n) & (np.abs(z) < bound)}  # fmt: skip
        for word, which in now.items():
            said[word] |= which & ~done
            used[which & ~done] = end
        done |= now["more"] | now["fewer"] | now["futile"]
    return (
        *(float(x.mean()) for x in said.values()),
        1 - float(used.mean()) / n,
        float(naive.mean()),
    )


def show_looks(generator: np.random.Generator, repeats: int) -> None:
    rows = []
    rho = 1 / (spread() + 1)
    for runs in (1, 3):
        n = next(
            n for n in range(100, 1000, 4)
            if Design(RATE, rho, runs, 0.05).power(n, 0.05) >= sequential.PLANNED_POWER
        )  # fmt: skip
        for looks in (1, 3, 4, 5):
            for gain in (0.0, 0.05):
                more, fewer, futile, saved, naive = looked_at(
                    generator, 2 * repeats, looks, n, gain, runs
                )
                shares = [f"{x:.1%}" for x in (more, fewer, futile, saved, naive)]
                rows.append((f"{runs}", f"{n}", f"{looks}", f"{100 * gain:+.0f}", *shares))
    print(f"--looks K --stop-when-decided, one arm ({2 * repeats} repeats)\n")
    table(
        ("control runs", "tasks", "looks", "gain", "more", "fewer", "futile", "tasks saved",
         "[more, at 1.96 each look]"), rows,
    )  # fmt: skip


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    cells.insert(1, ["-" * width for width in widths])
    for row in cells:
        print("| " + " | ".join(f"{c:{w}}" for c, w in zip(row, widths, strict=True)) + " |")
    print(flush=True)


PARTS: dict[str, Callable[[np.random.Generator, int], None]] = {
    "rates": show_rates,
    "deltas": show_deltas,
    "alarms": show_alarms,
    "power": show_power,
    "bill": show_bill,
    "start": show_start,
    "looks": show_looks,
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Coverage and false alarms, by simulation.")
    parser.add_argument("--repeats", type=int, default=2000, help="simulated runs (default: 2000)")
    parser.add_argument(
        "--only", default=",".join(PARTS), help=f"parts (default: {','.join(PARTS)})"
    )
    args = parser.parse_args(argv)
    stats.DRAWS = 1000  # a tenth of what a report takes: bounds a little noisier, not shifted
    stats.ARRANGEMENTS = 500
    for part in args.only.split(","):
        PARTS[part](np.random.default_rng(0), args.repeats)


if __name__ == "__main__":
    main()
