"""Tokens -> sampled tokens, many prompts at once, by llama.cpp in this process.

One thread decodes. A free row of the batch takes the prompt that has waited longest, with what
another row's cache holds of it already, and then all rows sample token by token together. The
thread takes every core and gives way to the judge, by a lower priority.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import llama_cpp as c
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

WINDOW = 4096  # most tokens of prompt and reply, where the model was trained on as many
CHUNK = 512  # tokens of a prompt that are decoded in one go
NICE = 10


class DecoderError(Exception):
    """The file is no chat model, or does not fit; its text is one line for the user."""


class Request(NamedTuple):
    tokens: list[int]
    seed: int
    most: int
    future: Future[list[int]]


@dataclass
class Row:
    """A row of the batch: the tokens in its cache, and the request that it serves, if any."""

    id: int
    held: list[int] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    request: Request | None = None
    sampler: Any = None


# llama.cpp says much, and to stderr. The callback is kept: C has no reference to it.
_QUIET = c.llama_log_callback(lambda level, text, data: None)


class Decoder:
    """A model of a .gguf file, and its rows; a context manager.

    Args:
        path: of the file.
        rows: prompts at once; each takes memory for a window.
        temperature: 0 is greedy.

    Raises:
        DecoderError: the file is no chat model, or there is too little memory.
    """

    def __init__(self, path: Path, rows: int, temperature: float) -> None:
        c.llama_log_set(_QUIET, ctypes.c_void_p())
        try:
            self._text = c.Llama(str(path), vocab_only=True, verbose=False)
            template = self._text.metadata["tokenizer.chat_template"]
        except (ValueError, KeyError, OSError) as error:
            raise DecoderError(f"{path} is no .gguf of a chat model ({error})") from None
        self._model = c.llama_model_load_from_file(
            str(path).encode(), c.llama_model_default_params()
        )
        if not self._model:
            raise DecoderError(f"{path} could not be loaded: is there memory for it?")
        how = c.llama_context_default_params()
        self.window: int = min(WINDOW, c.llama_model_n_ctx_train(self._model))
        how.n_ctx, how.n_seq_max = rows * self.window, rows
        how.n_batch = how.n_ubatch = self._most = max(CHUNK, rows)
        self.cores = how.n_threads = how.n_threads_batch = len(os.sched_getaffinity(0))
        self._context = c.llama_init_from_model(self._model, how)
        if not self._context:
            raise DecoderError(
                f"there is no memory for {rows} replies of {self.window} tokens at once: use a "
                "smaller --concurrency"
            )
        self._memory = c.llama_get_memory(self._context)
        self._vocab = c.llama_model_get_vocab(self._model)
        self._batch = c.llama_batch_init(self._most, 0, 1)
        names = (
            c.llama_vocab_get_text(self._vocab, token).decode() if token >= 0 else ""
            for token in (self._text.token_eos(), self._text.token_bos())
        )
        self._format = Jinja2ChatFormatter(template, *names)
        self._temperature = temperature
        self._rows = [Row(number) for number in range(rows)]
        self._waiting: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._closing = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="decoder", daemon=True)

    def __enter__(self) -> Decoder:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End the thread; replies that it has begun are not waited for, and are cancelled."""
        self._closing = True
        self._waiting.put(None)
        self._thread.join()
        c.llama_batch_free(self._batch)
        c.llama_free(self._context)
        c.llama_model_free(self._model)
        self._text.close()

    def encode(self, messages: Sequence[dict[str, str]], **template: Any) -> list[int]:
        """Messages -> tokens of the prompt, by the model's own chat template."""
        prompt = self._format(messages=list(messages), **template).prompt
        tokens: list[int] = self._text.tokenize(prompt.encode(), add_bos=False, special=True)
        return tokens

    def text(self, sampled: list[int]) -> str:
        text: bytes = self._text.detokenize(sampled)
        return text.decode(errors="replace")

    def ended(self, sampled: list[int]) -> bool:
        """Whether the model ended the reply, and not its length."""
        return bool(sampled) and bool(c.llama_vocab_is_eog(self._vocab, sampled[-1]))

    def sample(self, tokens: list[int], seed: int, most: int) -> Future[list[int]]:
        """Up to `most` tokens after a prompt, the one that ends it included.

        The seed keeps its low 32 bits. A seed decides a reply together with the rows beside it:
        sums of floats differ by their order.
        """
        request = Request(tokens, seed & 0xFFFFFFFF, most, Future())
        self._waiting.put(request)
        if self._error:  # set before the thread looked for the last time at what waits
            self._give_up(self._error)
        return request.future

    # --- the thread ---------------------------------------------------------------------------

    def _serve(self) -> None:
        thread = os.PRIO_PROCESS, threading.get_native_id()
        os.setpriority(*thread, max(NICE, os.getpriority(*thread)))
        try:
            while not self._closing:
                self._fill()
                if not self._closing:
                    self._step()
            self._error = CancelledError()
        except BaseException as error:
            self._error = error
        for row in self._rows:
            if row.request:
                row.request.future.set_exception(self._error)
                self._release(row)
        self._give_up(self._error)

    def _give_up(self, error: BaseException) -> None:
        """Nothing that waits is served any more."""
        with contextlib.suppress(queue.Empty):
            while True:
                request = self._waiting.get_nowait()
                if request and request.future.set_running_or_notify_cancel():
                    request.future.set_exception(error)

    def _fill(self) -> None:
        """Give each free row what waits; wait for something when no row is busy."""
        while not self._closing and not all(row.request for row in self._rows):
            if self._waiting.empty() and any(row.request for row in self._rows):
                return
            request = self._waiting.get()
            if request and request.future.set_running_or_notify_cancel():
                self._admit(request)

    def _admit(self, request: Request) -> None:
        """Give a free row the prompt but for its last token, and the request."""
        tokens = request.tokens

        def held(row: Row) -> int:
            pairs = enumerate(zip(row.held, tokens, strict=False))
            end = min(len(row.held), len(tokens))
            return min(next((n for n, (a, b) in pairs if a != b), end), len(tokens) - 1)

        source = max(self._rows, key=lambda row: (held(row), row.request is None))
        shared = held(source)
        row = source
        if source.request is not None:
            # The row that holds least of use: an emptier cache is the better one to lose.
            row = min((r for r in self._rows if r.request is None), key=lambda r: len(r.held))
            c.llama_memory_seq_rm(self._memory, row.id, -1, -1)
            c.llama_memory_seq_cp(self._memory, source.id, row.id, -1, -1)
        if not c.llama_memory_seq_rm(self._memory, row.id, shared, -1):
            shared = 0  # a model whose cache keeps no single tokens
            c.llama_memory_seq_rm(self._memory, row.id, -1, -1)
        row.held, row.sampled, row.request = tokens[:shared], [], request
        row.sampler = self._sampler(request.seed)
        for start in range(shared, len(tokens) - 1, self._most):
            part = tokens[start : min(start + self._most, len(tokens) - 1)]
            self._decode([(row, token) for token in part], wanted=False)

    def _sampler(self, seed: int) -> Any:
        chain = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
        if self._temperature:
            c.llama_sampler_chain_add(chain, c.llama_sampler_init_temp(self._temperature))
            c.llama_sampler_chain_add(chain, c.llama_sampler_init_dist(seed))
        else:
            c.llama_sampler_chain_add(chain, c.llama_sampler_init_greedy())
        return chain

    def _step(self) -> None:
        """One token more for each row that serves a request."""
        busy = [(row, row.request) for row in self._rows if row.request]
        last = [(row, (row.sampled or request.tokens)[-1]) for row, request in busy]
        self._decode(last, wanted=True)
        for n, (row, request) in enumerate(busy):
            token = c.llama_sampler_sample(row.sampler, self._context, n)
            row.sampled.append(token)
            if c.llama_vocab_is_eog(self._vocab, token) or len(row.sampled) == request.most:
                self._release(row)
                request.future.set_result(row.sampled)

    def _release(self, row: Row) -> None:
        c.llama_sampler_free(row.sampler)
        row.request = row.sampler = None

    def _decode(self, tokens: list[tuple[Row, int]], *, wanted: bool) -> None:
        """Decode a token or several of each row, behind what it holds."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for n, (row, token) in enumerate(tokens):
            batch.token[n], batch.pos[n] = token, len(row.held)
            batch.n_seq_id[n], batch.seq_id[n][0] = 1, row.id
            batch.logits[n] = wanted
            row.held.append(token)
        if code := c.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode gave {code} for {len(tokens)} tokens")
