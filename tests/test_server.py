"""One server: whole replies or streams, its address, proxies and certificates, over sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from asking import GOOD, Script, ask, asked, is_probe, one, run
from server import (
    Answer,
    Request,
    Server,
    chunk,
    error,
    events,
)

from policy import EndpointRefused, Reply, Sampling
from policy.endpoint import Endpoint
from policy.key import DEFAULT_BASE_URL
from policy.server import _certificates, checked, proxy_for

ROOT = Path(__file__).parent.parent


def streamed(request: Request) -> bool:
    return request.body.get("stream") is True


# --- whole replies, until one is hung up on ---------------------------------------------------


def modes(failure: Answer, **options: Any) -> tuple[list[bool], list[str]]:
    """Which requests of two samples were streams when whole replies fail so, and what was said."""
    notes: list[str] = []

    def script(request: Request) -> Answer:
        return GOOD if streamed(request) or is_probe(request) else failure

    async def use(endpoint: Endpoint, server: Server) -> list[bool]:
        for seed in (1, 2):
            assert (await endpoint.sample(ask(), seed)).text == "a good reply"
        return [streamed(request) for request in asked(server)]

    return run(script, use, notes=notes, stream="auto", **options), notes


HANG_UPS = [
    error(408, "timeout"),
    error(502, "bad gateway"),
    error(503, "no upstream"),
    error(504, "gateway timeout"),
    error(524, "a timeout occurred"),
    error(303, "no address to go to"),
    Answer(end="cut"),
]


@pytest.mark.parametrize("failure", HANG_UPS)
def test_a_hang_up_after_silence_switches_to_streams_once_and_for_all(failure):
    asked_as, notes = modes(failure, long_seconds=0.0)
    assert asked_as == [False, True, True]
    assert len(notes) == 1
    assert "replies are streamed from now on" in notes[0]


def test_silence_past_the_read_timeout_switches_too():
    asked_as, notes = modes(Answer(end="hang"), long_seconds=0.0, read_timeout_seconds=0.3)
    assert asked_as == [False, True, True]
    assert len(notes) == 1


def test_the_result_that_a_redirect_leads_to_is_kept_and_the_next_is_streamed():
    async def use(endpoint: Endpoint, server: Server) -> list[bool]:
        server.result = Answer((b'{"choices": [{"message": {"content": "x"}, '
                                b'"finish_reason": "stop"}]}',))  # fmt: skip
        assert (await endpoint.sample(ask(), 1)).text == "x"
        assert (await endpoint.sample(ask(), 2)).text == "a good reply"
        return [streamed(request) for request in asked(server)]

    answers = [Answer(status=303, headers={"location": "/v1/result"}), GOOD]
    assert run(answers, use, stream="auto", long_seconds=0.0) == [False, True]


@pytest.mark.parametrize("failure", [*HANG_UPS, error(429, "slow"), error(500, "oops")])
def test_a_failure_without_silence_does_not_switch(failure):
    turns = iter([failure, failure])

    def script(request: Request) -> Answer:
        return GOOD if is_probe(request) else next(turns, GOOD)

    async def use(endpoint: Endpoint, server: Server) -> list[bool]:
        await endpoint.sample(ask(), 1)
        return [streamed(request) for request in asked(server)]

    assert run(script, use, stream="auto", long_seconds=1000.0) == [False] * 3


@pytest.mark.parametrize("failure", [error(429, "slow"), error(500, "oops"), events([])])
def test_silence_before_another_failure_does_not_switch(failure):
    turns = iter([failure])

    def script(request: Request) -> Answer:
        return GOOD if is_probe(request) else next(turns, GOOD)

    async def use(endpoint: Endpoint, server: Server) -> list[bool]:
        await endpoint.sample(ask(), 1)
        return [streamed(request) for request in asked(server)]

    assert run(script, use, stream="auto", long_seconds=0.0) == [False] * 2


@pytest.mark.parametrize("flag", ["on", "off"])
def test_a_transport_chosen_by_hand_is_kept(flag):
    failing = iter([error(504, "timeout")] * 3)

    def script(request: Request) -> Answer:
        return GOOD if is_probe(request) else next(failing, GOOD)

    async def use(endpoint: Endpoint, server: Server) -> list[bool]:
        await endpoint.sample(ask(), 1)
        return [streamed(request) for request in asked(server)]

    assert run(script, use, stream=flag, long_seconds=0.0) == [flag == "on"] * 4


def test_a_server_that_does_nothing_but_stream():
    asked_as, notes = modes(error(400, "This model only supports stream mode"))
    assert asked_as == [False, True, True]
    assert "only supports stream mode" in notes[0]


def test_a_server_that_refuses_to_be_asked_for_a_stream():
    def script(request: Request) -> Answer:
        return error(400, "stream is not supported") if streamed(request) else GOOD

    async def use(endpoint: Endpoint, server: Server) -> bool:
        await endpoint.sample(ask(), 1)
        return any(streamed(request) for request in asked(server))

    assert run(script, use, stream="auto") is False


def test_a_server_that_streams_though_it_was_not_asked_to():
    body = events([chunk(content="a"), chunk(content="b"), chunk("stop")])

    class Streaming(Server):
        async def _send(self, writer: Any, answer: Answer) -> bool:
            return await super()._send(writer, body)

    async def go() -> Reply:
        async with Streaming(lambda request: body) as server:
            endpoint = Endpoint([server.base_url], ["k"], "m", Sampling(), notify=[].append)
            async with endpoint:
                return await endpoint.sample(ask(), 1)

    assert asyncio.run(go()).text == "ab"


def test_a_usage_option_refused_in_the_middle_of_a_run_is_left_out():
    def script(request: Request) -> Answer:
        if is_probe(request):
            return GOOD
        if not streamed(request):
            return error(504, "timeout")
        return error(400, "unknown field stream_options") if "stream_options" in request.body \
            else GOOD  # fmt: skip

    assert run(script, one, stream="auto", long_seconds=0.0).text == "a good reply"


def test_the_hosted_endpoint_is_streamed_from_the_start():
    """It answers 303 after 150 seconds of silence."""
    for urls, how in (([DEFAULT_BASE_URL], "streamed"), (["http://localhost/v1"], "whole")):
        endpoint = Endpoint(urls, ["k"], "m", Sampling(), notify=[].append)
        assert f"replies {how}" in endpoint.line
        asyncio.run(endpoint.__aexit__())


# --- a request that fails in an odd way again and again ---------------------------------------

EMPTY = Answer(headers={"content-type": "text/event-stream"})


def odd(whole: Answer) -> Script:
    """Streams that are empty for one prompt, whatever is asked whole gets `whole`."""

    def script(request: Request) -> Answer:
        if request.user != "odd":
            return GOOD
        return EMPTY if streamed(request) else whole

    return script


def test_a_stream_that_fails_oddly_is_asked_for_whole_once_and_believed():
    """llama.cpp's Python server streams nothing for a prompt that does not fit."""

    async def use(endpoint: Endpoint, server: Server) -> tuple[Reply, list[bool]]:
        reply = await endpoint.sample(ask("odd"), 1)
        return reply, [streamed(request) for request in asked(server)]

    refusal = error(400, "Requested tokens (9000) exceed context window of 4096")
    reply, asked_as = run(odd(refusal), use, stream="on")
    assert (reply.outcome, reply.finish_reason) == ("prompt too long", "none")
    assert asked_as == [True, True, True, False]


