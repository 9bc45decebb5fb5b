"""One server of an OpenAI-compatible API: its address, its connections, a request and its reply.

A reply is asked for whole where that is safe: reading it chunk by chunk costs the client ten times
the CPU. It is not where something between hangs up on silence, as proxies do after 30 to 150
seconds; then the server is asked for streams from there on. Which of the two shapes no rollout.
"""

from __future__ import annotations

import functools
import json
import math
import re
import socket
import ssl
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx2  # the openai client's own HTTP library: addresses, transports, errors of a body
import openai

from policy import EndpointRefused, Message
from policy.failures import BadRequest, Retry, explain
from policy.key import DEFAULT_BASE_URL, basic_auth, without_password
from policy.reply import Draft

CONNECTIONS_A_POOL = 64
KEEP_SECONDS = 4.0  # uvicorn closes an idle connection after 5
CONNECT_SECONDS = 15.0
LONG_SECONDS = 5.0  # of silence: what fails sooner was not ended for its silence

# A peer that is gone without a word is found by probes of the socket within two minutes.
KEEP_ALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
        if hasattr(socket, name)  # macOS lacks the first
    ),
]


@dataclass
class Shape:
    """What every request says beside its messages; the probe settles it.

    Attributes:
        model: None until it is known.
        fields: the others, JSON-ready.
        seeded: whether a seed is sent.
        refused: names of fields that the server did not take.
    """

    model: str | None
    fields: dict[str, Any]
    seeded: bool = True
    refused: list[str] = field(default_factory=list)

    @property
    def sent(self) -> dict[str, Any]:
        return {
            "model": self.model,
            **self.fields,
            "seed": "one a rollout" if self.seeded else None,
        }


