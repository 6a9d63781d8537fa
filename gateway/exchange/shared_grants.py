"""Grants in a database that several processes share, sealed: who can write the database cannot make one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, delete, select

from gateway.exchange import approvals
from gateway.exchange.approvals import new_grant
from gateway.model import Caller, Principal, Question
from gateway.ports.approvals import Grant
from gateway.stores.approval_rows import ApprovalSeals, TimeOf, hash_of
from gateway.stores.schema import GRANTS
from gateway.stores.sealing import KeyRing, SealBroken
from gateway.stores.sql import Database, as_whole, database_time, lock_in_turn, whole
from gateway.watchers import Watchers

PERIOD: Final = 1.0
"""Seconds between two reads of the grants of other processes."""

_LOCK: Final = 7_238_108
"""The number of the advisory locks, one for each principal, under which its grants are counted."""

log = logging.getLogger(__name__)


class DatabaseGrants:
    """The port `Grants` in `database`, for several processes with the keys of `ring`.

    `now` is the clock of the grants, by default the database's; `clock` is this process's, for lists of them. A grant
    whose row was seen to go ends here for good: restoring the row does not restore the grant.
    """

    def __init__(
        self,
        database: Database,
        ring: KeyRing,
        clock: Callable[[], float] = time.time,
        *,
        now: TimeOf = database_time,
    ) -> None:
        self._database = database
        self._seals = ApprovalSeals(ring)
        self._clock = clock
        self._now = now
        self._known: dict[str, Grant] = {}
        self._ended: dict[str, float] = {}
        """The grants that were revoked, with their ends."""
        self._outdated: set[str] = set()
        """Those of them whose rows this process has yet to delete."""
        self._writing = asyncio.Lock()  # SQLite allows one write at a time, and lets the others sleep
        self._watchers = Watchers[[]]()

    async def give(self, question: Question, principal: Principal, by: str) -> Grant:
        """Store a grant for the rule of `question`. Raises OSError while the database is down."""
        return await whole(self._give(question, principal, by))

    async def covering(self, caller: Caller, rule: str, policy_version: str) -> Grant | None:
        """Return the grant under which a call may run without a question, if any; none while the database is down."""
        condition = GRANTS.c.call == hash_of(caller.principal.id, caller.app, rule, policy_version)
        try:
            rows = await whole(self._load(condition))
        except OSError as error:
            log.warning("grants cannot be read, and cover nothing: %s", error)
            return None
        of = (caller.principal.id, caller.app, rule, policy_version)
        return next((one for one in rows if (one.principal.id, one.app, one.rule, one.policy_version) == of), None)

    def now(self) -> list[Grant]:
        """Return the valid grants, oldest first."""
        now = self._clock()
        return [grant for grant in self._known.values() if grant.created <= now < grant.expires]

    async def revoke(self, id: str) -> Grant:
        """End a grant now. Raises OSError while the database is down."""
        grant = await whole(self._revoke(id))
        self._known.pop(id, None)
        self._watchers.notify()
        return grant

    def cancel_outdated(self, app: str, policy_version: str) -> None:
        """End the grants under an older policy of the app."""
        old = [one for one in self._known.values() if one.app == app and one.policy_version != policy_version]
        for grant in old:
            self._end(grant)
            self._outdated.add(grant.id)
        if old:
            self._watchers.notify()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever a grant comes or goes; the returned function unregisters it."""
        return self._watchers.add(callback)

    async def keep(self) -> None:
        """Read the grants of other processes regularly, until cancelled."""
        while True:
            try:
                await self.refresh()
            except OSError as error:
                log.debug("the grants could not be read: %s", error)
            await asyncio.sleep(PERIOD)

    @as_whole
    async def refresh(self) -> None:
        """Read the grants of all processes once. Raises OSError."""
        outdated = set(self._outdated)
        async with self._writing, self._database.connect() as connection:
            now = self._now(connection)
            over = (await connection.execute(select(GRANTS.c.id).where(GRANTS.c.expires <= now))).scalars().all()
            if gone := [*outdated, *over]:
                await connection.execute(delete(GRANTS).where(GRANTS.c.id.in_(gone)))
                await connection.commit()
            self._outdated -= outdated
            ids = list((await connection.execute(select(GRANTS.c.id).order_by(GRANTS.c.created))).scalars())
        new = [id for id in ids if id not in self._known and id not in self._ended]
        new_ones = {grant.id: grant for grant in await self._load(GRANTS.c.id.in_(new))} if new else {}
        before = set(self._known)
        for id in before.difference(ids):
            self._end(self._known[id])
        grants = {id: new_ones.get(id) or self._known.get(id) for id in ids}
        self._known = {id: grant for id, grant in grants.items() if grant is not None}
        now_here = self._clock()
        self._ended = {id: until for id, until in self._ended.items() if until + 60.0 > now_here}
        if before != set(self._known):
            self._watchers.notify()

    def _end(self, grant: Grant) -> None:
        self._known.pop(grant.id, None)
        self._ended[grant.id] = grant.expires

    async def _give(self, question: Question, principal: Principal, by: str) -> Grant:
        table = GRANTS.c
        async with self._writing, self._database.connect() as connection:
            await lock_in_turn(connection, _LOCK, principal.id)
            now = await connection.scalar(select(self._now(connection))) or 0.0
            grant = new_grant(question, principal, by, now)
            mine = select(table.id, table.created).where(table.principal == principal.id, table.expires > now)
            rows = (await connection.execute(mine.order_by(table.created.desc()))).all()
            if evicted := [one.id for one in rows[approvals.MOST - 1 :]]:
                approvals.report_evicted(principal)
                await connection.execute(delete(GRANTS).where(table.id.in_(evicted)))
            seal, sealed = self._seals.seal_grant(grant)
            row = {
                "id": grant.id,
                "principal": principal.id,
                "call": hash_of(principal.id, grant.app, grant.rule, grant.policy_version),
                "created": max([now, *(one.created + 1e-6 for one in rows[:1])]),  # grants of one moment have an order
                "expires": grant.expires,
                "seal": seal,
                "sealed": sealed,
            }
            await connection.execute(GRANTS.insert().values(row))
            await connection.commit()
        for id in evicted:
            if id in self._known:
                self._end(self._known[id])
        self._known[grant.id] = grant
        self._watchers.notify()
        return grant

    async def _revoke(self, id: str) -> Grant:
        async with self._writing, self._database.connect() as connection:
            rows = await connection.execute(delete(GRANTS).where(GRANTS.c.id == id).returning(*GRANTS.c))
            row = rows.first()
            await connection.commit()
        grant = self._read(row) if row is not None else None
        if grant is None:
            raise KeyError(id)
        self._end(grant)
        return grant

    async def _load(self, condition: ColumnElement[bool]) -> list[Grant]:
        """Return the valid grants among these, oldest first."""
        async with self._database.connect() as connection:
            time_column = self._now(connection).label("now")
            rows = (
                await connection.execute(select(GRANTS, time_column).where(condition).order_by(GRANTS.c.created))
            ).all()
        read = [(self._read(row), row.now) for row in rows]
        return [grant for grant, now in read if grant is not None and grant.created <= now < grant.expires]

    def _read(self, row: Row[Any]) -> Grant | None:
        """Return the grant of a row; None for an altered one, and for one that has ended here."""
        if row.id in self._ended:
            return None
        try:
            return self._seals.open_grant(row)
        except SealBroken as error:
            log.warning("the grant %s is not accepted: %s", row.id, error)
            return None
