"""Data embedded in an app's page for hosts that carry no requests: anonymous responses, and names of tools."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from gateway.contract import result
from gateway.errors import Refusal
from gateway.jsontext.writing import plain_json
from gateway.model import Caller, Door, Initiator, Json, Principal, Request, Response
from gateway.policy import Policy

FRESH: Final = 60.0
"""Seconds after which the responses are requested anew when the page is read."""

SNAPSHOT_TIMEOUT: Final = 3.0
"""Seconds that the reader of a page waits for them; later ones are in the next page that is read."""

LARGEST: Final = 1024 * 1024
"""Bytes of all responses of one app together, as JSON."""

AT_ONCE: Final = 4

NOBODY: Final = Principal("gateway", "gateway", "snapshot", shared=True)
"""The principal of these requests: the responses are the same for everyone."""

log = logging.getLogger(__name__)


class Exchange(Protocol):
    """Sends requests to backends: `gateway.exchange.pipeline.Exchange`."""

    async def run(self, request: Request, caller: Caller, *, wait: float = 0.0) -> Response: ...


class Snapshot:
    """The responses and free tools of one app, whose `policy` is None once it is removed; `clock` is steady, in s.

    A response stays cached while its backend fails, but not once the backend or the policy refuses it.
    """

    def __init__(
        self,
        app: str,
        policy: Callable[[], Policy | None],
        exchange: Exchange,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._exchange = exchange
        self._clock = clock
        self._caller = Caller(NOBODY, app, Door.SNAPSHOT, Initiator.PAGE, "snapshot")
        self._bodies: dict[str, Json] = {}
        self._version = ""
        self._stale = float("-inf")
        self._asking = asyncio.Lock()

    async def responses(self) -> Mapping[str, Json]:
        """Return, by URL, the result that `http_request` would give. Responses other than 200 are omitted."""
        async with self._asking:
            policy = self._policy()
            if policy is None or not policy.snapshot:
                return {}
            if policy.version != self._version:  # the new policy may mask or deny what was allowed before
                self._bodies, self._version, self._stale = {}, policy.version, float("-inf")
            if self._clock() >= self._stale:
                await self._ask(policy.snapshot)
            values = {url: self._bodies[url] for url in policy.snapshot if url in self._bodies}
        return _within_limit(values, self._caller.app)

    def tools(self) -> tuple[str, ...]:
        """Return the page's tools that a host may offer without a call of the gateway, under the current policy."""
        policy = self._policy()
        return () if policy is None else policy.free_tools

    def secret_routes(self) -> list[Json]:
        """Return the routes whose bodies the page reports to no model."""
        policy = self._policy()
        return [] if policy is None else policy.secret_routes

    async def _ask(self, urls: tuple[str, ...]) -> None:
        places = asyncio.Semaphore(AT_ONCE)

        async def ask(url: str) -> None:
            async with places:
                await self._one(url)

        try:
            async with asyncio.timeout(SNAPSHOT_TIMEOUT), asyncio.TaskGroup() as tasks:
                for url in urls:
                    tasks.create_task(ask(url))
        except TimeoutError:
            log.warning(
                "app %s: the snapshot is not whole, a backend took longer than %g s", self._caller.app, SNAPSHOT_TIMEOUT
            )
        self._stale = self._clock() + FRESH

    async def _one(self, url: str) -> None:
        response = await self._exchange.run(Request("GET", url, send_cookies=False, anonymous=True), self._caller)
        if response.status < 500 and response.status != 429:
            self._bodies.pop(url, None)
        if response.status != 200:
            log.warning("app %s: %s is not in the snapshot, its status is %d", self._caller.app, url, response.status)
            return
        try:
            self._bodies[url] = dict(result(response))
        except Refusal as refusal:
            log.warning("app %s: %s is not in the snapshot: %s", self._caller.app, url, refusal.detail)


def _within_limit(responses: Mapping[str, Json], app: str) -> Mapping[str, Json]:
    """Return the first ones that fit."""
    values: dict[str, Json] = {}
    size = 0
    for url, response in responses.items():
        size += len(plain_json(response))
        if size > LARGEST:
            log.warning("app %s: from %s on the snapshot would be larger than %d bytes", app, url, LARGEST)
            break
        values[url] = response
    return values
