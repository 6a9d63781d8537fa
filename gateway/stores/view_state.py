"""The state of views that outlives a process: launch values and taints, in the database."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, delete, select, update

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

    async def find(self, key: TaintKey) -> StoredTaint | None:
        """Return one taint."""
        return await whole(self._find(key))

    async def _find(self, key: TaintKey) -> StoredTaint | None:
        query = select(TAINTS.c.evidence, TAINTS.c.call).where(_is(key))
        async with self._database.connect() as connection:
            row = (await connection.execute(query)).first()
        return StoredTaint(row.evidence, row.call) if row is not None else None

    @as_whole
    async def put(self, taints: Mapping[TaintKey, StoredTaint]) -> None:
        """Store these; each replaces an earlier one."""
        rows = [
            {"principal": principal, "app": app, "evidence": taint.evidence, "call": taint.call}
            for (principal, app), taint in sorted(taints.items(), key=lambda one: one[0])  # one order: no deadlock
        ]
        async with self._database.connect() as connection:
            added = insert(connection, TAINTS)
            newest = {"evidence": added.excluded.evidence, "call": added.excluded.call}
            await connection.execute(
                added.on_conflict_do_update(index_elements=["principal", "app"], set_=newest), rows
            )
            await connection.commit()

    @as_whole
    async def remove(self, calls: Mapping[TaintKey, str | None]) -> None:
        """Delete these, after a person acted: each unless another process has stored another call meanwhile."""
        async with self._database.connect() as connection:
            for key, call in sorted(calls.items(), key=lambda one: one[0]):
                same_call = TAINTS.c.call.is_not_distinct_from(call)
                await connection.execute(delete(TAINTS).where(_is(key), same_call))
            await connection.commit()


def _is(key: TaintKey) -> ColumnElement[bool]:
    return and_(TAINTS.c.principal == key[0], TAINTS.c.app == key[1])
