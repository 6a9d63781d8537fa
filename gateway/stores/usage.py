"""The use of quotas and of idempotency keys, in the database, so that it outlives the process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from gateway.bounds import Area, Bound
from gateway.model import Caller
from gateway.policy import Per, Quota
from gateway.stores.schema import IDEMPOTENCY_KEYS, QUOTAS
from gateway.stores.sql import Database, as_whole, insert, stored_secret, whole
from gateway.token_buckets import EACH

log = logging.getLogger(__name__)

SWEEP_SECONDS = 3600.0
"""Seconds between two deletions of ended windows."""

KEPT_SECONDS = 2 * 86400.0
"""Seconds that a window is stored after its end: a clock that is set back must not restart it."""


LIFE = 24 * 3600.0
"""Seconds for which a key is stored."""

PER_OWNER = 1000
"""Keys of one principal in one app that are stored; the oldest is evicted first."""

BOUNDS: Final = (
    Bound(
        Area.EXCHANGE,
        "quota rows in the database",
        f"one per quota and window; for quotas per view {EACH:,} per principal; deleted {KEPT_SECONDS / 86400:g} "
        "days after their window",
        "further views of that principal share one row of each quota",
    ),
    Bound(
        Area.EXCHANGE,
        "idempotency keys",
        f"{PER_OWNER:,} per principal and app, {LIFE / 3600:g} h",
        "the oldest of that principal and app is evicted",
    ),
)

_ROWS, _KEYS = BOUNDS

_OTHERS: Final = "others of"
"""With the principal, the key of its views beyond the bound; no id of a view contains a space."""

JUMP_SECONDS = 60.0
"""A wall clock that deviates from the steady one by more seconds than this was set, or is wrong."""

CALM_SECONDS = 86400.0
"""Seconds after such a jump in which nothing is deleted: the clock may be corrected again."""


class DatabaseQuotas:
    """The port `Quotas` in `database`, which several processes may share."""

    def __init__(self, database: Database, steady: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._steady = steady
        self._ahead: float | None = None
        self._writing = asyncio.Lock()  # SQLite allows one write at a time, and lets the others sleep
        self._next_sweep = 0.0

    @as_whole
    async def take(self, quotas: Sequence[Quota], caller: Caller, now: float) -> Quota | None:
        """Count one call against every quota; if one is used up, count against none and return that one.

        `now` is in seconds since the epoch. Raises OSError while the database is down.
        """
        async with self._writing, self._database.connect() as connection:
            for quota in sorted(quotas, key=lambda quota: quota.key(caller, now)):  # one order: no deadlock
                if await _count(connection, quota, caller, now) > quota.count:
                    await connection.rollback()
                    return quota
            if self._may_sweep(now):
                await connection.execute(QUOTAS.delete().where(QUOTAS.c.ends <= now - KEPT_SECONDS))
            await connection.commit()
            return None

    def _may_sweep(self, now: float) -> bool:
        """Return whether a deletion of ended windows is due, and the clock is trustworthy."""
        steady = self._steady()
        before, self._ahead = self._ahead, now - steady
        if before is not None and abs(self._ahead - before) > JUMP_SECONDS:
            log.warning("the clock was set by %+.0f s: quotas of windows that are over are kept", self._ahead - before)
            self._next_sweep = steady + CALM_SECONDS
        if steady < self._next_sweep:
            return False
        self._next_sweep = steady + SWEEP_SECONDS
        return True


async def _count(connection: AsyncConnection, quota: Quota, caller: Caller, now: float) -> int:
    owner = caller.principal.id if quota.per is Per.VIEW and caller.proven and caller.view else None
    if owner is not None and await _has_too_many(connection, owner, quota.key(caller, now), now):
        _ROWS.report(owner)
        caller = replace(caller, view=f"{_OTHERS} {owner}")
    row = {"bucket": quota.key(caller, now), "used": 1, "ends": quota.ends(now), "owner": owner}
    again = {"used": QUOTAS.c.used + 1}
    statement = insert(connection, QUOTAS).values(row).on_conflict_do_update(index_elements=["bucket"], set_=again)
    return int((await connection.execute(statement.returning(QUOTAS.c.used))).scalar_one())


async def _has_too_many(connection: AsyncConnection, owner: str, bucket: str, now: float) -> bool:
    """Return whether there is no row of this bucket, and no room for one of `owner`; what is over goes first."""
    known, mine = select(QUOTAS.c.used).where(QUOTAS.c.bucket == bucket), QUOTAS.c.owner == owner
    if (await connection.execute(known)).first() is not None:
        return False
    count = select(func.count()).where(mine)
    if (await connection.execute(count)).scalar_one() < EACH:
        return False
    await connection.execute(QUOTAS.delete().where(mine, QUOTAS.c.ends <= now))
    return (await connection.execute(count)).scalar_one() >= EACH


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
            result = await connection.execute(insert(connection, table).values(row).on_conflict_do_nothing())
            known = (await connection.execute(select(table.c.digest).where(table.c.key == key))).scalar_one()
            if result.rowcount:
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
