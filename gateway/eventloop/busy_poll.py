"""The event loop of `serve`, which polls briefly for the next event before it sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from selectors import DefaultSelector, SelectorKey
from time import perf_counter
from typing import Final

MOMENT: Final = 0.0002
"""Seconds of polling: waking up costs a virtual machine a quarter of that, a fast backend takes half."""

SLEPT: Final = 1024
"""Maximum number of waits without polling after a poll in vain."""


def loop_factory(*, busy_poll: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of the loop: asyncio's, with or without busy polling."""
    return (lambda: asyncio.SelectorEventLoop(BusyPoll())) if busy_poll else asyncio.new_event_loop


class BusyPoll(DefaultSelector):
    """A selector that polls for a moment before sleeping, as long as that finds events.

    Each poll in vain doubles the number of following waits without polling: when idle, or with a slow backend, polling
    has no measurable cost.
    """

    def __init__(self) -> None:
        super().__init__()
        self._asleep = 0
        self._vain = 1

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Return the ready events, once there are any or `timeout` seconds have passed."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        if self._asleep:
            self._asleep -= 1
            return super().select(timeout)
        look, began = super().select, perf_counter()
        until = began + (MOMENT if timeout is None else min(MOMENT, timeout))
        while (now := perf_counter()) < until:
            if ready := look(0):
                self._vain = 1
                return ready
        self._vain = min(2 * self._vain, SLEPT)
        self._asleep = self._vain
        return look(None if timeout is None else max(0.0, timeout - (now - began)))
