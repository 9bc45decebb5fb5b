"""A server that paces replies and costs little itself: for throughput.py, in a process of its own.

    python benchmarks/paced.py --tokens 500 --seconds 8

It answers every chat request with --tokens tokens after, or over, --seconds: in one piece, or as
a chunk a token when the request asks for a stream. It parses no JSON and writes bytes that were
made before, so that it can serve many times what a client can read: --seconds 0 shows how much.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any, cast

COUNTS = {"prompt_tokens": 10, "completion_tokens": 0}


def whole(tokens: int) -> bytes:
    """A response with all tokens in one piece."""
    message = {"role": "assistant", "content": " token" * tokens}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {**COUNTS, "completion_tokens": tokens}
    body = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def chunk(fields: dict[str, Any]) -> bytes:
    """One event of a stream in one chunk of HTTP, as long as vLLM writes them."""
    common = {
        "id": "chatcmpl-0123456789abcdef0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1234567890,
        "model": "m",
    }
    data = b"data: " + json.dumps({**common, **fields}).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def said(content: str, finish_reason: str | None) -> dict[str, Any]:
    delta = {"content": content}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return {"choices": [choice]}


class Paced(asyncio.Protocol):
    """One connection.

    Args:
        tokens, seconds: of a reply.
    """

    HEAD = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    TOKEN = chunk(said(" token", None))

    def __init__(self, tokens: int, seconds: float) -> None:
        self.tokens, self.seconds = tokens, seconds
        self.whole = whole(tokens)
        usage = {**COUNTS, "completion_tokens": tokens}
        end = b"data: [DONE]\n\n"
        self.end = chunk(said("", "stop")) + chunk({"choices": [], "usage": usage})
        self.end += b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end)
        self.received = b""
        self.loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, rest = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        length = 0
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line[15:])
        if len(rest) < length:
            return
        self.received = rest[length:]
        body = rest[:length].replace(b" ", b"")
        if not head.startswith(b"POST"):
            self.transport.write(b"HTTP/1.1 404 -\r\ncontent-length: 0\r\n\r\n")
        elif b'"stream":true' in body:
            self.transport.write(self.HEAD)
            self.started, self.sent = self.loop.time(), 0
            self.stream()
        else:
            self.loop.call_later(self.seconds, self.transport.write, self.whole)

    def stream(self) -> None:
        """Send the tokens that are due, and come again for the next one."""
        if self.transport.is_closing():
            return
        age = self.loop.time() - self.started
        due = self.tokens if age >= self.seconds else int(age / self.seconds * self.tokens)
        for _ in range(due - self.sent):
            self.transport.write(self.TOKEN)  # a write a token, as servers do
        self.sent = due
        if due == self.tokens:
            self.transport.write(self.end)
        else:
            then = self.started + (due + 1) * self.seconds / self.tokens
            self.loop.call_at(then, self.stream)


async def serve(options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(
        lambda: Paced(options.tokens, options.seconds), "127.0.0.1", 0, backlog=4096
    )
    print(listener.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A local server that paces its replies.")
    parser.add_argument("--tokens", type=int, default=500, help="tokens a reply (default: 500)")
    parser.add_argument("--seconds", type=float, default=8.0, help="a reply takes (default: 8)")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
