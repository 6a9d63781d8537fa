"""Event streams of views beside the bridge: the page itself reads each at an address that works once."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from gateway.bounds import Area, Bound, Shares
from gateway.crypto import digest
from gateway.doors.access import STREAM, STREAMS
from gateway.doors.responses import SECURE, refusal_response
from gateway.doors.revocation import Revocations
from gateway.errors import Refusal
from gateway.event_stream import BOM, UNBUFFERED
from gateway.mcp.mount_interfaces import ReadEvents
from gateway.model import Principal

LIFE = 30.0
"""Seconds in which a page may begin to read."""

EACH = 3
"""Streams of one person. Browsers open six connections to a site over HTTP/1.1, of which new views need one."""

IN_ALL = 2048
"""Streams of all persons."""

PULSE = 15.0
"""Seconds of silence after which a comment is sent, so that no proxy takes the connection for dead."""

COMMENT: Final = b":\n"
"""A line that says nothing (HTML, 9.2.6)."""

BOUNDS: Final = (
    Bound(
        Area.BRIDGE,
        "event streams that a page reads past the bridge",
        f"{EACH} per person, {IN_ALL:,} in all; {LIFE:g} s until it begins",
        "further ones are read over the bridge",
        uncounted="they are read all the same",
    ),
)


@dataclass(frozen=True, slots=True)
class _Offered:
    principal: Principal
    read: ReadEvents
    ends: float


class EventStreams:
    """The offered streams, below `site`, the origin of the sandbox proxy, which the policy of each app allows.

    `clock` is steady, in seconds.
    """

    def __init__(self, site: str, revocations: Revocations, clock: Callable[[], float] = time.monotonic) -> None:
        self._site = site
        self._revocations = revocations
        self._clock = clock
        self._places = Shares(EACH, IN_ALL)
        self._offered: dict[bytes, _Offered] = {}

    def offer(self, principal: Principal, read: ReadEvents) -> str | None:
        """Return an address at which a page can read a stream once; None beyond the limits."""
        self._expire()
        if not self._places.take(principal.person):
            return None
        id = secrets.token_urlsafe(32)
        self._offered[digest(id)] = _Offered(principal, read, self._clock() + LIFE)
        asyncio.get_running_loop().call_later(LIFE, self._expire)
        return f"{self._site}{STREAMS}{id}"

    def _expire(self) -> None:
        """Forget the streams that no page has begun to read in time, and free their places."""
        for old in [key for key, one in self._offered.items() if one.ends <= self._clock()]:
            self._places.give(self._offered.pop(old).principal.person)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes for the site of the sandbox proxy."""
        return [web.get(STREAM, self._send, allow_head=False)]

    async def _send(self, request: web.Request) -> web.StreamResponse:
        offered = self._offered.pop(digest(request.match_info["id"]), None)
        if offered is None:
            return refusal_response(404, "unknown-stream", "No such stream waits; each can be read once.")
        try:
            if offered.ends <= self._clock() or not self._revocations.accepts(offered.principal):
                return refusal_response(404, "unknown-stream", "This stream does not wait any more.")
            with self._revocations.hold(offered.principal, lambda: _cut_off(request), needs="bridge"):
                return await _copy(request, offered.read)
        finally:
            self._places.give(offered.principal.person)


async def _copy(request: web.Request, read: ReadEvents) -> web.StreamResponse:
    """Send the events as they come, with the page's backpressure; a stream that breaks ends the connection."""
    answer = web.StreamResponse(headers={**SECURE, **UNBUFFERED, "content-type": "text/event-stream"})
    answer.headers["access-control-allow-origin"] = request.headers["origin"]
    has_begun, has_ended, line_ended = False, False, True
    try:
        await answer.prepare(request)
        await answer.write(COMMENT)  # so that the page's decoder removes no byte order mark: one is removed here
        while not has_ended:
            response = await read(PULSE)
            has_ended = response.part is None or response.part.last
            if response.part is None:  # the refusal in place of the rest
                _cut_off(request)
                return answer
            if response.body:
                body = response.body if has_begun else response.body.removeprefix(BOM)
                has_begun, line_ended = True, body.endswith(b"\n")
                await answer.write(body)
            elif line_ended and not has_ended:
                await answer.write(COMMENT)
        await answer.write_eof()
    except Refusal:  # the view is gone
        _cut_off(request)
    finally:
        if not has_ended:
            with suppress(Refusal):
                await read(0, cancel=True)
    return answer


def _cut_off(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
