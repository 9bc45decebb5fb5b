"""A stream's bytes -> its events, however they are cut."""

from __future__ import annotations

import random

import httpx2
import openai
import pytest

from policy.reply import Draft, Events

REQUEST = httpx2.Request("POST", "http://localhost/v1")


def fed(data: bytes, cuts: list[int]) -> tuple[list[bytes], bool]:
    events, found, before = Events(), [], 0
    for cut in [*cuts, len(data)]:
        found += events.feed(data[before:cut])
        before = cut
    found += events.feed(b"\n\n")  # as at the end of a stream
    return found, events.done


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_the_same_wherever_the_bytes_are_cut(end):
    lines = [
        b": a comment", b"event: message", b'data: {"a": 1}', b"", b'data:{"b":', b"data: 2}", b"",
        b"id: 7", b"", b"retry: 10", b"data: \xc3\xa9\xe2\x80\xa8", b"", b"data: [DONE]", b"", b"",
    ]  # fmt: skip
    data = end.join(lines)
    expected = [b' {"a": 1}', b'{"b":\n 2}', " \u00e9\u2028".encode()], True
    assert fed(data, []) == expected
    assert fed(data, list(range(len(data)))) == expected
    rng = random.Random(0)
    for _ in range(50):
        assert fed(data, sorted(rng.sample(range(len(data)), 5))) == expected


def test_an_error_line_of_llama_cpp():
    assert fed(b'error: {"code": 500}\n\n', []) == ([b'{"error":  {"code": 500}}'], False)


def test_what_came_before_a_broken_event_counts():
    draft = Draft()
    good = b'{"choices": [{"delta": {"content": "a"}}]}'
    with pytest.raises(ValueError, match="Expecting property name"):
        draft._add_all([good, good, b"{broken", good], REQUEST)
    assert "".join(draft.content) == "aa"


def test_an_error_among_the_events_is_raised_with_its_words():
    draft = Draft()
    good = b'{"choices": [{"delta": {"content": "a"}}]}'
    with pytest.raises(openai.APIError, match="the engine died"):
        draft._add_all([good, b'{"error": {"message": "the engine died"}}', good], REQUEST)
    assert draft.content == ["a"]


@pytest.mark.parametrize("data", [b"7", b'"text"', b"[[]]", b'{"choices": [3]}', b'{"usage": 3}'])
def test_what_is_no_chunk_is_refused(data):
    with pytest.raises(ValueError, match="not a chunk"):
        Draft()._add_all([data], REQUEST)


def test_null_stands_for_an_empty_object():
    draft = Draft()
    draft._add_all([b"null", b'{"choices": null}', b'{"choices": [{"delta": null}]}'], REQUEST)
    assert draft.finish_reason is None
