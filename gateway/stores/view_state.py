"""The state of views that outlives a process: launch values and taints, in the database."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sqlalchemy import Row, delete, select, tuple_, update

from gateway.crypto import digest
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.ports.views import StoredLaunch, StoredTaint, TaintKey
from gateway.stores.schema import LAUNCHES, TAINTS
from gateway.stores.sealing import KeyRing, SealBroken
from gateway.stores.sql import Database, as_whole, insert, reseal_states, whole

log = logging.getLogger(__name__)


class DatabaseLaunches:
    """The port `LaunchStore` in `database`, which several processes may share; `ring` seals what a row grants.

    `clock` is in seconds since the epoch.
    """

    def __init__(self, database: Database, ring: KeyRing, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._ring = ring
        self._clock = clock
        self._newest = 0.0
        self._writing = asyncio.Lock()  # SQLite allows one write at a time, and lets the others sleep

    @as_whole
    async def put(self, value: str, launch: StoredLaunch, most: int) -> None:
        """Store a new value."""
        now, table = self._clock(), LAUNCHES.c
        self._newest = max(now, self._newest + 1e-6)  # values of one moment have an order
        row = {
            "key": _key(value),
            "view": launch.view,
            "principal": launch.principal,
            "app": launch.app,
            "created": self._newest,
            "expires": now + launch.left,
            **self._seal(_key(value), launch),
        }
        mine = select(table.key).where(table.principal == launch.principal).order_by(table.created.desc())
        async with self._writing, self._database.connect() as connection:
            await connection.execute(LAUNCHES.insert().values(row))
            evictions = (await connection.execute(mine.offset(most))).scalars().all()
            if evictions:
                await connection.execute(delete(LAUNCHES).where(table.key.in_(evictions)))
            await connection.execute(delete(LAUNCHES).where(table.expires <= now))
            await connection.commit()

    async def find(self, value: str, principal: str) -> StoredLaunch | None:
        """Return the launch of a valid value of this principal."""
        return await whole(self._load(LAUNCHES.c.key == _key(value), principal))

    async def of_view(self, view: str, principal: str) -> StoredLaunch | None:
        """Return the launch of a view of this principal."""
        return await whole(self._load(LAUNCHES.c.view == view, principal))

    @as_whole
    async def replace(self, launches: Mapping[str, StoredLaunch], before: Mapping[str, int]) -> set[str]:
        """Store changed launches, each if it still has as many attachments as before."""
        done, table = set[str](), LAUNCHES.c
        async with self._writing, self._database.connect() as connection:
            for value, launch in launches.items():
                conditions = (table.key == _key(value), table.attached == before[value])
                ciphertext = self._seal(_key(value), launch)
                if (await connection.execute(update(LAUNCHES).where(*conditions).values(ciphertext))).rowcount:
                    done.add(value)
            await connection.commit()
        return done

    async def _load(self, condition: Any, principal: str) -> StoredLaunch | None:
        now, table = self._clock(), LAUNCHES.c
        async with self._database.connect() as connection:
            query = select(LAUNCHES).where(condition, table.principal == principal, table.expires > now)
            row = (await connection.execute(query)).first()
        try:
            return self._open(row, now) if row is not None else None
        except SealBroken as error:
            log.warning("a launch value of %s is not accepted: %s", principal, error)
            return None

    def _seal(self, key: str, launch: StoredLaunch) -> dict[str, Any]:
        text = plain_json([launch.chosen, launch.attached, launch.clean])
        seal, state = self._ring.seal(text, _place(key, launch.view, launch.principal, launch.app))
        return {"attached": launch.attached, "seal": seal, "state": state}

    def _open(self, row: Row[Any], now: float) -> StoredLaunch:
        """Return the launch of a row. Raises `SealBroken`."""
        place = _place(row.key, row.view, row.principal, row.app)
        chosen, attachments, clean = parse_json(self._ring.open(row.seal, bytes(row.state), place))
        if attachments != row.attached:
            raise SealBroken("its number of attachments was altered")
        return StoredLaunch(row.view, row.principal, row.app, chosen, row.expires - now, attachments, clean)


async def reseal_launches(database: Database, ring: KeyRing) -> None:
    """Seal all launch values with the newest key."""
    await reseal_states(database, ring, LAUNCHES, lambda row: _place(row.key, row.view, row.principal, row.app))


def _key(value: str) -> str:
    return digest(value).hex()


def _place(key: str, view: str, principal: str, app: str) -> str:
    return plain_json(["launch", key, view, principal, app])


class DatabaseTaints:
    """The port `TaintStore` in `database`, which several processes may share."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self, most: int) -> dict[TaintKey, StoredTaint]:
        """Return up to `most` taints."""
        table = TAINTS.c
        query = select(table.principal, table.app, table.evidence, table.call).limit(most)
        async with self._database.connect() as connection:
            rows = await connection.execute(query)
            return {(row.principal, row.app): StoredTaint(row.evidence, row.call) for row in rows}

    @as_whole
    async def put(self, taints: Mapping[TaintKey, StoredTaint]) -> None:
        """Store these."""
        rows = [
            {"principal": principal, "app": app, "evidence": taint.evidence, "call": taint.call}
            for (principal, app), taint in taints.items()
        ]
        async with self._database.connect() as connection:
            await connection.execute(insert(connection, TAINTS).on_conflict_do_nothing(), rows)
            await connection.commit()

    @as_whole
    async def remove(self, keys: Collection[TaintKey]) -> None:
        """Delete these, after a person acted."""
        async with self._database.connect() as connection:
            await connection.execute(delete(TAINTS).where(tuple_(TAINTS.c.principal, TAINTS.c.app).in_(list(keys))))
            await connection.commit()
