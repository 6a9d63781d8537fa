"""Something that one task waits for, and with which it can go on at once: after a future it goes on a turn of the event
loop later, and a turn with nothing else in it costs more than all that it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Arrival(Generic[T]):
    """A value or an error, once, for one task; what is not here of a future no task asks for.

    https://docs.python.org/3/library/asyncio-extending.html#future-lifetime-support
    """

    __slots__ = ("_asyncio_future_blocking", "_context", "_done", "_error", "_loop", "_value", "_wake")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._wake: Callable[[Any], object] | None = None
        self._context: Context | None = None

    def __await__(self) -> Generator[Any, None, T]:
        if not self._done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def set_result(self, value: T) -> None:
        """Let the task go on, if it waits already: within this call, where no other task runs."""
        self._value = value
        self._go_on(at_once=True)

    def set_exception(self, error: BaseException) -> None:
        """Let the task go on with an error."""
        self._error = error
        self._go_on(at_once=False)

    def _go_on(self, at_once: bool) -> None:
        wake, context, self._done = self._wake, self._context, True
        if wake is None or context is None:
            return
        self._wake = None
        if at_once and asyncio.current_task(self._loop) is None:
            context.run(wake, self)
        else:
            self._loop.call_soon(wake, self, context=context)

    # What the task asks of it:

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the task."""
        return self._loop

    def done(self) -> bool:
        """Whether it is there."""
        return self._done

    def result(self) -> T:
        """The value. Raises the error, once: it will know all who were told of it, and would be a cycle with them."""
        error, self._error = self._error, None
        if error is None:
            value: T = self._value
            return value
        try:
            raise error
        finally:
            del error

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Context) -> None:
        """The task waits."""
        self._wake, self._context = wake, context

    def cancel(self, msg: Any = None) -> bool:
        """The task is cancelled, and goes on with that; False where it goes on with something else already."""
        if self._wake is None or self._done:
            return False
        self.set_exception(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        return True
