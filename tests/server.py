"""A local OpenAI-compatible server that answers, or misbehaves, as it is told.

In a test, in the event loop of the test:

    async with Server(lambda request: stream("hello")) as server:
        ... server.base_url, server.requests

As a process, where a reply depends on the messages and the seed alone (the scripted replies of
the toy tasks), for runs that are killed, made to fail, or timed:

    python tests/server.py --port 0 --failures 0.25 --latency 0.05 --slots 8

It prints its port when it is ready. GET /log returns one row a chat request that has ended: its
key, seed and user message, and the seconds at which it came, had a slot, and ended.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from policy.scripted import Scripted, ScriptedPolicy
from toy import replies

OPENAI_FIELDS = {
    "model",
    "messages",
    "stream",
    "stream_options",
    "seed",
    "temperature",
    "max_completion_tokens",
}


@dataclass(frozen=True)
class Request:
    """A chat request.

    Attributes:
        body: its JSON.
        headers: by lower-case name.
        number: how many chat requests came before it.
        again: how many of them had the same messages and seed.
        at: second of its arrival, by time.monotonic.
    """

    body: dict[str, Any]
    headers: dict[str, str]
    number: int
    again: int
    at: float

    @property
    def user(self) -> str:
        return str(self.body["messages"][-1]["content"])

    @property
    def key(self) -> str:
        """16 hex digits that stand for the messages and the seed."""
        text = json.dumps([self.body["messages"], self.body.get("seed")])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def fraction(self, salt: str) -> float:
        """A number in (0, 1) that depends on the key, on `again` and on the salt."""
        digest = hashlib.sha256(f"{self.key} {self.again} {salt}".encode()).digest()
        return (int.from_bytes(digest[:6], "big") + 0.5) / 2**48


@dataclass(frozen=True)
class Answer:
    """What the server sends.

    Attributes:
        parts: the body; a part is sent at once, and in chunked encoding.
        status, headers: of HTTP. No Content-Length is sent, so that a cut can be seen.
        delay: seconds before the headers.
        gap: seconds before each part but the first.
        end: "close" ends the body as it should; "cut" drops the connection after the parts;
            "hang" sends nothing more and keeps it open.
    """

    parts: tuple[bytes, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    delay: float = 0.0
    gap: float = 0.0
    end: str = "close"


SSE = {"content-type": "text/event-stream; charset=utf-8"}


def event(data: object) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def chunk(finish_reason: str | None = None, **delta: object) -> dict[str, Any]:
    """One chunk of a stream."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return {
        "id": "chatcmpl-0",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "m",
        "choices": [choice],
    }


def usage(prompt: int, completion: int, reasoning: int | None = None) -> dict[str, Any]:
    """The last chunk of a stream: usage and no choices."""
    counts: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    if reasoning is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return {"object": "chat.completion.chunk", "choices": [], "usage": counts}


def events(chunks: Iterable[object], *, done: bool = True, **more: Any) -> Answer:
    """A stream of these chunks."""
    parts = [event(data) for data in chunks] + ([event(b"[DONE]")] if done else [])
    return Answer(tuple(parts), headers=SSE, **more)


def stream(text: str, finish_reason: str = "stop", **more: Any) -> Answer:
    """A good reply: a chunk a word, a finish_reason, usage."""
    words = text.replace(" ", "\0 ").split("\0")
    said = [chunk(content=word) for word in words]
    return events(
        [chunk(role="assistant", content=""), *said, chunk(finish_reason), usage(7, len(words))],
        **more,
    )


def error(
    status: int, message: str, headers: Mapping[str, str] | None = None, **more: Any
) -> Answer:
    """An error as OpenAI writes it; `more` goes into the error object."""
    body = json.dumps({"error": {"message": message, **more}}).encode()
    return Answer((body,), status, {"content-type": "application/json", **(headers or {})})


