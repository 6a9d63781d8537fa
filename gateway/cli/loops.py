"""The event loop of `serve`, which looks for what comes next for a moment before it sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from selectors import DefaultSelector, SelectorKey
from time import perf_counter
from typing import Final

MOMENT: Final = 0.0002
"""Seconds for which it looks: to be woken takes a virtual machine a quarter of that, a quick backend half."""

SLEPT: Final = 1024
"""Waits that it sleeps through, at most, after it looked in vain."""


def loop_factory(*, busy_poll: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the loop: asyncio's, with `busy_poll` or without."""
    return (lambda: asyncio.SelectorEventLoop(BusyPoll())) if busy_poll else asyncio.new_event_loop


class BusyPoll(DefaultSelector):
    """Waits without sleeping for a moment, as long as that finds something.

    Each time that it looked in vain, it sleeps through twice as many of the waits after it before it looks again: at
    rest, or with a backend that takes its time, looking costs nothing that could be measured.
    """

    def __init__(self) -> None:
        super().__init__()
        self._asleep = 0
        self._vain = 1

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """What is ready, once something is or `timeout` seconds are over."""
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
