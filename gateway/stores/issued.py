"""The gateway's own tokens in the database: created, looked up, listed, revoked."""

from __future__ import annotations

import secrets
import string
from collections.abc import Collection
from typing import Any

from sqlalchemy import Row, select, update

from gateway.callers.tokens import TokenGrant, token_text
from gateway.model import Secret
from gateway.proving import digest
from gateway.stores.schema import ISSUED
from gateway.stores.sql import Database, whole

_ID = string.ascii_letters + string.digits


class NameTaken(ValueError):
    """A valid token has this name already."""


class IssuedTokens:
    """The tokens of a gateway, in `database`. Each method raises OSError while that is down."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, name: str, capabilities: Collection[str], person: str | None, *, now: float, expires: float
    ) -> Secret:
        """Create a token, which is returned only here. Raises `NameTaken`. Times are in seconds since the epoch."""
        id = "".join(secrets.choice(_ID) for _ in range(12))
        token = token_text(id, secrets.token_urlsafe(32))
        row = {
            "id": id,
            "name": name,
            "digest": digest(token.reveal()),
            "capabilities": " ".join(sorted(capabilities)),
            "person": person,
            "created": now,
            "expires": expires,
        }
        async with self._database.connect() as connection:
            used = select(ISSUED.c.id).where(ISSUED.c.name == name, ISSUED.c.revoked.is_(None), ISSUED.c.expires > now)
            if (await connection.execute(used)).first() is not None:
                raise NameTaken(name)
            await connection.execute(ISSUED.insert().values(row))
            await connection.commit()
        return token

    async def find(self, id: str) -> TokenGrant | None:
        """Return the grant of the token `id`, valid or not."""
        return await whole(self._find(id))

    async def listed(self) -> list[TokenGrant]:
        """Return all tokens, the newest first."""
        async with self._database.connect() as connection:
            rows = await connection.execute(select(ISSUED).order_by(ISSUED.c.created.desc(), ISSUED.c.id))
            return [_grant(row) for row in rows]

    async def revoke(self, name: str, now: float) -> int:
        """Revoke the tokens of this name; return how many were valid."""
        async with self._database.connect() as connection:
            wanted = (ISSUED.c.name == name, ISSUED.c.revoked.is_(None), ISSUED.c.expires > now)
            ended = await connection.execute(update(ISSUED).where(*wanted).values(revoked=now))
            await connection.commit()
            return ended.rowcount

    async def _find(self, id: str) -> TokenGrant | None:
        async with self._database.connect() as connection:
            row = (await connection.execute(select(ISSUED).where(ISSUED.c.id == id))).first()
            return _grant(row) if row is not None else None


def _grant(row: Row[Any]) -> TokenGrant:
    return TokenGrant(
        id=row.id,
        name=row.name,
        capabilities=frozenset(row.capabilities.split()),
        person=row.person,
        created=row.created,
        expires=row.expires,
        revoked=row.revoked,
        digest=bytes(row.digest),
    )
