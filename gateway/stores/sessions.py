"""Logins of people, their one-time codes and ID tokens, and the gateway's own tokens, in the database."""

from __future__ import annotations

import base64
import logging
import secrets
import string
from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import Row, delete, func, literal, select, update

from gateway.bounds import Area, Bound
from gateway.callers.people import principal_fields, principal_of
from gateway.callers.tokens import TokenGrant, token_text
from gateway.crypto import SigningKeys, digest
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Json, Principal, Secret
from gateway.ports.sessions import HINT_FIELD, SessionKind, StoredSession
from gateway.stores.schema import ISSUED, MCP_SESSIONS, SESSIONS
from gateway.stores.sealing import KeyRing, SealBroken
from gateway.stores.sql import Database, as_whole, stored_secret, whole

log = logging.getLogger(__name__)

_ID = string.ascii_letters + string.digits


class TokenNameTaken(ValueError):
    """A valid token has this name already."""


class IssuedTokens:
    """The tokens of a gateway, in `database`. Each method raises OSError while that is down.

    With `keys`, those of a gateway of several processes, a token counts only if its row was signed with them.
    """

    def __init__(self, database: Database, keys: SigningKeys | None = None) -> None:
        self._database = database
        self._keys = keys

    async def create(
        self, name: str, capabilities: Collection[str], person: str | None, *, now: float, expires: float
    ) -> Secret:
        """Create a token, returned only here. Raises `TokenNameTaken`. Times are in seconds since the epoch."""
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
        row["mac"] = self._keys.sign(*_token_parts(row)) if self._keys is not None else None
        async with self._database.connect() as connection:
            used = select(ISSUED.c.id).where(ISSUED.c.name == name, ISSUED.c.revoked.is_(None), ISSUED.c.expires > now)
            if (await connection.execute(used)).first() is not None:
                raise TokenNameTaken(name)
            await connection.execute(ISSUED.insert().values(row))
            await connection.commit()
        return token

    @as_whole
    async def find(self, id: str) -> TokenGrant | None:
        """Return the grant of the token `id`, valid or not."""
        async with self._database.connect() as connection:
            row = (await connection.execute(select(ISSUED).where(ISSUED.c.id == id))).first()
        if row is None or (
            self._keys is not None and not self._keys.verify(row.mac or "", *_token_parts(dict(row._mapping)))
        ):
            return None
        return _grant(row)

    async def list_all(self) -> list[TokenGrant]:
        """Return all tokens, the newest first."""
        async with self._database.connect() as connection:
            rows = await connection.execute(select(ISSUED).order_by(ISSUED.c.created.desc(), ISSUED.c.id))
            return [_grant(row) for row in rows]

    async def revoke(self, name: str, now: float) -> int:
        """Revoke the tokens of this name; return how many were valid."""
        async with self._database.connect() as connection:
            conditions = (ISSUED.c.name == name, ISSUED.c.revoked.is_(None), ISSUED.c.expires > now)
            proofs = select(literal("token:") + ISSUED.c.id).where(*conditions)
            await connection.execute(delete(MCP_SESSIONS).where(MCP_SESSIONS.c.proof.in_(proofs)))
            result = await connection.execute(update(ISSUED).where(*conditions).values(revoked=now))
            await connection.commit()
            return result.rowcount


def _token_parts(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the signature of a token's row covers: all but its revocation."""
    fields = ("name", "capabilities", "person", "created", "expires")
    return ("token", row["id"], bytes(row["digest"]).hex(), plain_json([row[name] for name in fields]))


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


EACH: Final = 64
"""Logins of one person, and codes and sessions of sites that come of one login."""

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "logins with their codes and sessions",
        f"{EACH} logins per person; {EACH} codes, and as many sessions on the sites of apps, per login",
        "the oldest of that person, or of that login, ends",
    ),
)

(_LOGINS,) = BOUNDS


