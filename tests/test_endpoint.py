"""The endpoint against a server that misbehaves in every way a server was seen to, over sockets."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import pytest
from server import (
    Answer,
    Deterministic,
    Request,
    Server,
    chunk,
    error,
    event,
    events,
    failures,
    page,
    stream,
    strict,
    usage,
)

from policy import (
    BudgetSpent,
    EndpointDown,
    EndpointRefused,
    Reply,
    Sampling,
    Stopped,
)
from policy.endpoint import Endpoint
from policy.failures import retry_after
from policy.key import DEFAULT_BASE_URL, DEFAULT_MODEL, find_key
from policy.probe import PROBE, VARIED
from policy.scripted import Scripted, ScriptedPolicy
from replies import extract_program

T = TypeVar("T")
Script = Callable[[Request], Answer]
TRANSPORT = {"stream": "on"}


@pytest.fixture(autouse=True, params=["on", "off"], ids=["streamed", "whole"])
def stream_flag(request) -> str:
    """Every test of this file runs over both transports, but for those of streams alone."""
    TRANSPORT["stream"] = request.param
    return str(request.param)


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


# --- replies ----------------------------------------------------------------------------------


def test_a_reply_is_put_together_from_its_chunks():
    reply = run([GOOD], one)
    assert (reply.text, reply.finish_reason, reply.outcome) == ("a good reply", "stop", None)
    assert (reply.prompt_tokens, reply.completion_tokens, reply.reasoning_tokens) == (7, 3, None)
    assert reply.reasoning == ""
    assert reply.seconds > 0


def test_without_usage_the_counts_are_none():
    reply = run([events([chunk(content="text"), chunk("length")])], one)
    assert (reply.text, reply.finish_reason) == ("text", "length")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.reasoning_tokens) == (None,) * 3


def test_usage_may_come_in_the_chunk_that_ends_the_reply():
    last = {**chunk("stop"), "usage": usage(5, 2, 1)["usage"]}
    reply = run([events([{**chunk(content="text"), "usage": None}, last])], one)
    assert (reply.prompt_tokens, reply.completion_tokens, reply.reasoning_tokens) == (5, 2, 1)


def test_a_server_that_does_not_stream_is_understood():
    choice = {"message": {"content": "whole"}, "finish_reason": "stop"}
    body = {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    reply = run([Answer((json.dumps(body).encode(),))], one)
    assert (reply.text, reply.finish_reason, reply.completion_tokens) == ("whole", "stop", 2)


def test_a_stream_that_breaks_after_its_finish_reason_counts(stream_flag):
    chunks = [chunk(content="whole"), chunk("stop")]
    reply = run([events(chunks, done=False, end="cut"), GOOD], one)
    streamed = stream_flag == "on"
    assert (reply.text, reply.completion_tokens) == (("whole", None) if streamed else
                                                     ("a good reply", 3))  # fmt: skip


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_sent_apart(name):
    said = [chunk(**{name: "hm"}), chunk(**{name: ", so"}), chunk(content="answer"), chunk("stop")]
    reply = run([events([*said, usage(1, 9, 7)])], one)
    assert (reply.text, reply.reasoning, reply.reasoning_tokens) == ("answer", "hm, so", 7)


@pytest.mark.parametrize(
    ("content", "text", "reasoning"),
    [
        ("plain", "plain", ""),
        ("<think>\nhm\n</think>\n\nanswer", "answer", "hm"),
        ("\n<think>\n\n</think>\n\nanswer", "answer", ""),
        ("<think>\nhm, but", "", "hm, but"),
        ("hm\n</think>\n\nanswer", "answer", "hm"),
        ("say <think> aloud", "say <think> aloud", ""),
    ],
)
def test_reasoning_inside_the_content(content, text, reasoning):
    middle = len(content) // 2
    halves = [chunk(content=content[:middle]), chunk(content=content[middle:]), chunk("length")]
    reply = run([events(halves)], one)
    assert (reply.text, reply.reasoning) == (text, reasoning)
    assert reply.outcome == (None if text else "empty reply")


FENCED = "```python\nn = int(input())\nprint(n * 2)\n```"


@pytest.mark.parametrize(
    "content",
    [
        f"{FENCED}\n</think>",
        f"{FENCED}\n<think>ok?</think>",
        f"{FENCED}\n<think></think>\n",
        f"No `</think>` here.\n{FENCED}",
        f"<think>\nhm\n</think>\n{FENCED}\n</think>\n",
        f"<reasoning>\n```python\nprint(0)\n```\n</reasoning>\n{FENCED}",
        f"```python\nprint(int(input()))\n```\n</think>\n{FENCED}<|im_end|>",
    ],
)
@pytest.mark.parametrize("apart", ["", "hm"])
def test_the_program_of_a_reply_survives_the_way_that_replies_take(content, apart):
    parts = [content[at : at + 7] for at in range(0, len(content), 7)]
    said = [chunk(reasoning=apart)] * bool(apart) + [chunk(content=part) for part in parts]
    reply = run([events([*said, chunk("stop")])], one)
    assert extract_program(reply.text) == "n = int(input())\nprint(n * 2)"
    assert reply.outcome is None


def test_tags_are_left_alone_when_reasoning_came_apart():
    said = [chunk(reasoning="hm"), chunk(content="print('</think>')"), chunk("stop")]
    reply = run([events(said)], one)
    assert (reply.text, reply.reasoning) == ("print('</think>')", "hm")


def test_characters_that_are_cut_in_two_are_joined():
    cut = (
        event(chunk(content="\ud83d")),
        event(chunk(content="\ude00 \ud83d")),
        event(chunk("stop")),
    )
    assert run([Answer(cut, headers={"content-type": "text/event-stream"})], one).text == "😀 �"


def test_line_separators_inside_a_reply_do_not_split_an_event():
    raw = json.dumps(chunk(content="a\u2028b\x85c"), ensure_ascii=False).encode()
    answer = Answer(
        (event(raw), event(chunk("stop"))), headers={"content-type": "text/event-stream"}
    )
    assert run([answer], one).text == "a\u2028b\x85c"


@pytest.mark.parametrize(
    ("answer", "outcome", "finish_reason", "text"),
    [
        (
            events([chunk(role="assistant", content=None), chunk("length")]),
            "empty reply",
            "length",
            "",
        ),
        (events([chunk(content=" \n"), chunk("stop")]), "empty reply", "stop", " \n"),
        (events([chunk(refusal="I won't"), chunk("stop")]), "refusal", "stop", "I won't"),
        (events([chunk(content="I"), chunk("content_filter")]), "refusal", "content_filter", "I"),
        (error(400, "filtered", code="content_filter"), "refusal", "none", ""),
        (error(403, "Your input was flagged"), "refusal", "none", ""),
        (
            error(400, "This model's maximum context length is 8192 tokens."),
            "prompt too long",
            "none",
            "",
        ),
        (
            error(400, "the request exceeds the available context size", type="x", code=400),
            "prompt too long",
            "none",
            "",
        ),
        (
            events([{"error": {"message": "The input is longer than the model's context length"}}]),
            "prompt too long",
            "none",
            "",
        ),
    ],
)
def test_outcomes_of_one_rollout(answer, outcome, finish_reason, text):
    reply = run([answer], one)
    assert (reply.outcome, reply.finish_reason, reply.text) == (outcome, finish_reason, text)


# --- failures that another try may mend -------------------------------------------------------


@pytest.mark.parametrize("failure", failures())
def test_a_failed_attempt_is_made_again(failure):
    notes: list[str] = []
    assert run([failure, failure, GOOD], tries, notes=notes) == 3
    assert len(notes) == 1
    assert notes[0].startswith("retrying: ")


@pytest.mark.parametrize(
    "failure",
    [
        error(409, "conflict"),
        error(529, "overloaded"),
        error(303, "no address to go to"),
        error(429, "Quota exceeded. Please retry in 3 s."),
        error(200, "rate limited", code="rate_limit_exceeded"),
        Answer((b'{"error": "overloaded"}',)),
        Answer((b'{"choices": [{"message": {"content": "half"}, "finish_reason": null}]}',)),
        Answer((b"[]",)),
        Answer((b"data: {not json\n\n",), headers={"content-type": "text/event-stream"}),
        Answer((b"data: \xff\xfe\n\n",), headers={"content-type": "text/event-stream"}),
        Answer((b'data: {"choices": [null]}\n\n',), headers={"content-type": "text/event-stream"}),
        events([]),
        events([chunk(content="half"), chunk("abort")]),
    ],
)
def test_rarer_failures_are_made_again_too(failure):
    assert run([failure, GOOD], tries) == 2


@pytest.mark.parametrize(
    "silence", [Answer(end="hang"), events([chunk(content="half")], done=False, end="hang")]
)
def test_silence_ends_an_attempt(silence):
    assert run([silence, GOOD], tries, read_timeout_seconds=0.5) == 2


def test_a_reply_that_drips_ends_at_the_deadline():
    notes: list[str] = []
    drip = events([chunk(content="x")] * 1000, gap=0.05)
    options = {"sample_deadline_seconds": 1.0, "notes": notes}
    assert run([drip, GOOD], tries, **options) == 2
    assert notes == [
        "paused, waiting for the endpoint: no whole reply in 1 seconds",
        "the endpoint answers again",
    ]


@pytest.mark.parametrize("stream_flag", ["on"], indirect=True)
def test_a_server_that_stops_after_the_finish_reason_costs_no_reply(stream_flag):
    hanging = events([chunk(content="whole"), chunk("stop")], done=False, end="hang")
    assert run([hanging, GOOD], one, read_timeout_seconds=0.1).text == "whole"


def test_a_redirect_to_the_result_is_followed():
    async def use(endpoint: Endpoint, server: Server) -> str:
        server.result = GOOD
        return (await endpoint.sample(ask(), 1)).text

    assert run([Answer(status=303, headers={"location": "/v1/result"})], use) == "a good reply"


def test_retry_after_is_waited_for():
    async def use(endpoint: Endpoint, server: Server) -> float:
        await endpoint.sample(ask(), 1)
        first, second = server.requests[-2:]
        return second.at - first.at

    assert run([error(429, "slow down", {"retry-after": "0.4"}), GOOD], use) >= 0.4
    assert run([error(503, "slow down", {"retry-after-ms": "400"}), GOOD], use) >= 0.4


def test_retry_after_of_any_length_is_read():
    assert retry_after({"retry-after": "86400"}) == 86400
    assert retry_after({"retry-after-ms": "1500", "retry-after": "9"}) == 1.5
    assert retry_after({"retry-after": "Fri, 31 Dec 2999 23:59:59 GMT"}) > 1e9
    for text in ("", "soon", "nan", "inf", "-1", "Fri, 31 Dec 1999 23:59:59 GMT"):
        assert retry_after({"retry-after": text}) is None


def test_a_retry_after_past_the_deadline_pauses_everyone_until_then():
    async def use(endpoint: Endpoint, server: Server) -> float:
        first = asyncio.create_task(endpoint.sample(ask("a"), 1))
        while not endpoint.paused:
            await asyncio.sleep(0.001)
        await asyncio.gather(first, *(endpoint.sample(ask("b"), i) for i in range(3)))
        sent = asked(server)
        assert [request.user for request in sent].count("b") == 3
        later = [request.at for request in server.requests if request.number > sent[0].number]
        return min(later) - sent[0].at

    answers = [error(429, "come back", {"retry-after": "1"}), GOOD]
    assert run(answers, use, sample_deadline_seconds=0.9) >= 1


def test_a_retry_after_longer_than_the_patience_ends_the_run_at_once():
    with pytest.raises(EndpointDown, match=r"asks to wait 60\.0 minutes: gave up .* 30 minutes"):
        run([error(429, "tomorrow", {"retry-after": "3600"})], one)


def test_an_endpoint_that_is_gone_ends_the_run_for_all():
    def script(request: Request) -> Answer:
        return stream("ready") if request.number == 0 else error(503, "gone")

    async def use(endpoint: Endpoint, server: Server) -> list[Any]:
        samples = [endpoint.sample(ask(), seed) for seed in range(20)]
        return await asyncio.gather(*samples, return_exceptions=True)

    options = {"sample_deadline_seconds": 0.1, "give_up_after_minutes": 0.1 / 60, "concurrency": 4}
    notes: list[str] = []
    results = run(script, use, notes=notes, **options)
    assert {type(result) for result in results} == {EndpointDown}
    assert "is gone: gave up after --give-up-after" in str(results[0])
    assert "HTTP 503 gone" in str(results[0])
    assert any(note.startswith("paused") for note in notes)


def test_replies_under_way_are_kept_when_the_run_ends():
    def script(request: Request) -> Answer:
        slow = stream("a good reply", delay=0.3)
        return {"slow": slow, "other": error(429, "tomorrow", {"retry-after": "99999"})}.get(
            request.user, GOOD
        )

    async def use(endpoint: Endpoint, server: Server) -> str:
        slow = asyncio.create_task(endpoint.sample(ask("slow"), 1))
        await asyncio.sleep(0)
        others = [endpoint.sample(ask("other"), seed) for seed in range(20)]
        results = await asyncio.gather(*others, return_exceptions=True)
        assert {type(result) for result in results} == {EndpointDown}
        assert not slow.done()
        return (await slow).text

    assert run(script, use, concurrency=4) == "a good reply"


def test_an_endpoint_that_comes_back_is_asked_again():
    probes = 0

    def script(request: Request) -> Answer:
        nonlocal probes
        probes += is_probe(request)
        if probes == 1 and not is_probe(request):
            return error(503, "gone", {"retry-after": "1"})
        return error(503, "gone") if 1 < probes < 5 else GOOD

    async def use(endpoint: Endpoint, server: Server) -> list[Reply]:
        return await asyncio.gather(*(endpoint.sample(ask(), seed) for seed in range(8)))

    replies = run(script, use, sample_deadline_seconds=0.9)
    assert {reply.text for reply in replies} == {"a good reply"}
    assert probes >= 5


@pytest.mark.parametrize("headers", [{}, {"retry-after": "0"}, {"retry-after": "0.1"}])
def test_a_request_that_always_fails_beside_an_endpoint_that_answers_ends_the_run(headers):
    async def use(endpoint: Endpoint, server: Server) -> None:
        with pytest.raises(
            EndpointDown, match="answers, but gave a request no whole reply in twice"
        ):
            await endpoint.sample(ask(), 1)
        assert len(server.requests) < 30  # the waits grow though the server asks for none

    options = {"sample_deadline_seconds": 0.3, "backoff_seconds": 0.05}
    run([error(500, "poison", headers)], use, **options)


def test_all_replies_arrive_although_a_quarter_of_the_requests_fail():
    server = Deterministic(latency=0.0, sigma=0.0, tokens=3, fail=0.25)

    async def use(endpoint: Endpoint, _: Server) -> int:
        replies = await asyncio.gather(*(endpoint.sample(ask(), seed) for seed in range(80)))
        assert {reply.text for reply in replies} == {" token token token"}
        return endpoint.retries

    assert run(server, use) > 8


# --- refusals: never asked again --------------------------------------------------------------

REFUSALS = [
    (error(401, "Incorrect API key provided"), "refuses access: HTTP 401 Incorrect API key"),
    (error(403, "not in your region"), "refuses access: HTTP 403 not in your region"),
    (error(402, "Insufficient credits"), "no credit at .*: HTTP 402 Insufficient credits"),
    (error(429, "You exceeded it", code="insufficient_quota"), "no credit at .*: HTTP 429"),
    (error(429, "Daily token quota exceeded"), "no credit at .*: HTTP 429 Daily"),
    (error(200, "Insufficient credits", code=402), "no credit at .*: Insufficient credits"),
    (error(404, "The model `m` does not exist"), "no model m: HTTP 404 The model `m`"),
]


@pytest.mark.parametrize(("answer", "words"), REFUSALS)
def test_a_refusal_is_final_before_the_run(answer, words):
    async def use(endpoint: Endpoint, server: Server) -> None:
        with pytest.raises(EndpointRefused, match=words):
            await endpoint.probe()
        assert len(server.requests) == 1

    run(lambda request: answer, use, probe=False)


@pytest.mark.parametrize(("answer", "words"), REFUSALS)
def test_a_refusal_is_final_during_the_run_for_all(answer, words):
    async def use(endpoint: Endpoint, server: Server) -> None:
        samples = [endpoint.sample(ask(), seed) for seed in range(50)]
        results = await asyncio.gather(*samples, return_exceptions=True)
        assert {type(result) for result in results} == {EndpointRefused}
        assert len(asked(server)) <= 4

    run([answer], use, concurrency=4)


def test_an_error_text_is_one_line():
    with pytest.raises(EndpointRefused) as caught:
        run([error(401, "first\nsecond\t third")], one)
    assert "HTTP 401 first second third; check the key: OPENAI_API_KEY" in str(caught.value)


def test_a_bad_request_gets_another_try_and_then_ends_the_run():
    assert run([error(400, "Provider returned error"), GOOD], tries) == 2
    with pytest.raises(EndpointRefused, match="refuses a request: HTTP 400 Provider"):
        run([error(400, "Provider returned error")], one)


def test_nobody_listens_there():
    async def go() -> None:
        async with Server(lambda request: GOOD) as server:
            pass
        endpoint = Endpoint([server.base_url], ["key"], "m", Sampling(), notify=print)
        async with endpoint:
            await endpoint.probe()

    with pytest.raises(EndpointRefused, match="cannot connect to http://127"):
        asyncio.run(go())


@pytest.mark.parametrize("address", ["localhost:8000/v1", "http://localhost:port/v1", "http://"])
def test_what_is_no_address(address):
    with pytest.raises(EndpointRefused, match=r"^--base-url "):
        Endpoint([address], ["key"], "m", Sampling(), notify=print)


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


# --- slots, stopping, budget ------------------------------------------------------------------


def test_slots_are_kept_and_given_in_the_order_of_the_calls():
    most = 0

    async def use(endpoint: Endpoint, server: Server) -> list[str]:
        async def sample(i: int) -> None:
            nonlocal most
            await endpoint.sample(ask(str(i)), i)
            most = max(most, endpoint.in_flight + 1)

        await asyncio.gather(*(sample(i) for i in range(40)))
        assert endpoint.in_flight == 0
        return [request.user for request in server.requests if not is_probe(request)]

    order = run([GOOD], use, concurrency=1)
    assert order == [str(i) for i in range(40)]
    run([stream("text", delay=0.01)], use, concurrency=4)
    assert most == 4


def test_thousands_may_wait_and_all_are_stopped_at_once():
    async def use(endpoint: Endpoint, server: Server) -> list[Any]:
        samples = [asyncio.create_task(endpoint.sample(ask(), i)) for i in range(10_000)]
        while len(asked(server)) < 8:
            await asyncio.sleep(0.001)
        endpoint.stop()
        endpoint.stop()
        results = await asyncio.gather(*samples, return_exceptions=True)
        with pytest.raises(Stopped):
            await endpoint.sample(ask(), 0)
        assert len(asked(server)) == 8
        return results

    results = run([stream("a good reply", delay=0.2)], use, concurrency=8)
    assert [reply.text for reply in results[:8]] == ["a good reply"] * 8
    assert {type(result) for result in results[8:]} == {Stopped}


def test_stopping_does_not_wait_for_a_retry_after():
    async def use(endpoint: Endpoint, server: Server) -> None:
        samples = [asyncio.create_task(endpoint.sample(ask(), i)) for i in range(3)]
        while endpoint.retries < 2:
            await asyncio.sleep(0.001)
        endpoint.stop()
        results = await asyncio.gather(*samples, return_exceptions=True)
        assert {type(result) for result in results} == {Stopped}

    run([error(429, "slow down", {"retry-after": "1000"})], use, concurrency=2)


def test_stopping_ends_a_pause_in_the_middle_of_a_probe():
    def script(request: Request) -> Answer:
        if is_probe(request) and request.number:
            return Answer(end="hang")
        return GOOD if is_probe(request) else error(503, "gone", {"retry-after": "1"})

    async def use(endpoint: Endpoint, server: Server) -> None:
        sample = asyncio.create_task(endpoint.sample(ask(), 0))
        while len(server.requests) < 5:
            await asyncio.sleep(0.001)
        endpoint.stop()
        with pytest.raises(Stopped):
            await sample

    run(script, use, sample_deadline_seconds=0.9)


def test_stopping_ends_a_pause():
    async def use(endpoint: Endpoint, server: Server) -> None:
        samples = [asyncio.create_task(endpoint.sample(ask(), i)) for i in range(3)]
        while not endpoint.paused:
            await asyncio.sleep(0.001)
        endpoint.stop()
        results = await asyncio.gather(*samples, return_exceptions=True)
        assert {type(result) for result in results} == {Stopped}

    run([error(429, "slow down", {"retry-after": "100"})], use, sample_deadline_seconds=9.0)


def test_a_sample_that_is_cancelled_frees_its_slot():
    async def use(endpoint: Endpoint, server: Server) -> str:
        task = asyncio.create_task(endpoint.sample(ask(), 0))
        while not asked(server):
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return (await endpoint.sample(ask(), 1)).text

    assert run([Answer(end="hang"), GOOD], use, concurrency=1) == "a good reply"


@pytest.mark.parametrize("counted", [True, False])
def test_the_budget_is_kept(counted):
    text = " ".join(["word"] * 50)
    said = [chunk(content=text), chunk("stop")]
    answer = events([*said, usage(20, 50)] if counted else said)
    notes: list[str] = []

    async def use(endpoint: Endpoint, server: Server) -> tuple[int, int]:
        samples = [endpoint.sample(ask("x" * 60), i) for i in range(100)]
        results = await asyncio.gather(*samples, return_exceptions=True)
        done = [result for result in results if isinstance(result, Reply)]
        assert {type(result) for result in results} == {Reply, BudgetSpent}
        assert "--max-total-tokens 2,000" in str(results[-1])
        return len(done), endpoint.tokens_used

    options = {"max_total_tokens": 2000, "sampling": Sampling(max_tokens=100), "notes": notes}
    done, used = run([answer], use, **options)
    assert done >= 15
    assert 2000 - 130 < used <= 2000
    assert any("counts a token for 3 characters" in note for note in notes) is not counted


@pytest.mark.parametrize("stream_flag", ["on"], indirect=True)
def test_broken_replies_count_against_the_budget(stream_flag):
    async def use(endpoint: Endpoint, server: Server) -> int:
        before = endpoint.tokens_used
        await endpoint.sample(ask(), 1)
        return endpoint.tokens_used - before

    assert run([events([chunk(content="x" * 300)], done=False), GOOD], use) == 10 + 104


# --- the key ----------------------------------------------------------------------------------


def test_the_key_of_the_hosted_model(monkeypatch, tmp_path):
    monkeypatch.delenv("WHILEAI_API_KEY", raising=False)
    monkeypatch.delenv("WHILEAI_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "not for this endpoint")
    for content in (None, "", "[]", '{"api_key": null}', '{"api_key": ""}'):
        if content is not None:
            (tmp_path / ".whileai").mkdir(exist_ok=True)
            (tmp_path / ".whileai" / "credentials.json").write_text(content)
        with pytest.raises(EndpointRefused, match=r"^no key for the hosted model: "):
            find_key(DEFAULT_BASE_URL)
    (tmp_path / ".whileai" / "credentials.json").write_text('{"api_key": "zp_saved"}')
    assert find_key(DEFAULT_BASE_URL) == "zp_saved"
    monkeypatch.setenv("WHILEAI_API_KEY", " zp_set\n")
    assert find_key(DEFAULT_BASE_URL + "/") == "zp_set"
    monkeypatch.setenv("WHILEAI_API_KEY", "zp_\u00e9")
    with pytest.raises(EndpointRefused, match="the key in WHILEAI_API_KEY"):
        find_key(DEFAULT_BASE_URL)


def test_the_key_of_another_endpoint(monkeypatch):
    monkeypatch.setenv("WHILEAI_API_KEY", "not for this endpoint")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert find_key("http://localhost:8000/v1") == "no-key"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert find_key("http://localhost:8000/v1") == "sk-1"


# --- the scripted policy ----------------------------------------------------------------------


def test_the_scripted_policy_depends_on_the_request_alone():
    script = {
        "1_A. Sum": [Scripted("right", "stop", 1, 3), Scripted("wrong", "length", 3, 1)],
        "1_B. Max": [Scripted("max", "stop", 1, 1)],
    }

    async def texts(prompt: str) -> list[str]:
        scripted = ScriptedPolicy(script)
        replies = [await scripted.sample(ask(prompt), seed) for seed in range(400)]
        assert {reply.completion_tokens for reply in replies} == {1}
        scripted.stop()
        with pytest.raises(Stopped):
            await scripted.sample(ask(prompt), 0)
        return [reply.text for reply in replies]

    fresh = asyncio.run(texts("1_A. Sum\nAdd."))
    assert fresh == asyncio.run(texts("1_A. Sum\nAdd."))
    assert 70 < fresh.count("right") < 130
    informed = asyncio.run(texts("1_A. Sum\nAdd.\n```python\n1\n```"))
    assert 270 < informed.count("right") < 330
    assert set(asyncio.run(texts("1_B. Max\n"))) == {"max"}
    with pytest.raises(KeyError, match="no scripted reply for"):
        asyncio.run(texts("2_A. Other"))
