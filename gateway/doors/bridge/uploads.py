"""Large bodies of the bridge, transferred by HTTP beside its frames: each is put once and taken once."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from aiohttp import web

from gateway.arriving import SILENCE, SLOWEST, NoRoom, whole
from gateway.bounds import Area, Bound, Shares, size
from gateway.errors import MuxError
from gateway.jsontext.sizes import AT_ONCE, is_bulky, why
from gateway.model import LARGEST_BODY, Principal
from gateway.ports.nodes import NodeAnswer

LIFE = 60.0
"""Seconds that a body waits to be taken."""

LARGEST = 16 * 1024 * 1024
"""Bytes of one JSON body; one of plain bytes may have `LARGEST_BODY`."""

MOST = 1024
"""Waiting bodies in all."""

EACH = 256
"""Waiting bodies of one principal."""

ROOM = 1024 * 1024 * 1024
"""Bytes of all bodies, from their arrival to the answer of the call that took them."""

ROOM_EACH = 4 * LARGEST_BODY
"""Bytes of the bodies of one principal."""

BOUNDS: Final = (
    Bound(
        Area.BRIDGE,
        "large bodies of the bridge, sent beside its frames",
        f"{EACH} per principal, {MOST:,} in all; {size(LARGEST)} of JSON, {size(LARGEST_BODY)} of bytes; "
        f"{LIFE:g} s until they are used",
        "503, 413; unused ones are dropped",
    ),
    Bound(
        Area.BRIDGE,
        "bytes of request bodies in memory",
        f"`mcp.bodies_each` ({size(ROOM_EACH)}) per principal, `mcp.bodies` ({size(ROOM)}) in all, counted "
        "as they arrive; beyond half of it, a small share per caller",
        "503 with `retry-after`",
    ),
    Bound(
        Area.BRIDGE,
        "incomplete large bodies of the bridge",
        f"{SILENCE:g} s without a byte, {SILENCE:g} s plus one second per {size(SLOWEST)} in total",
        "408; its memory is released",
    ),
)

_BODIES, _ROOM, _SLOW = BOUNDS

_ID = re.compile(r"[A-Za-z0-9_-]{22,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class OpenBody:
    """The bytes of an answer that were there first, and the reader of those that follow."""

    first: bytes
    more: Callable[[], Awaitable[bytes]]

    def __len__(self) -> int:
        return len(self.first)


class BodiesElsewhere(Protocol):
    """The bodies that other processes hold: `Handovers` in `gateway.cluster`."""

    async def announce(self, id: str, principal: Principal) -> None:
        """Let other processes find a body that a host page has sent to this one. Raises OSError."""
        ...

    async def fetch_body(self, id: str, principal: Principal) -> tuple[bytes, bool] | None:
        """Return a body that a host page has sent to another process, and whether it is JSON; None without one."""
        ...

    def open_body(self, id: str, principal: Principal) -> AbstractAsyncContextManager[NodeAnswer | None]:
        """Yield the answer with a body of another process; None without one. Raises `Refusal`."""
        ...


@dataclass(slots=True)
class _Body:
    """`content` is None before its arrival, and after it was taken; `size` is the number of bytes received."""

    principal: str
    expires: float
    size: int = 0
    content: str | bytes | OpenBody | None = None


class Bodies:
    """The waiting bodies: of `room` bytes in all, `each` for one principal. `new_id` makes the ids of answers."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        room: int = ROOM,
        each: int = ROOM_EACH,
        new_id: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        self.new_id = new_id
        self._clock = clock
        self._places = Shares(EACH, MOST)
        self._bodies: dict[str, _Body] = {}
        self.room = Shares(each, room)
        """The bytes counted by principal."""

    def put(self, id: str, principal: str, content: str | bytes | OpenBody) -> bool:
        """Store `content` until it is taken. Return False if the id is invalid or used, or a limit is exceeded."""
        largest = LARGEST if isinstance(content, str) else LARGEST_BODY
        if len(content) > largest:
            return False
        try:
            body = self._begin(id, principal)
            if body is None:
                return False
            self._grow(id, body, len(content))
        except NoRoom:
            return False
        body.content, body.expires = content, self._clock() + LIFE
        return True

    async def receive(self, id: str, request: web.Request, principal: str, rest: Callable[[], Awaitable[None]]) -> bool:
        """Store the body of `request`, as text, or as bytes for `application/octet-stream`; await `rest` between reads.
        Return False if the id is invalid or used. Raises `NoRoom` beyond the limits, `HTTPRequestEntityTooLarge`,
        `HTTPLengthRequired`, `HTTPRequestTimeout` for a body that stalls, `UnicodeDecodeError` for invalid text, and
        `MuxError` (`too-large`) for JSON that would take long to parse.
        """
        length, raw = request.content_length, request.content_type == "application/octet-stream"
        largest = LARGEST_BODY if raw else LARGEST
        if length is None:
            raise web.HTTPLengthRequired
        if length > largest:
            raise web.HTTPRequestEntityTooLarge(largest, length)
        body = self._begin(id, principal)
        if body is None:
            return False
        try:
            content = await whole(
                request, largest, rest=rest, on_taken=lambda count: self._grow(id, body, count), bound=_SLOW
            )
            if not raw and await asyncio.to_thread(is_bulky, content):
                raise MuxError("too-large", f"This body has {why(AT_ONCE)}.")
            body.content = content if raw else content.decode()
            body.expires = self._clock() + LIFE
        finally:
            if body.content is None:
                self.release(id)
        return True

    def has(self, id: str) -> bool:
        """Return whether a body with this id waits here, or was taken and is counted."""
        return id in self._bodies

    def take(self, id: str, principal: str) -> str | bytes | OpenBody | None:
        """Return the body, once, if it was put for this principal. Bytes are counted until they are released."""
        body = self._bodies.get(id)
        if body is None or body.principal != principal or body.content is None or body.expires < self._clock():
            return None
        content, body.content, body.expires = body.content, None, float("inf")
        if isinstance(content, str):
            self.release(id)
        return content

    def release(self, id: str) -> None:
        """Stop counting this body."""
        body = self._bodies.pop(id, None)
        if body is not None:
            self._places.give(body.principal)
            self.room.give(body.principal, body.size)

    def _begin(self, id: str, principal: str) -> _Body | None:
        """Reserve a place for a body; return None for an invalid or used id. Raises `NoRoom`."""
        now = self._clock()
        for old in [old for old, body in self._bodies.items() if body.expires < now]:
            self.release(old)
        if not _ID.fullmatch(id) or id in self._bodies:
            return None
        if not self._places.take(principal):
            _BODIES.report(principal)
            raise NoRoom
        body = self._bodies[id] = _Body(principal, float("inf"))
        return body

    def _grow(self, id: str, body: _Body, count: int) -> None:
        if not self.room.take(body.principal, count):
            self.release(id)
            _ROOM.report(body.principal)
            raise NoRoom
        body.size += count
