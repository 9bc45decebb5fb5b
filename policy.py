"""The policy: an OpenAI-compatible endpoint, or the scripted one of the dry run.

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
import email.utils
import hashlib
import itertools
import json
import math
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import httpx2
    import openai

Message = dict[str, str]
T = TypeVar("T")

DEFAULT_BASE_URL = "https://zeroproofai--whileai-serve-qwen3-4b.modal.run/v1"
DEFAULT_MODEL = "Qwen/Qwen3-4B"

PROBE: list[Message] = [{"role": "user", "content": "Reply with the one word: ready"}]
PROBE_SEED = 2**53 - 1  # as large as the seeds of a run get

# Finish reasons of replies that were broken off: OpenRouter, SGLang and vLLM, DeepSeek.
BROKEN_OFF = {"error", "abort", "insufficient_system_resource"}

# What servers say of a prompt that does not fit: OpenAI, vLLM, SGLang, llama.cpp, LM Studio,
# TGI, Gemini, Anthropic's proxies, LiteLLM.
TOO_LONG = re.compile(
    r"context.?(length|size|window)|maximum model length|prompt is too long|input is too long"
    r"|too many (input )?tokens|longer than the model|exceeds? the maximum number of tokens"
    r"|reduce the length|\binputs\b.{0,40}must (have|be)",
    re.IGNORECASE,
)
REFUSAL = re.compile(
    r"content.?filter|content.?(management.?)?policy|usage polic|flagged|moderation"
    r"|data_inspection_failed|invalid_prompt",
    re.IGNORECASE,
)
NO_CREDIT = re.compile(
    r"insufficient.?(quota|credit|balance|funds)|billing.?(hard.?limit|not.?active)|out of credits"
    r"|daily.{0,20}quota|quota.{0,200}(daily|per.?day|a day)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Sampling:
    """What is asked of the policy, the same for every rollout.

    Attributes:
        temperature: softmax temperature.
        max_tokens: longest reply, in tokens, reasoning included.
        thinking: whether the model may reason before it answers.
    """

    temperature: float = 1.0
    max_tokens: int = 2048
    thinking: bool = False


@dataclass(frozen=True)
class Reply:
    """One sampled reply.

    Attributes:
        text: the content without reasoning; of a refusal the server's words, if any.
        reasoning: what the model thought, kept apart ("" when it did not).
        finish_reason: as the server said, e.g. "stop" or "length"; "none" when the request
            itself was refused for its content (see outcome).
        outcome: why there is no usable reply ("prompt too long", "refusal", "empty reply"),
            else None.
        prompt_tokens, completion_tokens, reasoning_tokens: from usage; None when not sent.
            Reasoning tokens are a part of the completion tokens, and are not estimated when
            the server reasons aloud and does not count them.
        seconds: wall time of the sample, queueing excluded, retries included.
    """

    text: str
    reasoning: str
    finish_reason: str
    outcome: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    seconds: float


class PolicyError(Exception):
    """Base of all below; its text is one line for the user.

    PolicyError
     +- EndpointRefused   nothing will help but another command (key, model, address)
     +- EndpointDown      gave up after --give-up-after minutes
     +- BudgetSpent       --max-total-tokens reached
     +- Stopped           stop() was called: no new request is started
    """


class EndpointRefused(PolicyError):
    pass


class EndpointDown(PolicyError):
    pass


class BudgetSpent(PolicyError):
    pass


class Stopped(PolicyError):
    pass


class _Retry(Exception):
    """The attempt failed in transport; `wait` is the server's Retry-After in seconds, if any."""

    def __init__(self, words: str, wait: float | None = None) -> None:
        super().__init__(words)
        self.wait = wait


class _BadRequest(Exception):
    """The server does not take the request as it is; `error` is the client's."""

    def __init__(self, words: str, error: openai.APIError) -> None:
        super().__init__(words)
        self.error = error


class _Unanswerable(Exception):
    """This prompt gets no reply; `outcome` is a Reply's."""

    def __init__(self, words: str, outcome: str) -> None:
        super().__init__(words)
        self.outcome = outcome


