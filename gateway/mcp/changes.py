"""Who is to be told that the tools of a principal changed: at once, and then at most once a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.model import Principal

INTERVAL = 1.0
"""Seconds between two changes that the same principal's listeners are told."""


@dataclass(slots=True)
class _Feed:
    """The listeners of one principal, when they were last told, and the timer that will tell them next."""

    listeners: dict[object, Callable[[], None]] = field(default_factory=dict)
    told: float = float("-inf")
    timer: asyncio.TimerHandle | None = None


class Changes:
    """The listeners of every principal. Only principals with listeners take room here."""

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._feeds: dict[str, _Feed] = {}

    def listen(self, principal: Principal, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change of that principal's tools; the result ends that."""
        feed = self._feeds.setdefault(principal.id, _Feed())
        key = object()
        feed.listeners[key] = listener

        def stop() -> None:
            feed.listeners.pop(key, None)
            if not feed.listeners and self._feeds.get(principal.id) is feed:
                del self._feeds[principal.id]

        return stop

    def changed(self, principal: Principal) -> None:
        """The tools of `principal` changed."""
        self._changed(self._feeds.get(principal.id))

    def changed_for_all(self) -> None:
        """The tools of every principal changed."""
        for feed in list(self._feeds.values()):
            self._changed(feed)

    def _changed(self, feed: _Feed | None) -> None:
        if feed is None or feed.timer is not None:
            return
        loop = asyncio.get_running_loop()
        due = feed.told + self._interval
        if loop.time() >= due:
            _tell(feed, loop.time())
        else:
            feed.timer = loop.call_at(due, _tell, feed, due)


def _tell(feed: _Feed, now: float) -> None:
    feed.timer = None
    feed.told = now
    for listener in list(feed.listeners.values()):
        listener()
