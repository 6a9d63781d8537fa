"""The running calls of a gateway that stops: they have time to end, then each is answered with a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from gateway.errors import Reason, Refusal

CUT_WITHIN = 5.0
"""Seconds in which a call that was cut must have been recorded and answered."""


def stopping() -> Refusal:
    """Return the refusal of a call that was cut."""
    return Refusal(
        Reason.STOPPING,
        "The gateway stopped before this call ended. If it was sent already, its result is unknown.",
        headers=[("retry-after", "5")],
    )


class _RunningCall:
    """The block of one call; a generator in its place would cost each request more."""

    __slots__ = ("_calls", "_task")

    def __init__(self, calls: RunningCalls) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        self._task = self._calls.begin_call()

    def __exit__(self, *_: object) -> None:
        self._calls.end_call(self._task)


class _Refusing:
    """A block in which a cut raises `stopping` instead of a cancellation."""

    __slots__ = ("_calls",)

    def __init__(self, calls: RunningCalls) -> None:
        self._calls = calls

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, asyncio.CancelledError) and self._calls.take_cut():
            raise stopping() from None


class RunningCalls:
    """The calls and endless streams that run now, by the task that runs each."""

    def __init__(self) -> None:
        self._calls: dict[asyncio.Task[object], int] = {}
        self._streams: set[asyncio.Task[object]] = set()
        self._cut: set[asyncio.Task[object]] = set()
        self._draining = self._over = False
        self._idle = asyncio.Event()
        self.refusing_cuts: AbstractContextManager[None] = _Refusing(self)
        """A block in which a cut of the current task raises the refusal `stopping` instead of a cancellation."""

    @property
    def count(self) -> int:
        """The number of running calls."""
        return len(self._calls)

    def call(self) -> AbstractContextManager[None]:
        """Count the current task among the running calls within the block."""
        return _RunningCall(self)

    def begin_call(self, other: asyncio.Task[Any] | None = None) -> asyncio.Task[Any]:
        """Count the current task, or another one, and return it."""
        task = other or _current()
        self._calls[task] = self._calls.get(task, 0) + 1
        return task

    def end_call(self, task: asyncio.Task[Any]) -> None:
        """Count the task no more."""
        left = self._calls[task] - 1
        if left:
            self._calls[task] = left
            return
        del self._calls[task]
        self._cut.discard(task)
        if not self._calls:
            self._idle.set()

    @contextmanager
    def stream(self, *, endless: bool) -> Iterator[None]:
        """Let a drain cut the current task's stream within the block: an endless one at once."""
        task = _current()
        streams = self._streams if endless else self._calls
        if endless and self._draining:
            raise stopping()
        if streams is self._calls:
            with self.call():
                yield
            return
        self._streams.add(task)
        try:
            yield
        finally:
            self._streams.discard(task)
            self._cut.discard(task)

    def take_cut(self) -> bool:
        """Return whether the cancellation of the current task is a cut, and take it back; once for each cut."""
        if not self._cut or (task := _current()) not in self._cut:
            return False
        self._cut.discard(task)
        return task.uncancel() == 0

    def begin(self) -> None:
        """End the endless streams, since no client waits for their end."""
        self._draining = True
        self._cancel(self._streams)

    async def end(self, seconds: float) -> None:
        """Wait until no call runs; cut those that are left after `seconds`, or after `cut`."""
        try:
            async with asyncio.timeout(seconds if not self._over else 0):
                await self._until_idle()
        except TimeoutError:
            self.cut()
        try:
            async with asyncio.timeout(CUT_WITHIN):
                await self._until_idle()
        except TimeoutError:
            pass

    def cut(self) -> None:
        """Cut every running call now."""
        self._over = True
        self.begin()
        self._cancel(set(self._calls))

    def _cancel(self, tasks: set[asyncio.Task[object]]) -> None:
        for task in tasks - self._cut:
            self._cut.add(task)
            task.cancel()

    async def _until_idle(self) -> None:
        while self._calls:
            self._idle.clear()
            await self._idle.wait()


def _current() -> asyncio.Task[object]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a call runs in a task")
    return task
