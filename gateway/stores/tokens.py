"""Tokens at rest, sealed, by credential and principal; and the leases for renewing them, shared by all processes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, or_, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from gateway.credentials import Account, Token
from gateway.errors import DatabaseUnavailable
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Secret
from gateway.stores.schema import CONNECTS, LEASES, TOKENS
from gateway.stores.sealing import KeyRing, SealBroken
from gateway.stores.sql import Database, first_line, insert, whole


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token as it is stored. `connection` is the same for all tokens of one consent.

    `version` differs after each change; `changed_at` is in seconds since the epoch.
    """

    credential: str
    principal: str
    token: Token
    connection: str
    version: str
    changed_at: float


@dataclass(frozen=True, slots=True)
class ListedToken:
    """A stored token in a list; `token` is None if no key decrypts it."""

    credential: str
    principal: str
    changed_at: float
    key: str
    token: StoredToken | None


class TokenStore:
    """The tokens of all principals in `database`; a shared credential's principal is the empty text.

    Every method raises OSError while the database is down, and StartError without keys.
    """

    def __init__(self, database: Database, ring: KeyRing) -> None:
        self._database = database
        self._ring = ring
        self._writing = asyncio.Lock()  # SQLite allows one write at a time, and lets the others sleep

    async def load(self, credential: str, principal: str) -> StoredToken | None:
        """Return the token. Raises `Unreadable` if it cannot be opened."""
        async with self._connect() as connection:
            row = (await connection.execute(select(TOKENS).where(_at(credential, principal)))).first()
        return _read_row(self._ring, row) if row is not None else None

    async def version(self, credential: str, principal: str) -> str | None:
        """Return the version of the stored token, None if there is none."""
        async with self._connect() as connection:
            stored_version: str | None = await connection.scalar(
                select(TOKENS.c.version).where(_at(credential, principal))
            )
        return stored_version

    async def save(
        self, credential: str, principal: str, token: Token, connection: str, *, before: str | None, now: float
    ) -> StoredToken | None:
        """Replace version `before` (None: no token) by `token`; return None if it has changed meanwhile."""
        stored_token = StoredToken(credential, principal, token, connection, secrets.token_urlsafe(9), now)
        return stored_token if await whole(self._save(stored_token, before)) else None

    async def put(self, credential: str, principal: str, token: Token, connection: str, now: float) -> StoredToken:
        """Store `token` unconditionally."""
        stored_token = StoredToken(credential, principal, token, connection, secrets.token_urlsafe(9), now)
        await whole(self._put(stored_token))
        return stored_token

    async def delete(self, credential: str, principal: str, version: str | None = None) -> bool:
        """Delete the token, only that of `version` if given; return whether there was one."""

        async def work() -> bool:
            async with self._changing() as connection:
                place = _at(credential, principal)
                mine = place if version is None else and_(place, TOKENS.c.version == version)
                return bool((await connection.execute(TOKENS.delete().where(mine))).rowcount)

        return await whole(work())

    async def list(self, principal: str | None = None) -> list[ListedToken]:
        """Return the stored tokens, of one principal if given."""
        query = select(TOKENS).order_by(TOKENS.c.credential, TOKENS.c.principal)
        if principal is not None:
            query = query.where(TOKENS.c.principal == principal)
        async with self._connect() as connection:
            rows = (await connection.execute(query)).all()
        return [_read_listed(self._ring, row) for row in rows]

    async def claim(self, credential: str, principal: str, holder: str, now: float, seconds: float) -> bool:
        """Take the lease to renew the token until `now + seconds`; return False if another holder has it."""

        async def work() -> bool:
            async with self._changing() as connection:
                row = {"credential": credential, "principal": principal, "holder": holder, "until": now + seconds}
                statement = insert(connection, LEASES).values(row)
                # also taken if it lasts longer than any lease: a clock went back
                free = or_(LEASES.c.until <= now, LEASES.c.until > now + 2 * seconds, LEASES.c.holder == holder)
                statement = statement.on_conflict_do_update(
                    index_elements=["credential", "principal"],
                    set_={"holder": holder, "until": now + seconds},
                    where=free,
                )
                return bool((await connection.execute(statement)).rowcount)

        return await whole(work())

    async def release(self, credential: str, principal: str, holder: str) -> None:
        """Release the lease."""

        async def work() -> None:
            async with self._changing() as connection:
                mine = and_(
                    LEASES.c.credential == credential, LEASES.c.principal == principal, LEASES.c.holder == holder
                )
                await connection.execute(LEASES.delete().where(mine))

        await whole(work())

    async def remember(self, state: str, text: str, now: float, expires: float) -> None:
        """Store the state of a pending login, sealed, until `expires`."""

        async def work() -> None:
            async with self._changing() as connection:
                await connection.execute(CONNECTS.delete().where(CONNECTS.c.expires <= now))
                key, ciphertext = self._ring.seal(text, f"connect\n{state}")
                row = {"state": state, "key": key, "sealed": ciphertext, "expires": expires}
                await connection.execute(CONNECTS.insert().values(row))

        await whole(work())

    async def recall(self, state: str, now: float) -> str | None:
        """Return and delete the pending login `state`, None if it expired or is missing. Raises `Unreadable`."""

        async def work() -> Any:
            async with self._changing() as connection:
                row = (await connection.execute(select(CONNECTS).where(CONNECTS.c.state == state))).first()
                result = await connection.execute(CONNECTS.delete().where(CONNECTS.c.state == state))
                return row if result.rowcount else None

        row = await whole(work())
        if row is None or row.expires <= now:
            return None
        return self._ring.open(row.key, bytes(row.sealed), f"connect\n{state}")

    async def reseal(self) -> tuple[int, int]:
        """Seal everything with the newest key; return how many rows were, and how many no key decrypts."""
        newest = self._ring.ids[0]
        done = lost = 0
        for listed_token in await self.list():
            if listed_token.token is None:
                lost += 1
            elif listed_token.key != newest:
                stored_token = listed_token.token
                stored_now = await self.save(
                    stored_token.credential,
                    stored_token.principal,
                    stored_token.token,
                    stored_token.connection,
                    before=stored_token.version,
                    now=stored_token.changed_at,
                )
                done += stored_now is not None
        return done, lost

    async def _save(self, stored_token: StoredToken, before: str | None) -> bool:
        row = self._row(stored_token)
        async with self._changing() as connection:
            if before is None:
                change = insert(connection, TOKENS).values(row).on_conflict_do_nothing()
                return bool((await connection.execute(change)).rowcount)
            place = and_(_at(stored_token.credential, stored_token.principal), TOKENS.c.version == before)
            return bool((await connection.execute(TOKENS.update().where(place).values(row))).rowcount)

    async def _put(self, stored_token: StoredToken) -> None:
        row = self._row(stored_token)
        async with self._changing() as connection:
            change = insert(connection, TOKENS).values(row)
            await connection.execute(change.on_conflict_do_update(index_elements=["credential", "principal"], set_=row))

    def _row(self, stored_token: StoredToken) -> dict[str, object]:
        text = plain_json({"connection": stored_token.connection, **_write(stored_token.token)})
        key, ciphertext = self._ring.seal(text, _place(stored_token.credential, stored_token.principal))
        return {
            "credential": stored_token.credential,
            "principal": stored_token.principal,
            "version": stored_token.version,
            "key": key,
            "sealed": ciphertext,
            "changed": stored_token.changed_at,
        }

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with self._database.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise DatabaseUnavailable(
                f"the database cannot be used: {first_line(error)}"
            ) from None  # its text repeats the row

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[AsyncConnection]:
        async with self._writing, self._connect() as connection:
            yield connection
            await connection.commit()


