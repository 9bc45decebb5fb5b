"""Several servers behind one endpoint: shares, deaths, refusals, over sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from asking import GOOD, Script, ask, asked, is_probe
from server import Answer, Request, Server, error, stream, strict

from policy import EndpointRefused, Reply, Sampling
from policy.endpoint import Endpoint

T = TypeVar("T")


def good(request: Request) -> Answer:
    return stream(f"ready {request.body.get('seed')}") if is_probe(request) else GOOD


def run_two(
    first: Script,
    second: Script,
    use: Callable[[Endpoint, list[Server]], Awaitable[T]],
    *,
    models: tuple[str, str] = ("m", "m"),
    notes: list[str] | None = None,
    model: str | None = None,
    **options: Any,
) -> T:
    """Probe an endpoint of two servers, and use it."""

    async def go() -> T:
        async with contextlib.AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(Server(script, models=[name]))
                for script, name in zip((first, second), models, strict=True)
            ]
            endpoint = Endpoint(
                [server.base_url for server in servers],
                ["k", "k"],
                model,
                Sampling(),
                notify=(notes if notes is not None else []).append,
                **{"backoff_seconds": 0.001, **options},
            )
            async with endpoint:
                await endpoint.probe()
                return await use(endpoint, servers)

    return asyncio.run(asyncio.wait_for(go(), 60))


async def forty(endpoint: Endpoint, servers: list[Server]) -> list[int]:
    """How many requests of 40 samples each server got."""
    replies = await asyncio.gather(*(endpoint.sample(ask(), seed) for seed in range(40)))
    assert [reply.text for reply in replies] == ["a good reply"] * 40
    return [len(asked(server)) for server in servers]


def test_requests_go_to_the_server_with_the_least_in_flight():
    async def use(endpoint: Endpoint, servers: list[Server]) -> None:
        assert await forty(endpoint, servers) == [20, 20]
        assert list(endpoint.served.values()) == [20, 20]

    run_two(good, good, use, concurrency=20)


def test_concurrency_is_for_each():
    most = [0, 0]

    class Counting:
        def __init__(self, which: int) -> None:
            self.which = which

        def __call__(self, request: Request) -> Answer:
            return good(request) if is_probe(request) else stream("a good reply", delay=0.05)

    async def use(endpoint: Endpoint, servers: list[Server]) -> None:
        async def watch() -> None:
            while True:
                for i, server in enumerate(endpoint._servers.all):
                    most[i] = max(most[i], server.in_flight)
                await asyncio.sleep(0)

        watcher = asyncio.create_task(watch())
        await forty(endpoint, servers)
        watcher.cancel()

    run_two(Counting(0), Counting(1), use, concurrency=3)
    assert most == [3, 3]


def test_a_slower_server_gets_less():
    def slow(request: Request) -> Answer:
        return good(request) if is_probe(request) else stream("a good reply", delay=1.0)

    fast, slower = run_two(good, slow, forty, concurrency=2)
    assert fast > slower
    assert fast + slower == 40


@pytest.mark.parametrize("stream_mode", ["on", "off"])
def test_one_that_dies_is_left_out_and_the_others_go_on(stream_mode):
    notes: list[str] = []

    async def use(endpoint: Endpoint, servers: list[Server]) -> None:
        await servers[0].__aexit__()
        assert (await forty(endpoint, servers))[1] == 40

    run_two(good, good, use, concurrency=4, notes=notes, stream=stream_mode)
    assert sum("is left out until it answers" in note for note in notes) <= 1


def test_one_that_comes_back_is_asked_again():
    notes: list[str] = []
    failures = 0

    def failing(request: Request) -> Answer:
        nonlocal failures
        if is_probe(request) or failures >= 5:
            return good(request)
        failures += 1
        return error(503, "restarting")

    async def use(endpoint: Endpoint, servers: list[Server]) -> None:
        seed = 0
        while not any(note.endswith("answers again") for note in notes):
            seed += 1
            await endpoint.sample(ask(), seed)

    run_two(failing, good, use, concurrency=1, notes=notes)
    left_out = [note for note in notes if "is left out until it answers: HTTP 503" in note]
    assert len(left_out) == 1


def test_replies_under_way_at_a_server_that_dies_are_asked_for_at_another():
    def hanging(request: Request) -> Answer:
        return good(request) if is_probe(request) else Answer(end="hang")

    async def use(endpoint: Endpoint, servers: list[Server]) -> list[Reply]:
        samples = [asyncio.create_task(endpoint.sample(ask(), seed)) for seed in range(6)]
        while len(asked(servers[0])) < 3:
            await asyncio.sleep(0.001)
        await servers[0].__aexit__()
        return await asyncio.gather(*samples)

    assert len(run_two(hanging, good, use, concurrency=3)) == 6


def test_one_that_refuses_for_good_is_left_out_and_the_last_one_ends_the_run():
    notes: list[str] = []

    def refusing(request: Request) -> Answer:
        return good(request) if is_probe(request) else error(401, "key revoked")

    assert run_two(refusing, good, forty, concurrency=2, notes=notes)[1] == 40
    warnings = [note for note in notes if "left out for good" in note]
    assert len(warnings) == 1
    assert "key revoked" in warnings[0]

    async def ends(endpoint: Endpoint, servers: list[Server]) -> None:
        with pytest.raises(EndpointRefused, match="key revoked"):
            await forty(endpoint, servers)

    run_two(refusing, refusing, ends, concurrency=2)


def test_a_retry_after_holds_for_its_server_alone():
    def busy(request: Request) -> Answer:
        return good(request) if is_probe(request) else error(429, "slow", {"retry-after": "1000"})

    counts = run_two(busy, good, forty, concurrency=4)
    assert counts[1] == 40


async def nothing(endpoint: Endpoint, servers: list[Server]) -> None:
    pass


def test_servers_of_two_models_are_refused():
    with pytest.raises(EndpointRefused, match=r"differ: .* takes model .a., .* takes model .b."):
        run_two(good, good, nothing, models=("a", "b"))


def test_servers_that_take_other_fields_are_refused():
    def picky(request: Request) -> Answer:
        return strict(request, good)

    with pytest.raises(EndpointRefused, match=r"differ: .* takes max_tokens 2048, .* null"):
        run_two(good, picky, nothing)


def test_each_is_probed():
    with pytest.raises(EndpointRefused, match="refuses access"):
        run_two(good, lambda request: error(401, "no"), nothing, model="m")


def test_an_address_given_twice_is_refused():
    address = "http://127.0.0.1:9/v1"
    with pytest.raises(EndpointRefused, match="given twice"):
        Endpoint([address, address + "/"], ["k", "k"], "m", Sampling(), notify=print)


def test_stopping_ends_every_wait():
    def gone(request: Request) -> Answer:
        return good(request) if is_probe(request) else error(503, "gone", {"retry-after": "1000"})

    async def use(endpoint: Endpoint, servers: list[Server]) -> None:
        samples = [asyncio.create_task(endpoint.sample(ask(), seed)) for seed in range(8)]
        while not all(asked(server) for server in servers):
            await asyncio.sleep(0.001)
        endpoint.stop()
        results = await asyncio.gather(*samples, return_exceptions=True)
        assert not any(isinstance(result, Reply) for result in results)

    run_two(gone, gone, use, concurrency=2)
