"""What a run says while it goes on: lines, a bar, early warnings."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tqdm import tqdm

from data import Task
from policy.scripted import ScriptedPolicy
from settings import Config
from swarm import Prompts, Record

if TYPE_CHECKING:
    from policy.endpoint import Endpoint

tqdm.set_lock(threading.RLock())  # its default is for processes, and can start one


def say(text: str) -> None:
    """A line for the user, beside the report: it does not break the progress bar."""
    tqdm.write(text, file=sys.stderr)


class Progress:
    """A bar on a terminal, elsewhere a plain line every minute."""

    def __init__(
        self, planned: int, saved: int, policy: Endpoint | ScriptedPolicy, group: int = 8
    ) -> None:
        self.policy, self.group = policy, group
        self.rescued: Counter[str] = Counter()
        self.done = self.truncated = self.tokens = 0
        self.started = self.last_line = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.bar = tqdm(total=planned, initial=saved, unit=" rollouts", smoothing=0.05,
                        dynamic_ncols=True, disable=not self.terminal)  # fmt: skip
        self.total, self.saved = planned, saved
        self._rescued_tasks: set[tuple[str, str]] = set()
        self._groups: dict[str, list[int]] = {}  # reply hashes of the base groups under way
        self._complete = self._repetitive = 0
        self._warned = isinstance(policy, ScriptedPolicy)  # written replies repeat themselves

    def skip(self, count: int) -> None:
        """`count` planned rollouts are not needed."""
        self.total -= count
        self.bar.total = self.total

    def add(self, record: Record) -> None:
        self.done += 1
        self.truncated += record.finish_reason == "length"
        self.tokens += record.completion_tokens or 0
        place = (record.key.arm, record.key.task)
        if record.accepted and record.key.arm != "base" and place not in self._rescued_tasks:
            self._rescued_tasks.add(place)
            self.rescued[record.key.arm] += 1
        if record.key.arm == "base" and record.outcome is None:
            self._look_for_copies(record)
        self.bar.update()
        now = time.monotonic()
        if self.terminal:
            self.bar.set_postfix_str(self.state(now), refresh=False)
        elif now - self.last_line >= 60:
            self.last_line = now
            left = (self.total - self.saved - self.done) * (now - self.started) / self.done
            say(
                f"{self.saved + self.done} of at most {self.total} rollouts, {self.state(now)}, "
                f"about {left / 60:.0f} min left"
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

    def state(self, now: float) -> str:
        rate = self.tokens / max(now - self.started, 1e-3)
        rescues = " ".join(f"{arm} {count}" for arm, count in sorted(self.rescued.items()))
        return (
            f"rescues: {rescues or 'none yet'}, {rate:.0f} tokens/s, "
            f"{self.truncated / self.done:.0%} truncated, "
            f"{self.policy.in_flight} in flight, {self.policy.retries} retries"
        )


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
        f"{characters * per_task / 4e6:,.1f}M prompt tokens "
        f"(fresh prompts; those of the swarms are longer) and at most "
        f"{calls * config.max_tokens / 1e6:,.1f}M sampled"
    )
