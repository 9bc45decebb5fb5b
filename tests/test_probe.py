"""What the probe finds out, and what it says, over sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asking import GOOD, TRANSPORT, Script, ask, one, run
from server import (
    Answer,
    Request,
    Server,
    chunk,
    error,
    events,
    page,
    strict,
    usage,
)

from policy import (
    EndpointDown,
    EndpointRefused,
    Sampling,
)
from policy.endpoint import Endpoint
from policy.key import DEFAULT_BASE_URL, DEFAULT_MODEL

pytestmark = pytest.mark.usefixtures("stream_flag")  # over both transports


# --- the probe --------------------------------------------------------------------------------


def fields(
    script: Script, notes: list[str] | None = None, *, takes_options: bool = True, **options: Any
) -> dict[str, Any]:
    """What is sent after the probe."""

    async def use(endpoint: Endpoint, server: Server) -> dict[str, Any]:
        await endpoint.sample(ask(), 5)
        body = dict(server.requests[-1].body)
        assert body.pop("messages") == ask()
        streamed = TRANSPORT["stream"] == "on"
        assert body.pop("stream", False) is streamed
        options = body.pop("stream_options", None)
        assert options == ({"include_usage": True} if takes_options and streamed else None)
        seed = body.pop("seed", None)
        assert {**body, "seed": "one a rollout" if seed else None} == endpoint.sent
        for name in body:
            assert name in endpoint.line
        return {**body, "seed": seed}

    return run(script, use, notes=notes, **options)


def test_what_is_sent_to_a_server_that_takes_it():
    assert fields(lambda request: GOOD, sampling=Sampling(0.7, 99)) == {
        "model": "m",
        "temperature": 0.7,
        "max_tokens": 99,
        "chat_template_kwargs": {"enable_thinking": False},
        "seed": 5,
    }


def test_thinking_is_asked_for():
    sent = fields(lambda request: GOOD, sampling=Sampling(thinking=True))
    assert sent["chat_template_kwargs"] == {"enable_thinking": True}


def test_a_strict_server_gets_what_it_takes():
    notes: list[str] = []
    sent = fields(lambda request: strict(request, lambda _: GOOD), notes)
    assert sent == {
        "model": "m",
        "temperature": 1.0,
        "max_completion_tokens": 2048,
        "seed": 5,
    }
    assert notes == []


def test_a_temperature_is_given_up_loudly():
    notes: list[str] = []
    sent = fields(lambda request: strict(request, lambda _: GOOD), notes, sampling=Sampling(0.5))
    assert "temperature" not in sent
    assert len(notes) == 1
    assert notes[0].startswith("WARNING: the endpoint refuses temperature 0.5")


def test_a_temperature_is_kept_that_is_taken_without_thinking():
    def script(request: Request) -> Answer:
        if request.body.get("reasoning_effort") == "none":
            return GOOD
        return error(400, "no temperature while reasoning is active", param="temperature")

    sent = fields(script, sampling=Sampling(0.5))
    assert (sent["temperature"], sent["reasoning_effort"]) == (0.5, "none")


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("name", ["seed", "stream_options", "reasoning_effort"])
def test_a_field_is_dropped_that_the_server_names(name, status):
    def script(request: Request) -> Answer:
        refused = {name, "chat_template_kwargs"} if name == "reasoning_effort" else {name}
        for field in sorted(refused & set(request.body)):
            return error(status, "extra", detail=[{"loc": ["body", field]}])
        return GOOD

    assert fields(script, takes_options=name != "stream_options").get(name) is None


def test_the_refused_fields_are_in_the_line():
    async def use(endpoint: Endpoint, server: Server) -> str:
        return endpoint.line

    line = run(lambda request: strict(request, lambda _: GOOD), use)
    refused = "(refused by the server: max_tokens, chat_template_kwargs, reasoning_effort)"
    assert line.endswith(refused)


def test_a_bad_request_that_names_no_field_is_shown():
    with pytest.raises(EndpointRefused, match="refuses the request: HTTP 400 no template"):
        run(lambda request: error(400, "no template"), one)


def test_a_limit_beyond_the_window_is_found_before_the_run():
    with pytest.raises(EndpointRefused, match=r"\(prompt too long\): HTTP 400 .*context length"):
        run(lambda request: error(400, "max_tokens exceeds the context length"), one)


def thinks_unless(name: str) -> Script:
    def script(request: Request) -> Answer:
        thought = [] if name in request.body else [chunk(reasoning="hm")]
        return events([*thought, chunk(content="text"), chunk("stop"), usage(1, 1)])

    return script


def test_a_server_that_ignores_the_template_field_gets_the_other():
    sent = fields(thinks_unless("reasoning_effort"))
    assert sent["reasoning_effort"] == "none"
    assert "chat_template_kwargs" not in sent


def test_a_model_that_cannot_stop_thinking_is_warned_of():
    notes: list[str] = []
    fields(thinks_unless("nothing"), notes)
    assert notes == ["WARNING: the model thinks although it was asked not to"]


def test_no_usage_is_said_once_at_the_start():
    notes: list[str] = []

    def script(request: Request) -> Answer:
        return events([chunk(content=f"text {request.number}"), chunk("stop")])

    run(script, one, varied=False, notes=notes)
    assert notes == ["the endpoint sends no usage: token counts are unknown"]


def test_a_server_that_is_loading_is_waited_for():
    def script(request: Request) -> Answer:
        return error(503, "Loading model") if request.number < 3 else GOOD

    notes: list[str] = []
    assert run(script, one, notes=notes).text == "a good reply"
    assert notes[0] == "no answer yet, waiting: HTTP 503 Loading model"
    assert "gave the same answer 3 times: HTTP 503 Loading model; check --base-url" in notes[1]
    assert len(notes) == 2


def test_the_probe_gives_up_too():
    with pytest.raises(EndpointDown, match="is gone: gave up"):
        run(lambda request: page(502), one, give_up_after_minutes=0.05 / 60)


def model_of(**options: Any) -> Any:
    async def use(endpoint: Endpoint, server: Server) -> Any:
        return endpoint.sent["model"]

    return run(lambda request: GOOD, use, model=None, **options)


def test_the_only_model_is_taken():
    assert model_of(models=["only"]) == "only"


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ([], "give --model: .* serves no model"),
        (["one", "two"], "give --model: .* serves one, two"),
        ([f"m{i}" for i in range(30)], "m18, m19 and 10 more"),
        (None, "give --model: .* does not list its models .HTTP 404"),
    ],
)
def test_without_one_model_the_user_is_asked(models, words):
    with pytest.raises(EndpointRefused, match=words):
        model_of(models=models)


def test_the_hosted_model_is_the_default_there():
    endpoint = Endpoint([DEFAULT_BASE_URL + "/"], ["key"], None, Sampling(), notify=print)
    assert endpoint.sent["model"] == DEFAULT_MODEL
    asyncio.run(endpoint.__aexit__())
