"""An endpoint before a scripted server: what the tests of the policy ask it with."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from server import (
    Answer,
    Request,
    Server,
    stream,
)

from policy import (
    Reply,
    Sampling,
)
from policy.endpoint import Endpoint
from policy.probe import PROBE, VARIED

T = TypeVar("T")
Script = Callable[[Request], Answer]
TRANSPORT = {"stream": "on"}


def ask(text: str = "question") -> list[dict[str, str]]:
    return [{"role": "system", "content": "system"}, {"role": "user", "content": text}]


def is_probe(request: Request) -> bool:
    return request.user in (PROBE[-1]["content"], VARIED[-1]["content"])


def asked(server: Server) -> list[Request]:
    """The requests that are no probes."""
    return [request for request in server.requests if not is_probe(request)]


def run(
    script: Script | Iterable[Answer],
    use: Callable[[Endpoint, Server], Awaitable[T]],
    *,
    probe: bool = True,
    models: Iterable[str] | None = ("m",),
    slots: int | None = None,
    varied: bool = True,
    model: str | None = "m",
    sampling: Sampling = Sampling(),  # noqa: B008
    notes: list[str] | None = None,
    **options: Any,
) -> T:
    """Serve the script, probe, and use the endpoint.

    A list of answers is given in turn to requests other than probes; the last one stays.
    """
    if not callable(script):
        answers = list(script)
        turns = itertools.chain(answers[:-1], itertools.repeat(answers[-1]))
        meant: Script = lambda request: stream("ready") if is_probe(request) else next(turns)  # noqa: E731
    else:
        meant = script

    def answer(request: Request) -> Answer:
        if varied and request.user == VARIED[-1]["content"]:
            return stream(f"seed {request.body.get('seed', request.number)}")
        return meant(request)

    async def go() -> T:
        async with Server(answer, models=models, slots=slots) as server:
            endpoint = Endpoint(
                [server.base_url],
                ["key"],
                model,
                sampling,
                notify=(notes if notes is not None else []).append,
                **{"backoff_seconds": 0.001, **TRANSPORT, **options},
            )
            async with endpoint:
                if probe:
                    await endpoint.probe()
                return await use(endpoint, server)

    return asyncio.run(asyncio.wait_for(go(), 60))


async def one(endpoint: Endpoint, server: Server) -> Reply:
    return await endpoint.sample(ask(), 1)


async def tries(endpoint: Endpoint, server: Server) -> int:
    """Requests, probes apart, that a good reply took."""
    reply = await endpoint.sample(ask(), 1)
    assert (reply.text, reply.finish_reason, reply.outcome) == ("a good reply", "stop", None)
    return len(asked(server))


GOOD = stream("a good reply")
