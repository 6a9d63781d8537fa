"""Digests of upstreams' tools, so that a change is noticed after a restart."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sqlalchemy import select

from gateway.stores.schema import UPSTREAM_TOOLS
from gateway.stores.sql import Database, as_whole, insert

PORTION: Final = 500
"""Tools per statement: the event loop is blocked while it serializes them."""


@dataclass(frozen=True, slots=True)
class KnownTool:
    """One tool: the digests of its accepted and its latest form."""

    accepted: str
    latest: str


class UpstreamTools:
    """The tools of all upstreams, in `database`. Raises OSError while that is down."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writing = asyncio.Lock()  # SQLite allows one write at a time, and lets the others sleep

    async def of(self, upstream: str) -> dict[str, KnownTool]:
        """Return the stored tools of one upstream, by `key_of` their names."""
        table = UPSTREAM_TOOLS.c
        query = select(table.tool, table.accepted, table.latest).where(table.upstream == upstream)
        async with self._database.connect() as connection:
            return {tool: KnownTool(pin, latest) for tool, pin, latest in await connection.execute(query)}

    @as_whole
    async def keep(self, upstream: str, tools: Mapping[str, KnownTool]) -> None:
        """Store these, by `key_of` their names."""
        left = iter(list(tools.items()))
        async with self._writing, self._database.connect() as connection:
            put = insert(connection, UPSTREAM_TOOLS)
            now = {"accepted": put.excluded.accepted, "latest": put.excluded.latest}
            put = put.on_conflict_do_update(index_elements=["upstream", "tool"], set_=now)
            while rows := [_row(upstream, *one) for one in islice(left, PORTION)]:
                await connection.execute(put, rows)
            await connection.commit()


def _row(upstream: str, tool: str, known: KnownTool) -> dict[str, str]:
    return {"upstream": upstream, "tool": tool, "accepted": known.accepted, "latest": known.latest}


def key_of(tool: str) -> str:
    """Return the hash of a tool's name, its key in the database."""
    return hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()
