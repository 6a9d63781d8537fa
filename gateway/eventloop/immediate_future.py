"""A future that resumes its task at once: a regular one does so an iteration of the event loop later.

That costs more than the task's own work if nothing else runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ImmediateFuture(Generic[T]):
    """A value or an error, set once, for one task; has only the methods of a future that a task calls.

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
        """Set the value; resume a waiting task within this call, if no other task runs."""
        self._value = value
        self._go_on(at_once=True)

    def set_exception(self, error: BaseException) -> None:
        """Set an error; the task resumes in the next iteration."""
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

    # The methods that a task calls:

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the task."""
        return self._loop

    def done(self) -> bool:
        """Return whether the value or error is set."""
        return self._done

    def result(self) -> T:
        """Return the value. Raises the error, once: its traceback would otherwise form a reference cycle with this."""
        error, self._error = self._error, None
        if error is None:
            value: T = self._value
            return value
        try:
            raise error
        finally:
            del error

    def add_done_callback(self, wake: Callable[[Any], object], *, context: Context) -> None:
        """Register the wake-up of the waiting task."""
        self._wake, self._context = wake, context

    def cancel(self, msg: Any = None) -> bool:
        """Resume the waiting task with a cancellation; False if it does not wait, or is resuming already."""
        if self._wake is None or self._done:
            return False
        self.set_exception(asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg))
        return True
