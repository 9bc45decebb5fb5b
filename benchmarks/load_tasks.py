"""Our loader against `pq.read_table(path).to_pylist()`: wall time and peak memory.

Builds a parquet file of the shape of CodeContests' test split (165 rows in one row group,
thousands of solutions a row, generated cases of up to some megabytes a row) in a temporary
folder, then loads it in a fresh process a way. Peak memory is the process's largest resident
size, the interpreter and pyarrow included; what they take alone is printed beside it.

    python benchmarks/load_tasks.py
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent

# Each prints the seconds of the load and the process's peak resident size in MiB.
MEASURE = """
import resource, sys, time
sys.path.insert(0, {root!r})
import pyarrow.parquet as pq
from data import load_tasks
path = sys.argv[1]
start = time.perf_counter()
loaded = {load}
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(seconds, peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))
"""
WAYS = {
    "imports alone": "None",
    "read_table().to_pylist()": "pq.read_table(path).to_pylist()",
    "load_tasks(extra=True)": "load_tasks(path, extra=True)",
    "load_tasks": "load_tasks(path)",
}

TESTS = pa.struct([("input", pa.list_(pa.string())), ("output", pa.list_(pa.string()))])
PROGRAMS = pa.struct([("language", pa.list_(pa.int64())), ("solution", pa.list_(pa.string()))])
SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("description", pa.string()),
        ("public_tests", TESTS),
        ("private_tests", TESTS),
        ("generated_tests", TESTS),
        ("solutions", PROGRAMS),
        ("incorrect_solutions", PROGRAMS),
        ("cf_contest_id", pa.int64()),
        ("cf_rating", pa.int32()),
        ("input_file", pa.string()),
        ("output_file", pa.string()),
    ]
)


def make_row(number: int, rng: random.Random) -> dict[str, Any]:
    """One row, some megabytes of it: 2,000 right and 2,000 wrong programs of 0.2 to 1.5 kB."""
    noise = rng.randbytes(400_000).hex()  # texts are cut out of it, so that no two are equal

    def text(size: int) -> str:
        start = rng.randrange(len(noise))
        return noise[start : start + size] + noise[: max(0, start + size - len(noise))]

    def tests(count: int, size: int) -> dict[str, list[str]]:
        return {
            "input": [text(rng.randint(1, size)) for _ in range(count)],
            "output": [text(rng.randint(1, 1 + size // 10)) for _ in range(count)],
        }

    def programs(count: int) -> dict[str, list[Any]]:
        return {
            "language": [rng.randint(1, 4) for _ in range(count)],
            "solution": [text(rng.randint(200, 1500)) for _ in range(count)],
        }

    return {
        "name": f"{1500 + number // 6}_{'ABCDEF'[number % 6]}. Problem {number}",
        "description": text(2500),
        "public_tests": tests(2, 50),
        "private_tests": tests(10, 500),
        "generated_tests": tests(rng.randint(60, 200), rng.choice([100, 1000, 5000, 40_000])),
        "solutions": programs(2000),
        "incorrect_solutions": programs(2000),
        "cf_contest_id": 1500 + number // 6,
        "cf_rating": rng.choice([0, 800, 1600, 2400]),
        "input_file": "",
        "output_file": "",
    }


def build(path: Path, rows: int, seed: int) -> None:
    rng = random.Random(seed)
    parts = [pa.Table.from_pylist([make_row(i, rng)], schema=SCHEMA) for i in range(rows)]
    pq.write_table(pa.concat_tables(parts), path, row_group_size=rows)


def measure(load: str, path: Path) -> tuple[float, float]:
    """Return seconds and peak MiB of a load in a process of its own."""
    code = MEASURE.format(root=str(ROOT), load=load)
    command = [sys.executable, "-c", code, str(path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, peak = map(float, output.split())
    return seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=165, help="rows of the file (default: 165)")
    parser.add_argument("--seed", type=int, default=0, help="seed of its content (default: 0)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "shape.parquet")
        # In a child, so that what building takes can't be inherited by what is measured.
        code = (
            f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); import load_tasks as b"
        )
        code += f"; b.build(b.Path({str(path)!r}), {args.rows}, {args.seed})"
        subprocess.run([sys.executable, "-c", code], check=True)
        print(f"{args.rows} rows, {path.stat().st_size / 1e6:.0f} MB on disk")
        results = {name: measure(load, path) for name, load in WAYS.items()}
    for name, (seconds, peak) in results.items():
        print(f"{name:26} {seconds:8.2f} s {peak:8.0f} MiB peak")
    naive, ours = results["read_table().to_pylist()"], results["load_tasks"]
    print(f"time {naive[0] / ours[0]:.1f} x less, peak memory {naive[1] / ours[1]:.1f} x less")


if __name__ == "__main__":
    main()
