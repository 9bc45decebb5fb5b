"""The endpoint against a server that misbehaves in every way a server was seen to, over sockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asking import GOOD, ask, asked, is_probe, one, run, tries
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
    stream,
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
from replies import extract_program

pytestmark = pytest.mark.usefixtures("stream_flag")  # over both transports


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


def test_an_outage_within_the_deadline_is_told_with_its_end():
    notes: list[str] = []
    failing = iter([error(503, "gone")] * 4)
    probes_failing = iter([GOOD, *[error(503, "still gone")] * 3])

    def script(request: Request) -> Answer:
        return next(probes_failing if is_probe(request) else failing, GOOD)

    async def use(endpoint: Endpoint, server: Server) -> None:
        replies = await asyncio.gather(*(endpoint.sample(ask(), seed) for seed in range(3)))
        assert {reply.text for reply in replies} == {"a good reply"}

    run(script, use, notes=notes, outage_seconds=0.0, concurrency=3)
    assert notes.count("the endpoint answers again") == sum(n.startswith("paused") for n in notes)
    assert notes[-1] == "the endpoint answers again"


def test_a_failure_that_takes_as_long_as_an_outage_still_ends():
    """The endpoint answers its probes, so it is this request that gets no reply."""
    poison = lambda request: GOOD if is_probe(request) else error(500, "poison")  # noqa: E731
    with pytest.raises(EndpointDown, match="answers, but gave a request no whole reply in twice"):
        run(poison, one, outage_seconds=0.0, sample_deadline_seconds=0.3, backoff_seconds=0.02)


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
