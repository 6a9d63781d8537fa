"""Stores the ID tokens of logins, sealed, with their sessions: a logout then ends the login at the issuer, too."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Final

from sqlalchemy import select, update

from gateway.model import Secret
from gateway.stores.atomic import whole
from gateway.stores.schema import SESSIONS
from gateway.stores.sealing import KeyRing, SealBroken
from gateway.stores.sessions import SessionKind
from gateway.stores.sql import Database

NAME: Final = "hint"
_PLACE: Final = "login"


class Hints:
    """The field `NAME` in a session's `more`. Raises StartError without keys."""

    def __init__(self, database: Database, ring: KeyRing) -> None:
        self._database = database
        self._ring = ring

    def sealed(self, id_token: Secret) -> str:
        """Return a token in its stored form."""
        key, sealed = self._ring.seal(id_token.reveal(), _PLACE)
        return f"{key}.{base64.b64encode(sealed).decode()}"

    def opened(self, more: Mapping[str, str]) -> str | None:
        """Return the token; None if none was stored, or its key is missing."""
        key, _, sealed = more.get(NAME, "").partition(".")
        try:
            return self._ring.open(key, base64.b64decode(sealed), _PLACE) if sealed else None
        except SealBroken:
            return None

    async def reseal(self) -> tuple[int, int]:
        """Seal all of them with the newest key; return how many were, and how many no key opens. Raises OSError."""
        newest = self._ring.ids[0]
        done = lost = 0
        async with self._database.connect() as connection:
            wanted = select(SESSIONS.c.key, SESSIONS.c.value).where(SESSIONS.c.kind == SessionKind.CONSOLE)
            rows = (await connection.execute(wanted)).all()
        for key, text in rows:
            value = json.loads(text)
            kept = value["more"].get(NAME)
            if kept is None or kept.startswith(f"{newest}."):
                continue
            token = self.opened(value["more"])
            if token is None:
                lost += 1
                continue
            value["more"][NAME] = self.sealed(Secret(token))
            done += await whole(self._replace(key, text, json.dumps(value)))
        return done, lost

    async def _replace(self, key: str, before: str, after: str) -> int:
        place = (SESSIONS.c.key == key) & (SESSIONS.c.value == before)
        async with self._database.connect() as connection:
            changed = await connection.execute(update(SESSIONS).where(place).values(value=after))
            await connection.commit()
        return changed.rowcount
