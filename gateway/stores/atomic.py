"""Shields a database change from cancellation, so that it is made completely or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def whole(work: Awaitable[T]) -> T:
    """Run `work` to its end, then raise a cancellation: an interrupted driver keeps its file lock for a while.

    A loop, since anyio's scopes cancel repeatedly.
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
