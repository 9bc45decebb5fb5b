"""What the probe finds out, and what it says, over sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asking import GOOD, TRANSPORT, Script, ask, is_probe, one, run
from server import Answer, Request, Server, chunk, error, events, page, stream, strict, usage

from policy import EndpointDown, EndpointRefused, Sampling
from policy.endpoint import Endpoint
from policy.key import DEFAULT_BASE_URL, DEFAULT_MODEL
from policy.probe import SEEDS, SHORT

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


# --- two seeds --------------------------------------------------------------------------------


def test_a_server_that_gives_one_reply_to_all_seeds_is_warned_of_before_the_run():
    notes: list[str] = []
    run(lambda request: GOOD, nothing, varied=False, notes=notes)
    assert len(notes) == 1
    assert "WARNING" in notes[0]
    assert "the same reply to three seeds" in notes[0]
    assert "do_sample" in notes[0]


def test_two_equal_replies_may_be_chance():
    def script(request: Request) -> Answer:
        return stream("same" if request.body["seed"] != SEEDS[2] else "other")

    notes: list[str] = []
    run(script, nothing, varied=False, notes=notes)
    assert notes == []


def test_equal_replies_are_what_temperature_0_asks_for():
    notes: list[str] = []
    run(lambda r: GOOD, nothing, varied=False, notes=notes, sampling=Sampling(temperature=0.0))
    assert notes == []


def test_empty_replies_say_nothing_about_seeds():
    """A model that only thinks within the few tokens, at a server that hides it."""
    notes: list[str] = []
    hidden = events([chunk(content=""), chunk("length"), usage(9, 48, 48)])
    run(lambda r: hidden, nothing, varied=False, notes=notes, sampling=Sampling(thinking=True))
    assert notes == []


def test_the_short_replies_are_short_and_the_first_question_asks_for_all():
    async def use(endpoint: Endpoint, server: Server) -> list[int]:
        return [request.body["max_tokens"] for request in server.requests]

    assert run([GOOD], use, sampling=Sampling(max_tokens=4000)) == [4000, SHORT, SHORT]
    assert run([GOOD], use, sampling=Sampling(max_tokens=7)) == [7, 7, 7]


def test_the_first_question_ends_with_the_first_word():
    """A server that would go on for minutes: the probe hangs up, and keeps nothing of it."""
    said = [chunk(content="word ")] * 10_000

    def script(request: Request) -> Answer:
        return events(said, gap=0.05) if is_probe(request) else GOOD

    async def use(endpoint: Endpoint, server: Server) -> str:
        return (await endpoint.sample(ask(), 1)).text

    assert run(script, use, stream="auto") == "a good reply"


def test_thinking_is_seen_in_the_first_words_of_a_stream():
    thought = [chunk(content=part) for part in ("<th", "ink>", "\n", "hm")]

    def script(request: Request) -> Answer:
        if "reasoning_effort" in request.body:
            return GOOD
        return events([*thought, *[chunk(content=" so")] * 10_000], gap=0.05)

    async def use(endpoint: Endpoint, server: Server) -> object:
        return endpoint.sent.get("reasoning_effort")

    assert run(script, use, stream="auto") == "none"


# --- what is said -----------------------------------------------------------------------------


async def nothing(endpoint: Endpoint, server: Server) -> None:
    pass


def test_a_probe_that_takes_long_says_what_it_waits_for(monkeypatch):
    monkeypatch.setattr("policy.endpoint.FIRST_WORD_SECONDS", 0.1)
    notes: list[str] = []
    run(lambda request: stream(f"{request.number}", delay=0.3), nothing, notes=notes)
    assert any("waiting for http://127.0.0.1" in n and "the first word of m" in n for n in notes)


def test_a_silent_server_is_named_while_it_is_waited_for(monkeypatch):
    monkeypatch.setattr("policy.endpoint.FIRST_WORD_SECONDS", 0.1)
    notes: list[str] = []
    answers = [Answer(end="hang")]

    def script(request: Request) -> Answer:
        return answers.pop() if answers else GOOD

    run(script, nothing, notes=notes, read_timeout_seconds=0.5)
    assert "the first word of m" in notes[0]
    assert any(note.startswith("no answer yet, waiting: ReadTimeout") for note in notes)


def test_giving_up_after_0_minutes_leaves_a_live_server_its_time():
    slow = lambda request: stream(f"{request.number}", delay=0.2)  # noqa: E731
    assert run(slow, one, give_up_after_minutes=0.0).text
    with pytest.raises(EndpointDown, match="gave up after --give-up-after 0 minutes"):
        run(lambda request: error(503, "gone"), one, give_up_after_minutes=0.0)


def test_https_on_a_port_of_http_is_told_at_once():
    async def go() -> None:
        async with Server(lambda request: GOOD) as server:
            address = server.base_url.replace("http:", "https:")
            endpoint = Endpoint([address], ["k"], "m", Sampling(), notify=print,
                                read_timeout_seconds=0.5)  # fmt: skip
            async with endpoint:
                await endpoint.probe()

    with pytest.raises(EndpointRefused, match="does the server speak https there, or http only"):
        asyncio.run(go())


@pytest.mark.parametrize("name", [None, "m"])
@pytest.mark.parametrize(
    ("words", "status"), [("No connected db.", 400), ("Invalid API key", 500), ("no", 401)]
)
def test_a_wrong_key_names_the_key(name, words, status):
    class Locked(Server):
        async def _send(self, writer: Any, answer: Answer) -> bool:
            return await super()._send(writer, error(status, words))

    async def go() -> None:
        async with Locked(lambda request: GOOD) as server:
            endpoint = Endpoint([server.base_url], ["k"], name, Sampling(), notify=print)
            async with endpoint:
                await endpoint.probe()

    with pytest.raises(EndpointRefused, match=rf"{words}; check the key: OPENAI_API_KEY"):
        asyncio.run(go())


def test_a_web_page_in_the_place_of_an_api():
    class Website(Server):
        async def _send(self, writer: Any, answer: Answer) -> bool:
            return await super()._send(writer, page(200))

    async def go(model: str | None, notes: list[str]) -> None:
        async with Website(lambda request: GOOD) as server:
            endpoint = Endpoint([server.base_url], ["k"], model, Sampling(), notify=notes.append,
                                give_up_after_minutes=0.02, backoff_seconds=0.01)  # fmt: skip
            async with endpoint:
                await endpoint.probe()

    with pytest.raises(EndpointRefused, match="is no list of models but text"):
        asyncio.run(go(None, []))
    notes: list[str] = []
    with pytest.raises(EndpointDown, match="text/html"):
        asyncio.run(go("m", notes))
    assert any("the same answer 3 times" in note and "--base-url" in note for note in notes)


def test_an_address_without_v1_is_said_where_it_lists_nothing():
    async def go() -> None:
        async with Server(lambda request: GOOD) as server:
            address = server.base_url.removesuffix("/v1")
            async with Endpoint([address], ["k"], None, Sampling(), notify=print) as endpoint:
                await endpoint.probe()

    with pytest.raises(EndpointRefused, match=r"end --base-url in /v1: .*HTTP 404"):
        asyncio.run(go())


# --- the model's name -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked_for", "listed"),
    [
        ("m", ["m"]),
        ("Qwen/Qwen3-4B", ["Qwen3-4B"]),
        ("gemini-flash", ["models/gemini-flash", "models/other"]),
        ("qwen3", ["qwen3:latest"]),
        ("qwen3-4b", ["/models/Qwen3-4B.gguf"]),
        ("openai/gpt", ["openai/*"]),
        ("anything", []),
        ("anything", None),
    ],
)
def test_a_name_that_the_server_knows_some_way(asked_for, listed):
    notes: list[str] = []
    run([GOOD], nothing, model=asked_for, models=listed, notes=notes)
    assert notes == []


def test_a_server_of_one_model_does_not_answer_for_another():
    with pytest.raises(EndpointRefused, match="what it serves is qwen: give that as --model"):
        run([GOOD], nothing, model="llama", models=["qwen"])


def test_a_name_that_is_not_among_many_is_warned_of():
    notes: list[str] = []
    run([GOOD], nothing, model="llama", models=["qwen", "mistral"], notes=notes)
    assert notes == [notes[0]]
    assert notes[0].startswith("WARNING: llama is not among the 2 models")


# --- --extra-body -----------------------------------------------------------------------------


def test_further_fields_are_sent_and_are_part_of_the_settings():
    extra = {"top_k": 20, "chat_template_kwargs": {"style": "x"}, "reasoning_effort": "low"}
    sent = fields(lambda request: GOOD, extra_body=extra)
    assert sent["top_k"] == 20
    assert sent["chat_template_kwargs"] == {"enable_thinking": False, "style": "x"}
    assert sent["reasoning_effort"] == "low"


def test_a_further_field_that_is_refused_is_never_dropped():
    def script(request: Request) -> Answer:
        return error(400, "Unrecognized argument: min_p") if "min_p" in request.body else GOOD

    with pytest.raises(EndpointRefused, match="refuses min_p of --extra-body: HTTP 400"):
        run(script, nothing, extra_body={"min_p": 0.1})