class DatabaseSessions:
    """The port `Sessions` in `database`, which several processes may share.

    With `keys`, those of a gateway of several processes, an entry counts only if it was signed with them: who can write
    the database must not log in.
    """

    def __init__(self, database: Database, keys: SigningKeys | None = None) -> None:
        self._database = database
        self._keys = keys
        self._secret = keys.secrets("login states")[0] if keys is not None else b""

    async def secret(self) -> bytes:
        """Return the secret for login states: created once, shared by all processes."""
        if not self._secret:
            self._secret = await whole(self._load_secret())
        return self._secret

    async def put(
        self, kind: SessionKind, principal: Principal, *, now: float, life: float, family: str = "", **more: str
    ) -> Secret:
        """Store a login for `life` seconds. Return the bearer value, of which only a hash is stored."""
        secret = secrets.token_urlsafe(32)
        key = _key(kind, secret)
        row = {
            "key": key,
            "kind": kind,
            "family": family or key,
            "value": "",
            "expires": now + life,
            "owner": principal.person if kind is SessionKind.CONSOLE else family or None,
            "created": now,
        }
        value: dict[str, Json] = {"principal": principal_fields(principal), "more": dict[str, Json](more)}
        if self._keys is not None:
            value["mac"] = self._keys.sign(*_login_parts(row, value))
        row["value"] = plain_json(value)
        if await whole(self._put(row, now)):
            _LOGINS.report(principal.id)
        return Secret(secret)

    @as_whole
    async def find(self, kind: SessionKind, secret: str, now: float) -> StoredSession | None:
        """Return the login of the value `secret`, if it has not ended."""
        query = select(SESSIONS).where(SESSIONS.c.key == _key(kind, secret), SESSIONS.c.expires > now)
        async with self._database.connect() as connection:
            row = (await connection.execute(query)).first()
            return self._read_row(row) if row is not None else None

    @as_whole
    async def take(self, kind: SessionKind, secret: str, now: float) -> StoredSession | None:
        """Return and delete the login: of concurrent callers, one gets it."""
        if await self.find(kind, secret, now) is None:  # anybody can show one: only a valid one may take the write lock
            return None
        async with self._database.connect() as connection:
            statement = delete(SESSIONS).where(SESSIONS.c.key == _key(kind, secret), SESSIONS.c.expires > now)
            row = (await connection.execute(statement.returning(*SESSIONS.c))).first()
            await connection.commit()
            return self._read_row(row) if row is not None else None

    @as_whole
    async def lives(self, family: str, now: float) -> bool:
        """Return whether a login has not ended yet."""
        query = select(SESSIONS).where(SESSIONS.c.family == family, SESSIONS.c.expires > now)
        query = query.limit(1) if self._keys is None else query
        async with self._database.connect() as connection:
            return any(self._read_row(row) is not None for row in await connection.execute(query))

    @as_whole
    async def end(self, family: str) -> None:
        """End a login and all entries of its family."""
        async with self._database.connect() as connection:
            await connection.execute(delete(SESSIONS).where(SESSIONS.c.family == family))
            await connection.execute(delete(MCP_SESSIONS).where(MCP_SESSIONS.c.proof == f"session:{family}"))
            await connection.commit()

    async def _put(self, row: Mapping[str, Any], now: float) -> bool:
        """Keep it; whether older ones went for it."""
        mine = (SESSIONS.c.owner == row["owner"], SESSIONS.c.kind == row["kind"])
        async with self._database.connect() as connection:
            await connection.execute(delete(SESSIONS).where(SESSIONS.c.expires <= now))
            await connection.execute(SESSIONS.insert().values(dict(row)))
            count = (await connection.execute(select(func.count()).where(*mine))).scalar_one()
            more = count - EACH if row["owner"] is not None else 0
            if more > 0:
                # What comes of a login ends with it.
                ends = SESSIONS.c.family if row["kind"] == SessionKind.CONSOLE else SESSIONS.c.key
                others = (*mine, SESSIONS.c.key != row["key"])
                oldest = select(ends).where(*others).order_by(SESSIONS.c.created).limit(more)
                await connection.execute(delete(SESSIONS).where(ends.in_(oldest)))
            await connection.commit()
            return more > 0

    async def _load_secret(self) -> bytes:
        async with self._database.connect() as connection:
            return await stored_secret(connection, "login")

    def _read_row(self, row: Row[Any]) -> StoredSession | None:
        """Return the entry of a row; None for one that this gateway has not written."""
        value = parse_json(row.value)
        if self._keys is not None:
            mac = value.get("mac") if isinstance(value, dict) else None
            if not isinstance(mac, str) or not self._keys.verify(mac, *_login_parts(dict(row._mapping), value)):
                log.warning("an entry of the table sessions is not accepted: its signature is not of this gateway")
                return None
        principal = principal_of(value["principal"], row.expires, proof=f"session:{row.family}")
        return StoredSession(principal, row.family, row.expires, value["more"])


def _key(kind: SessionKind, secret: str) -> str:
    return digest(f"{kind}:{secret}").hex()


def _login_parts(row: Mapping[str, Any], value: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what the signature of an entry covers: all but its ID token, which is sealed and may be sealed again."""
    more = {name: one for name, one in value["more"].items() if name != HINT_FIELD}
    return ("login", row["key"], row["kind"], row["family"], plain_json([row["expires"], value["principal"], more]))


_PLACE: Final = "login"


class Hints:
    """The field `HINT_FIELD` in a session's `more`. Raises StartError without keys."""

    def __init__(self, database: Database, ring: KeyRing) -> None:
        self._database = database
        self._ring = ring

    def seal(self, id_token: Secret) -> str:
        """Return a token in its stored form."""
        key, ciphertext = self._ring.seal(id_token.reveal(), _PLACE)
        return f"{key}.{base64.b64encode(ciphertext).decode()}"

    def open(self, more: Mapping[str, str]) -> str | None:
        """Return the token; None if none was stored, or its key is missing."""
        key, _, ciphertext = more.get(HINT_FIELD, "").partition(".")
        try:
            return self._ring.open(key, base64.b64decode(ciphertext), _PLACE) if ciphertext else None
        except SealBroken:
            return None

    async def reseal(self) -> tuple[int, int]:
        """Seal all of them with the newest key; return how many were, and how many no key decrypts. Raises OSError."""
        newest = self._ring.ids[0]
        done = lost = 0
        async with self._database.connect() as connection:
            query = select(SESSIONS.c.key, SESSIONS.c.value).where(SESSIONS.c.kind == SessionKind.CONSOLE)
            rows = (await connection.execute(query)).all()
        for key, text in rows:
            value = parse_json(text)
            hint = value["more"].get(HINT_FIELD)
            if hint is None or hint.startswith(f"{newest}."):
                continue
            token = self.open(value["more"])
            if token is None:
                lost += 1
                continue
            value["more"][HINT_FIELD] = self.seal(Secret(token))
            done += await whole(self._replace(key, text, plain_json(value)))
        return done, lost

    async def _replace(self, key: str, before: str, after: str) -> int:
        place = (SESSIONS.c.key == key) & (SESSIONS.c.value == before)
        async with self._database.connect() as connection:
            result = await connection.execute(update(SESSIONS).where(place).values(value=after))
            await connection.commit()
        return result.rowcount