def test_what_the_whole_reply_says_is_taken_where_others_succeed():
    async def use(endpoint: Endpoint, server: Server) -> Reply:
        sample = asyncio.create_task(endpoint.sample(ask("odd"), 1))
        await asyncio.gather(*(endpoint.sample(ask("other"), i) for i in range(20)))
        return await sample

    reply = run(odd(error(400, "no template for it")), use, stream="on", backoff_seconds=0.2)
    assert reply.outcome == "request refused"


def test_a_good_whole_reply_is_taken():
    assert run(odd(GOOD), lambda e, s: e.sample(ask("odd"), 1), stream="on").text == "a good reply"


# --- addresses --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "http://user:secret@localhost:8000/v1",
        "http://secret@localhost:8000/v1",
        "http://user:sec%2Fret@localhost:8000/v1/",
        "http://user:secret@secret@localhost:8000/v1",
    ],
)
def test_a_password_is_not_part_of_what_is_shown(address):
    assert checked(address) == "http://localhost:8000/v1"


@pytest.mark.parametrize(
    "address",
    [
        "http://user:sec/ret@host/v1",
        "http://user:sec?ret@host/v1",
        "http://user:sec#ret@host/v1",
        "http://user:secret@host:port/v1",
        "user:secret@host/v1",
        "http://user:secret@host:99999/v1",
        "ftp://user:secret@host/v1",
        "http://host/v1?api_key=secret",
    ],
)
def test_a_mistaken_address_with_a_password_does_not_show_it(address):
    with pytest.raises(EndpointRefused, match=r"^--base-url") as caught:
        checked(address)
    assert "secret" not in str(caught.value)
    assert "sec/ret" not in str(caught.value)


