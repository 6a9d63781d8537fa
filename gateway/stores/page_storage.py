"""The `localStorage` of apps' pages, sealed, by person and app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import and_, delete, select, true
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.stores.schema import PAGE_STORAGE
from gateway.stores.sealing import KeyRing, SealBroken
from gateway.stores.sql import Database, insert, whole

QUOTA: Final = 1024 * 1024
"""Characters, of keys and values together, that the pages of one app may store for one person."""

_TRIES = 8
"""Attempts of a change that loses against another process."""


@dataclass(frozen=True, slots=True)
class StoredPage:
    """The metadata of a page's storage, readable without a key; `changed_at` is in seconds since the epoch."""

    person: str
    app: str
    size: int
    changed_at: float


class PageStorage:
    """The storage of all persons and apps, in `database`. Each method raises OSError while that is down.

    Methods that seal or open also raise `Unreadable`, and StartError without keys.
    """

    def __init__(self, database: Database, ring: KeyRing) -> None:
        self._database = database
        self._ring = ring
        self._writing = asyncio.Lock()  # SQLite allows one write at a time, and lets the others sleep

    async def load(self, person: str, app: str) -> Mapping[str, str]:
        """Return the items, in insertion order."""
        async with self._database.connect() as connection:
            _, items = await self._items(connection, person, app)
        return items

    async def save(
        self, person: str, app: str, changes: Mapping[str, str | None], *, clear: bool = False, now: float
    ) -> bool:
        """Set items, or remove those whose value is None; with `clear`, remove all others first.

        Return False, with nothing changed, if the result would exceed `QUOTA`.
        """
        return await whole(self._save(person, app, changes, clear, now))

    async def list(self) -> list[StoredPage]:
        """Return the metadata of all entries."""
        columns = PAGE_STORAGE.c.person, PAGE_STORAGE.c.app, PAGE_STORAGE.c.size, PAGE_STORAGE.c.changed
        async with self._database.connect() as connection:
            rows = await connection.execute(select(*columns).order_by(*columns[:2]))
            return [StoredPage(*row) for row in rows]

    async def delete(self, person: str | None = None, app: str | None = None) -> int:
        """Delete the entries of `person` (of all, if None) and `app` (of all, if None); return their number."""
        return await whole(self._delete(person, app))

    async def reseal(self) -> tuple[int, int]:
        """Seal everything with the newest key; return how many entries were, and how many no key decrypts."""
        newest = self._ring.ids[0]
        done = lost = 0
        async with self._database.connect() as connection:
            rows = (await connection.execute(select(PAGE_STORAGE).where(PAGE_STORAGE.c.key != newest))).all()
        for row in rows:
            try:
                text = self._ring.open(row.key, bytes(row.sealed), _place(row.person, row.app))
            except SealBroken:
                lost += 1
                continue
            key, ciphertext = self._ring.seal(text, _place(row.person, row.app))
            done += await whole(self._reseal(row, key, ciphertext))
        return done, lost

    async def _save(self, person: str, app: str, changes: Mapping[str, str | None], clear: bool, now: float) -> bool:
        async with self._writing:
            for _ in range(_TRIES):
                async with self._changing() as connection:
                    version, items = await self._items(connection, person, app)
                    items_now = {} if clear else items
                    items_now |= {key: value for key, value in changes.items() if value is not None}
                    for name in (key for key, value in changes.items() if value is None):
                        items_now.pop(name, None)
                    size = sum(len(key) + len(value) for key, value in items_now.items())
                    if size > QUOTA:
                        return False
                    key, ciphertext = await asyncio.to_thread(self._seal, items_now, _place(person, app))
                    row = {"person": person, "app": app, "version": version + 1, "size": size}
                    row |= {"key": key, "sealed": ciphertext, "changed": now}
                    if await _put(connection, row, version):
                        return True
        raise OSError(f"the storage of {app} is changed by too many at once")

    async def _items(self, connection: AsyncConnection, person: str, app: str) -> tuple[int, dict[str, str]]:
        """Return the version of the stored entry, 0 for none, and its items."""
        row = (await connection.execute(select(PAGE_STORAGE).where(_at(person, app)))).first()
        if row is None:
            return 0, {}
        return row.version, await asyncio.to_thread(self._open, row)

    def _open(self, row: Any) -> dict[str, str]:
        items: dict[str, str] = parse_json(self._ring.open(row.key, bytes(row.sealed), _place(row.person, row.app)))
        return items

    def _seal(self, items: Mapping[str, str], place: str) -> tuple[str, bytes]:
        return self._ring.seal(plain_json(items), place)

    async def _delete(self, person: str | None, app: str | None) -> int:
        async with self._writing, self._changing() as connection:
            return (await connection.execute(delete(PAGE_STORAGE).where(_at(person, app)))).rowcount

    async def _reseal(self, row: Any, key: str, ciphertext: bytes) -> bool:
        async with self._writing, self._changing() as connection:
            place = and_(_at(row.person, row.app), PAGE_STORAGE.c.version == row.version)
            change = PAGE_STORAGE.update().where(place).values(key=key, sealed=ciphertext)
            return bool((await connection.execute(change)).rowcount)

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[AsyncConnection]:
        async with self._database.connect() as connection:
            yield connection
            await connection.commit()


async def _put(connection: AsyncConnection, row: Mapping[str, Any], before: int) -> bool:
    """Store `row` in place of version `before`; return whether that was still the current one."""
    if not before:
        new = insert(connection, PAGE_STORAGE).values(dict(row)).on_conflict_do_nothing()
        return bool((await connection.execute(new)).rowcount)
    place = and_(_at(row["person"], row["app"]), PAGE_STORAGE.c.version == before)
    return bool((await connection.execute(PAGE_STORAGE.update().where(place).values(dict(row)))).rowcount)


def _at(person: str | None, app: str | None) -> Any:
    return and_(
        true() if person is None else PAGE_STORAGE.c.person == person,
        true() if app is None else PAGE_STORAGE.c.app == app,
    )


def _place(person: str, app: str) -> str:
    return f"page storage\n{app}\n{person}"
