"""Reading the body of a request: no more than is taken, no slower than can be waited for, counted as it comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from gateway.model import LARGEST_BODY
from gateway.shares import Shares

SILENCE: Final = 20.0
"""Seconds within which a body must go on."""

SLOWEST: Final = 16 * 1024
"""Bytes a second that must come of it in the long run, after the first `SILENCE` seconds."""

UNCOUNTED: Final = 64 * 1024
"""Bytes of a body that take no room."""

_LONG = 1024 * 1024
"""Bytes from which it is worth a thread to put them together."""

_STRETCH = 512 * 1024
"""Bytes after which who reads them rests."""


class NoRoom(Exception):
    """The bodies of this caller, or of all together, leave no room for more at present."""


async def whole(
    request: web.Request,
    most: int = LARGEST_BODY,
    *,
    rest: Callable[[], Awaitable[None]] | None = None,
    taken: Callable[[int], None] = lambda _: None,
    within: float | None = None,
) -> bytes:
    """The body of `request`; `taken` is told of each part of it, and may raise, `rest` is waited for now and then.

    Raises `HTTPRequestEntityTooLarge` as soon as there are more than `most` bytes, and `HTTPRequestTimeout` where
    nothing comes for `within` seconds (`SILENCE` where nothing is said), or too little in that time and a second for
    each `SLOWEST` bytes.
    """
    within = SILENCE if within is None else within
    loop = asyncio.get_running_loop()
    began = loop.time()
    chunks, size, rested = list[bytes](), 0, 0
    while not request.content.at_eof():
        left = began + within + size / SLOWEST - loop.time()
        try:
            async with asyncio.timeout(min(within, max(0.0, left))):
                chunk = await request.content.readany()
        except TimeoutError:
            raise _timeout() from None
        if not chunk:
            break
        size += len(chunk)
        if size > most:
            raise web.HTTPRequestEntityTooLarge(most, size)
        taken(len(chunk))
        chunks.append(chunk)
        if rest is not None and size - rested > _STRETCH:
            rested = size
            await rest()
    # To put much together takes long, and Python does it beside the event loop's thread.
    return await asyncio.to_thread(b"".join, chunks) if size > _LONG else b"".join(chunks)


def _timeout() -> web.HTTPRequestTimeout:
    problem = {
        "type": "urn:webmcp-gateway:body-timeout",
        "title": "body timeout",
        "status": 408,
        "detail": "The body of the request does not come, or comes too slowly.",
    }
    error = web.HTTPRequestTimeout(text=json.dumps(problem), content_type="application/problem+json")
    error.force_close()
    return error


@contextmanager
def counting(room: Shares, owner: str) -> Iterator[Callable[[int], None]]:
    """Within the block, what is told of counts as taken from `room`. What is given raises `NoRoom` where that is full.

    A small body counts for nothing: that many connections are bounded by themselves.
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
