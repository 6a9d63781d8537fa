"""The security keys that people touch to approve, in the database: public keys only."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from gateway.crypto import SigningKeys
from gateway.stores.schema import TOUCH_KEYS
from gateway.stores.sql import Database, as_whole

NAME = 60
"""Characters of the longest name of a key."""


@dataclass(frozen=True, slots=True)
class SecurityKey:
    """A key of one person. `count` is its signature counter; `created` is in seconds since the epoch."""

    id: str
    person: str
    name: str
    public: bytes
    count: int
    created: float


class SecurityKeys:
    """The keys of all people, in `database`. Each method raises OSError while that is down.

    With `signing`, the keys of a gateway of several processes, a row counts only if it was signed with them.
    """

    def __init__(self, database: Database, signing: SigningKeys | None = None) -> None:
        self._database = database
        self._signing = signing

    async def of(self, person: str) -> list[SecurityKey]:
        """Return the keys of a person, oldest first."""
        query = select(TOUCH_KEYS).where(TOUCH_KEYS.c.person == person).order_by(TOUCH_KEYS.c.created)
        async with self._database.connect() as connection:
            rows = [dict(row._mapping) for row in await connection.execute(query)]
        macs = [row.pop("mac") or "" for row in rows]
        known = [SecurityKey(**row) for row in rows]
        if self._signing is None:
            return known
        return [key for key, mac in zip(known, macs, strict=True) if self._signing.verify(mac, *_parts(key))]

    @as_whole
    async def add(self, key: SecurityKey) -> bool:
        """Store a new key. Return False if it is registered already, by any person."""
        row = {name: getattr(key, name) for name in ("id", "person", "name", "public", "count", "created")}
        row["mac"] = self._signing.sign(*_parts(key)) if self._signing is not None else None
        async with self._database.connect() as connection:
            try:
                await connection.execute(TOUCH_KEYS.insert().values(row))
            except IntegrityError:
                return False
            await connection.commit()
        return True

    @as_whole
    async def store_use(self, id: str, count: int) -> None:
        """Store the signature counter after a touch."""
        async with self._database.connect() as connection:
            await connection.execute(update(TOUCH_KEYS).where(TOUCH_KEYS.c.id == id).values(count=count))
            await connection.commit()

    @as_whole
    async def remove(self, person: str, id: str) -> bool:
        """Delete a key. Return False if this person has no such key."""
        statement = TOUCH_KEYS.delete().where(TOUCH_KEYS.c.id == id, TOUCH_KEYS.c.person == person)
        async with self._database.connect() as connection:
            result = await connection.execute(statement)
            await connection.commit()
        return bool(result.rowcount)


def _parts(key: SecurityKey) -> tuple[str, ...]:
    """Return what the signature of a row covers: all but the counter, which only grows."""
    return ("security key", key.id, key.person, key.name, key.public.hex(), repr(key.created))
