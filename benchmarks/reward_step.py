"""What a training step waits for its rewards: reward.py against what trainers' own functions do.

    python benchmarks/reward_step.py TASKS [--replies 1024] [--group 8]

TASKS is a file of tasks with known solutions (any format that run.py reads). A step is a number
of replies, a group a prompt: of each group half are known solutions (each with another comment, so
that none is the same) and half are wrong in usual ways: a crash, a constant answer, nothing at all.
Three ways to score it, all over the same cases, with one worker a core:

    reward.py     this project's judge
    subprocess    a fresh `python` a case by subprocess.run, up to the first failure
    exec          exec in a pool of processes, up to the first failure: no sandbox, no limits

The last two compare outputs as reward.py does, and verdicts that differ are counted. They run on
`--sample` replies of the step, since they are slow, and reward.py on these too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import reward
from compare import same_output
from data import load_tasks
from sandbox.machine import cores

SECONDS = 6
WRONG = ("print(1 // 0)", "import sys\nsys.stdin.read()\nprint(0)", "x = 1")


def step(tasks, replies, group):
    """(program, inputs, outputs) of each reply, groups together."""
    made = []
    for number in range(replies):
        task = tasks[number // group % len(tasks)]
        own = WRONG[number % len(WRONG)] if number % 2 else task.solutions[0]
        cases = (*task.visible, *task.hidden)
        made.append((f"{own}\n# {number}\n", [c.input for c in cases], [c.output for c in cases]))
    return made


def with_subprocess(item):
    program, inputs, outputs = item
    for given, expected in zip(inputs, outputs, strict=True):
        try:
            done = subprocess.run(
                [sys.executable, "-c", program], input=given.encode(), capture_output=True,
                timeout=SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 0.0
        if done.returncode or not same_output(expected.encode(), done.stdout):
            return 0.0
    return 1.0


def with_exec(item):
    program, inputs, outputs = item
    try:
        code = compile(program, "program.py", "exec")
    except (SyntaxError, ValueError):
        return 0.0
    for given, expected in zip(inputs, outputs, strict=True):
        printed, before = io.StringIO(), sys.stdin
        sys.stdin = io.TextIOWrapper(io.BytesIO(given.encode()))
        try:
            with contextlib.redirect_stdout(printed):
                exec(code, {"__name__": "__main__"})
        except SystemExit:
            pass
        except BaseException:
            return 0.0
        finally:
            sys.stdin = before
        if not same_output(expected.encode(), printed.getvalue().encode()):
            return 0.0
    return 1.0


def in_pool(pool, function, made):
    begin = time.perf_counter()
    found = list(pool.map(function, made))
    return time.perf_counter() - begin, found


def with_reward(made):
    truths = [json.dumps({"inputs": inputs, "outputs": outputs}) for _, inputs, outputs in made]
    replies = [f"```python\n{program}\n```" for program, _, _ in made]
    begin = time.perf_counter()
    found = asyncio.run(reward.score(replies, truths))
    return time.perf_counter() - begin, [each.value for each in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks")
    parser.add_argument("--replies", type=int, default=1024)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--sample", type=int, default=256, help="replies of the slow ways")
    args = parser.parse_args()
    loaded = load_tasks(args.tasks, known=1).tasks
    tasks = [task for task in loaded if task.solutions]
    made = step(tasks, args.replies, args.group)
    few = made[: args.sample]
    count = cores()
    print(f"{args.replies} replies, {len(tasks)} tasks with a solution, {count} cores")
    print(reward.set_up())
    seconds, values = with_reward(made)
    print(f"reward.py   {args.replies:5d} replies {seconds:7.2f} s, {sum(values):.0f} accepted")
    ours, expected = with_reward([(f"{p}\n# again", i, o) for p, i, o in few])
    print(f"reward.py   {len(few):5d} replies {ours:7.2f} s")
    slow = {
        "exec": (ProcessPoolExecutor, with_exec),
        "subprocess": (ThreadPoolExecutor, with_subprocess),
    }
    for name, (kind, function) in slow.items():
        with kind(count) as pool:
            seconds, found = in_pool(pool, function, few)
        differ = sum(a != b for a, b in zip(found, expected, strict=True))
        ratio = f"{seconds / ours:.1f} x, {differ} verdicts differ"
        print(f"{name:11} {len(few):5d} replies {seconds:7.2f} s, {ratio}")


if __name__ == "__main__":
    main()
