"""Values that are used once: in the memory of one process, or in a database that several processes share."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from gateway.crypto import digest, frame_parts
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.stores.approval_rows import TimeOf
from gateway.stores.schema import ONE_TIME
from gateway.stores.sealing import KeyRing, SealBroken
from gateway.stores.sql import Database, as_whole, database_time, insert, lock_in_turn

_LOCK = 7_238_109
"""The number of the advisory locks, one for each kind and owner, under which values are counted."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Value:
    value: str
    owner: str
    expires: float


class MemoryOneTimeValues:
    """The port `OneTimeValues` of one process. `clock` is steady, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._values: dict[tuple[str, str], _Value] = {}

    async def put(self, kind: str, key: str, value: str, *, owner: str, life: float, each: int, most: int) -> bool:
        """Store a value; return whether another one was evicted."""
        now = self._forget()
        self._values.pop((kind, key), None)
        of_kind = [(known, one.owner) for known, one in self._values.items() if known[0] == kind]
        mine = [known for known, its in of_kind if its == owner]
        evicted = mine[: max(0, len(mine) - each + 1)]
        if not evicted and len(of_kind) >= most:
            (largest, _), *_ = Counter(its for _, its in of_kind).most_common(1)
            evicted = [next(known for known, its in of_kind if its == largest)]
        for known in evicted:
            del self._values[known]
        self._values[kind, key] = _Value(value, owner, now + life)
        return bool(evicted)

    async def take(self, kind: str, key: str) -> str | None:
        """Return and delete the value."""
        entry = self._values.pop((kind, key), None)
        return entry.value if entry is not None and self._clock() < entry.expires else None

    async def claim(self, kind: str, key: str, *, owner: str, life: float, each: int) -> bool | None:
        """Return True to one caller alone."""
        now = self._forget()
        if (kind, key) in self._values:
            return False
        if sum(known[0] == kind and one.owner == owner for known, one in self._values.items()) >= each:
            return None
        self._values[kind, key] = _Value("", owner, now + life)
        return True

    async def drop(self, kind: str) -> None:
        """Delete all values of a kind."""
        self._values = {known: one for known, one in self._values.items() if known[0] != kind}

    def _forget(self) -> float:
        now = self._clock()
        self._values = {known: one for known, one in self._values.items() if now < one.expires}
        return now


class DatabaseOneTimeValues:
    """The port `OneTimeValues` in `database`, for several processes with the keys of `ring`.

    `now` is the clock of the values, by default the database's.
    """

    def __init__(self, database: Database, ring: KeyRing, *, now: TimeOf = database_time) -> None:
        self._database = database
        self._ring = ring
        self._now = now
        self._writing = asyncio.Lock()  # SQLite allows one write at a time, and lets the others sleep

    @as_whole
    async def put(self, kind: str, key: str, value: str, *, owner: str, life: float, each: int, most: int) -> bool:
        """Store a value; return whether another one was evicted. Only `each` is applied: rows take no memory."""
        name, table = _name(kind, key), ONE_TIME.c
        async with self._writing, self._database.connect() as connection:
            await lock_in_turn(connection, _LOCK, f"{kind} {owner}")
            now = await self._forget(connection)
            await connection.execute(delete(ONE_TIME).where(table.key == name))
            mine = select(table.key).where(table.kind == kind, table.owner == owner).order_by(table.created.desc())
            evicted = (await connection.execute(mine.offset(each - 1))).scalars().all()
            if evicted:
                await connection.execute(delete(ONE_TIME).where(table.key.in_(evicted)))
            await connection.execute(ONE_TIME.insert().values(self._row(name, kind, owner, value, now, life)))
            await connection.commit()
        return bool(evicted)

    @as_whole
    async def take(self, kind: str, key: str) -> str | None:
        """Return and delete the value, by one statement."""
        name = _name(kind, key)
        async with self._writing, self._database.connect() as connection:
            now = await connection.scalar(select(self._now(connection))) or 0.0
            statement = delete(ONE_TIME).where(ONE_TIME.c.key == name).returning(ONE_TIME.c.seal, ONE_TIME.c.sealed)
            row = (await connection.execute(statement)).first()
            await connection.commit()
        try:
            expires, value = (
                parse_json(self._ring.open(row.seal, bytes(row.sealed), _place(name))) if row else (0.0, "")
            )
        except SealBroken as error:
            log.warning("a value of the kind %s is not accepted: %s", kind, error)
            return None
        return value if now < expires else None

    @as_whole
    async def claim(self, kind: str, key: str, *, owner: str, life: float, each: int) -> bool | None:
        """Return True to one caller alone."""
        name, table = _name(kind, key), ONE_TIME.c
        async with self._writing, self._database.connect() as connection:
            await lock_in_turn(connection, _LOCK, f"{kind} {owner}")
            now = await self._forget(connection)
            if await connection.scalar(select(table.key).where(table.key == name)) is not None:
                return False
            count = select(func.count()).where(table.kind == kind, table.owner == owner)
            if (await connection.scalar(count) or 0) >= each:
                return None
            row = self._row(name, kind, owner, "", now, life)
            added = await connection.execute(insert(connection, ONE_TIME).values(row).on_conflict_do_nothing())
            await connection.commit()
        return bool(added.rowcount)

    @as_whole
    async def drop(self, kind: str) -> None:
        """Delete all values of a kind."""
        async with self._writing, self._database.connect() as connection:
            await connection.execute(delete(ONE_TIME).where(ONE_TIME.c.kind == kind))
            await connection.commit()

    async def _forget(self, connection: AsyncConnection) -> float:
        now = await connection.scalar(select(self._now(connection))) or 0.0
        await connection.execute(delete(ONE_TIME).where(ONE_TIME.c.expires <= now))
        return now

    def _row(self, name: str, kind: str, owner: str, value: str, now: float, life: float) -> dict[str, object]:
        seal, sealed = self._ring.seal(plain_json([now + life, value]), _place(name))
        return {
            "key": name,
            "kind": kind,
            "owner": owner,
            "created": now,
            "expires": now + life,
            "seal": seal,
            "sealed": sealed,
        }


def _name(kind: str, key: str) -> str:
    return digest(frame_parts(kind, key).decode("utf-8", "surrogatepass")).hex()


def _place(name: str) -> str:
    return plain_json(["one-time", name])
