"""The sessions of MCP clients with a handshake, in the database, so that they survive a restart."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Delete, Update, and_, delete, func, literal, select, text, update
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from gateway.crypto import digest
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Principal
from gateway.ports.sessions import McpClientState, TooManySessions
from gateway.stores.schema import MCP_SESSIONS
from gateway.stores.sealing import KeyRing, SealBroken
from gateway.stores.sql import Database, reseal_states, whole

LARGEST: Final = 64 * 1024
"""Characters of the state of one session; a larger one is not stored, and its session ends with its process."""

PERIOD: Final = 30.0
"""Seconds between two writes of the sessions that were used meanwhile."""

_CHUNK: Final = 500
"""Sessions in one statement: SQLite has a limit of parameters."""

_ADMITTING: Final = 7_238_104_656
"""The number of PostgreSQL's advisory lock under which sessions are counted and added."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Open:
    """A session that runs in this process; `uses` are its requests and streams, `stored` whether it has a row."""

    principal: Principal
    mount: str
    state: McpClientState
    on_loss: Callable[[], None]
    uses: int = 0
    stored: bool = True


class DatabaseMcpSessions:
    """The port `McpSessions` in `database`, which several processes may share; `ring` seals the clients' states.

    `most`: the limit of sessions at one mount.
    `each`: the limit of sessions of one principal at one mount.
    `idle`: seconds without use after which a session cannot be adopted any more.
    `process`: returns the id of this process.
    `lives`: returns whether another process lives; without it, no other one does. Raises OSError.
    `adopted`: is called for each session that is taken over.
    """

    def __init__(
        self,
        database: Database,
        ring: KeyRing,
        *,
        most: int,
        each: int,
        idle: float,
        clock: Callable[[], float] = time.time,
        process: Callable[[], str] | None = None,
        lives: Callable[[str], Awaitable[bool]] | None = None,
        adopted: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._ring = ring
        self.most = most
        self.each = each
        self._idle = idle
        self._clock = clock
        own = secrets.token_hex(8)
        self._process = process or (lambda: own)
        self._lives = lives
        self._adopted = adopted
        self._open: dict[str, _Open] = {}
        self._used_ids: set[str] = set()
        self._writing = asyncio.Lock()  # SQLite allows one write at a time, and lets the others sleep

    async def open(
        self, id: str, principal: Principal, mount: str, state: McpClientState, lost: Callable[[], None]
    ) -> None:
        """Register a new session. Raises `TooManySessions`."""
        session = _Open(principal, mount, state, lost)
        try:
            await whole(self._insert(id, session))
        except OSError as error:
            log.warning("a session is not stored yet, and a restart would end it: %s", error)
            self._check_own(principal, mount)
            session.stored = False
        self._open[id] = session

    @property
    def count(self) -> int:
        """The number of sessions that run in this process."""
        return len(self._open)

    async def adopt(self, id: str, principal: Principal, mount: str, lost: Callable[[], None]) -> McpClientState | None:
        """Take over a session that runs nowhere any more."""
        if id in self._open:
            return None
        state = await whole(self._adopt(id, principal, mount))
        if state is not None:
            self._open[id] = _Open(principal, mount, state, lost)
            self._adopted()
        return state

    async def process_of(self, id: str, principal: Principal, mount: str) -> str | None:
        """Return the process that runs a session, or ran it last."""
        return await whole(self._process_of(_key(id), principal, mount))

    async def _process_of(self, key: str, principal: Principal, mount: str) -> str | None:
        conditions = _conditions(key, principal, mount, self._clock())
        async with self._database.connect() as connection:
            return (await connection.execute(select(MCP_SESSIONS.c.owner).where(*conditions))).scalar_one_or_none()

    @contextmanager
    def use(self, id: str) -> Iterator[None]:
        """Count the session as used within the block."""
        session = self._open.get(id)
        if session is None:
            yield
            return
        session.uses += 1
        try:
            yield
        finally:
            session.uses -= 1
            self._used_ids.add(id)

    async def change(self, id: str, change: Callable[[McpClientState], McpClientState]) -> None:
        """Store the changed state of a session of this process."""
        session = self._open.get(id)
        if session is None or (state := change(session.state)) == session.state:
            return
        session.state = state
        key = _key(id)
        seal, ciphertext = self._seal(key, session)
        try:
            await whole(self._run(update(MCP_SESSIONS).where(self._mine([key])).values(seal=seal, state=ciphertext)))
        except OSError as error:
            log.warning("a changed log level or subscription is not stored, and a restart would forget it: %s", error)

    async def end(self, id: str) -> None:
        """End a session."""
        session = self._open.pop(id, None)
        if session is None or not session.stored:
            return
        try:
            await whole(self._run(delete(MCP_SESSIONS).where(self._mine([_key(id)]))))
        except OSError as error:
            log.warning("a session that ended is still stored until it has been idle for too long: %s", error)

    def leave(self, id: str) -> None:
        """Forget a session of this process without ending it."""
        self._open.pop(id, None)

    async def run(self) -> None:
        """Write the idle times of used sessions periodically, until cancelled."""
        while True:
            await asyncio.sleep(min(PERIOD, self._idle / 2))
            await self.flush()

    async def flush(self) -> None:
        """Write the idle times of used sessions and the sessions without a row, and delete expired ones."""
        used = self._used_ids | {id for id, session in self._open.items() if session.uses}
        self._used_ids = set()
        try:
            await whole(self._flush([id for id in used if id in self._open]))
        except OSError as error:
            self._used_ids |= used
            log.warning("the idle times of sessions are not stored: %s", error)

    @property
    def _lasting(self) -> float:
        """Seconds until a row expires: idle times are written periodically."""
        return self._idle + min(PERIOD, self._idle / 2)

    async def _insert(self, id: str, session: _Open) -> None:
        key, now = _key(id), self._clock()
        seal, ciphertext = self._seal(key, session)
        row = {
            "key": key,
            "principal": session.principal.id,
            "mount": session.mount,
            "proof": session.principal.proof,
            "owner": self._process(),
            "epoch": 1,
            "seal": seal,
            "state": ciphertext,
            "expires": now + self._lasting,
        }
        table = MCP_SESSIONS.c
        at_mount = select(func.count()).where(table.mount == session.mount, table.expires > now)
        mine = at_mount.where(table.principal == session.principal.id).scalar_subquery()
        values = [literal(value, table[name].type) for name, value in row.items()]
        row_query = select(*values).where(mine < self.each, at_mount.scalar_subquery() < self.most)
        async with self._writing, self._database.connect() as connection:
            await _lock(connection)
            insertion = await connection.execute(MCP_SESSIONS.insert().from_select(list(row), row_query))
            if not insertion.rowcount:
                full = (await connection.execute(select(mine))).scalar_one() >= self.each
                raise TooManySessions(self.each if full else self.most, of_all=not full)
            await connection.commit()

    async def _adopt(self, id: str, principal: Principal, mount: str) -> McpClientState | None:
        key, now, table = _key(id), self._clock(), MCP_SESSIONS.c
        conditions = _conditions(key, principal, mount, now)
        async with self._database.connect() as connection:
            row = (await connection.execute(select(MCP_SESSIONS).where(*conditions))).first()
        if row is None:
            return None
        try:
            state = _state(self._ring.open(row.seal, bytes(row.state), _place(key, principal.id, mount)))
        except SealBroken as error:
            log.warning("a stored session of %s cannot be adopted: %s", principal.id, error)
            return None
        if state is None:
            return None
        if self._lives is not None and row.owner != self._process() and await self._lives(row.owner):
            return None
        statement = update(MCP_SESSIONS).where(*conditions, table.epoch == row.epoch)
        ours = {
            "owner": self._process(),
            "epoch": row.epoch + 1,
            "expires": now + self._lasting,
            "proof": principal.proof,
        }
        return state if await self._run(statement.values(ours)) else None

    async def _flush(self, used: list[str]) -> None:
        now, table = self._clock(), MCP_SESSIONS.c
        for id, session in [(id, session) for id, session in self._open.items() if not session.stored]:
            try:
                await self._insert(id, session)
                session.stored = True
            except TooManySessions as full:  # opened while the store was down
                log.warning("a session is not stored, and a restart would end it: %s are open", full.most)
        for some in (used[start : start + _CHUNK] for start in range(0, len(used), _CHUNK)):
            keys = {_key(id): id for id in some}
            rows = await self._run(update(MCP_SESSIONS).where(self._mine(keys)).values(expires=now + self._lasting))
            if rows < len(keys):
                await self._drop_lost(keys)
        await self._run(delete(MCP_SESSIONS).where(table.expires <= now))

    async def _drop_lost(self, keys: Mapping[str, str]) -> None:
        """End the sessions, by their keys, whose rows were deleted, or belong to another process now."""
        async with self._database.connect() as connection:
            keys_left = set((await connection.execute(select(MCP_SESSIONS.c.key).where(self._mine(keys)))).scalars())
        for key, id in keys.items():
            if key not in keys_left and (session := self._open.get(id)) is not None and session.stored:
                del self._open[id]
                session.on_loss()

    def _mine(self, keys: Iterable[str]) -> ColumnElement[bool]:
        return and_(MCP_SESSIONS.c.key.in_(list(keys)), MCP_SESSIONS.c.owner == self._process())

    async def _run(self, statement: Update | Delete) -> int:
        """Return the number of rows that the statement changed."""
        async with self._writing, self._database.connect() as connection:
            rows = (await connection.execute(statement)).rowcount
            await connection.commit()
            return rows

    def _check_own(self, principal: Principal, mount: str) -> None:
        """Apply the limits to the sessions of this process. Raises `TooManySessions`."""
        here = Counter(session.principal.id for session in self._open.values() if session.mount == mount)
        if here[principal.id] >= self.each:
            raise TooManySessions(self.each, of_all=False)
        if here.total() >= self.most:
            raise TooManySessions(self.most, of_all=True)

    def _seal(self, key: str, session: _Open) -> tuple[str, bytes]:
        state = session.state
        written = plain_json([state.version, state.info, state.capabilities, state.level, state.subscriptions])
        text = written if len(written) <= LARGEST else ""
        return self._ring.seal(text, _place(key, session.principal.id, session.mount))


def _conditions(key: str, principal: Principal, mount: str, now: float) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of a session that this caller may go on with at this mount."""
    table = MCP_SESSIONS.c
    return (table.key == key, table.principal == principal.id, table.mount == mount, table.expires > now)


async def reseal_sessions(database: Database, ring: KeyRing) -> None:
    """Seal the states of all clients with the newest key."""
    await reseal_states(database, ring, MCP_SESSIONS, lambda row: _place(row.key, row.principal, row.mount))


def _state(text: str) -> McpClientState | None:
    if not text:
        return None  # it was too large to store
    version, info, capabilities, level, subscriptions = parse_json(text)
    return McpClientState(version, info, capabilities, level, tuple(subscriptions))


def _key(id: str) -> str:
    return digest(id).hex()


def _place(key: str, principal: str, mount: str) -> str:
    return plain_json(["mcp-session", key, principal, mount])


async def _lock(connection: AsyncConnection) -> None:
    """Admit one session at a time: SQLite does so itself."""
    if connection.dialect.name == "postgresql":
        await connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADMITTING})"))
