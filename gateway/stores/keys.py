"""Used idempotency keys, each with the digest of its request: stored for a day, in the database."""

from __future__ import annotations

import asyncio
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from gateway.bounds import Area, Bound
from gateway.stores.schema import IDEMPOTENCY_KEYS
from gateway.stores.sql import Database, as_whole, insert, stored_secret, whole

LIFE = 24 * 3600.0
"""Seconds for which a key is stored."""

PER_OWNER = 1000
"""Keys of one principal in one app that are stored; the oldest is evicted first."""

BOUNDS: Final = (
    Bound(
        Area.EXCHANGE,
        "idempotency keys",
        f"{PER_OWNER:,} per principal and app, {LIFE / 3600:g} h",
        "the oldest of that principal and app is evicted",
    ),
)

(_KEYS,) = BOUNDS


class IdempotencyKeys:
    """The keys of all callers, in `database`; request bodies are not stored."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writing = asyncio.Lock()  # SQLite allows one write at a time, and lets the others sleep
        self._secret = b""

    async def secret(self) -> bytes:
        """Return the secret for hashing keys: created once, shared by all processes. Raises OSError."""
        if not self._secret:
            self._secret = await whole(self._load_secret())
        return self._secret

    @as_whole
    async def claim(self, owner: str, key: str, digest: str, now: float) -> bool:
        """Return whether `key` is new, or was used for the same request. Raises OSError while the database is down.

        `now` is in seconds since the epoch.
        """
        table = IDEMPOTENCY_KEYS
        async with self._writing, self._database.connect() as connection:
            await connection.execute(table.delete().where(table.c.expires <= now))
            row = {"key": key, "owner": owner, "digest": digest, "expires": now + LIFE}
            added = await connection.execute(insert(connection, table).values(row).on_conflict_do_nothing())
            known = (await connection.execute(select(table.c.digest).where(table.c.key == key))).scalar_one()
            if added.rowcount:
                await _make_room(connection, owner)
            await connection.commit()
            return bool(known == digest)

    async def _load_secret(self) -> bytes:
        async with self._writing, self._database.connect() as connection:
            return await stored_secret(connection, "idempotency")


async def _make_room(connection: AsyncConnection, owner: str) -> None:
    table = IDEMPOTENCY_KEYS
    mine = table.c.owner == owner
    count = (await connection.execute(select(func.count()).where(mine))).scalar_one()
    if count > PER_OWNER:
        _KEYS.report()
        oldest = select(table.c.key).where(mine).order_by(table.c.expires).limit(count - PER_OWNER)
        await connection.execute(table.delete().where(table.c.key.in_(oldest)))
