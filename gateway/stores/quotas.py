"""What is used of quotas: counted in the database, so that it outlives the process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.model import Caller
from gateway.policy import Quota
from gateway.stores.schema import QUOTAS
from gateway.stores.sql import Database
from gateway.stores.upsert import insert
from gateway.stores.whole import whole

SWEEP_SECONDS = 3600.0
"""How often windows that have ended are forgotten."""


class Quotas:
    """The counts of all quotas, in `database`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writing = asyncio.Lock()  # SQLite lets one write at a time, and makes the others sleep
        self._next_sweep = 0.0

    async def take(self, quotas: Sequence[Quota], caller: Caller, now: float) -> Quota | None:
        """Count one call against every quota, or, where one is used up, against none: that one is given.

        `now` is in seconds since the epoch. Raises OSError while the database is down.
        """
        return await whole(self._take(quotas, caller, now))

    async def _take(self, quotas: Sequence[Quota], caller: Caller, now: float) -> Quota | None:
        async with self._writing, self._database.connect() as connection:
            for quota in sorted(quotas, key=lambda quota: quota.key(caller, now)):  # one order: no deadlock
                if await _count(connection, quota, caller, now) > quota.count:
                    await connection.rollback()
                    return quota
            if now >= self._next_sweep:
                await connection.execute(QUOTAS.delete().where(QUOTAS.c.ends <= now))
                self._next_sweep = now + SWEEP_SECONDS
            await connection.commit()
            return None


async def _count(connection: AsyncConnection, quota: Quota, caller: Caller, now: float) -> int:
    row = {"bucket": quota.key(caller, now), "used": 1, "ends": quota.ends(now)}
    again = {"used": QUOTAS.c.used + 1}
    statement = insert(connection, QUOTAS).values(row).on_conflict_do_update(index_elements=["bucket"], set_=again)
    return int((await connection.execute(statement.returning(QUOTAS.c.used))).scalar_one())