class Policy(Protocol):
    """Anything that answers messages."""

    async def sample(self, messages: list[Message], seed: int) -> Reply:
        """Sample one reply; waits for a free slot first. Raises PolicyError."""
        ...

    def stop(self) -> None:
        """Start no new request; those in flight go on to their end."""
        ...


def find_key(base_url: str) -> str:
    """The key for an endpoint; EndpointRefused when the hosted one has none.

    The hosted model: WHILEAI_API_KEY, else the key that `wai login` saved in
    ~/.whileai/credentials.json (`whileai` moves that folder with WHILEAI_HOME). Any other:
    OPENAI_API_KEY, else a placeholder, since a local server needs none and the client wants one.
    """
    if base_url.rstrip("/") != DEFAULT_BASE_URL:
        return _usable(os.environ.get("OPENAI_API_KEY", ""), "OPENAI_API_KEY") or "no-key"
    if key := _usable(os.environ.get("WHILEAI_API_KEY", ""), "WHILEAI_API_KEY"):
        return key
    folder = Path(os.environ.get("WHILEAI_HOME") or Path.home() / ".whileai")
    path = folder / "credentials.json"
    try:
        key = _usable(str(json.loads(path.read_text("utf-8"))["api_key"] or ""), str(path))
    except (OSError, ValueError, KeyError, TypeError):
        key = ""
    if not key:
        raise EndpointRefused(
            "no key for the hosted model: set WHILEAI_API_KEY, or `pip install whileai` and run "
            "`wai login`, or give another endpoint with --base-url, or try --dry-run"
        )
    return key


