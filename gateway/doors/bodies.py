"""Large bodies of the bridge, handed over by HTTP beside its frames: each is put once and taken once."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from gateway.bulk import AT_ONCE, is_bulky, why
from gateway.errors import MuxError
from gateway.model import LARGEST_BODY

LIFE = 60.0
"""Seconds that a body waits to be taken."""

LARGEST = 16 * 1024 * 1024
"""Bytes of one body that is JSON; one of plain bytes may have `LARGEST_BODY`."""

MOST = 1024
"""Bodies that may wait in all."""

EACH = 256
"""Bodies that may wait for one principal."""

ROOM = 1024 * 1024 * 1024
"""Bytes that may be under way in all, from their first one to the answer of the call that took them."""

ROOM_EACH = 4 * LARGEST_BODY
"""Those of one principal."""

_LONG = 1024 * 1024
"""Bytes from which it is worth a thread to put them together."""

_STRETCH = 512 * 1024
"""Bytes after which who reads them rests."""

_ID = re.compile(r"[A-Za-z0-9_-]{22,64}", re.ASCII)


@dataclass(slots=True)
class _Body:
    """`content` is None before it is there, and after it was taken."""

    principal: str
    size: int
    expires: float
    content: str | bytes | None = None


class Bodies:
    """The bodies that wait: of `room` bytes in all, `each` for one principal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, room: int = ROOM, each: int = ROOM_EACH) -> None:
        self._clock = clock
        self._room = room
        self._each = each
        self._bodies: dict[str, _Body] = {}

    def full(self, size: int) -> bool:
        """Whether all principals together leave no room for `size` bytes."""
        now = self._clock()
        for old in [old for old, body in self._bodies.items() if body.expires < now]:
            del self._bodies[old]
        return len(self._bodies) >= MOST or sum(body.size for body in self._bodies.values()) + size > self._room

    def put(self, id: str, principal: str, content: str | bytes) -> bool:
        """Keep `content` until it is taken. False if the id is none, or used, or too much waits."""
        largest = LARGEST if isinstance(content, str) else LARGEST_BODY
        if len(content) > largest or not self._reserve(id, principal, len(content)):
            return False
        body = self._bodies[id]
        body.content, body.expires = content, self._clock() + LIFE
        return True

    async def receive(self, id: str, request: web.Request, principal: str, rest: Callable[[], Awaitable[None]]) -> bool:
        """Keep what `request` sends, as text or, if it says that it sends any bytes, as such; `rest` in between.

        False as in `put`. Raises `HTTPRequestEntityTooLarge`, `HTTPLengthRequired`, `UnicodeDecodeError` for a text
        that is none, and `MuxError` (`too-large`) for one that would take long to read.
        """
        size, raw = request.content_length, request.content_type == "application/octet-stream"
        if size is None:
            raise web.HTTPLengthRequired
        if size > (LARGEST_BODY if raw else LARGEST):
            raise web.HTTPRequestEntityTooLarge(LARGEST_BODY, size)
        if not self._reserve(id, principal, size):
            return False
        body = self._bodies[id]
        try:
            content = await whole(request, rest=rest)
            if not raw and await asyncio.to_thread(is_bulky, content):
                raise MuxError("too-large", f"This body has {why(AT_ONCE)}.")
            body.content = content if raw else content.decode()
            body.expires = self._clock() + LIFE
        finally:
            if body.content is None:
                self.release(id)
        return True

    def take(self, id: str, principal: str) -> str | bytes | None:
        """The body, once, if it was put for this principal. Bytes count as under way until they are released."""
        body = self._bodies.get(id)
        if body is None or body.principal != principal or body.content is None or body.expires < self._clock():
            return None
        content, body.content, body.expires = body.content, None, float("inf")
        if isinstance(content, str):
            self.release(id)
        return content

    def release(self, id: str) -> None:
        """Nobody holds this body any more."""
        self._bodies.pop(id, None)

    def _reserve(self, id: str, principal: str, size: int) -> bool:
        if self.full(size) or not _ID.fullmatch(id) or id in self._bodies:
            return False
        mine = [body.size for body in self._bodies.values() if body.principal == principal]
        if len(mine) >= EACH or sum(mine) + size > self._each:
            return False
        self._bodies[id] = _Body(principal, size, float("inf"))
        return True


async def whole(
    request: web.Request, most: int = LARGEST_BODY, rest: Callable[[], Awaitable[None]] | None = None
) -> bytes:
    """The body of `request`. Raises `HTTPRequestEntityTooLarge` as soon as there are more than `most` bytes."""
    chunks, size, rested = [], 0, 0
    async for chunk in request.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise web.HTTPRequestEntityTooLarge(most, size)
        if rest is not None and size - rested > _STRETCH:
            rested = size
            await rest()
    # To put much together takes long, and Python does it beside the event loop's thread.
    return await asyncio.to_thread(b"".join, chunks) if size > _LONG else b"".join(chunks)
