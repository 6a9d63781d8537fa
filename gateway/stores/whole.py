"""A change of the database is made whole, or not at all, also for a caller that gives up in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def whole(work: Awaitable[T]) -> T:
    """Run `work` to its end, then be cancelled: a driver that is cut off keeps its lock on the file for a while.

    Scopes of anyio cancel again and again until they are obeyed.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    raise cancelled from None if task.cancelled() else task.exception()