def _usable(key: str, source: str) -> str:
    key = key.strip()
    if key and not (key.isascii() and key.isprintable()):
        raise EndpointRefused(f"the key in {source} holds characters that no key has")
    return key


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
        # Slow to import, and only an endpoint needs them: --reuse and the dry run do without.
        global httpx2, openai
        import httpx2  # the openai client's own HTTP library: addresses, and errors of a body
        import openai

        self.base_url = base_url.rstrip("/")
        try:
            url = httpx2.URL(self.base_url)
        except httpx2.InvalidURL as error:
            raise EndpointRefused(f"--base-url {base_url} is no address: {error}") from error
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
                except _BadRequest as refusal:
                    self._adapt(refusal)
                    continue
                if not self._still_thinks(reply):
                    break
        except _Unanswerable as error:
            raise EndpointRefused(
                f"{self.base_url} refuses the smallest request ({error.outcome}): {error}"
            ) from error
        except _Retry as error:
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
            meaning = self._explain(error)
            if isinstance(meaning, _Retry):
                raise meaning from error
            raise EndpointRefused(
                f"give --model: {self.base_url} does not list its models ({_words(error)})"
            ) from error
        rows = body.get("data") if isinstance(body, dict) else None
        if not isinstance(rows, list):
            raise EndpointRefused(f"give --model: {self.base_url}/models lists none")
        return [str(row["id"]) for row in rows if isinstance(row, dict) and "id" in row]

    def _adapt(self, refusal: _BadRequest) -> None:
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
            except _Unanswerable as error:
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
            except _Retry as error:
                used_up += not error.wait or error.wait < self._deadline  # else told to wait longer
                if used_up == 2:
                    raise EndpointDown(
                        f"{self.base_url} answers, but gave a request no whole reply in twice "
                        f"{self._deadline / 60:g} minutes (last: {error}); a lower --concurrency "
                        "or --max-tokens may help"
                    ) from error
                await self._outage(error)

    async def _until_deadline(self, messages: list[Message], seed: int) -> Reply:
        """Attempts with backoff until the deadline, then the last _Retry.

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
                raise _Retry(f"no whole reply in {self._deadline:g} seconds") from None
            except _BadRequest as error:
                bad += 1
                if bad == 3:
                    raise EndpointRefused(f"{self.base_url} refuses a request: {error}") from error
                failure = _Retry(str(error))
            except _Retry as error:
                failure = error
            self._note_once(f"retrying: {failure}")
            wait = self._wait(failure, n)
            if clock() + wait >= deadline:
                raise failure
            self.retries += 1
            await self._sleep(wait)
        raise AssertionError("unreachable")

    async def _outage(self, error: _Retry) -> None:
        """Pause new requests until the endpoint answers; the first sample to come here probes."""
        if not self.paused:
            self._open.clear()
            self._notify(f"paused, waiting for the endpoint: {error}")
            try:
                await self._until_it_answers(lambda: self._attempt(PROBE, PROBE_SEED), error)
                self._notify("the endpoint answers again")
            except (_BadRequest, _Unanswerable):
                pass  # an answer, if not a kind one; the sample will meet its own
            except PolicyError as end:
                self._end(end)
            finally:
                self._open.set()
        await self._open.wait()
        self._check()

    async def _until_it_answers(
        self, ask: Callable[[], Awaitable[T]], error: _Retry | None = None
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
                error = error or _Retry("no answer")
            except _Retry as latest:
                error = latest
            finally:
                self._probing = None
            self._check()
            self._note_once(f"no answer yet, waiting: {error}")
        raise AssertionError("unreachable")

    def _wait(self, failure: _Retry, n: int) -> float:
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

        Raises _Retry, _BadRequest, _Unanswerable, EndpointRefused.
        """
        body = {"model": self._model, "messages": messages, "stream": True, **self._fields}
        if self._seeded:
            body["seed"] = seed
        draft = _Draft()
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
                raise self._explain(error) from error
        finally:
            self._count(messages, draft)
        if draft.finish_reason is None:
            raise _Retry("a stream ended without a finish_reason")
        return draft.reply()

    def _count(self, messages: list[Message], draft: _Draft) -> None:
        prompt, completion, _ = draft.usage_counts()
        if prompt is not None and completion is not None:
            self.tokens_used += prompt + completion
        elif draft.content or draft.reasoning:
            self.tokens_used += _estimate(messages) + draft.length() // 3
            if self._budget is not None:
                self._note_once("no usage: --max-total-tokens counts a token for 3 characters")

    def _explain(self, error: Exception) -> Exception:
        """What a failed request means: _Retry, _BadRequest, _Unanswerable or EndpointRefused.

        The status is HTTP's, or under HTTP 200 the code in the error itself. There only a
        refusal of the key or of payment is final: the server had accepted the request.
        """
        words = _words(error)
        status = getattr(error, "status_code", None)
        in_body = status is None
        if not isinstance(error, openai.APIError) or isinstance(error, openai.APIConnectionError):
            return _Retry(words)
        if status is None and error.code is not None and error.code.isdecimal():
            status = int(error.code)
        wait = None if in_body else _retry_after(error.response.headers)  # type: ignore[attr-defined]
        text = f"{error.code} {error.type} {error.message} {error.body}"
        if status == 402 or ((in_body or status == 429) and NO_CREDIT.search(text)):
            return EndpointRefused(f"no credit at {self.base_url}: {words}")
        if status in (400, 403, 413, 422, 500) or in_body:
            if TOO_LONG.search(text):
                return _Unanswerable(words, "prompt too long")
            if REFUSAL.search(text):
                return _Unanswerable(words, "refusal")
        if status in (401, 403):
            return EndpointRefused(f"{self.base_url} refuses access: {words}")
        if in_body or status is None or status in (408, 409, 425, 429) or not 400 <= status < 500:
            return _Retry(words, wait)
        if status in (404, 405):
            hint = "" if self.base_url.endswith("/v1") else "; does the address end in /v1?"
            return EndpointRefused(f"{self.base_url} has no model {self._model}: {words}{hint}")
        return _BadRequest(words, error)


