"""Notifications that a principal's tools changed: at once, and then at most once a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from gateway.model import Principal

INTERVAL = 1.0
"""Seconds between two notifications to the same principal's listeners."""


class Timers(Protocol):
    """The clock and timers of asyncio's event loops, as much as is needed here."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> object: ...


@dataclass(slots=True)
class _Feed:
    """One principal's listeners and tools, the time of the last notification, and whether a timer awaits the next."""

    has: object
    listeners: dict[object, Callable[[], None]] = field(default_factory=dict)
    told: float = float("-inf")
    waits: bool = False


class Changes:
    """The listeners of every principal; `tools` returns a principal's tools. Without listeners nothing is stored."""

    def __init__(
        self, tools: Callable[[Principal], object], interval: float = INTERVAL, timers: Timers | None = None
    ) -> None:
        self._tools = tools
        self._interval = interval
        self._timers = timers
        self._feeds: dict[str, _Feed] = {}

    def listen(self, principal: Principal, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change of the principal's tools; the result unsubscribes."""
        feed = self._feeds.get(principal.id)
        if feed is None:
            feed = self._feeds[principal.id] = _Feed(self._tools(principal))
        key = object()
        feed.listeners[key] = listener

        def stop() -> None:
            feed.listeners.pop(key, None)
            if not feed.listeners and self._feeds.get(principal.id) is feed:
                del self._feeds[principal.id]

        return stop

    def note_change(self, principal: Principal) -> None:
        """Notify the listeners of `principal` if its tools changed.
        A view that opens has none yet: a notification then would delay that of the tools that its page registers next.
        """
        feed = self._feeds.get(principal.id)
        if feed is not None and feed.has != (has := self._tools(principal)):
            feed.has = has
            self._notify_feed(feed)

    def changed_for(self, principal: Principal) -> None:
        """Notify the listeners of `principal`."""
        feed = self._feeds.get(principal.id)
        if feed is not None:
            feed.has = self._tools(principal)
            self._notify_feed(feed)

    def changed_for_all(self) -> None:
        """Notify the listeners of every principal."""
        for feed in list(self._feeds.values()):
            self._notify_feed(feed)

    def _notify_feed(self, feed: _Feed) -> None:
        if feed.waits:
            return
        timers = self._timers or asyncio.get_running_loop()
        due = feed.told + self._interval
        if timers.time() >= due:
            _tell(feed, timers.time())
        else:
            feed.waits = True
            timers.call_at(due, lambda: _tell(feed, due))


def _tell(feed: _Feed, now: float) -> None:
    feed.waits = False
    feed.told = now
    for listener in list(feed.listeners.values()):
        listener()
