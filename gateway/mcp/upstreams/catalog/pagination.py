"""Reads a paginated list of an upstream whole, within limits on entries and bytes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.eventloop.slices import by_turns
from gateway.jsontext.messages import encode
from gateway.mcp.upstreams.catalog.remembered import MOST_THINGS
from gateway.mcp.upstreams.transport.conversation import Message

PAGES: Final = 100
"""Pages of a list that are read."""

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of the entries of one list; those beyond are left out."""

Page = Callable[[Message], Awaitable[tuple[list[Message], object]]]
"""Reads one page: its entries, and the cursor of the next one."""

log = logging.getLogger(__name__)


async def whole(page: Page, what: str) -> tuple[list[Message], int]:
    """Return the entries of the list `what`, within the limits, and their bytes.
    Raises what `page` does.
    """
    found: list[Message] = []
    size, params, cursors = 0, Message(), set[str]()
    for _ in range(PAGES):
        things, cursor = await page(params)
        async for thing in by_turns(things):
            more = size_of(thing)
            if size + more > LARGEST:
                log.warning("%s: what has more than %d bytes together is left out", what, LARGEST)
                return found, size
            found.append(thing)
            size += more
        if not isinstance(cursor, str) or cursor in cursors or len(found) > MOST_THINGS:
            break
        cursors.add(cursor)
        params = {"cursor": cursor}
    return found[:MOST_THINGS], size


def size_of(thing: Message) -> int:
    """Return its bytes, serialized as JSON."""
    return len(encode(thing))
