"""Agreement of stats.py with the public package whileai 0.131 on random data.

    pip install whileai==0.131 && python benchmarks/agreement.py

whileai is not a dependency: without it the benchmark says so and ends. Its bootstrap and sign-flip
test take 2,000 draws, so that its bounds agree within two steps of 1/223 and its p-values within
0.02 of the exact ones; everything else agrees to the 4 digits that it keeps.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import stats

TASKS, ROLLOUTS, REPEATS = 223, 8, 20

Rows = list[dict[str, Any]]


def rows(passes: Any) -> Rows:
    """Rollouts as whileai reads them, from a boolean array of tasks x rollouts."""
    return [
        {"task_id": f"task {task}", "reward": int(value)}
        for task, group in enumerate(passes)
        for value in group
    ]


def main() -> None:
    try:
        import whileai.simulations as wai  # type: ignore[import-not-found]
    except ImportError:
        print("whileai is not installed: skipped (pip install whileai==0.131)")
        return
    generator = np.random.default_rng(0)
    gaps: dict[str, float] = {}

    def gap(name: str, ours: float, theirs: float) -> None:
        gaps[name] = max(gaps.get(name, 0.0), abs(ours - theirs))

    for repeat in range(REPEATS):
        chances = generator.beta(0.3, 0.9, TASKS)[:, None]
        groups = generator.random((TASKS, ROLLOUTS)) < chances
        for k in range(4, ROLLOUTS + 1):
            ours = np.mean([stats.pass_at_k(ROLLOUTS, int(c), k) for c in groups.sum(axis=1)])
            gap("pass@k", float(ours), wai.pass_at(rows(groups), k=k).pass_at_k)

        runs = [generator.random((TASKS, 1)) < chances for _ in range(4)]
        outcomes = [[int(x) for x in run[:, 0]] for run in runs]
        delta = stats.paired_delta(outcomes[0], outcomes[1])
        theirs = wai.compare_runs(rows(runs[0]), rows(runs[1]), seed=repeat)
        gap("delta", delta.delta, theirs["delta"])
        gap("delta, interval bounds", delta.low, theirs["ci95"][0])
        gap("delta, interval bounds", delta.high, theirs["ci95"][1])
        gap("p-value, exact and sampled", delta.p_value, theirs["p_value"])

        noise = stats.noise_band([sum(run) / TASKS for run in outcomes[:3]])
        found = wai.eval_variance(*map(rows, runs[:3]))
        gap("standard deviation of runs", noise.std, found["run_std"])
        gap("noise band", noise.band, found["noise_band"])

        base, effect = float(generator.uniform(0.01, 0.5)), float(generator.uniform(0.02, 0.3))
        size = wai.holdout_size(effect, base=base, k=1)["n_tasks"]
        gap("holdout size", stats.holdout_size(base, effect), size)

    print(f"largest gap in {REPEATS} random data sets of {TASKS} tasks")
    for name, value in gaps.items():
        print(f"  {name:28}{value:.5f}")


if __name__ == "__main__":
    main()
