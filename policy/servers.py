"""Several servers of one model: which is asked next, and which is left alone.

A request goes to the server with the least in flight. One of several that fails is left alone for
a while, and then asked one request at a time until it answers; the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence

from policy import EndpointRefused
from policy.failures import Retry
from policy.server import Server

LEFT_OUT = 3  # failures, one after the other, after which the user is told


class Servers:
    """The servers of an endpoint, one or several.

    Args:
        concurrency: requests in flight at each.
        notify: called with one line for the user.

    Attributes:
        all: the servers, in the order given.
        vacancy: to be set when an attempt ends.
    """

    def __init__(
        self, servers: Sequence[Server], concurrency: int, notify: Callable[[str], None]
    ) -> None:
        self.all = list(servers)
        self.vacancy = asyncio.Event()
        self._concurrency, self._notify = concurrency, notify
        urls = [server.base_url for server in self.all]
        for url in urls:
            if urls.count(url) > 1:
                raise EndpointRefused(f"--base-url {url} is given twice")

    def compare(self) -> None:
        """EndpointRefused when they do not serve the same, or do not take the same fields."""
        first = self.all[0].shape.sent
        for other in self.all[1:]:
            sent = other.shape.sent
            names = [name for name in {**first, **sent} if first.get(name) != sent.get(name)]
            if names:
                said = [
                    f"{server.base_url} takes {name} {json.dumps(server.shape.sent.get(name))}"
                    for name in names
                    for server in (self.all[0], other)
                ]
                raise EndpointRefused(f"the servers differ: {', '.join(said)}")

    async def vacant(self, check: Callable[[], None]) -> Server:
        """The server with the least in flight, of those that may be asked now.

        `check` is called after each wait, and raises when nothing is asked any more.
        """
        if len(self.all) == 1:
            return self.all[0]  # its failures are waited for by each sample
        clock = asyncio.get_running_loop().time
        while True:
            now = clock()
            servers = [server for server in self.all if server.refusal is None]
            ready = [
                server
                for server in servers
                if server.rest_until <= now
                and server.in_flight < (1 if server.failures else self._concurrency)
            ]
            if ready:
                return min(ready, key=lambda server: server.in_flight)
            rests = [server.rest_until for server in servers if server.rest_until > now]
            self.vacancy.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(rests, default=None)):
                    await self.vacancy.wait()
            check()

    def another_is_up(self) -> bool:
        """Whether a failed attempt can be made at another server at once."""
        return len(self.all) > 1 and any(
            server.refusal is None and not server.failures for server in self.all
        )

    def answered(self, server: Server) -> None:
        if server.failures >= LEFT_OUT and len(self.all) > 1:
            self._notify(f"{server.base_url} answers again")
        server.failures = 0

    def failed(self, server: Server, started: float, error: Retry, seconds: float) -> None:
        """Leave a server alone for `seconds`; all that was under way when it fell counts once.

        `started` is the attempt's second, by the event loop's clock.
        """
        if started < server.failed_at:
            return
        now = asyncio.get_running_loop().time()
        server.rest_until = now + seconds
        server.failed_at = now
        server.failures += 1
        if server.failures == LEFT_OUT and len(self.all) > 1:
            self._notify(f"{server.base_url} is left out until it answers: {error}")

    def refused(self, server: Server, error: EndpointRefused) -> Exception:
        """What it means that a server refuses for good: the end when it is the last one."""
        known, server.refusal = server.refusal is not None, error
        if all(other.refusal for other in self.all):
            return error
        if not known:
            self._notify(f"WARNING: {server.base_url} is left out for good: {error}")
        return Retry(str(error))
