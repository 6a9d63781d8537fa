"""Cookie jars in a database that several processes share: a sealed row for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any, Final

from sqlalchemy import Row, delete, func, select, update
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from gateway.crypto import digest, frame_parts
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import person_of
from gateway.ports.cookies import EACH, FULL, JARS, Cookie, Jar, JarKey
from gateway.stores.approval_rows import TimeOf
from gateway.stores.schema import COOKIE_JARS
from gateway.stores.sealing import KeyRing, SealBroken
from gateway.stores.sql import Database, as_whole, database_time, lock_in_turn, reseal_states

IDLE: Final = 30 * 86400.0
"""Seconds after its last use until a jar may be deleted."""

USED: Final = 60.0
"""Seconds between two notes of the use of a jar that is only read."""

_LOCK: Final = 7_238_111
"""The number of the advisory locks, one for each principal, under which its jars are changed and counted."""

log = logging.getLogger(__name__)


class DatabaseCookieJars:
    """The port `CookieJars` in `database`, for several processes with the keys of `ring`.

    `now` is the clock of uses and expiry, by default the database's.
    """

    def __init__(
        self, database: Database, ring: KeyRing, each: int = EACH, most: int = JARS, *, now: TimeOf = database_time
    ) -> None:
        self._database = database
        self._ring = ring
        self._each = each
        self._most = most
        self._now = now
        self._writing = asyncio.Lock()  # SQLite allows one write at a time, and lets the others sleep

    @as_whole
    async def load(self, key: JarKey) -> Jar:
        """Return a jar as it is now; an empty one if there is none, or it was altered."""
        name, table = _name(key), COOKIE_JARS.c
        async with self._database.connect() as connection:
            now = self._now(connection)
            old = (now > table.used + USED).label("old")
            row = (await connection.execute(select(COOKIE_JARS, old).where(table.key == name))).first()
        if row is not None and row.old:
            async with self._writing, self._database.connect() as connection:
                await connection.execute(
                    update(COOKIE_JARS).where(table.key == name).values(used=self._now(connection))
                )
                await connection.commit()
        return self._open(row)

    @as_whole
    async def keep(self, key: JarKey, url: str, fields: Sequence[str], *, of_page: bool = False) -> Jar:
        """Store `set-cookie` fields in the jar as it is now, under a lock, and return it."""
        name, table = _name(key), COOKIE_JARS.c
        async with self._writing, self._database.connect() as connection:
            await lock_in_turn(connection, _LOCK, key.principal)
            # The first statement writes: SQLite's lock is held from then on.
            used = update(COOKIE_JARS).where(table.key == name).values(used=self._now(connection))
            row = (await connection.execute(used.returning(*table))).first()
            now = await connection.scalar(select(self._now(connection))) or 0.0
            jar = self._open(row).with_fields(key, url, fields, now, of_page=of_page)
            seal, state = self._ring.seal(plain_json([astuple(cookie) for cookie in jar.cookies]), _place(name))
            if row is not None:
                await connection.execute(update(COOKIE_JARS).where(table.key == name).values(seal=seal, state=state))
            elif jar.cookies:
                new = {
                    "key": name,
                    "principal": key.principal,
                    "person": person_of(key.principal),
                    "credential": key.credential,
                    "used": now,
                    "seal": seal,
                    "state": state,
                }
                await connection.execute(COOKIE_JARS.insert().values(new))
                await self._make_room(connection, key.principal, now)
            await connection.commit()
        return jar

    @as_whole
    async def empty_person(self, person: str, credential: str | None = None) -> None:
        """Delete the jars of a person at each of their clients: all, or those of one account."""
        theirs = COOKIE_JARS.c.person == person
        if credential is not None:
            theirs &= COOKIE_JARS.c.credential == credential
        async with self._writing, self._database.connect() as connection:
            await connection.execute(delete(COOKIE_JARS).where(theirs))
            await connection.commit()

    async def _make_room(self, connection: AsyncConnection, principal: str, now: float) -> None:
        table = COOKIE_JARS.c
        await connection.execute(delete(COOKIE_JARS).where(table.used < now - IDLE))
        mine = select(table.key).where(table.principal == principal).order_by(table.used.desc()).offset(self._each)
        evicted = (await connection.execute(mine)).scalars().all()
        count = await connection.scalar(select(func.count()).select_from(COOKIE_JARS)) or 0
        if not evicted and (over := count - self._most) > 0:  # more than one if several processes added some at once
            holders = select(table.principal).group_by(table.principal).order_by(func.count().desc()).limit(1)
            theirs = table.principal == holders.scalar_subquery()
            oldest = select(table.key).where(theirs).order_by(table.used).limit(over)
            evicted = (await connection.execute(oldest)).scalars().all()
        if evicted:
            FULL.report(principal)
            await connection.execute(delete(COOKIE_JARS).where(table.key.in_(evicted)))

    def _open(self, row: Row[Any] | None) -> Jar:
        if row is None:
            return Jar()
        try:
            cookies = parse_json(self._ring.open(row.seal, bytes(row.state), _place(row.key)))
        except SealBroken as error:
            log.warning("a cookie jar is not accepted, and counts as empty: %s", error)
            return Jar()
        return Jar(tuple(Cookie(*cookie) for cookie in cookies))


async def reseal_jars(database: Database, ring: KeyRing) -> None:
    """Seal all jars with the newest key."""
    await reseal_states(database, ring, COOKIE_JARS, lambda row: _place(row.key))


def _name(key: JarKey) -> str:
    """Return the hash of a key: a jar without a view is another one than that of a view."""
    view = f"={key.view}" if key.view is not None else ""
    parts = frame_parts(key.principal, key.app, key.origin, key.credential, view)
    return digest(parts.decode("utf-8", "surrogatepass")).hex()


def _place(name: str) -> str:
    return plain_json(["cookie jar", name])
