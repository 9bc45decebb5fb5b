"""How fast a journal is read back, and what it takes of memory.

    python benchmarks/replay.py                       35,000 rollouts of 4 kB
    python benchmarks/replay.py --rollouts 1500000 --size 500      the train split, shorter texts

Writes a journal as a run does (each reply before and after it is judged), reads it back in a new
process, and prints both.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from journal import Journal
from judge import Failure, Judgement
from policy import Reply
from swarm import Key, Rollout, Shape, TaskFacts

SHAPE = Shape()

WORDS = ["for", "i", "in", "range(n):", "print(x)", "\n", "we need", "the sum", '"', "a[i] +=", "é"]


def write(folder: Path, rollouts: int, size: int) -> int:
    """A journal of at least so many rollouts of `size` characters; its bytes."""
    rng = random.Random(0)
    text = " ".join(rng.choices(WORDS, k=3 * size))

    def cut(length: int) -> str:
        start = rng.randrange(len(text) - length)
        return text[start : start + length]

    places = [("base", 0, particle) for particle in range(SHAPE.group)]
    for arm in ("resample", "solo", "ring", "star"):
        places += [(arm, number, p) for number in range(SHAPE.rounds) for p in range(SHAPE.group)]
    failure = Failure(2, False, "wrong answer", "1 2", "3", "4")
    judgement = Judgement("wrong answer", 3, 9, 0, 40, failure, 0.25)
    with Journal.open(folder, {"seed": 0}) as journal:
        for number in range(-(-rollouts // len(places))):
            task = f"train/{number}_A"
            facts = TaskFacts(task, str(number), 1500, 9, 40, 1, "c" * 16, "m" * 16)
            journal.add_task(facts, [{"role": "user", "content": cut(1500)}])
            for arm, round_, particle in places:
                program = cut(size // 4)
                reply = Reply(
                    cut(size // 2) + program, "", "stop", None, 700, 900, None, rng.random()
                )
                key, seed = Key(arm, task, round_, particle), rng.getrandbits(53)
                rollout = Rollout(key, seed, "m" * 16, reply, program, None)
                journal.append(rollout)
                journal.append(replace(rollout, judgement=judgement))
        return os.path.getsize(journal.path)


def memory(field: str) -> int:
    """VmRSS (now) or VmHWM (the most so far) of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def read(folder: Path) -> None:
    before = memory("VmRSS")
    started, cpu = time.perf_counter(), time.process_time()
    with Journal.read(folder) as journal:
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        found = sum(map(len, journal.records.values()))
        after = memory("VmHWM")
    print(
        f"{found:,} rollouts read back in {seconds:.1f} s ({cpu:.1f} s of CPU); the process took "
        f"at most {after / 2**20:.0f} MiB, {before / 2**20:.0f} MiB of them for the imports: "
        f"{(after - before) / found:.0f} bytes a rollout"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Read back a journal of a full run.")
    parser.add_argument("--rollouts", type=int, default=35_000, help="(default: 35000)")
    parser.add_argument("--size", type=int, default=4000, help="characters each (default: 4000)")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read)
        return
    with tempfile.TemporaryDirectory() as folder:
        size = write(Path(folder), options.rollouts, options.size)
        print(f"journal of {size / 1e6:,.0f} MB")
        subprocess.run([sys.executable, __file__, "--read", folder], check=True)


if __name__ == "__main__":
    main()
