"""One reply as it comes in: the chunks of a stream, or a body that came in one piece."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import httpx2  # the openai client's own HTTP library
import openai

from policy import Reply
from replies import split_thinking

# Finish reasons of replies that were broken off: OpenRouter, SGLang and vLLM, DeepSeek.
BROKEN_OFF = {"error", "abort", "insufficient_system_resource"}

ENDS = b'reason":"', b'reason": "', b"[DONE]", b"error"  # what is looked at without delay
BURST_SECONDS = 0.003  # longer than what waits in the socket takes to be read
NAP_SHARE = 1 / 50  # of the age of a reply


class Draft:
    """A reply while it comes in."""

    def __init__(self) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.finish_reason: str | None = None
        self.usage: dict[str, Any] = {}

    async def read(
        self,
        response: httpx2.Response,
        *,
        stream: bool,
        enough: Callable[[Draft], bool] | None = None,
    ) -> None:
        """Read a response to its end, whether it was asked for as a `stream` or not.

        Servers that cannot stream send a body in one piece, and some do nothing but stream; the
        content type says which it is.

        Args:
            enough: asked after each part of a stream; reading ends when it says so.

        Raises:
            openai.APIError, httpx2.HTTPError, ValueError: it broke, or holds an error.
        """
        kind = response.headers.get("content-type", "")
        if "event-stream" in kind or (stream and not re.search("json|html", kind)):
            await self._read_stream(response, enough)
        else:
            self.add(_whole(await response.aread(), response), response.request)

    async def _read_stream(
        self, response: httpx2.Response, enough: Callable[[Draft], bool] | None
    ) -> None:
        """Read the events of a stream to its end.

        Waking for each chunk of each stream costs more than the chunk itself. So this naps
        after each burst for a 50th of the reply's age, finds what came meanwhile in one go, and
        parses it as one list; the reply is seen whole 1% later on average.
        """
        clock = asyncio.get_running_loop().time
        started = awake = clock()
        events, parts = Events(), list[bytes]()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit:
                async for part in response.aiter_bytes():
                    parts.append(part)
                    now = clock()
                    burst_is_over = now - awake > BURST_SECONDS
                    if not (burst_is_over or enough or any(end in part for end in ENDS)):
                        continue
                    self._add_all(events.feed(b"".join(parts)), response.request)
                    parts.clear()
                    if enough is not None and enough(self):
                        return
                    if events.done:  # the rest is read so that the connection can be used again
                        limit.reschedule(now + 1)
                    elif self.finish_reason is not None:
                        limit.reschedule(now + 10)  # for the usage: not all servers end a stream
                    elif burst_is_over:
                        await asyncio.sleep(min(0.5, (now - started) * NAP_SHARE))
                        awake = clock()
        self._add_all(events.feed(b"".join(parts) + b"\n\n"), response.request)  # its last event

    def _add_all(self, events: list[bytes], request: httpx2.Request) -> None:
        """Take in events in their order; parsing them as one list costs half as much."""
        if not events:
            return
        try:
            chunks: Iterable[object] = json.loads(b"[%s]" % b",".join(events))
        except ValueError:
            chunks = map(json.loads, events)  # so that those before the broken one count
        for data in chunks:
            self.add(data, request)

    def add(self, data: object, request: httpx2.Request) -> None:
        """Take in one chunk; ValueError when it is none, APIError when it is an error."""
        data = _object(data)
        if data.get("error"):
            raise _error_in(data["error"], request)
        if data.get("usage"):
            self.usage = _object(data["usage"])
        for choice in data.get("choices") or ():
            choice = _object(choice)
            self._add_part(_object(choice.get("delta") or choice.get("message")))
            reason = choice.get("finish_reason")
            if reason in BROKEN_OFF:
                raise ValueError(f"a reply was broken off (finish_reason {reason})")
            self.finish_reason = reason or self.finish_reason

    def _add_part(self, part: dict[str, Any]) -> None:
        content = part.get("content")
        if content and isinstance(content, str):
            self.content.append(content)
        if len(part) > 1 or content is None:
            thought = part.get("reasoning") or part.get("reasoning_content")
            if isinstance(thought, str):
                self.reasoning.append(thought)
            if isinstance(part.get("refusal"), str):
                self.refusal.append(part["refusal"])

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


class Events:
    """Server-sent events out of bytes, as they come.

    Attributes:
        done: whether the [DONE] that ends a stream was seen.
    """

    def __init__(self) -> None:
        self.done = False
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, part: bytes) -> list[bytes]:
        """The data of each event that has ended."""
        part = self._rest + part
        last = len(part) - part.endswith(b"\r")  # which may be half a line end
        cut = max(part.rfind(b"\n", 0, last), part.rfind(b"\r", 0, last)) + 1
        self._rest = part[cut:]
        ended = []
        for line in part[:cut].splitlines():
            if line.startswith(b"data:"):
                self._data.append(line[5:])
            elif line.startswith(b"error:"):  # llama.cpp, before 2024's end
                self._data.append(b'{"error": %s}' % line[6:])
            elif not line and self._data:
                data = b"\n".join(self._data) if len(self._data) > 1 else self._data[0]
                self._data.clear()
                if data.strip().startswith(b"[DONE]"):
                    self.done = True
                else:
                    ended.append(data)
        return ended


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
    """The JSON of a body that came in one piece."""
    try:
        return json.loads(body)
    except ValueError:
        kind = response.headers.get("content-type", "no content type")
        raise ValueError(f"a body that is no reply ({kind}, {len(body)} bytes)") from None


def _error_in(error: object, request: httpx2.Request) -> openai.APIError:
    """An error under HTTP 200, as the client itself raises it."""
    message = error.get("message") if isinstance(error, dict) else None
    return openai.APIError(str(message or error), request, body=error)
