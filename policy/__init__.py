"""The policy: whatever answers messages. Its protocol, its replies and its errors.

endpoint.py   an OpenAI-compatible endpoint     scripted.py   the written replies of the dry run
local.py      a model in this process
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

Message = dict[str, str]


@dataclass(frozen=True)
class Sampling:
    """What is asked of the policy, the same for every rollout.

    Attributes:
        temperature: softmax temperature.
        max_tokens: longest reply, in tokens, reasoning included.
        thinking: whether the model may reason before it answers.
    """

    temperature: float = 1.0
    max_tokens: int = 2048
    thinking: bool = False


@dataclass(frozen=True)
class Reply:
    """One sampled reply.

    Attributes:
        text: the content without reasoning; of a refusal the server's words, if any.
        reasoning: what the model thought, kept apart ("" when it did not).
        finish_reason: as the server said, e.g. "stop" or "length"; "none" when the request
            itself was refused for its content (see outcome).
        outcome: why there is no usable reply ("prompt too long", "refusal", "empty reply"),
            else None.
        prompt_tokens, completion_tokens, reasoning_tokens: from usage; None when not sent.
            Reasoning tokens are a part of the completion tokens, and are not estimated when
            the server reasons aloud and does not count them.
        seconds: wall time of the sample, queueing excluded, retries included.
    """

    text: str
    reasoning: str
    finish_reason: str
    outcome: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    seconds: float


class PolicyError(Exception):
    """Base of all below; its text is one line for the user.

    PolicyError            by itself: no model in this process, too few file descriptors
     +- EndpointRefused   nothing will help but another command (key, model, address)
     +- EndpointDown      gave up after --give-up-after minutes
     +- BudgetSpent       --max-total-tokens reached
     +- Stopped           stop() was called: no new request is started
    """


class EndpointRefused(PolicyError):
    pass


class EndpointDown(PolicyError):
    pass


class BudgetSpent(PolicyError):
    pass


class Stopped(PolicyError):
    pass


class Policy(Protocol):
    """Anything that answers messages."""

    async def sample(self, messages: list[Message], seed: int) -> Reply:
        """Sample one reply; waits for a free slot first. Raises PolicyError."""
        ...

    def stop(self) -> None:
        """Start no new request; those in flight go on to their end."""
        ...