def test_a_password_is_sent_and_never_shown():
    notes: list[str] = []

    def refusing(request: Request) -> Answer:
        return GOOD if is_probe(request) else error(401, "no")

    async def go() -> tuple[str, str]:
        async with Server(refusing, models=["m"]) as server:
            address = server.base_url.replace("//", "//user:pass%40word@")
            endpoint = Endpoint([address], ["key"], "m", Sampling(), notify=notes.append)
            async with endpoint:
                await endpoint.probe()
                with pytest.raises(EndpointRefused) as caught:
                    await endpoint.sample(ask(), 1)
                shown = f"{endpoint.line} {endpoint.served} {caught.value} {notes}"
            return server.requests[-1].headers["authorization"], shown

    sent, shown = asyncio.run(go())
    assert sent == "Basic dXNlcjpwYXNzQHdvcmQ="  # user:pass@word
    assert "pass" not in shown


# --- the machine's settings -------------------------------------------------------------------


def test_this_machine_is_reached_without_a_proxy(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert run([GOOD], one).text == "a good reply"
    for host in ("localhost:1", "127.0.0.1", "127.1.2.3:5", "[::1]:8000", "a.localhost"):
        assert proxy_for(f"http://{host}/v1") is None
    assert proxy_for("http://gpu-1:8000/v1") == "http://127.0.0.1:9"
    monkeypatch.setenv("no_proxy", "gpu-1")
    assert proxy_for("http://gpu-1:8000/v1") is None


def test_a_proxy_of_the_environment_is_used_and_named(monkeypatch):
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://user:secret@127.0.0.1:9")

    async def go() -> None:
        endpoint = Endpoint(["http://gpu-1/v1"], ["k"], "m", Sampling(), notify=[].append)
        async with endpoint:
            await endpoint.probe()

    with pytest.raises(EndpointRefused, match=r"through the proxy http://127\.0\.0\.1:9 of") as e:
        asyncio.run(go())
    assert "secret" not in str(e.value)


@pytest.mark.parametrize(
    ("settings", "address", "said"),
    [
        ({"ALL_PROXY": "socks5://127.0.0.1:9"}, "http://gpu-1/v1", "needs `pip install socksio`"),
        ({"ALL_PROXY": "socks4://u:secret@x:9"}, "http://gpu-1/v1", "cannot be used"),
        ({"HTTP_PROXY": "http://u:secret@x:port"}, "http://gpu-1/v1", "cannot be used"),
        ({"SSL_CERT_FILE": "/nowhere.pem"}, "https://gpu-1/v1", "SSL_CERT_FILE"),
        ({"SSL_CERT_FILE": __file__}, "https://gpu-1/v1", "SSL_CERT_FILE"),
        ({"SSL_CERT_FILE": "/"}, "https://gpu-1/v1", "SSL_CERT_FILE"),
        ({"SSL_CERT_FILE": "/nowhere.pem"}, "http://127.0.0.1:9/v1", "cannot connect to"),
        ({"ALL_PROXY": "socks5://x"}, "http://127.0.0.1:9/v1", "cannot connect to"),
    ],
)
def test_settings_of_the_machine_that_cannot_be_used_are_one_line(
    settings, address, said, monkeypatch
):
    for name in ("HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    _certificates.cache_clear()

    async def go() -> None:
        async with Endpoint([address], ["k"], "m", Sampling(), notify=[].append) as endpoint:
            await endpoint.probe()

    try:
        with pytest.raises(EndpointRefused, match=said) as caught:
            asyncio.run(go())
        assert "secret" not in str(caught.value)
    finally:
        _certificates.cache_clear()
