"""How fast a journal is read back, and what it takes of memory.

    python benchmarks/replay.py            35,000 rollouts of 4 kB: the test and valid splits
    python benchmarks/replay.py --train    1,500,000 of 500 characters: the train split
    python benchmarks/replay.py --rollouts 1500000 --size 4000    25 GB of disk

Writes a journal as a run does (each reply before and after it is judged); then a new process each
reads it as --reuse does, opens it as a run does that goes on (which leaves out the replies that
were judged), and reads what that left.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
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
from settings import Config
from swarm import Key, Rollout, Shape, TaskFacts, derive_seed

SHAPE = Shape()

SETTINGS = {"seed": 0}
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
    with Journal.open(folder, SETTINGS) as journal:
        place = str(folder / "no-tasks.parquet")  # the page does without the tasks' cases
        config = {**Config().saved, "tasks": place}
        counts = {"source": "made", "read": rollouts, "kept": rollouts, "dropped": {}}
        journal.add_load({**counts, "config": config, "environment": {}})
        for number in range(-(-rollouts // len(places))):
            task = f"train/{number}_A"
            facts = TaskFacts(task, str(number), 1500, 9, 40, 1, "c" * 16, "m" * 16)
            journal.add_task(facts, [{"role": "user", "content": cut(1500)}])
            for arm, round_, particle in places:
                program = cut(size // 4)
                reply = Reply(
                    cut(size // 2) + program, "", "stop", None, 700, 900, None, rng.random()
                )
                key = Key(arm, task, round_, particle)
                seed = derive_seed(0, key)
                rollout = Rollout(key, seed, "m" * 16, reply, program, None)
                journal.append(rollout)
                journal.append(replace(rollout, judgement=judgement))
        return os.path.getsize(journal.path)


def memory(field: str) -> int:
    """VmRSS (now) or VmHWM (the most so far) of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def replay(folder: Path, goes_on: bool) -> None:
    before = memory("VmRSS")
    started, cpu = time.perf_counter(), time.process_time()
    how = "opened to go on" if goes_on else "read"
    with Journal.open(folder, SETTINGS) if goes_on else Journal.read(folder) as journal:
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        found = sum(map(len, journal.records.values()))
        after = memory("VmHWM")
    print(
        f"{os.path.getsize(journal.path) / 1e6:,.0f} MB, {found:,} rollouts {how} in "
        f"{seconds:.1f} s ({cpu:.1f} s of CPU); the process took at most {after / 2**20:.0f} MiB, "
        f"{before / 2**20:.0f} MiB of them for the imports: {(after - before) / found:.0f} bytes "
        "a rollout"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Read back a journal of a full run.")
    parser.add_argument("--rollouts", type=int, default=35_000, help="(default: 35000)")
    parser.add_argument("--size", type=int, default=4000, help="characters each (default: 4000)")
    parser.add_argument("--train", action="store_true", help="the train split's 1,500,000")
    parser.add_argument("--replay", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay:
        replay(Path(options.replay[0]), options.replay[1] == "open")
        return
    if options.train:
        options.rollouts, options.size = 1_500_000, 500
    with tempfile.TemporaryDirectory() as folder:
        size = write(Path(folder), options.rollouts, options.size)
        print(f"journal of {size / 1e6:,.0f} MB")
        for how in ("read", "open", "read"):
            subprocess.run([sys.executable, __file__, "--replay", folder, how], check=True)
        started = time.perf_counter()
        run = Path(__file__).parent.parent / "run.py"
        command = [sys.executable, str(run), "--reuse", "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"--reuse, with the page: {seconds:.1f} s, reading included; at most {most:.0f} MiB")


if __name__ == "__main__":
    main()