def _at(credential: str, principal: str) -> Any:
    return and_(TOKENS.c.credential == credential, TOKENS.c.principal == principal)


def _place(credential: str, principal: str) -> str:
    return f"token\n{credential}\n{principal}"


def _read_listed(ring: KeyRing, row: Any) -> ListedToken:
    try:
        stored_token: StoredToken | None = _read_row(ring, row)
    except SealBroken:
        stored_token = None
    return ListedToken(row.credential, row.principal, row.changed, row.key, stored_token)


def _read_row(ring: KeyRing, row: Any) -> StoredToken:
    values = parse_json(ring.open(row.key, bytes(row.sealed), _place(row.credential, row.principal)))
    return StoredToken(row.credential, row.principal, _read(values), values["connection"], row.version, row.changed)


def _write(token: Token) -> dict[str, object]:
    return {
        "value": token.value.reveal(),
        "token_type": token.token_type,
        "expires_at": token.expires_at,
        "refresh": token.refresh.reveal() if token.refresh is not None else None,
        "scope": token.scope,
        "key": token.key.reveal() if token.key is not None else None,
        "account": [token.account.subject, token.account.label] if token.account is not None else None,
        "type": token.type,
        "id_token": token.id_token.reveal() if token.id_token is not None else None,
        "source": token.source,
    }


def _read(values: dict[str, Any]) -> Token:
    return Token(
        value=Secret(values["value"]),
        token_type=values["token_type"],
        expires_at=values["expires_at"],
        refresh=Secret(values["refresh"]) if values["refresh"] is not None else None,
        scope=values["scope"],
        key=Secret(values["key"]) if values["key"] is not None else None,
        account=Account(*values["account"]) if values["account"] is not None else None,
        type=values["type"],
        id_token=Secret(values["id_token"]) if values.get("id_token") is not None else None,
        source=values.get("source", ""),
    )