class _Draft:
    """A reply while it streams in."""

    def __init__(self) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.finish_reason: str | None = None
        self.usage: dict[str, Any] = {}

    async def read(self, stream: openai.AsyncStream[object]) -> None:
        """Read a stream, or a body that came in one piece, to its end.

        Reading wakes the event loop for each chunk of each stream, which costs more than the
        chunk itself. So it naps after each burst for a 25th of the reply's age, and finds
        what came meanwhile in one go; the reply is seen whole 2% later on average.
        """
        if re.search("json|html", stream.response.headers.get("content-type", "")):
            self.add(_whole(await stream.response.aread(), stream.response))
            return
        clock = asyncio.get_running_loop().time
        started = awake = clock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as limit:
                async for data in stream:
                    self.add(data)
                    now = clock()
                    if self.finish_reason is not None:
                        limit.reschedule(now + 10)  # for the usage: not all servers end a stream
                    elif now - awake > 0.003:
                        await asyncio.sleep(min(0.5, (now - started) / 25))
                        awake = clock()

    def add(self, data: object) -> None:
        """Take in one chunk; ValueError when it is none."""
        data = _object(data)
        self.usage = _object(data.get("usage")) or self.usage
        for choice in map(_object, data.get("choices") or ()):
            part = _object(choice.get("delta") or choice.get("message"))
            for name, into in (("content", self.content), ("refusal", self.refusal)):
                if isinstance(part.get(name), str):
                    into.append(part[name])
            thought = part.get("reasoning") or part.get("reasoning_content")
            if isinstance(thought, str):
                self.reasoning.append(thought)
            reason = choice.get("finish_reason")
            if reason in BROKEN_OFF:
                raise ValueError(f"a reply was broken off (finish_reason {reason})")
            self.finish_reason = reason or self.finish_reason

    def length(self) -> int:
        return sum(map(len, self.content)) + sum(map(len, self.reasoning))

    def usage_counts(self) -> tuple[int | None, int | None, int | None]:
        """Tokens of the prompt, of the completion, and of the reasoning in the completion."""
        details = _object(self.usage.get("completion_tokens_details"))
        counts = (
            self.usage.get("prompt_tokens"),
            self.usage.get("completion_tokens"),
            details.get("reasoning_tokens"),
        )
        prompt, completion, reasoning = (n if isinstance(n, int) else None for n in counts)
        return prompt, completion, reasoning

    def reply(self) -> Reply:
        """The finished reply."""
        text, thought = split_reasoning("".join(self.content), inline=not self.reasoning)
        refusal = "".join(self.refusal)
        outcome = None
        if self.finish_reason == "content_filter" or (refusal and not text.strip()):
            outcome, text = "refusal", text or refusal
        elif not text.strip():
            outcome = "empty reply"
        return Reply(
            _whole_characters(text),
            _whole_characters("".join(self.reasoning) + thought),
            str(self.finish_reason),
            outcome,
            *self.usage_counts(),
            seconds=0.0,
        )


def split_reasoning(content: str, *, inline: bool = True) -> tuple[str, str]:
    """Content -> (text, reasoning), for servers that leave <think>...</think> in the content.

    An unclosed <think> is all reasoning (a reply cut by its limit). A </think> without its
    opening tag ends the reasoning too: some templates put the opening tag into the prompt. That
    is looked for only if `inline`: a server that sends reasoning apart has removed the tags.
    """
    head, opened, rest = content.partition("<think>")
    if opened and not head.strip():
        thought, _, text = rest.partition("</think>")
    elif inline and "</think>" in content:
        thought, _, text = content.partition("</think>")
    else:
        return content, ""
    return text.lstrip("\n"), thought.strip("\n")


def _object(data: object) -> dict[str, Any]:
    """A JSON object, where null stands for an empty one; ValueError for anything else."""
    if data is not None and not isinstance(data, dict):
        raise ValueError(f"not a chunk of a reply: {str(data)[:80]}")
    return data or {}


