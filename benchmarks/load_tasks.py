"""Our loader against `pq.read_table(path).to_pylist()`: wall time and peak memory.

Builds a parquet file of the shape of CodeContests' test split (165 rows in one row group,
thousands of solutions a row, generated cases of up to some megabytes a row) in a temporary
folder, then loads it in a fresh process a way. Peak memory is the process's largest resident
size, the interpreter and pyarrow included; what they take alone is printed beside it.
Then the same problems in other formats and kinds of files.

    python benchmarks/load_tasks.py
    python benchmarks/load_tasks.py --train       13,328 rows: the size of the train split
    python benchmarks/load_tasks.py --own 20000   JSON lines of so many own tasks of 100 kB each
"""

from __future__ import annotations

import argparse
import gzip
import json
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


def make_row(
    number: int,
    rng: random.Random,
    programs: int = 2000,
    sizes: tuple[int, ...] = (100, 1000, 5000, 40_000),
) -> dict[str, Any]:
    """One row, some megabytes of it: so many right and wrong programs of 0.2 to 1.5 kB each."""
    noise = rng.randbytes(400_000).hex()  # texts are cut out of it, so that no two are equal

    def text(size: int) -> str:
        start = rng.randrange(len(noise))
        return noise[start : start + size] + noise[: max(0, start + size - len(noise))]

    def tests(count: int, size: int) -> dict[str, list[str]]:
        return {
            "input": [text(rng.randint(1, size)) for _ in range(count)],
            "output": [text(rng.randint(1, 1 + size // 10)) for _ in range(count)],
        }

    def written(count: int) -> dict[str, list[Any]]:
        return {
            "language": [rng.randint(1, 4) for _ in range(count)],
            "solution": [text(rng.randint(200, 1500)) for _ in range(count)],
        }

    return {
        "name": f"{1500 + number // 6}_{'ABCDEF'[number % 6]}. Problem {number}",
        "description": text(2500),
        "public_tests": tests(2, 50),
        "private_tests": tests(10, 500),
        "generated_tests": tests(rng.randint(60, 200), rng.choice(sizes)),
        "solutions": written(programs),
        "incorrect_solutions": written(programs),
        "cf_contest_id": 1500 + number // 6,
        "cf_rating": rng.choice([0, 800, 1600, 2400]),
        "input_file": "",
        "output_file": "",
    }


def make_own(number: int, rng: random.Random, noise: str, size: int) -> dict[str, Any]:
    """A row of this project's own format, about `size` bytes of it in 40 cases."""

    def case() -> dict[str, str]:
        start = rng.randrange(len(noise) - size // 40)
        return {"input": noise[start : start + size // 40], "output": f"{start}\n"}

    return {
        "id": f"task-{number}",
        "statement": f"Problem {number}",
        "visible": [case() for _ in range(8)],
        "hidden": [case() for _ in range(32)],
    }


def build_own(path: Path, rows: int, seed: int, size: int = 100_000) -> None:
    rng = random.Random(seed)
    noise = rng.randbytes(1 << 20).hex()
    with path.open("w") as file:
        for number in range(rows):
            file.write(json.dumps(make_own(number, rng, noise, size)) + "\n")


def build_formats(folder: Path, rows: int, seed: int) -> None:
    """The same own tasks as JSON lines, squeezed, as parquet, and as TACO's rows."""
    build_own(folder / "own.jsonl", rows, seed)
    data = (folder / "own.jsonl").read_bytes()
    own = [json.loads(line) for line in data.splitlines()]
    (folder / "own.jsonl.gz").write_bytes(gzip.compress(data, 1))
    (folder / "own.jsonl.zst").write_bytes(pa.Codec("zstd").compress(data, asbytes=True))
    (folder / "own.json").write_text(json.dumps(own))
    pq.write_table(pa.Table.from_pylist(own), folder / "own.parquet")
    with (folder / "taco.jsonl").open("w") as file:
        for row in own:
            cases = [*row["visible"], *row["hidden"]]
            pairs = {f"{side}s": [case[side] for case in cases] for side in ("input", "output")}
            taco = {"question": row["statement"], "input_output": json.dumps(pairs)}
            file.write(json.dumps(taco) + "\n")


def build_train(folder: Path, shards: int, rows: int, seed: int) -> None:
    """Shards of the train split's shape: fewer programs a row than in test, more rows."""
    rng = random.Random(seed)
    for shard in range(shards):
        made = []
        for i in range(rows):
            row = make_row(shard * rows + i, rng, programs=20, sizes=(50, 100, 500, 2000))
            made.append(pa.Table.from_pylist([row], schema=SCHEMA))
        pq.write_table(pa.concat_tables(made), folder / f"train-{shard:05}-of-{shards:05}.parquet")


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


def in_child(call: str) -> None:
    """Build in a child, so that what that takes can't be inherited by what is measured."""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); import load_tasks as b"
    subprocess.run([sys.executable, "-c", f"{code}; b.{call}"], check=True)


def show(name: str, seconds: float, peak: float) -> None:
    print(f"{name:26} {seconds:8.2f} s {peak:8.0f} MiB peak", flush=True)


def large(path: Path, what: str) -> None:
    files = path.iterdir() if path.is_dir() else [path]
    print(f"{what}, {sum(file.stat().st_size for file in files) / 1e6:,.0f} MB on disk")
    show("load_tasks", *measure(WAYS["load_tasks"], path))
    show("load_tasks(limit=300)", *measure("load_tasks(path, limit=300)", path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=165, help="rows of the file (default: 165)")
    parser.add_argument("--seed", type=int, default=0, help="seed of its content (default: 0)")
    parser.add_argument("--train", action="store_true", help="13,328 rows in shards, instead")
    parser.add_argument("--own", type=int, default=0, help="JSON lines of so many, instead")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.train:
            in_child(f"build_train(b.Path({name!r}), 34, 392, {args.seed})")
            large(folder, "13,328 rows")
            return
        if args.own:
            path = folder / "own.jsonl"
            in_child(f"build_own(b.Path({str(path)!r}), {args.own}, {args.seed})")
            large(path, f"{args.own:,} own tasks")
            return
        path = folder / "shape.parquet"
        in_child(f"build(b.Path({str(path)!r}), {args.rows}, {args.seed})")
        print(f"{args.rows} rows, {path.stat().st_size / 1e6:.0f} MB on disk")
        results = {name: measure(load, path) for name, load in WAYS.items()}
        for way, measured in results.items():
            show(way, *measured)
        naive, ours = results["read_table().to_pylist()"], results["load_tasks"]
        print(f"time {naive[0] / ours[0]:.1f} x less, peak memory {naive[1] / ours[1]:.1f} x less")
        formats = folder / "formats"
        formats.mkdir()
        in_child(f"build_formats(b.Path({str(formats)!r}), {args.rows}, {args.seed})")
        print(f"{args.rows} tasks of 100 kB in other formats and kinds of files")
        for file in sorted(formats.iterdir()):
            show(file.name, *measure(WAYS["load_tasks"], file))


if __name__ == "__main__":
    main()
