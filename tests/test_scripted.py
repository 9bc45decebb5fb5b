"""The written replies of the dry run."""

from __future__ import annotations

import asyncio

import pytest
from asking import ask

from policy import (
    Stopped,
)
from policy.scripted import Scripted, ScriptedPolicy

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