def in_one_piece(answer: Answer) -> Answer:
    """What a server that means this stream sends when it is asked for a whole reply."""
    if answer.headers.get("content-type") != SSE["content-type"]:
        return answer
    message: dict[str, Any] = {"role": "assistant"}
    body: dict[str, Any] = {}
    reason = None
    try:
        for part in answer.parts:
            data = part.decode().removeprefix("data: ").strip()
            if data == "[DONE]":
                continue
            body.update(
                {k: v for k, v in json.loads(data).items() if k in ("usage", "error") and v}
            )
            for choice in json.loads(data).get("choices", ()):
                reason = choice["finish_reason"] or reason
                for name, text in choice["delta"].items():
                    joined = name != "role" and message.get(name) and text
                    message[name] = message[name] + text if joined else text
        choice = {"index": 0, "message": message, "finish_reason": reason}
        whole = json.dumps({**body, "choices": [choice]} if answer.parts[1:] else body).encode()
    except (ValueError, TypeError):
        whole = answer.parts[0].removeprefix(b"data: ")
    parts = (whole,) if answer.end == "close" else (whole[: len(whole) // 2],)
    return replace(
        answer,
        parts=parts,
        headers={"content-type": "application/json"},
        delay=answer.delay + answer.gap * len(answer.parts),
        gap=0.0,
    )


def page(status: int = 200) -> Answer:
    return Answer((b"<!doctype html><h1>Bad gateway</h1>",), status, {"content-type": "text/html"})


def strict(request: Request, then: Callable[[Request], Answer]) -> Answer:
    """Refuse as OpenAI does for its newer models: unknown fields, max_tokens, temperature."""
    body = request.body
    if "max_tokens" in body:
        return error(
            400,
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            type="invalid_request_error",
            param="max_tokens",
            code="unsupported_parameter",
        )
    if body.get("temperature", 1) != 1:
        return error(
            400,
            f"Unsupported value: 'temperature' does not support {body['temperature']} with this "
            "model. Only the default (1) value is supported.",
            type="invalid_request_error",
            param="temperature",
            code="unsupported_value",
        )
    for name in sorted(set(body) - OPENAI_FIELDS):
        return error(
            400,
            f"Unrecognized request argument supplied: {name}",
            type="invalid_request_error",
            param=None,
            code=None,
        )
    return then(request)


class Server:
    """The server; an async context manager that listens while it is entered.

    Args:
        answer: what to send for a chat request.
        models: what GET /v1/models lists; None: it is 404, as are all unknown paths.
        slots: chat requests answered at once, the others queue; None: all.
        port: 0: any free one.

    Attributes:
        requests: the chat requests so far.
        log: (request, second it had a slot, second it ended) of those that ended.
        result: what GET /v1/result sends, for answers that redirect there.
    """

    def __init__(
        self,
        answer: Callable[[Request], Answer],
        *,
        models: Iterable[str] | None = ("test-model",),
        slots: int | None = None,
        port: int = 0,
    ) -> None:
        self.answer = answer
        self.models = models
        self.port = port
        self.requests: list[Request] = []
        self.log: list[tuple[Request, float, float]] = []
        self.result = Answer(status=404)
        self._seen: Counter[str] = Counter()
        self._slots = asyncio.Semaphore(slots or 10**9)
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Server:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._listener.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while await self._request(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client went away
        except asyncio.CancelledError:
            pass  # the server is closed
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        pairs = (line.split(":", 1) for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if (method, path) == ("POST", "/v1/chat/completions"):
            return await self._chat(writer, json.loads(body), headers)
        if path == "/log":
            return await self._send(writer, Answer((json.dumps(self.rows()).encode(),)))
        if path == "/v1/result":
            return await self._send(writer, self.result)
        if path == "/v1/models" and self.models is not None:
            data = [{"id": name, "object": "model"} for name in self.models]
            return await self._send(writer, Answer((json.dumps({"data": data}).encode(),)))
        return await self._send(writer, error(404, f"no route {path}"))

    async def _chat(
        self, writer: asyncio.StreamWriter, body: dict[str, Any], headers: dict[str, str]
    ) -> bool:
        request = Request(body, headers, len(self.requests), 0, time.monotonic())
        request = replace(request, again=self._seen[request.key])
        self._seen[request.key] += 1
        self.requests.append(request)
        async with self._slots:
            got_slot = time.monotonic()
            try:
                answer = self.answer(request)
                if not body.get("stream"):
                    answer = in_one_piece(answer)
                return await self._send(writer, answer)
            finally:
                self.log.append((request, got_slot, time.monotonic()))

    def rows(self) -> list[dict[str, Any]]:
        """The log of the process, JSON-ready."""
        return [
            {
                "key": request.key,
                "seed": request.body.get("seed"),
                "user": request.user,
                "at": request.at,
                "slot": slot,
                "end": end,
            }
            for request, slot, end in self.log
        ]

    async def _send(self, writer: asyncio.StreamWriter, answer: Answer) -> bool:
        if answer.delay:
            await asyncio.sleep(answer.delay)
        lines = [f"HTTP/1.1 {answer.status} -", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        if answer.parts or answer.end == "close":
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        started = time.monotonic()
        for number, part in enumerate(answer.parts):
            # Paced by the clock, not by sleeps that add up.
            if answer.gap and (ahead := started + number * answer.gap - time.monotonic()) > 0:
                await asyncio.sleep(ahead)
            if writer.transport.is_closing():
                raise ConnectionResetError
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
        await writer.drain()
        if answer.end == "hang":
            await asyncio.Event().wait()
        if answer.end == "cut":
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


# --- as a process -----------------------------------------------------------------------------


def failures() -> list[Answer]:
    """One of each way in which a request fails and is worth another try."""
    begun = [chunk(content="Half a"), chunk(content=" reply")]
    return [
        error(429, "slow down", {"retry-after": "0.05"}),
        error(500, "internal error"),
        error(503, "loading"),
        error(408, "timeout"),
        page(502),
        page(200),
        error(200, "the upstream went away", code=502),
        Answer(end="cut"),
        events(begun, done=False, end="cut"),
        events(begun, done=False),
        events(begun),
        events([*begun, {"error": {"message": "the engine died", "code": 500}}]),
        events([*begun, chunk("error")]),
    ]


class Deterministic:
    """Answers that depend on the messages, the seed and the number of the try alone.

    Args:
        latency, sigma: median of the log-normal time of a reply, in seconds, and its shape.
        tokens: chunks of every reply; 0: the scripted reply, a chunk a word.
        fail: share of the requests that fail, in mixed ways.
    """

    def __init__(self, latency: float, sigma: float, tokens: int, fail: float) -> None:
        self.latency, self.sigma, self.tokens, self.fail = latency, sigma, tokens, fail
        rows = {title: [Scripted(*row) for row in rows] for title, rows in replies().items()}
        self.script = ScriptedPolicy(rows)
        self.failures = failures()

    def seconds(self, request: Request) -> float:
        """The time that this request takes."""
        normal = statistics.NormalDist().inv_cdf(request.fraction("latency"))
        return self.latency * math.exp(self.sigma * normal)

    def __call__(self, request: Request) -> Answer:
        if request.fraction("fail") < self.fail:
            return self.failures[int(request.fraction("how") * len(self.failures))]
        text, finish_reason = self._text(request)
        seconds = self.seconds(request)
        if self.tokens:
            return stream(text, finish_reason, gap=seconds / self.tokens)
        return stream(text, finish_reason, delay=seconds)

    def _text(self, request: Request) -> tuple[str, str]:
        if self.tokens:
            return " token" * self.tokens, "stop"
        try:
            drawn = self.script.draw(request.body["messages"], request.body.get("seed", 0))
        except KeyError:
            return f"ready {request.body.get('seed')}", "stop"  # to a probe
        return drawn.text, drawn.finish_reason


async def serve(options: argparse.Namespace) -> None:
    good = Deterministic(options.latency, options.sigma, options.tokens, options.failures)
    answer = (lambda request: strict(request, good)) if options.strict else good
    async with Server(answer, slots=options.slots, port=options.port) as server:
        print(server.port, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A local OpenAI-compatible server for tests.")
    parser.add_argument("--port", type=int, default=0, help="0: any free one (default: 0)")
    parser.add_argument("--latency", type=float, default=0.0, help="median seconds a reply")
    parser.add_argument("--sigma", type=float, default=0.8, help="shape of the log-normal latency")
    parser.add_argument("--slots", type=int, default=None, help="requests answered at once")
    parser.add_argument("--tokens", type=int, default=0, help="chunks a reply (0: toy replies)")
    parser.add_argument("--failures", type=float, default=0.0, help="share of requests that fail")
    parser.add_argument("--strict", action="store_true", help="refuse fields as OpenAI does")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