class Server:
    """One server and its connections.

    Args:
        base_url: up to and with /v1; a user and password in it are sent, and never shown.
        key: as find_key gives it.
        shape: what is asked for; copied.
        stream: "on", "off", or "auto": whole replies until one is hung up on.
        concurrency: requests in flight, for which there are connections.
        read_timeout_seconds: longest silence in a reply.
        notify: called with one line for the user.
        count: called with the messages and what came of each attempt, also of a broken one.
        long_seconds: silence that may be the reason for a hang-up.

    Attributes:
        base_url: as given, without user and password.
        shape, streaming: what is asked for now, and whether as a stream.
        in_flight: attempts under way.
        served: requests that it answered, probes not counted.
        failures: failed attempts in a row; failed_at, rest_until: seconds of the event loop's
            clock at the last of them, and before which it is left alone.
        refusal: why it is not asked any more.
    """

    def __init__(
        self,
        base_url: str,
        key: str,
        shape: Shape,
        *,
        stream: str,
        concurrency: int,
        read_timeout_seconds: float,
        notify: Callable[[str], None],
        count: Callable[[list[Message], Draft], None],
        long_seconds: float = LONG_SECONDS,
    ) -> None:
        self.base_url = checked(base_url)
        self.shape = deepcopy(shape)
        self.streaming = stream == "on" or (stream == "auto" and self.base_url == DEFAULT_BASE_URL)
        self.may_switch = stream == "auto"
        self.in_flight = self.served = self.failures = 0
        self.failed_at = self.rest_until = -math.inf
        self.refusal: EndpointRefused | None = None
        self.proxy = proxy_for(self.base_url)
        self._usage_option = True  # whether a stream may be asked for its usage
        self._notify, self._count, self._long = notify, count, long_seconds
        timeout = openai.Timeout(
            read_timeout_seconds, connect=min(CONNECT_SECONDS, read_timeout_seconds), pool=None
        )
        auth = basic_auth(base_url)
        self._client = openai.AsyncOpenAI(
            base_url=self.base_url,
            api_key=key,
            max_retries=0,
            timeout=timeout,
            default_headers={"Authorization": auth} if auth else None,
            http_client=httpx2.AsyncClient(
                transport=Pools(self.base_url, concurrency, self.proxy),
                timeout=timeout,
                follow_redirects=True,
            ),
        )

    async def close(self) -> None:
        await self._client.close()

    async def models(self) -> object:
        """What GET /models says, as it comes; raises what the client raises."""
        return await self._client.get("/models", cast_to=object)

    def explain(self, error: Exception) -> Exception:
        """What a failed request means, with the proxy named that may be to blame."""
        meaning = explain(error, self.base_url, self.shape.model)
        if isinstance(meaning, Retry) and self.proxy:
            name = without_password(self.proxy)
            meaning.args = (f"{meaning} (through the proxy {name} of the environment)",)
        return meaning

    async def ask(
        self,
        messages: list[Message],
        seed: int,
        *,
        whole: bool = False,
        max_tokens: int | None = None,
    ) -> Draft:
        """One request and its whole reply, in one piece or as a stream.

        Args:
            whole: ask for it in one piece although others are streamed.
            max_tokens: less than for others.

        Raises Retry, BadRequest, Unanswerable, EndpointRefused.
        """
        whole = whole and self.streaming
        if whole or not self.streaming:
            started = time.monotonic()
            try:
                return await self.request(messages, seed, stream=False, max_tokens=max_tokens)
            except (Retry, BadRequest) as error:
                if whole or not self.may_switch:
                    raise
                self._switch(error, time.monotonic() - started)
        return await self.request(messages, seed, stream=True, max_tokens=max_tokens)

    def _switch(self, error: Retry | BadRequest, seconds: float) -> None:
        """Ask for streams from now on if that may help against this error, else raise it."""
        if isinstance(error, BadRequest):
            if not re.search(r"\bstream", str(error), re.IGNORECASE):
                raise error
            words = str(error)
        else:
            if not error.hung_up or seconds < self._long:
                raise error
            words = f"{error}, after {seconds:.0f} s of silence"
        if not self.streaming:
            self.streaming = True
            self._notify(
                f"{self.base_url} did not give a whole reply ({words}): replies are streamed from "
                "now on"
            )

    async def request(
        self,
        messages: list[Message],
        seed: int,
        *,
        stream: bool,
        max_tokens: int | None = None,
        enough: Callable[[Draft], bool] | None = None,
    ) -> Draft:
        """One request; its reply, or as much of it as is `enough`. Raises as ask does."""
        body: dict[str, Any] = {
            "model": self.shape.model,
            "messages": messages,
            **self.shape.fields,
        }
        for name in ("max_tokens", "max_completion_tokens"):
            if max_tokens is not None and name in body:
                body[name] = min(max_tokens, body[name])
        if self.shape.seeded:
            body["seed"] = seed
        if stream:
            body["stream"] = True
            if self._usage_option:
                body["stream_options"] = {"include_usage": True}
        draft = Draft()
        try:
            await self._send(body, draft, stream, enough)
        except (openai.APIError, httpx2.HTTPError, ValueError) as error:
            if draft.finish_reason is None:
                meaning = self.explain(error)
                if stream and self._usage_option and _names_usage_option(meaning):
                    self._usage_option = False
                    return await self.request(
                        messages, seed, stream=True, max_tokens=max_tokens, enough=enough
                    )
                raise meaning from error
        finally:
            if enough is None:
                self._count(messages, draft)
        if draft.finish_reason is None and not (enough and enough(draft)):
            raise Retry("a reply ended without a finish_reason", odd=True)
        return draft

    async def _send(
        self,
        body: dict[str, Any],
        draft: Draft,
        stream: bool,
        enough: Callable[[Draft], bool] | None,
    ) -> None:
        # The client's own way to leave the reading to us: it gives the response when its headers
        # are there. A typed reply costs half as much again.
        started = time.monotonic()
        response = (
            await self._client.post(
                "/chat/completions",
                cast_to=object,
                body=body,
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
        ).response
        try:
            await draft.read(response, stream=stream, enough=enough)
        finally:
            await response.aclose()
        redirected = any(hop.status_code == 303 for hop in response.history)
        if redirected and not stream and self.may_switch:
            # The reply came all the same, by the redirect; the next may wait for several.
            seconds = time.monotonic() - started
            if seconds >= self._long:
                self._switch(Retry("HTTP 303", hung_up=True), seconds)


class Pools(httpx2.AsyncBaseTransport):
    """Connections in several pools: a pool looks through all its connections at each request.

    Raises EndpointRefused when the machine's settings (proxy, certificates) cannot be used.
    """

    def __init__(self, base_url: str, connections: int, proxy: str | None) -> None:
        count = math.ceil(connections / CONNECTIONS_A_POOL)
        # No pool is ever full: the slots of the endpoint are the limit.
        limits = httpx2.Limits(
            max_connections=None,
            max_keepalive_connections=2 * CONNECTIONS_A_POOL,
            keepalive_expiry=KEEP_SECONDS,
        )
        try:
            self._pools = [
                httpx2.AsyncHTTPTransport(
                    verify=certificates(base_url.startswith("https:")),
                    limits=limits,
                    proxy=proxy,
                    socket_options=KEEP_ALIVE,
                )
                for _ in range(count)
            ]
        except ImportError as error:
            raise EndpointRefused(
                f"the proxy {without_password(str(proxy))} of the environment needs "
                "`pip install socksio`; or go without it: NO_PROXY="
                + str(httpx2.URL(base_url).host)
            ) from error
        except (ValueError, httpx2.InvalidURL) as error:
            raise EndpointRefused(
                f"the proxy {without_password(str(proxy))} of the environment cannot be used: "
                f"{without_password(str(error))}"
            ) from error
        self._turn = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self._turn = (self._turn + 1) % len(self._pools)
        return await self._pools[self._turn].handle_async_request(request)

    async def aclose(self) -> None:
        for pool in self._pools:
            await pool.aclose()


def checked(base_url: str) -> str:
    """An address without its password; EndpointRefused when it is none."""
    shown = without_password(base_url).rstrip("/")
    if "@" in shown:
        raise EndpointRefused("--base-url: write / ? # and @ in a password as %2F %3F %23 and %40")
    try:
        url = httpx2.URL(shown)
        port = url.port
    except (httpx2.InvalidURL, ValueError) as error:
        raise EndpointRefused(f"--base-url {shown} is no address: {error}") from error
    if not 0 < (port or 80) < 65_536:
        raise EndpointRefused(f"--base-url {shown}: a port is 1 to 65535")
    if url.scheme not in ("http", "https") or not url.host:
        raise EndpointRefused(f"--base-url {shown}: an address starts with http:// and a host")
    if url.query or url.fragment:
        raise EndpointRefused(
            f"--base-url {shown.partition('?')[0].partition('#')[0]}: an address has no ? and no #"
        )
    return shown


def proxy_for(base_url: str) -> str | None:
    """The proxy of the environment for an address; none for this machine itself."""
    url = httpx2.URL(base_url)
    host = url.host
    if host in ("localhost", "::1", "0.0.0.0") or host.endswith(".localhost"):
        return None
    if re.fullmatch(r"127(\.\d+){1,3}", host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def certificates(needed: bool) -> ssl.SSLContext:
    """The certificates to trust, read once; EndpointRefused when they are needed and unreadable."""
    try:
        return _certificates()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        if needed:
            raise EndpointRefused(
                f"cannot read the certificates to trust (SSL_CERT_FILE, SSL_CERT_DIR): {error}"
            ) from error
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@functools.cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


def _names_usage_option(meaning: Exception) -> bool:
    return isinstance(meaning, BadRequest) and "stream_options" in json.dumps(
        [str(meaning), str(meaning.error.body)]
    )
