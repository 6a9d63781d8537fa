"""Plain fetches of a page at the site of its app, read without aiohttp's server.

Measured at 32 connections on a busy machine: two fifths less processor time for each request than with
`server.fast_path: false` (0.38 ms against 0.67 ms, in two runs beside the same bare proxy).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from gateway.doors.access import IncomingRequest
from gateway.doors.event_ids import received_headers
from gateway.doors.site import SiteDoor
from gateway.errors import Refusal
from gateway.exchange.streams import Stream
from gateway.fastpath.request_head import RequestHead
from gateway.fastpath.responses import LAST_CHUNK, chunk, site_head
from gateway.fastpath.route import ResponseWriter
from gateway.model import BodyType, Principal, Request


class SiteRoute:
    """Requests with one head at the site `door`; `current` returns the site that the host has now."""

    def __init__(
        self,
        head: RequestHead,
        door: SiteDoor,
        current: Callable[[], SiteDoor | None],
        identify: Callable[[IncomingRequest], Awaitable[Principal | None]],
    ) -> None:
        self._head = head
        self._door = door
        self._current = current
        self._identify = identify
        self._request = Request(head.method, head.target, received_headers(head.fields), stream=True, leads=True)

    def is_current(self) -> bool:
        """Whether the site is still served."""
        return self._current() is self._door

    def read(self, body: bytes) -> Request | None:
        """Return the request; None if it may be for a file of the site, or its body is too large."""
        head = self._head
        if not self._door.is_plain_call(head.method, head.path, head.headers) or len(body) > self._door.largest():
            return None
        return replace(self._request, body=body, body_type=BodyType.BASE64) if body else self._request

    async def caller(self, request: IncomingRequest) -> Principal | None:
        """Return the authorized caller, or None."""
        principal = await self._identify(request)
        return principal if principal is not None and self._door.admits(principal) else None

    async def answer(self, request: Request, principal: Principal, writer: ResponseWriter) -> None:
        """Run the exchange, and write the backend's answer."""
        outcome = await self._door.open(request, principal)
        last = self._head.last
        if isinstance(outcome, Stream):
            await _stream(outcome, writer, last=last)
        else:
            writer.write(site_head(outcome, len(outcome.body), last=last) + outcome.body, principal.person)


async def _stream(stream: Stream, writer: ResponseWriter, *, last: bool) -> None:
    """Write each part as it comes, with the browser's backpressure."""
    try:
        # Redaction may change the length of the body, which a browser would reject.
        writer.send(site_head(replace(stream.head, length=None), None, last=last))
        async for part in stream:
            if part:
                writer.send(chunk(part))
                await writer.drain()
        writer.send(LAST_CHUNK)
    except Refusal:
        writer.abort()  # the browser must not take a truncated body for a whole one
    finally:
        await stream.aclose()
