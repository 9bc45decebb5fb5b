"""An OpenAI-compatible endpoint that is asked until a reply is whole.

A run is tens of thousands of requests over hours, to whatever server the user has. Three rules
keep it whole. What the server refuses for good (key, model, credit, a field) is found by one
probe before anything is spent. A failed transport is never a failed program: a sample is asked
for again until it arrives whole, that is with a finish_reason. When an endpoint is gone, no new
request is started until it answers again; after --give-up-after minutes the run stops.

    sample -> slot (first come, first served) -> _persist: attempts until a deadline, then
    _outage: one sample probes while the others wait -> attempts again

The openai client sends, streams and maps errors; its own retries are off, since it retries no
broken stream and honours no long Retry-After.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import httpx2  # the openai client's own HTTP library: addresses, and errors of a body
import openai

from policy import (
    BudgetSpent,
    EndpointDown,
    EndpointRefused,
    Message,
    PolicyError,
    Reply,
    Sampling,
    Stopped,
)
from policy.failures import BadRequest, Retry, Unanswerable, explain, in_words
from policy.key import DEFAULT_BASE_URL, DEFAULT_MODEL
from policy.reply import Draft

T = TypeVar("T")

PROBE: list[Message] = [{"role": "user", "content": "Reply with the one word: ready"}]
PROBE_SEED = 2**53 - 1  # as large as the seeds of a run get


class Endpoint:
    """An OpenAI-compatible chat completions endpoint; an async context manager.

    Args:
        base_url: up to and with /v1.
        key: as find_key gives it.
        model: None: DEFAULT_MODEL at DEFAULT_BASE_URL, elsewhere the only model served.
        sampling: what is asked for.
        notify: called with one line for the user when something is worth one.
        concurrency: requests in flight.
        give_up_after_minutes: how long an endpoint may be gone.
        sample_deadline_seconds: how long a sample may take, retries included.
        read_timeout_seconds: longest silence in a reply. A server that queues is silent.
        max_total_tokens: budget, prompts included. A request starts only when it fits even if
            all in flight grow to max_tokens. Prompts are estimated for that (one token for 3
            characters), and so is all where the server sends no usage; broken replies count.
        backoff_seconds: first wait after a failure without Retry-After; doubles up to a minute.

    Attributes:
        in_flight: samples that hold a slot.
        retries: attempts that failed and were asked for again.
        tokens_used: prompt and completion tokens, those of broken replies estimated.
    """

    def __init__(
        self,
        base_url: str,
        key: str,
        model: str | None,
        sampling: Sampling,
        *,
        notify: Callable[[str], None],
        concurrency: int = 64,
        give_up_after_minutes: float = 30.0,
        sample_deadline_seconds: float = 1800.0,
        read_timeout_seconds: float = 600.0,
        max_total_tokens: int | None = None,
        backoff_seconds: float = 0.5,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        try:
            url = httpx2.URL(self.base_url)
        except httpx2.InvalidURL as error:
            raise EndpointRefused(f"--base-url {base_url} is no address: {error}") from error
        if not 0 < (url.port or 80) < 65_536:
            raise EndpointRefused(f"--base-url {base_url}: a port is 1 to 65535")
        if url.scheme not in ("http", "https") or not url.host:
            raise EndpointRefused(
                f"--base-url {base_url}: an address starts with http:// and a host"
            )
        self.in_flight = self.retries = self.tokens_used = 0
        self._model = model or (DEFAULT_MODEL if self.base_url == DEFAULT_BASE_URL else None)
        self._thinking = sampling.thinking
        self._max_tokens = sampling.max_tokens
        self._fields: dict[str, Any] = {
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "stream_options": {"include_usage": True},
            "chat_template_kwargs": {"enable_thinking": sampling.thinking},
        }
        self._seeded = True
        self._refused: list[str] = []
        self._notify = notify
        self._noted: set[str] = set()
        self._give_up = give_up_after_minutes * 60
        self._deadline = sample_deadline_seconds
        self._budget = max_total_tokens
        self._backoff = backoff_seconds
        self._slots = asyncio.Semaphore(concurrency)
        self._reserved = 0  # tokens that the requests in flight may come to
        self._freed = asyncio.Event()  # set when a request ends
        self._open = asyncio.Event()  # not set while the endpoint is gone
        self._open.set()
        self._ended: PolicyError | None = None  # why no new request is started
        self._halt = asyncio.Event()  # set with _ended; ends every wait
        self._probing: asyncio.Timeout | None = None  # of the probe under way
        timeout = openai.Timeout(read_timeout_seconds, connect=min(30.0, read_timeout_seconds))
        self._client = openai.AsyncOpenAI(
            base_url=self.base_url, api_key=key, max_retries=0, timeout=timeout
        )

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._client.close()

    @property
    def paused(self) -> bool:
        """Whether the endpoint is gone and no new request is started until it answers."""
        return not self._open.is_set()

    @property
    def sent(self) -> dict[str, Any]:
        """The fields in force, JSON-ready: what shapes a rollout, for the run's settings."""
        return {
            "model": self._model,
            **self._fields,
            "seed": "one a rollout" if self._seeded else None,
        }

    @property
    def line(self) -> str:
        """What is sent, in one line."""
        fields = [f"{name} {json.dumps(value)}" for name, value in self.sent.items()]
        refused = f" (refused by the server: {', '.join(self._refused)})" if self._refused else ""
        return f"endpoint {self.base_url}: {', '.join(fields)}{refused}"

    # --- before the run -----------------------------------------------------------------------

    async def probe(self) -> None:
        """Pick the model, send one small request and settle the fields that the server takes.

        Waits for a server that is loading; EndpointRefused for what waiting does not help.
        """
        await self._until_it_answers(self._negotiate)

    async def _negotiate(self) -> None:
        try:
            if self._model is None:
                self._model = await self._only_model()
            while True:
                try:
                    reply = await self._attempt(PROBE, PROBE_SEED)
                except BadRequest as refusal:
                    self._adapt(refusal)
                    continue
                if not self._still_thinks(reply):
                    break
        except Unanswerable as error:
            raise EndpointRefused(
                f"{self.base_url} refuses the smallest request ({error.outcome}): {error}"
            ) from error
        except Retry as error:
            cause = error.__cause__ and error.__cause__.__cause__
            if isinstance(cause, httpx2.ConnectError):
                raise EndpointRefused(
                    f"cannot connect to {self.base_url}: {cause}; is the server running, and "
                    "--base-url right?"
                ) from error
            raise
        if reply.completion_tokens is None:
            self._notify("the endpoint sends no usage: token counts are unknown")

    async def _only_model(self) -> str:
        names = await self._served()
        if len(names) == 1:
            return names[0]
        shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if names[20:] else "")
        raise EndpointRefused(f"give --model: {self.base_url} serves {shown or 'no model'}")

    async def _served(self) -> list[str]:
        try:
            body = await self._client.get("/models", cast_to=object)
        except (openai.APIError, ValueError) as error:
            meaning = explain(error, self.base_url, self._model)
            if isinstance(meaning, Retry):
                raise meaning from error
            raise EndpointRefused(
                f"give --model: {self.base_url} does not list its models ({in_words(error)})"
            ) from error
        rows = body.get("data") if isinstance(body, dict) else None
        if not isinstance(rows, list):
            raise EndpointRefused(f"give --model: {self.base_url}/models lists none")
        return [str(row["id"]) for row in rows if isinstance(row, dict) and "id" in row]

    def _adapt(self, refusal: BadRequest) -> None:
        """Drop or swap the field that the server refuses, or raise EndpointRefused."""
        name = self._blamed(refusal.error)
        if name is None:
            raise EndpointRefused(f"{self.base_url} refuses the request: {refusal}") from refusal
        if name == "temperature" and "chat_template_kwargs" in self._fields:
            name = "chat_template_kwargs"  # some models take a temperature once they do not think
        self._refused.append(name)
        if name == "seed":
            self._seeded = False
            return
        value = self._fields.pop(name)
        if name == "max_tokens":
            self._fields["max_completion_tokens"] = value
        elif name == "chat_template_kwargs" and not self._thinking:
            self._fields["reasoning_effort"] = "none"
        elif name == "temperature":
            self._notify(
                f"WARNING: the endpoint refuses temperature {value} ({refusal}); it samples at "
                "its own, and results are not comparable with runs at yours"
            )

    def _blamed(self, error: openai.APIError) -> str | None:
        """The field of ours that a 400 names first, its `param` before its words."""
        fields = [*self._fields, "seed"] if self._seeded else [*self._fields]
        if "max_completion_tokens" in fields:
            fields.remove("max_completion_tokens")  # a reply has to have some limit
        if error.param in fields:
            return error.param
        text = f"{error.message} {error.body}"
        found = {name: re.search(rf"\b{name}\b", text) for name in fields}
        places = {name: match.start() for name, match in found.items() if match}
        return min(places, key=lambda name: places[name], default=None)

    def _still_thinks(self, reply: Reply) -> bool:
        """Whether to probe again with the other way to turn thinking off.

        Ollama ignores chat_template_kwargs and takes reasoning_effort.
        """
        if self._thinking or not (reply.reasoning.strip() or reply.reasoning_tokens):
            return False
        if self._fields.pop("chat_template_kwargs", None):
            self._fields["reasoning_effort"] = "none"
            return True
        self._notify("WARNING: the model thinks although it was asked not to")
        return False

    # --- the run ------------------------------------------------------------------------------

    async def sample(self, messages: list[Message], seed: int) -> Reply:
        """Sample one reply; waits for a free slot first, in the order of the calls.

        Raises the PolicyError that ended the run, in every waiting call at once.
        """
        async with self._slots:
            self._check()
            most = _estimate(messages) + self._max_tokens
            await self._reserve(most)
            started = time.monotonic()
            self.in_flight += 1
            try:
                reply = await self._persist(messages, seed)
            except Unanswerable as error:
                reply = Reply("", "", "none", error.outcome, None, None, None, 0.0)
            except (EndpointRefused, EndpointDown) as error:
                self._end(error)
                raise
            finally:
                self.in_flight -= 1
                self._reserved -= most
                self._freed.set()
            return replace(reply, seconds=time.monotonic() - started)

    def stop(self) -> None:
        """Start no new request: waiting samples raise Stopped, replies under way go on."""
        self._end(Stopped("no new request is started"))

    def _end(self, error: PolicyError) -> None:
        """Keep the first reason to end, and wake everything that waits, so that it sees it.

        One slot more is enough: each waiting sample that takes it raises and hands it on.
        """
        if self._ended is None:
            self._ended = error
            self._halt.set()
            self._open.set()
            self._freed.set()
            self._slots.release()
            if self._probing is not None:
                self._probing.reschedule(0.0)

    def _check(self) -> None:
        if self._ended is not None:
            raise type(self._ended)(str(self._ended))

    async def _reserve(self, most: int) -> None:
        """Wait until `most` tokens fit into the budget; BudgetSpent when they never will."""
        while self._budget is not None and self.tokens_used + self._reserved + most > self._budget:
            if not self._reserved:
                used = f"{self.tokens_used:,} of --max-total-tokens {self._budget:,} are used"
                self._end(BudgetSpent(f"{used}, and the next request may take {most:,}"))
            self._check()
            self._freed.clear()
            await self._freed.wait()
        self._check()
        self._reserved += most

    async def _persist(self, messages: list[Message], seed: int) -> Reply:
        """Attempts up to the deadline; then again when the endpoint is found to answer.

        A sample that uses up a second deadline although the endpoint answers ends the run.
        """
        used_up = 0
        while True:
            try:
                return await self._until_deadline(messages, seed)
            except Retry as error:
                used_up += not error.wait or error.wait < self._deadline  # else told to wait longer
                if used_up == 2:
                    raise EndpointDown(
                        f"{self.base_url} answers, but gave a request no whole reply in twice "
                        f"{self._deadline / 60:g} minutes (last: {error}); a lower --concurrency "
                        "or --max-tokens may help"
                    ) from error
                await self._outage(error)

    async def _until_deadline(self, messages: list[Message], seed: int) -> Reply:
        """Attempts with backoff until the deadline, then the last Retry.

        The fields were accepted by the probe, so a bad request gets two more tries (a proxy may
        have lost its upstream) before it ends the run.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._deadline
        bad = 0
        for n in itertools.count():
            if self.paused:
                await self._open.wait()
                deadline = clock() + self._deadline
            self._check()
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._attempt(messages, seed)
            except TimeoutError:
                raise Retry(f"no whole reply in {self._deadline:g} seconds") from None
            except BadRequest as error:
                bad += 1
                if bad == 3:
                    raise EndpointRefused(f"{self.base_url} refuses a request: {error}") from error
                failure = Retry(str(error))
            except Retry as error:
                failure = error
            self._note_once(f"retrying: {failure}")
            wait = self._wait(failure, n)
            if clock() + wait >= deadline:
                raise failure
            self.retries += 1
            await self._sleep(wait)
        raise AssertionError("unreachable")

    async def _outage(self, error: Retry) -> None:
        """Pause new requests until the endpoint answers; the first sample to come here probes."""
        if not self.paused:
            self._open.clear()
            self._notify(f"paused, waiting for the endpoint: {error}")
            try:
                await self._until_it_answers(lambda: self._attempt(PROBE, PROBE_SEED), error)
                self._notify("the endpoint answers again")
            except (BadRequest, Unanswerable):
                pass  # an answer, if not a kind one; the sample will meet its own
            except PolicyError as end:
                self._end(end)
            finally:
                self._open.set()
        await self._open.wait()
        self._check()

    async def _until_it_answers(
        self, ask: Callable[[], Awaitable[T]], error: Retry | None = None
    ) -> T:
        """Ask until the server answers; EndpointDown after --give-up-after minutes.

        `error`, what was seen just now, is waited for as its Retry-After says.
        """
        clock = asyncio.get_running_loop().time
        give_up = clock() + self._give_up
        for n in itertools.count():
            if error is not None:
                wait = self._wait(error, n)
                if clock() + wait >= give_up:
                    asks = (
                        f"asks to wait {error.wait / 60:.1f} minutes" if error.wait else "is gone"
                    )
                    raise EndpointDown(
                        f"{self.base_url} {asks}: gave up after --give-up-after "
                        f"{self._give_up / 60:g} minutes (last: {error})"
                    ) from error
                await self._sleep(wait)
                self._check()
            try:
                async with asyncio.timeout_at(give_up) as self._probing:
                    return await ask()
            except TimeoutError:
                error = error or Retry("no answer")
            except Retry as latest:
                error = latest
            finally:
                self._probing = None
            self._check()
            self._note_once(f"no answer yet, waiting: {error}")
        raise AssertionError("unreachable")

    def _wait(self, failure: Retry, n: int) -> float:
        """Seconds to wait after the n-th failure in a row: as the server asks, else exponential,
        with jitter, to a minute."""
        if failure.wait:
            return failure.wait
        return min(60.0, self._backoff * 2.0 ** min(n, 20)) * random.uniform(0.5, 1.0)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but not past the end of the run."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._halt.wait(), seconds)

    def _note_once(self, line: str) -> None:
        """Notify of each kind of trouble once; numbers do not make a kind."""
        kind = re.sub(r"\d+", "0", line)
        if kind not in self._noted and len(self._noted) < 20:
            self._noted.add(kind)
            self._notify(line)

    # --- one request --------------------------------------------------------------------------

    async def _attempt(self, messages: list[Message], seed: int) -> Reply:
        """One request and its whole reply.

        Raises Retry, BadRequest, Unanswerable, EndpointRefused.
        """
        body = {"model": self._model, "messages": messages, "stream": True, **self._fields}
        if self._seeded:
            body["seed"] = seed
        draft = Draft()
        try:
            stream = await self._client.post(
                "/chat/completions",
                cast_to=object,  # plain dicts: a model object a chunk costs half as much again
                body=body,
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            async with stream:
                await draft.read(stream)
        except (openai.APIError, httpx2.HTTPError, ValueError) as error:
            if draft.finish_reason is None:
                raise explain(error, self.base_url, self._model) from error
        finally:
            self._count(messages, draft)
        if draft.finish_reason is None:
            raise Retry("a stream ended without a finish_reason")
        return draft.reply()

    def _count(self, messages: list[Message], draft: Draft) -> None:
        prompt, completion, _ = draft.usage_counts()
        if prompt is not None and completion is not None:
            self.tokens_used += prompt + completion
        elif draft.content or draft.reasoning:
            self.tokens_used += _estimate(messages) + draft.length() // 3
            if self._budget is not None:
                self._note_once("no usage: --max-total-tokens counts a token for 3 characters")


def _estimate(messages: Sequence[Message]) -> int:
    """Tokens of a prompt, on the high side for English and code."""
    return sum(len(message["content"]) for message in messages) // 3