def _whole_characters(text: str) -> str:
    """Join surrogates that were split between chunks; one left alone becomes U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _whole(body: bytes, response: httpx2.Response) -> object:
    """A body that came in one piece: a completion, or an error under HTTP 200, which raises."""
    try:
        data = json.loads(body)
    except ValueError:
        kind = response.headers.get("content-type", "no content type")
        raise ValueError(f"a body that is no reply ({kind}, {len(body)} bytes)") from None
    if isinstance(data, dict) and data.get("error"):
        error = data["error"]
        message = error.get("message") if isinstance(error, dict) else None
        raise openai.APIError(str(message or error), response.request, body=error)
    return data


def _estimate(messages: Sequence[Message]) -> int:
    """Tokens of a prompt, on the high side for English and code."""
    return sum(len(message["content"]) for message in messages) // 3


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a response asks to wait, of any length; None when it does not say."""
    seconds = math.nan
    text = headers.get("retry-after", "")
    try:
        seconds = float(headers["retry-after-ms"]) / 1000
    except (KeyError, ValueError):
        try:
            seconds = float(text)
        except ValueError:
            if date := email.utils.parsedate_tz(text):
                seconds = email.utils.mktime_tz(date) - time.time()
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _words(error: Exception) -> str:
    """An error in one line: its class of failure and what the server said."""
    if isinstance(error, openai.APIConnectionError | httpx2.HTTPError):
        cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
        text = f"{type(cause or error).__name__}: {cause or error}"
    elif isinstance(error, openai.APIError):
        status = getattr(error, "status_code", None)
        said = error.body.get("message") if isinstance(error.body, dict) else error.body
        if not isinstance(said, str) or said.lstrip().startswith("<"):
            said = error.message if isinstance(error.body, dict) else "(no words)"
        text = f"HTTP {status} {said}" if status else said or error.message
    else:
        text = str(error)
    return " ".join(text.split())[:300]


@dataclass(frozen=True)
class Scripted:
    """One of the replies that the scripted policy may give.

    Attributes:
        text, finish_reason: the reply.
        fresh: its weight among the task's replies when the prompt shows no attempt.
        informed: its weight when the prompt shows one.
    """

    text: str
    finish_reason: str
    fresh: float
    informed: float


class ScriptedPolicy:
    """The policy of the dry run: written replies, no network, no waiting.

    A reply is drawn by a hash of the messages and the seed, so it depends on the request alone
    and a run can be repeated. Tokens are counted as words. A prompt shows an attempt when its
    user message holds a code fence: the bare problem holds none.

    Args:
        replies: a text that occurs in the user message of a task, such as its title -> what may
            be replied.
    """

    def __init__(self, replies: Mapping[str, Sequence[Scripted]]) -> None:
        self._replies = replies
        self._stopped = False
        self.in_flight = self.retries = self.tokens_used = 0
        self.line = "scripted policy: written replies, no model, no network"
        self.sent: dict[str, Any] = {"model": "scripted", "seed": "one a rollout"}

    async def sample(self, messages: list[Message], seed: int) -> Reply:
        """The reply of draw, at once."""
        await asyncio.sleep(0)
        if self._stopped:
            raise Stopped("no new request is started")
        chosen = self.draw(messages, seed)
        prompt, completion = len(messages[-1]["content"].split()), len(chosen.text.split())
        self.tokens_used += prompt + completion
        outcome = None if chosen.text.strip() else "empty reply"
        return Reply(
            chosen.text, "", chosen.finish_reason, outcome, prompt, completion, None, seconds=0.0
        )

    def draw(self, messages: list[Message], seed: int) -> Scripted:
        """The reply to a request; KeyError for a task without any: the script is incomplete."""
        user = messages[-1]["content"]
        title = next((title for title in self._replies if title in user), None)
        if title is None:
            raise KeyError(f"no scripted reply for: {user[:80]}")
        options = self._replies[title]
        weights = [option.informed if "```" in user else option.fresh for option in options]
        digest = hashlib.sha256(json.dumps([messages, seed]).encode()).digest()
        drawn = int.from_bytes(digest[:6], "big") / 2**48 * sum(weights)
        ends = itertools.accumulate(weights)
        return next(option for option, end in zip(options, ends, strict=True) if drawn < end)

    def stop(self) -> None:
        """Every later sample raises Stopped."""
        self._stopped = True
