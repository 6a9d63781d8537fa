"""Reads request bodies within limits of size, speed and shared memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from gateway.bounds import Area, Bound, Shares, size
from gateway.jsontext.writing import plain_json
from gateway.model import LARGEST_BODY

SILENCE: Final = 20.0
"""Seconds without a byte after which a body times out."""

SLOWEST: Final = 16 * 1024
"""Bytes per second that a body must average after the first `SILENCE` seconds."""

SLOW: Final = Bound(
    Area.DOORS,
    "incomplete request bodies",
    f"{SILENCE:g} s without a byte, {SILENCE:g} s plus one second per {size(SLOWEST)} in total",
    "408; the connection is closed",
)

BOUNDS: Final = (SLOW,)

UNCOUNTED: Final = 64 * 1024
"""Bytes of a body that do not count against the shared memory."""

_LONG = 1024 * 1024
"""Bytes above which the parts are joined in a thread."""

_STRETCH = 512 * 1024
"""Bytes after which the reader yields (`rest`)."""


class NoRoom(Exception):
    """The memory for request bodies, of this caller or of all callers, is full."""


async def whole(
    request: web.Request,
    most: int = LARGEST_BODY,
    *,
    rest: Callable[[], Awaitable[None]] | None = None,
    on_taken: Callable[[int], None] = lambda _: None,
    within: float | None = None,
    bound: Bound = SLOW,
) -> bytes:
    """Read the body of `request`; `taken` gets the size of each part and may raise, `rest` is awaited between parts.

    Raises `HTTPRequestEntityTooLarge` before anything is read if `Content-Length` is more than `most`, otherwise as
    soon as there are more bytes; and `HTTPRequestTimeout` if no byte arrives for `within` seconds (default `SILENCE`),
    or if the whole takes longer than `within` plus a second for each `SLOWEST` bytes; `bound` is reported as exceeded
    then.
    """
    if (request.content_length or 0) > most:
        raise web.HTTPRequestEntityTooLarge(most, request.content_length or 0)
    within = SILENCE if within is None else within
    loop = asyncio.get_running_loop()
    began = loop.time()
    chunks, total, rested = list[bytes](), 0, 0
    while not request.content.at_eof():
        left = began + within + total / SLOWEST - loop.time()
        try:
            async with asyncio.timeout(min(within, max(0.0, left))):
                chunk = await request.content.readany()
        except TimeoutError:
            bound.report()
            raise _timeout() from None
        if not chunk:
            break
        total += len(chunk)
        if total > most:
            raise web.HTTPRequestEntityTooLarge(most, total)
        on_taken(len(chunk))
        chunks.append(chunk)
        if rest is not None and total - rested > _STRETCH:
            rested = total
            await rest()
    # Joining large parts takes long; in a thread it does not block the event loop.
    return await asyncio.to_thread(b"".join, chunks) if total > _LONG else b"".join(chunks)


def _timeout() -> web.HTTPRequestTimeout:
    problem = {
        "type": "urn:webmcp-gateway:body-timeout",
        "title": "body timeout",
        "status": 408,
        "detail": "The body of the request did not arrive, or arrived too slowly.",
    }
    error = web.HTTPRequestTimeout(text=plain_json(problem), content_type="application/problem+json")
    error.force_close()
    return error


@contextmanager
def reserve_room(room: Shares, owner: str) -> Iterator[Callable[[int], None]]:
    """Yield a callback that reserves bytes of `room` until the block ends. It raises `NoRoom` if `room` is full.

    The first `UNCOUNTED` bytes are free: the limit on connections bounds them.
    """
    held = free = 0

    def take(count: int) -> None:
        nonlocal held, free
        if held + free + count <= UNCOUNTED:
            free += count
        elif room.take(owner, count):
            held += count
        else:
            raise NoRoom

    try:
        yield take
    finally:
        if held:
            room.give(owner, held)
