"""The policy of the dry run: written replies."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policy import Message, Reply, Stopped


@dataclass(frozen=True)
class Scripted:
    """One of the replies that the scripted policy may give.

    Attributes:
        text, finish_reason: the reply.
        fresh: its weight among the task's replies when the prompt shows no attempt.
        informed: its weight when the prompt shows one.
    """

    text: str
    finish_reason: str
    fresh: float
    informed: float


class ScriptedPolicy:
    """The policy of the dry run: written replies, no network, no waiting.

    A reply is drawn by a hash of the messages and the seed, so it depends on the request alone
    and a run can be repeated. Tokens are counted as words. A prompt shows an attempt when its
    user message holds a code fence: the bare problem holds none.

    Args:
        replies: a text that occurs in the user message of a task, such as its title -> what may
            be replied.
    """

    def __init__(self, replies: Mapping[str, Sequence[Scripted]]) -> None:
        self._replies = replies
        self._stopped = False
        self.in_flight = self.retries = self.tokens_used = self.sampled = 0
        self.estimated = False
        self.line = "scripted policy: written replies, no model, no network"
        self.sent: dict[str, Any] = {"model": "scripted", "seed": "one a rollout"}

    async def sample(self, messages: list[Message], seed: int) -> Reply:
        """The reply of draw, at once."""
        await asyncio.sleep(0)
        if self._stopped:
            raise Stopped("no new request is started")
        chosen = self.draw(messages, seed)
        prompt, completion = len(messages[-1]["content"].split()), len(chosen.text.split())
        self.tokens_used += prompt + completion
        self.sampled += completion
        outcome = None if chosen.text.strip() else "empty reply"
        return Reply(
            chosen.text, "", chosen.finish_reason, outcome, prompt, completion, None, seconds=0.0
        )

    def draw(self, messages: list[Message], seed: int) -> Scripted:
        """The reply to a request; KeyError for a task without any: the script is incomplete."""
        user = messages[-1]["content"]
        title = next((title for title in self._replies if title in user), None)
        if title is None:
            raise KeyError(f"no scripted reply for: {user[:80]}")
        options = self._replies[title]
        weights = [option.informed if "```" in user else option.fresh for option in options]
        digest = hashlib.sha256(json.dumps([messages, seed]).encode()).digest()
        drawn = int.from_bytes(digest[:6], "big") / 2**48 * sum(weights)
        ends = itertools.accumulate(weights)
        return next(option for option, end in zip(options, ends, strict=True) if drawn < end)

    def stop(self) -> None:
        """Every later sample raises Stopped."""
        self._stopped = True
