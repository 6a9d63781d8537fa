"""Cuts off clients that stop in the middle of a body, or send it too slowly, and would hold their place for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web

from gateway.bounds import Area, Bound

SILENCE = 30.0
"""Seconds within which an incomplete body must grow."""

RATE = 500.0
"""Bytes per second required on average from 1.5 times `SILENCE` on (Apache's default rate)."""

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "a body of a request that nobody reads yet",
        f"{SILENCE:g} s without a byte, and {RATE:g} bytes a second after that",
        "the connection is closed",
    ),
)

(_UNREAD,) = BOUNDS


@contextmanager
def growing(request: web.Request, give_up: Callable[[], None]) -> Iterator[None]:
    """Call `give_up` if the body of `request` stalls or is too slow; most bodies are complete already."""
    if request.content.is_eof():
        yield
        return
    watch = _Watch(request, give_up)
    try:
        yield
    finally:
        watch.stop()


class _Watch:
    def __init__(self, request: web.Request, give_up: Callable[[], None]) -> None:
        self._content = request.content
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._wait()

    def stop(self) -> None:
        self._timer.cancel()

    def _wait(self) -> None:
        self._seen = self._content.total_bytes
        self._timer = self._loop.call_later(SILENCE, self._look)

    def _look(self) -> None:
        if self._content.is_eof():
            return
        total = self._content.total_bytes
        if total == self._seen or total < RATE * (self._loop.time() - self._began - SILENCE * 1.5):
            _UNREAD.exceeded()
            self._give_up()
        else:
            self._wait()
