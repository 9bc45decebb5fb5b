"""What a run says while it goes on: lines, a bar, early warnings."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from tqdm import tqdm

from data import Task
from policy.scripted import ScriptedPolicy
from report.words import duration
from settings import Config
from streams import STDERR
from swarm import Prompts, Record, cut_by_window

if TYPE_CHECKING:
    from policy.endpoint import Endpoint
    from policy.local import Local

tqdm.set_lock(threading.RLock())  # its default is for processes, and can start one


def say(text: str) -> None:
    """A line for the user, beside the report: it does not break the progress bar."""
    tqdm.write(text, file=STDERR)
    STDERR.flush()


def bar(total: int, unit: str, saved: int = 0) -> tqdm[NoReturn]:
    """A bar on a terminal, else nothing."""
    return tqdm(
        total=total,
        initial=saved,
        unit=f" {unit}",
        smoothing=0.05,
        dynamic_ncols=True,
        file=STDERR,
        disable=not STDERR.isatty(),
    )


class Facts:
    """Lines below a bar, each as long as the terminal is wide at most."""

    def __init__(self, lines: int) -> None:
        self._lines = [
            tqdm(
                position=1 + number,
                bar_format="{desc}",
                dynamic_ncols=True,
                leave=False,
                file=STDERR,
                disable=not STDERR.isatty(),
            )
            for number in range(lines)
        ]

    def show(self, *texts: str) -> None:
        for line, text in zip(self._lines, texts, strict=True):
            line.set_description_str(text)

    def close(self) -> None:
        for line in reversed(self._lines):
            line.close()


class Progress:
    """A bar and two lines of facts on a terminal, elsewhere a plain line every minute."""

    def __init__(
        self,
        planned: int,
        saved: int,
        policy: Endpoint | Local | ScriptedPolicy,
        group: int = 8,
        max_tokens: int = 2048,
    ) -> None:
        self.policy, self.group = policy, group
        self.rescued: Counter[str] = Counter()
        self.done = self.truncated = 0
        self.started = self.last_line = time.monotonic()
        self.terminal = STDERR.isatty()
        self.bar, self.facts = bar(planned, "rollouts", saved), Facts(2)
        self.total, self.saved = planned, saved
        self._rescued_tasks: set[tuple[str, str]] = set()
        self._groups: dict[str, list[int]] = {}  # reply hashes of the base groups under way
        self._complete = self._repetitive = self._longest = 0
        self.max_tokens, self._told_of_window = max_tokens, False
        self._warned = isinstance(policy, ScriptedPolicy)  # written replies repeat themselves

    def close(self) -> None:
        self.facts.close()
        self.bar.close()

    def skip(self, count: int) -> None:
        """`count` planned rollouts are not needed."""
        self.total -= count
        self.bar.total = self.total

    def add(self, record: Record) -> None:
        self.done += 1
        self.truncated += record.finish_reason == "length"
        self._look_at_the_window(record)
        place = (record.key.arm, record.key.task)
        if record.accepted and record.key.arm != "base" and place not in self._rescued_tasks:
            self._rescued_tasks.add(place)
            self.rescued[record.key.arm] += 1
        if record.key.arm == "base" and record.outcome is None:
            self._look_for_copies(record)
        shown = self.bar.update()
        now = time.monotonic()
        if shown:
            self.facts.show(self.rescues(), self.state(now))
        elif not self.terminal and now - self.last_line >= 60:
            self.last_line = now
            left = (self.total - self.saved - self.done) * (now - self.started) / self.done
            say(
                f"{self.saved + self.done} of at most {self.total} rollouts, {self.rescues()}, "
                f"{self.state(now)}, about {left / 60:.0f} min left"
            )

    def _look_at_the_window(self, record: Record) -> None:
        """Warn early of a window that cuts replies: the arms with longer prompts get less."""
        self._longest = max(self._longest, record.prompt_tokens or 0)
        if not cut_by_window(record, self.max_tokens) or self._told_of_window:
            return
        self._told_of_window = True
        say(
            f"WARNING: a reply was cut after {record.completion_tokens:,} tokens, and --max-tokens "
            f"is {self.max_tokens:,}: the server's window is too small for prompt and reply, and "
            "swarms, whose prompts are longer, get shorter replies than resample; give it a "
            f"window of {self._longest + 3 * self.max_tokens:,} tokens (a prompt that shows two "
            "programs, and the reply), or lower --max-tokens"
        )

    def _look_for_copies(self, record: Record) -> None:
        """Warn early of a server that ignores seeds; the report counts over all groups."""
        hashes = self._groups.setdefault(record.key.task, [])
        hashes.append(record.reply_hash)
        if len(hashes) < self.group:
            return
        self._complete += 1
        self._repetitive += 2 * len(set(self._groups.pop(record.key.task))) <= self.group
        if self._repetitive > max(2, self._complete / 4) and not self._warned:
            self._warned = True
            say(
                f"WARNING: in {self._repetitive} of {self._complete} base groups at most half of "
                "the replies differ: does the server cache, or ignore seeds or the temperature?"
            )

    def rescues(self) -> str:
        """Rescued tasks of each arm; those of the repeats side by side, which keeps it short."""
        arms = [arm for arm in self.rescued if not arm.startswith("noise-")]
        counts = [f"{arm} {self.rescued[arm]}" for arm in sorted(arms)]
        noise = sorted((int(arm[6:]), n) for arm, n in self.rescued.items() if arm not in arms)
        if noise:
            counts.append("noise " + "/".join(str(count) for _, count in noise))
        return f"rescues: {' '.join(counts) or 'none yet'}"

    def state(self, now: float) -> str:
        rate = self.policy.sampled / max(now - self.started, 1e-3)
        return (
            f"{'about ' * self.policy.estimated}{rate:.0f} tokens/s, "
            f"{self.truncated / self.done:.0%} truncated, "
            f"{self.policy.in_flight} in flight, {self.policy.retries} retries"
        )


def amount(tokens: float) -> str:
    return f"{tokens:,.0f}" if tokens < 1e6 else f"{tokens / 1e6:,.1f}M"


def plan_line(tasks: Sequence[Task], prompts: Prompts, config: Config) -> tuple[int, str]:
    """The most rollouts that the run can take, and a line that says so."""
    shape, arms = config.shape, len(config.all_arms)
    per_task = shape.most_rollouts(arms)
    shared = ", of which the arms share the first round" if shape.common_start else ""
    characters = sum(len(m["content"]) for task in tasks for m in prompts.fresh(task))
    calls = len(tasks) * per_task
    return calls, (
        f"planned at most: {calls:,} calls ({shape.group} a task, then {shape.samples} an arm on "
        f"the tasks that all {shape.group} fail{shared}), about "
        f"{amount(characters * per_task / 4)} prompt tokens "
        f"(fresh prompts; those of the swarms are longer) and at most "
        f"{amount(calls * config.max_tokens)} sampled"
    )


def time_line(seconds: float) -> str:
    """How long a run on this machine takes, of the seconds for full replies to every call.

    Replies that end early make up for the prompts, which are read besides.
    """
    return (
        f"that takes about {duration(seconds)} on this machine, and less where tasks pass; Ctrl-C "
        "stops it, and the same command goes on"
    )
