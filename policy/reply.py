"""One reply as it comes in: the chunks of a stream, or a body that came in one piece."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import Any

import httpx2  # the openai client's own HTTP library
import openai

from policy import Reply
from replies import split_thinking

# Finish reasons of replies that were broken off: OpenRouter, SGLang and vLLM, DeepSeek.
BROKEN_OFF = {"error", "abort", "insufficient_system_resource"}


class Draft:
    """A reply while it streams in."""

    def __init__(self) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.finish_reason: str | None = None
        self.usage: dict[str, Any] = {}

    async def read(self, stream: openai.AsyncStream[object]) -> None:
        """Read a stream, or a body that came in one piece, to its end.

        Reading wakes the event loop for each chunk of each stream, which costs more than the
        chunk itself. So it naps after each burst for a 25th of the reply's age, and finds
        what came meanwhile in one go; the reply is seen whole 2% later on average.
        """
        if re.search("json|html", stream.response.headers.get("content-type", "")):
            self.add(_whole(await stream.response.aread(), stream.response))
            return
        clock = asyncio.get_running_loop().time
        started = awake = clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit:
                async for data in stream:
                    self.add(data)
                    now = clock()
                    if self.finish_reason is not None:
                        limit.reschedule(now + 10)  # for the usage: not all servers end a stream
                    elif now - awake > 0.003:
                        await asyncio.sleep(min(0.5, (now - started) / 25))
                        awake = clock()

    def add(self, data: object) -> None:
        """Take in one chunk; ValueError when it is none."""
        data = _object(data)
        self.usage = _object(data.get("usage")) or self.usage
        for choice in map(_object, data.get("choices") or ()):
            part = _object(choice.get("delta") or choice.get("message"))
            for name, into in (("content", self.content), ("refusal", self.refusal)):
                if isinstance(part.get(name), str):
                    into.append(part[name])
            thought = part.get("reasoning") or part.get("reasoning_content")
            if isinstance(thought, str):
                self.reasoning.append(thought)
            reason = choice.get("finish_reason")
            if reason in BROKEN_OFF:
                raise ValueError(f"a reply was broken off (finish_reason {reason})")
            self.finish_reason = reason or self.finish_reason

    def length(self) -> int:
        return sum(map(len, self.content)) + sum(map(len, self.reasoning))

    def usage_counts(self) -> tuple[int | None, int | None, int | None]:
        """Tokens of the prompt, of the completion, and of the reasoning in the completion."""
        details = _object(self.usage.get("completion_tokens_details"))
        counts = (
            self.usage.get("prompt_tokens"),
            self.usage.get("completion_tokens"),
            details.get("reasoning_tokens"),
        )
        prompt, completion, reasoning = (n if isinstance(n, int) else None for n in counts)
        return prompt, completion, reasoning

    def reply(self) -> Reply:
        """The finished reply."""
        content = "".join(self.content)
        text, thought = split_thinking(content)
        text = text if text == content else text.lstrip("\n")
        refusal = "".join(self.refusal)
        outcome = None
        if self.finish_reason == "content_filter" or (refusal and not text.strip()):
            outcome, text = "refusal", text or refusal
        elif not text.strip():
            outcome = "empty reply"
        return Reply(
            _whole_characters(text),
            _whole_characters("".join(self.reasoning) + thought),
            str(self.finish_reason),
            outcome,
            *self.usage_counts(),
            seconds=0.0,
        )


def _object(data: object) -> dict[str, Any]:
    """A JSON object, where null stands for an empty one; ValueError for anything else."""
    if data is not None and not isinstance(data, dict):
        raise ValueError(f"not a chunk of a reply: {str(data)[:80]}")
    return data or {}


def _whole_characters(text: str) -> str:
    """Join surrogates that were split between chunks; one left alone becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _whole(body: bytes, response: httpx2.Response) -> object:
    """A body that came in one piece: a completion, or an error under HTTP 200, which raises."""
    try:
        data = json.loads(body)
    except ValueError:
        kind = response.headers.get("content-type", "no content type")
        raise ValueError(f"a body that is no reply ({kind}, {len(body)} bytes)") from None
    if isinstance(data, dict) and data.get("error"):
        error = data["error"]
        message = error.get("message") if isinstance(error, dict) else None
        raise openai.APIError(str(message or error), response.request, body=error)
    return data
