"""An OpenAI-compatible endpoint, one server or several, that is asked until a reply is whole.

A run is tens of thousands of requests over hours, to whatever server the user has. Three rules
keep it whole. What the server refuses for good (key, model, credit, a field) is found by a probe
before anything is spent. A failed transport is never a failed program: a sample is asked for
again until it arrives whole, that is with a finish_reason. When an endpoint is gone, no new
request is started until it answers again; after --give-up-after minutes the run stops.

    sample -> slot (first come, first served) -> _persist: attempts until a deadline, then
    _outage: one sample probes while the others wait -> attempts again

An attempt goes to the server with the least in flight. One of several that fails is left alone
for a while, and then asked one request at a time until it answers.

The openai client sends and maps errors; its own retries are off, since it retries no broken
stream and honours no long Retry-After.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

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
from policy.failures import BadRequest, Retry, Unanswerable
from policy.key import DEFAULT_BASE_URL, DEFAULT_MODEL
from policy.probe import PROBE, SEEDS, SHORT, Probe
from policy.reply import Draft
from policy.server import LONG_SECONDS, Server, Shape
from policy.servers import Servers

T = TypeVar("T")

SAME_FAILURES = 3  # of one request, after which it is asked for in another way, or told
FIRST_WORD_SECONDS = 5.0  # of waiting for a probe before the user is told what for
PATIENCE_SECONDS = 60.0  # that an answer may take whatever --give-up-after is


class Endpoint:
    """An OpenAI-compatible chat completions endpoint; an async context manager.

    Args:
        base_urls: of each server, up to and with /v1.
        keys: of each server, as find_key gives it.
        model: None: DEFAULT_MODEL at DEFAULT_BASE_URL, elsewhere the only model served.
        sampling: what is asked for.
        notify: called with one line for the user when something is worth one.
        extra_body: fields that go with every request.
        stream: "on", "off", or "auto": whole replies, and streams where those do not get through.
        concurrency: requests in flight at each server.
        give_up_after_minutes: how long an endpoint may be gone.
        sample_deadline_seconds: how long a sample may take, retries included.
        read_timeout_seconds: longest silence in a reply. A server that queues is silent, and so
            is one that gives a whole reply.
        max_total_tokens: budget, prompts included. A request starts only when it fits even if
            all in flight grow to max_tokens. Prompts are estimated for that (one token for 3
            characters), and so is all where the server sends no usage; broken replies count.
        backoff_seconds: first wait after a failure without Retry-After; doubles up to a minute.
        outage_seconds: of failures and nothing else, after which the endpoint is gone.
        long_seconds: silence after which a hang-up is blamed on it.

    Attributes:
        in_flight: samples that hold a slot.
        retries: attempts that failed and were asked for again.
        tokens_used: prompt and completion tokens, those of broken replies estimated.
        sampled: completion tokens of this process; partly estimated, a token for 3 characters,
            when `estimated`.
    """

    def __init__(
        self,
        base_urls: Sequence[str],
        keys: Sequence[str],
        model: str | None,
        sampling: Sampling,
        *,
        notify: Callable[[str], None],
        extra_body: Mapping[str, Any] | None = None,
        stream: str = "auto",
        concurrency: int = 64,
        give_up_after_minutes: float = 30.0,
        sample_deadline_seconds: float = 1800.0,
        read_timeout_seconds: float = 600.0,
        max_total_tokens: int | None = None,
        backoff_seconds: float = 0.5,
        outage_seconds: float = 60.0,
        long_seconds: float = LONG_SECONDS,
    ) -> None:
        self.in_flight = self.retries = self.tokens_used = self.sampled = 0
        self.estimated = False
        self._sampling, self._stream = sampling, stream
        self._extra = dict(extra_body or {})
        self._notify = notify
        self._noted: set[str] = set()
        self._give_up = give_up_after_minutes * 60
        self._deadline = sample_deadline_seconds
        self._budget = max_total_tokens
        self._backoff = backoff_seconds
        self._outage_after = outage_seconds
        self._slots = asyncio.Semaphore(concurrency * len(base_urls))
        self._reserved = 0  # tokens that the requests in flight may come to
        self._freed = asyncio.Event()  # set when a request ends
        self._open = asyncio.Event()  # not set while the endpoint is gone
        self._open.set()
        self._ended: PolicyError | None = None  # why no new request is started
        self._halt = asyncio.Event()  # set with _ended; ends every wait
        self._probing: set[asyncio.Timeout] = set()  # of the probes under way
        self._replies = 0
        self._failing_since: float | None = None  # of the first failure since the last reply
        hosted = DEFAULT_BASE_URL in (url.rstrip("/") for url in base_urls)
        shape = Shape(model or (DEFAULT_MODEL if hosted else None), self._asked(sampling))
        servers = [
            Server(
                address,
                key,
                shape,
                stream=stream,
                concurrency=concurrency,
                read_timeout_seconds=read_timeout_seconds,
                notify=notify,
                count=self._count,
                long_seconds=long_seconds,
            )
            for address, key in zip(base_urls, keys, strict=True)
        ]
        self._servers = Servers(servers, concurrency, notify)
        self.base_url = ", ".join(server.base_url for server in servers)

    def _asked(self, sampling: Sampling) -> dict[str, Any]:
        fields = {
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "chat_template_kwargs": {"enable_thinking": sampling.thinking},
        }
        for name, value in self._extra.items():
            both = isinstance(value, dict) and isinstance(fields.get(name), dict)
            fields[name] = {**fields[name], **value} if both else value  # type: ignore[dict-item]
        return fields

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for server in self._servers.all:
            await server.close()

    @property
    def paused(self) -> bool:
        """Whether the endpoint is gone and no new request is started until it answers."""
        return not self._open.is_set()

    @property
    def served(self) -> dict[str, int]:
        """Requests that each server answered, by its address."""
        return {server.base_url: server.served for server in self._servers.all}

    @property
    def sent(self) -> dict[str, Any]:
        """The fields in force, JSON-ready: what shapes a rollout, for the run's settings."""
        return self._servers.all[0].shape.sent

    @property
    def line(self) -> str:
        """What is sent, in one line."""
        fields = [f"{name} {json.dumps(value)}" for name, value in self.sent.items()]
        names = self._servers.all[0].shape.refused
        refused = f" (refused by the server: {', '.join(names)})" if names else ""
        how = "streamed" if self._servers.all[0].streaming else "whole"
        return f"endpoint {self.base_url}: {', '.join(fields)}, replies {how}{refused}"

    # --- before the run -----------------------------------------------------------------------

    async def probe(self) -> None:
        """Pick the model, and settle with small requests what each server takes.

        Waits for a server that is loading; EndpointRefused for what waiting does not help, and
        when servers differ.
        """
        probes = [asyncio.create_task(self._probe(server)) for server in self._servers.all]
        try:
            await asyncio.gather(*probes)
        finally:
            for probe in probes:
                probe.cancel()
            await asyncio.gather(*probes, return_exceptions=True)
        self._servers.compare()

    async def _probe(self, server: Server) -> None:
        probe = Probe(
            server,
            thinking=self._sampling.thinking,
            extra=self._extra.keys(),
            greedy=self._sampling.temperature == 0,
            streams=self._stream != "off",
            notify=self._notify,
        )

        def told(error: Retry) -> None:
            self._notify(
                f"{server.base_url} gave the same answer {SAME_FAILURES} times: {error}; check "
                "--base-url, --model and the server's log; it is asked again for "
                f"{self._give_up / 60:g} minutes"
            )

        async with self._telling(server, probe):
            await self._until_it_answers(probe.ask, server.base_url, told=told)

    @contextlib.asynccontextmanager
    async def _telling(self, server: Server, probe: Probe) -> AsyncIterator[None]:
        """Say what a probe waits for, when it does for long."""

        async def tell() -> None:
            started = time.monotonic()
            wait = FIRST_WORD_SECONDS
            while True:
                await asyncio.sleep(wait)
                seconds = time.monotonic() - started
                self._notify(
                    f"waiting for {server.base_url}: {probe.waits_for} ({seconds:.0f} s so far)"
                )
                wait = min(2 * seconds, 300.0)

        teller = asyncio.create_task(tell())
        try:
            yield
        finally:
            teller.cancel()

    # --- the run ------------------------------------------------------------------------------

    async def sample(self, messages: list[Message], seed: int) -> Reply:
        """Sample one reply; waits for a free slot first, in the order of the calls.

        Raises the PolicyError that ended the run, in every waiting call at once.
        """
        async with self._slots:
            self._check()
            most = _estimate(messages) + self._sampling.max_tokens
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
            self._servers.vacancy.set()
            for probing in self._probing:
                probing.reschedule(0.0)

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
        have lost its upstream) before it ends the run. A stream that fails the same way again and
        again, and not as a server that is gone, is asked for whole once: some servers say only
        then what they refuse.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._deadline
        bad, before = 0, self._replies
        seen: Counter[str] = Counter()
        for n in itertools.count():
            if self.paused:
                await self._open.wait()
                deadline = clock() + self._deadline
            self._check()
            whole = SAME_FAILURES in seen.values()
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._attempt(messages, seed, whole=whole)
            except TimeoutError:
                raise Retry(f"no whole reply in {self._deadline:g} seconds") from None
            except BadRequest as error:
                if whole and self._replies > before:
                    raise Unanswerable(str(error), "request refused") from error
                bad += 1
                if bad == 3:
                    raise EndpointRefused(f"{self.base_url} refuses a request: {error}") from error
                failure = Retry(str(error))
            except Retry as error:
                failure = error
            seen[_kind(failure)] += failure.odd
            self._note_once(f"retrying: {failure}")
            if clock() - (self._failing_since or clock()) >= self._outage_after:
                paused = clock()
                await self._outage(failure)
                deadline += clock() - paused
                continue
            wait = 0.0 if self._servers.another_is_up() else self._wait(failure, n)
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
                await self._until_it_answers(
                    lambda: self._attempt(PROBE, SEEDS[0], max_tokens=SHORT), self.base_url, error
                )
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
        self,
        ask: Callable[[], Awaitable[T]],
        name: str,
        error: Retry | None = None,
        told: Callable[[Retry], None] = lambda error: None,
    ) -> T:
        """Ask until the server answers; EndpointDown after --give-up-after minutes.

        Args:
            name: of whom, for the user.
            error: what was seen just now, waited for as its Retry-After says.
            told: called once, when the same answer came several times.
        """
        clock = asyncio.get_running_loop().time
        give_up = clock() + self._give_up
        seen: Counter[str] = Counter()
        for n in itertools.count():
            if error is not None:
                wait = self._wait(error, n)
                if clock() + wait >= give_up:
                    asks = (
                        f"asks to wait {error.wait / 60:.1f} minutes" if error.wait else "is gone"
                    )
                    raise EndpointDown(
                        f"{name} {asks}: gave up after --give-up-after "
                        f"{self._give_up / 60:g} minutes (last: {error})"
                    ) from error
                await self._sleep(wait)
                self._check()
            limit = asyncio.timeout_at(max(give_up, clock() + PATIENCE_SECONDS))
            try:
                async with limit:
                    self._probing.add(limit)
                    return await ask()
            except TimeoutError:
                error = Retry("no answer")
            except Retry as latest:
                error = latest
            finally:
                self._probing.discard(limit)
            self._check()
            self._note_once(f"no answer yet, waiting: {error}")
            seen[_kind(error)] += 1
            if seen[_kind(error)] == SAME_FAILURES:
                told(error)
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
        kind = _kind(line)
        if kind not in self._noted and len(self._noted) < 20:
            self._noted.add(kind)
            self._notify(line)

    # --- one request --------------------------------------------------------------------------

    async def _attempt(
        self,
        messages: list[Message],
        seed: int,
        *,
        whole: bool = False,
        max_tokens: int | None = None,
    ) -> Reply:
        """One request to one server, and its whole reply; arguments as Server.ask takes them.

        Raises Retry, BadRequest, Unanswerable, EndpointRefused.
        """
        self._check()
        server = await self._servers.vacant(self._check)
        started = asyncio.get_running_loop().time()
        server.in_flight += 1
        try:
            draft = await server.ask(messages, seed, whole=whole, max_tokens=max_tokens)
        except Unanswerable:
            self._answered(server, messages)
            raise
        except Retry as error:
            self._failing_since = self._failing_since or asyncio.get_running_loop().time()
            self._servers.failed(server, started, error, self._wait(error, server.failures))
            raise
        except EndpointRefused as error:
            raise self._servers.refused(server, error) from error
        finally:
            server.in_flight -= 1
            self._servers.vacancy.set()
        self._answered(server, messages)
        return draft.reply()

    def _answered(self, server: Server, messages: list[Message]) -> None:
        self._servers.answered(server)
        self._failing_since = None
        if messages is not PROBE:
            server.served += 1
            self._replies += 1

    def _count(self, messages: list[Message], draft: Draft) -> None:
        prompt, completion, _ = draft.usage_counts()
        if prompt is not None and completion is not None:
            self.tokens_used += prompt + completion
            self.sampled += completion
        elif draft.content or draft.reasoning:
            self.tokens_used += _estimate(messages) + draft.length() // 3
            self.sampled += draft.length() // 3
            self.estimated = True
            if self._budget is not None:
                self._note_once("no usage: --max-total-tokens counts a token for 3 characters")


def _kind(failure: object) -> str:
    """A failure's words; numbers do not make a kind."""
    return re.sub(r"\d+", "0", str(failure))


def _estimate(messages: Sequence[Message]) -> int:
    """Tokens of a prompt, on the high side for English and code."""
    return sum(len(message["content"]) for message in messages) // 3
