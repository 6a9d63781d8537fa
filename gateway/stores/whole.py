"""A change of the database is made whole, or not at all, also for a caller that gives up in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, then be cancelled: a driver that is cut off keeps its lock on the file for a while."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(OSError):
            await task
        raise
