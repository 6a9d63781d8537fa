"""An upstream at a URL: Streamable HTTP, protocol 2026-07-28 and the handshake versions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

import aiohttp
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

from gateway.backends.connect import OpenSession
from gateway.errors import Refusal
from gateway.exchange.authenticate import Injected
from gateway.mcp.upstreams.conversation import Message, Receive, UpstreamLost
from gateway.mcp.upstreams.decode import decode, encode
from gateway.mcp.upstreams.events import EventReader
from gateway.model import Headers

log = logging.getLogger(__name__)

SESSION: Final = "mcp-session-id"
LAST_EVENT: Final = "last-event-id"
RESUMES = 5
"""Times in a row that a stream which ended before its answer is taken up again."""

RETRY = 1.0
"""Seconds before a stream is taken up again, where the server names none; it may name up to a minute."""

LONGEST_RETRY = 60.0

_ACCEPT: Final = {
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
}


class Credentials:
    """What one credential adds to each request, by its method and URL; `answered` says whether to try once more."""

    def __init__(
        self,
        inject: Callable[[str, str], Awaitable[Injected]],
        answered: Callable[[Injected, str, int, Headers], Awaitable[bool]],
    ) -> None:
        self.inject = inject
        self.answered = answered

    async def headers(self, method: str, url: str) -> dict[str, str]:
        """The header fields for one request."""
        return dict((await self.inject(method, url)).headers)


class StreamableHttp:
    """Carries messages by POST; each answer comes with its request, and the rest on one GET of a session."""

    def __init__(self, session: OpenSession, url: str, *, credentials: Credentials, limit: int) -> None:
        self._open = session
        self._url = url
        self._credentials = credentials
        self._limit = limit
        self._session: str | None = None
        self._version: str | None = None
        self._receive: Receive | None = None
        self._running = asyncio.Event()
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._standing: asyncio.Event = asyncio.Event()

    async def run(self, receive: Receive) -> None:
        """Until the session is lost; a server without one answers each request for itself."""
        self._receive = receive
        self._running.set()
        standing = asyncio.ensure_future(self._stand())
        try:
            raise UpstreamLost(await self._lost)
        finally:
            standing.cancel()
            await asyncio.wait({standing})
            await asyncio.shield(asyncio.ensure_future(self._leave()))

    async def abandon(self, id: int) -> bool:
        """Closing the stream of a request is its cancellation in the modern era, and none before."""
        return self._version is None or self._version >= "2026"

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        await self._running.wait()
        if (version := headers.get(MCP_PROTOCOL_VERSION_HEADER)) is not None:
            self._version = version
        method = message.get("method")
        asks = method is not None and "id" in message
        related: int | None = message["id"] if asks else None
        opening = method == "initialize"
        if opening:
            self._session = self._version = None
        async with self._exchange("POST", encode(message), dict(headers)) as response:
            if opening and (session := response.headers.get(SESSION)) is not None:
                self._session = session if session.isascii() and session.isprintable() else None
            if response.status >= 300:
                await self._failed(response, related)
                return
            if related is None:
                if method == "notifications/initialized":
                    self._standing.set()
            elif response.status == 202:
                raise UpstreamLost("the upstream took a request and gave no answer")
            else:
                await self._answered(response, related)

    @asynccontextmanager
    async def _exchange(
        self, method: str, body: bytes | None, headers: dict[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        fields = {**_ACCEPT, **headers}
        if self._session is not None:
            fields[SESSION] = self._session
        if self._version is not None:
            fields[MCP_PROTOCOL_VERSION_HEADER] = self._version
        for again in (True, False):
            try:
                credential = await self._credentials.inject(method, self._url)
                async with self._open().request(
                    method, self._url, data=body, headers={**fields, **dict(credential.headers)}, allow_redirects=False
                ) as response:
                    answer = tuple((name.lower(), value) for name, value in response.headers.items())
                    changed = await self._credentials.answered(credential, self._url, response.status, answer)
                    if changed and again:
                        continue
                    yield response
                    return
            except Refusal as refusal:
                raise UpstreamLost(refusal.detail, unsent=True) from refusal
            except (aiohttp.ClientError, OSError) as error:
                raise UpstreamLost("the connection to the upstream broke") from error

    async def _failed(self, response: aiohttp.ClientResponse, related: int | None) -> None:
        if response.status == 404 and self._session is not None:
            self._lose("the upstream ended the session")
            raise UpstreamLost("the upstream ended the session", unsent=True)
        message: object = None
        if response.content_type == "application/json":
            with suppress(ValueError):
                message = decode(await self._whole(response))
        if related is None:
            return
        error = message.get("error") if isinstance(message, dict) else None
        if isinstance(error, dict) and self._receive is not None:
            self._receive({"id": related, "error": error}, related)
            return
        raise MCPError(types.INTERNAL_ERROR, f"The upstream answered with HTTP status {response.status}.")

    async def _answered(self, response: aiohttp.ClientResponse, related: int) -> None:
        if response.content_type == "application/json":
            try:
                message = decode(await self._whole(response))
            except ValueError as error:
                raise UpstreamLost(f"the upstream answered with what is no JSON: {error}") from error
            if not isinstance(message, dict) or message.get("id") != related:
                raise UpstreamLost("the upstream answered another request than it was asked")
            self._take(message, related)
        elif response.content_type == "text/event-stream":
            await self._stream(response, related)
        else:
            raise UpstreamLost(f"the upstream answered with {response.content_type[:80]!r}")

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        parts = bytearray()
        async for part in response.content.iter_any():
            parts += part
            if len(parts) > self._limit:
                raise UpstreamLost(f"the upstream answered with more than {self._limit} bytes")
        return bytes(parts)

    async def _stream(self, response: aiohttp.ClientResponse, related: int) -> None:
        """The events of one request, up to its answer; a stream that ends before is taken up again."""
        reading = _Reading(related)
        await self._events(response, reading)
        for _ in range(RESUMES):
            if reading.answered:
                return
            if reading.last is None:
                break
            await asyncio.sleep(reading.retry)
            before = reading.last
            async with self._exchange("GET", None, {LAST_EVENT: reading.last}) as resumed:
                if resumed.status != 200 or resumed.content_type != "text/event-stream":
                    break
                await self._events(resumed, reading)
            if reading.last != before:
                continue
        if not reading.answered:
            raise UpstreamLost("the upstream ended the stream of a request before its answer")

    async def _events(self, response: aiohttp.ClientResponse, reading: _Reading) -> None:
        reader = EventReader(self._limit)
        try:
            async for part in response.content.iter_any():
                for event in reader.feed(part):
                    reading.last = event.id or reading.last
                    if event.retry is not None:
                        reading.retry = min(event.retry / 1000, LONGEST_RETRY)
                    if event.type == "message" and event.data:
                        message = decode(event.data.encode("utf-8", "surrogatepass"))
                        self._take(message, reading.related)
                        if reading.answers(message):
                            return
                await asyncio.sleep(0)  # a flood must leave time to others
        except ValueError as error:
            raise UpstreamLost(f"the upstream sent {error}") from error
        except (aiohttp.ClientError, OSError):
            log.debug("the stream of an upstream broke", exc_info=True)

    def _take(self, message: object, related: int | None) -> None:
        if self._receive is None:
            return
        try:
            self._receive(message, related)
        except UpstreamLost as lost:
            self._lose(str(lost))
            raise

    async def _stand(self) -> None:
        """The stream on which a session tells what belongs to no request, for as long as the server offers it."""
        await self._standing.wait()
        reading = _Reading(None)
        failures = 0
        while self._session is not None and failures < RESUMES:
            headers = {LAST_EVENT: reading.last} if reading.last is not None else {}
            try:
                async with self._exchange("GET", None, headers) as response:
                    if response.status == 404:
                        self._lose("the upstream ended the session")
                        return
                    if response.status != 200 or response.content_type != "text/event-stream":
                        return
                    await self._events(response, reading)
                    failures = 0
            except UpstreamLost as lost:
                log.debug("the standing stream of an upstream: %s", lost)
                failures += 1
            await asyncio.sleep(reading.retry)
        if failures:
            self._lose("the upstream is gone")

    def _lose(self, why: str) -> None:
        if not self._lost.done():
            self._lost.set_result(why)

    async def _leave(self) -> None:
        """End the session, so that the server need not keep it."""
        if self._session is None or self._lost.done():
            return
        with suppress(UpstreamLost, TimeoutError):
            async with asyncio.timeout(2), self._exchange("DELETE", None, {}):
                pass


class _Reading:
    """How far a stream was read; `retry` is in seconds."""

    def __init__(self, related: int | None) -> None:
        self.related = related
        self.last: str | None = None
        self.retry = RETRY
        self.answered = False

    def answers(self, message: object) -> bool:
        """Whether `message` is the answer that the stream was opened for."""
        if isinstance(message, dict) and "method" not in message and message.get("id") == self.related:
            self.answered = self.related is not None
        return self.answered
