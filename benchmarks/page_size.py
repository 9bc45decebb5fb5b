"""The page of a large run: its size, how fast it is written, opened and filtered.

    python benchmarks/page_size.py                        35,000 rollouts
    python benchmarks/page_size.py --rollouts 200000

Writes a journal of toy programs with random edits, the swarms' prompts as a run sends them; a new
process writes the page from it, as --reuse does. Where chromium, its driver and selenium are
there, a browser opens the page.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import report
from data import Task, load_tasks
from journal import Journal
from judge import Failure, Judgement
from policy import Reply
from report import Saved
from swarm import (
    Key,
    Prompts,
    Rollout,
    Shape,
    TaskFacts,
    derive_seed,
    hash_messages,
    what_is_seen,
)
from toy import replies

ARMS = ("resample", "solo", "ring", "star")
SHAPE, PROMPTS = Shape(), Prompts(Path(__file__).parents[1] / "prompts")
RESCUED = 0.1  # share of the searches, in their last round, so that each has all its rollouts


def tasks_of(count: int) -> Iterator[Task]:
    toys = load_tasks("toy").tasks
    for number in range(count):
        toy = toys[number % len(toys)]
        yield replace(toy, id=f"{toy.id}-{number}", contest=str(number))


def written() -> list[str]:
    return [row[0] for rows in replies().values() for row in rows if "```" in row[0]]


def edited(program: str, rng: random.Random) -> str:
    """About a thousand characters with a word in ten of a program's own words changed."""
    words = (program * (1 + 1000 // len(program))).split(" ")
    return " ".join(
        word if rng.random() < 0.9 else f"{rng.choice(words)}_{rng.randrange(1000)}"
        for word in words
    )


def write(folder: Path, rollouts: int) -> int:
    """A journal of so many rollouts; its bytes."""
    rng, texts = random.Random(0), written()
    each = SHAPE.group + len(ARMS) * SHAPE.samples
    with Journal.open(folder, {"seed": 0}) as journal:
        for task in tasks_of(-(-rollouts // each)):
            journal.add_task(TaskFacts.of(task, PROMPTS.fresh(task)), PROMPTS.fresh(task))
            for arm in ("base", *ARMS):
                rescued = arm != "base" and rng.random() < RESCUED
                past: list[list[Rollout]] = []
                for number in range(1 if arm == "base" else SHAPE.rounds):
                    accepted = rescued and number == SHAPE.rounds - 1
                    past.append(one_round(arm, task, past, accepted, texts, rng))
                    for rollout in past[-1]:
                        journal.append(rollout)
        return journal.path.stat().st_size


def one_round(
    arm: str,
    task: Task,
    past: Sequence[Sequence[Rollout]],
    accepted: bool,
    texts: Sequence[str],
    rng: random.Random,
) -> list[Rollout]:
    found = []
    seen = what_is_seen("resample" if arm == "base" else arm, task.id, past, 0, SHAPE.group)
    total = len(task.visible)
    for particle in range(SHAPE.group):
        key = Key(arm, task.id, len(past), particle)
        program = edited(rng.choice(texts), rng)
        won = accepted and particle == 0
        passed = total if won else rng.randrange(total)
        failure = None if won else Failure(passed, False, "wrong answer", "1 2 3", "4", "5")
        verdict = "accepted" if won else "wrong answer"
        judgement = Judgement(verdict, passed, total, 0, len(task.hidden), failure, 0.1)
        reply = Reply(f"```python\n{program}\n```", "", "stop", None, 700, 300, None, 1.0)
        sent = hash_messages(PROMPTS.informed(task, *seen[particle]))
        found.append(Rollout(key, derive_seed(0, key), sent, reply, program, judgement))
    return found


def memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def write_page(folder: Path, megabytes: float) -> None:
    """In a process of its own: the page from the journal, with seconds and memory."""
    started = time.perf_counter()
    with Journal.read(folder) as journal:
        read = time.perf_counter() - started
        tasks = {task.id: task for task in tasks_of(len(journal.facts))}
        results = report.build(
            facts=journal.facts,
            records=journal.records,
            checks={},
            load=None,
            settings={"policy": "endpoint"},
            environment={},
            arms=ARMS,
            noise_runs=0,
            band="all-fail",
            times={},
            seed=0,
        )
        saved = Saved(
            facts=journal.facts,
            records=journal.records,
            rollout=journal.get,
            fresh=journal.fresh_messages,
            tasks=tasks,
            prompts=PROMPTS,
            arms=ARMS,
            shape=SHAPE,
            seed=0,
            sound={},
        )
        before, started = memory("VmRSS"), time.perf_counter()
        page = report.write_page(results, saved, folder, megabytes=megabytes, finished=True)
        seconds = time.perf_counter() - started
    print(
        f"page of {page.stat().st_size / 1e6:.1f} MB, {page.stat().st_size / journal.saved:.0f} "
        f"bytes a rollout, written in {seconds:.1f} s (the journal read in {read:.1f} s); the "
        f"process took at most {memory('VmHWM') / 2**20:.0f} MiB, {before / 2**20:.0f} before"
    )


def look(folder: Path) -> None:
    """Open and filter the page in a browser."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    try:
        from selenium import webdriver
    except ImportError:
        browser = None
    if not (browser and driver):
        print("no browser: install chromium, chromium-driver and selenium to see it opened")
        return
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-background-networking"):
        options.add_argument(f"--{flag}")
    with webdriver.Chrome(options, webdriver.ChromeService(driver)) as chrome:
        chrome.get((folder / "report.html").as_uri() + "#/tasks")
        opened = chrome.execute_script(
            "const n = performance.getEntriesByType('navigation')[0];"
            "return [n.domContentLoadedEventEnd, n.loadEventEnd]"
        )
        filtered = chrome.execute_script(
            "const e = document.getElementById('won'), times = [];"
            "for (const arm of [...e.options].map((o) => o.value).concat('')) {"
            "  const start = performance.now(); e.value = arm;"
            "  e.dispatchEvent(new Event('input'));"
            "  document.body.getBoundingClientRect(); times.push(performance.now() - start); }"
            "return [Math.max(...times), document.getElementById('count').textContent]"
        )
    print(
        f"opened in {opened[1] / 1000:.2f} s (its document in {opened[0] / 1000:.2f} s), filtered "
        f"and laid out in at most {filtered[0]:.0f} ms ({filtered[1]})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The page of a large run.")
    parser.add_argument("--rollouts", type=int, default=35_000, help="(default: 35000)")
    parser.add_argument("--page-mb", type=float, default=25.0, help="(default: 25)")
    parser.add_argument("--page-of", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.page_of:
        write_page(options.page_of, options.page_mb)
        return
    with tempfile.TemporaryDirectory() as folder:
        size = write(Path(folder), options.rollouts)
        print(f"journal of {size / 1e6:,.0f} MB", flush=True)
        command = [sys.executable, __file__, "--page-mb", str(options.page_mb)]
        subprocess.run([*command, "--page-of", folder], check=True)
        look(Path(folder))


if __name__ == "__main__":
    main()
