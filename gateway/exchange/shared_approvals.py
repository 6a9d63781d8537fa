"""Approvals in a database that several processes share: each transition of a question is one conditional UPDATE.

The process that parks a call owns its row, by a lease on the database's clock, and alone dispatches. Any process lists
the rows and answers: its answer is signed with a key of the gateway, and the owner checks that, so that who can write
the database cannot approve. A call that is repeated at another process is handed over, with the former owner's
signature. What one process has dispatched it never takes over again, whatever its row says.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Row, and_, or_, select, update

from gateway.errors import Reason, Refusal
from gateway.exchange.approvals import (
    ASKING,
    REFUSAL_WINDOW,
    REFUSALS,
    MemoryApprovals,
    Still,
    check_room,
    check_shown,
    hasty,
    insistent,
)
from gateway.model import Caller, Question, Request
from gateway.ports.approvals import ApprovalState, Ask, OpenQuestion, ParkedCall, Pending
from gateway.stores.approval_rows import (
    LAPSED,
    ApprovalSeals,
    TimeOf,
    count_refusals,
    forget_old,
    hash_of,
    is_alive,
    is_answerable,
    questions,
    row_of,
    states,
    take_rate,
)
from gateway.stores.schema import APPROVALS
from gateway.stores.sealing import KeyRing, SealBroken
from gateway.stores.sql import Database, database_time, lock_in_turn, whole

T = TypeVar("T")

STALE: Final = 7.0
"""Seconds without renewal, on its own steady clock, after which a process voids its questions."""

IDLE: Final = 1.0
"""Seconds between two reads of the questions."""

BUSY: Final = 0.25
"""The same while a question is open, whose answer may come from another process."""

SENT: Final = 3.0
"""Seconds for which an answer waits until the owner has dispatched the call or given it up."""

HANDOVER: Final = 3.0
"""Seconds for which a repeated call waits for its former process to hand it over."""

STEP: Final = 0.1
"""Seconds between two looks at a row that another process is to change."""

SWEPT: Final = 30.0
"""Seconds between two deletions of old rows."""

UNREACHABLE: Final = "The database of the approvals does not answer: nothing was asked, answered or sent. Try again."

ELSEWHERE: Final = "This very call waits for a person's approval already, on another connection. Repeat it later."

_LOCK: Final = 7_238_107
"""The number of the advisory locks, one for each principal, under which its questions are counted."""

_UNFINISHED: Final = (ApprovalState.OPEN, ApprovalState.APPROVED)

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Owned:
    """The row of a call of this process: the epoch of the lease, the verified answer, and a lock for its use."""

    epoch: int
    answer: str | None = None
    using: asyncio.Lock = field(default_factory=asyncio.Lock)


class DatabaseApprovals(MemoryApprovals):
    """The port `Approvals` in `database`, for several processes with the keys of `ring`.

    `owner` names this process. `now` is the clock of bounds and of expiry, by default the database's; `clock` and
    `steady` are this process's, as in `MemoryApprovals`.
    """

    def __init__(
        self,
        database: Database,
        ring: KeyRing,
        timeout: float,
        clock: Callable[[], float] = time.time,
        still: Still | None = None,
        steady: Callable[[], float] = time.monotonic,
        *,
        now: TimeOf = database_time,
        owner: str = "",
    ) -> None:
        super().__init__(timeout, clock, still, steady)
        self._database = database
        self._seals = ApprovalSeals(ring)
        self._now = now
        self._owner = owner or secrets.token_hex(8)
        self._owned: dict[str, _Owned] = {}
        self._others: dict[str, OpenQuestion] = {}
        self._altered: set[str] = set()
        self._changed: dict[str, ApprovalState] = {}
        """The states that this process has yet to store."""
        self._spent: dict[str, float] = {}
        """The dispatched questions, and when they would have expired: none is ever taken over again."""
        self._parking = asyncio.Lock()
        self._writing = asyncio.Lock()  # SQLite allows one write at a time, and lets the others sleep
        self._wake = asyncio.Event()
        self._renewed = time.monotonic()
        self._swept = 0.0

    async def park(self, ask: Ask, caller: Caller, request: Request | None = None) -> Pending:
        """Ask a person, or join the open question of the same view about the same call, in whichever process."""
        for _ in range(2):  # the other process may end the question before it hands it over
            async with self._parking:
                joined = self._join(ask, caller)
                if joined is not None:
                    return joined
                check_shown(ask, caller)
                question = self._question(ask, caller)
                same = await _reach(self._admit(question, ask, caller))
                if same is None:
                    self._owned[question.id] = _Owned(1)
                    return self._add(question, caller, request)
            own = await _reach(self._take_over(same, ask, caller, request))
            if own is not None:
                return own
        raise Refusal(Reason.APPROVAL_UNAVAILABLE, ELSEWHERE, status=202)

    async def question(self, id: str) -> OpenQuestion | None:
        """Return the question `id` if it can be answered now."""
        self.sweep()
        if id in self._parked:
            return await super().question(id)
        row = await _reach(self._load(id))
        return self._opened(row) if row is not None else None

    async def answer(self, id: str, approve: bool, by: str) -> ApprovalState | None:
        """Take a person's answer, once. The state is `dispatched` if its process has sent the call meanwhile."""
        self.sweep()
        parked = self._parked.get(id)
        if parked is not None and parked.state is not ApprovalState.OPEN:
            return None
        return await _reach(self._answer(id, ApprovalState.APPROVED if approve else ApprovalState.DECLINED, by))

    async def dispatch(self, parked: ParkedCall, digest: str, policy_version: str) -> None:
        """Use the approval, once, by an UPDATE of the row while this process has its lease."""
        await self._check_credential(parked)
        self._check(parked, digest, policy_version)
        owned = self._owned[parked.question.id]
        async with owned.using:
            self._check(parked, digest, policy_version)
            began = time.monotonic()
            if began - self._renewed > STALE:
                self.cancel(parked)
                raise _unreachable()
            sent = {"state": ApprovalState.DISPATCHED, "ended": self._now}
            sole = await _reach(self._change(self._approved(parked, owned), sent))
            self._spent[parked.question.id] = parked.question.expires
            if not sole or time.monotonic() - began > STALE:  # it was stopped in between, or its lease has lapsed
                self.cancel(parked)
            self._check(parked, digest, policy_version)
            self._set(parked, ApprovalState.DISPATCHED)

    def open(self) -> list[OpenQuestion]:
        """Return the questions of all processes, oldest first; those of others as they were read last."""
        mine = self.own()
        return sorted((*mine, *self._others.values()), key=lambda one: one.question.created) if self._others else mine

    def state(self, id: str) -> ApprovalState | None:
        """Return the state of the question `id`, None if it is unknown."""
        return ApprovalState.OPEN if id in self._others else super().state(id)

    async def keep(self) -> None:
        """Renew the leases, store what has changed and read the questions, until cancelled."""
        try:
            while True:
                busy = bool(self._others) or any(parked.ended is None for parked in self._parked.values())
                with suppress(TimeoutError):
                    async with asyncio.timeout(BUSY if busy else IDLE):
                        await self._wake.wait()
                self._wake.clear()
                self.sweep()
                await self._try_to_refresh()
        finally:
            with suppress(OSError):
                await whole(self._flush())

    async def refresh(self) -> None:
        """Store what has changed, renew the leases, and read the questions once. Raises OSError."""
        began = time.monotonic()
        await self._flush()
        unfinished = [id for id, parked in self._parked.items() if parked.ended is None]
        await whole(self._renew(unfinished))
        rows = await whole(self._read())
        self._renewed = began
        own = {row.id: row for row in rows if row.owner == self._owner}
        for id in unfinished:
            await self._look_at(id, own.get(id))
        await self._list({row.id for row in rows if row.id not in self._parked and row.state == ApprovalState.OPEN})
        if began - self._swept > SWEPT:
            self._swept = began
            await whole(self._delete_old())

    async def _try_to_refresh(self) -> None:
        try:
            await self.refresh()
        except OSError as error:
            away = time.monotonic() - self._renewed
            if away > STALE:
                for parked in list(self._parked.values()):
                    self.cancel(parked)
            if away > LAPSED and self._others:
                self._others = {}
                self._watchers.notify()
            log.debug("the questions could not be read: %s", error)

    def _note(self, id: str, state: ApprovalState) -> None:
        """Store the state at the next turn of `keep`."""
        self._changed[id] = state
        self._wake.set()

    def sweep(self) -> None:
        """End calls that have expired or lost their caller, and forget those that ended long ago."""
        super().sweep()
        for id in self._owned.keys() - self._parked.keys():
            del self._owned[id]

    async def _flush(self) -> None:
        """Store the states that this process has changed by itself. Raises OSError; they are kept then."""
        changed, self._changed = self._changed, {}
        try:
            for id, state in changed.items():
                if (owned := self._owned.get(id)) is not None:
                    mine = and_(row_of(id, self._owner, owned.epoch), APPROVALS.c.state.in_(_UNFINISHED))
                    await whole(self._change(mine, {"state": state, "ended": self._now}))
        except OSError:
            self._changed = changed | self._changed
            raise

    async def _admit(self, question: Question, ask: Ask, caller: Caller) -> Row[Any] | None:
        """Store a question within the bounds of all processes; return a question about the same call instead.

        Raises `Refusal`.
        """
        await self._flush()
        who, call, table = caller.principal.id, _call_hash(ask, caller), APPROVALS.c
        seal, sealed = self._seals.seal_question(question, caller.principal)
        async with self._writing, self._database.connect() as connection:
            await lock_in_turn(connection, _LOCK, who)
            now = self._now(connection)
            mine = and_(table.principal == who, table.state.in_(_UNFINISHED), is_alive(connection))
            rows = (await connection.execute(states(connection).where(mine))).all()
            others = (row for row in rows if row.call == call and row.owner != self._owner)
            same: Row[Any] | None = next(others, None)
            if same is not None:
                return same
            if await count_refusals(connection, caller, now - REFUSAL_WINDOW) >= REFUSALS:
                raise insistent(caller)
            check_room(caller, len(rows), sum(row.view == caller.view for row in rows))
            wait = await take_rate(connection, who, now, ASKING)
            if wait is not None:
                raise hasty(caller, wait)
            new = {
                "id": question.id,
                "principal": who,
                "app": caller.app,
                "view": caller.view,
                "call": call,
                "state": ApprovalState.OPEN,
                "owner": self._owner,
                "epoch": 1,
                "created": now,
                "expires": now + (question.expires - question.created),
                "seen": database_time(connection),
                "seal": seal,
                "sealed": sealed,
            }
            await connection.execute(APPROVALS.insert().values(new))
            await connection.commit()
        return None

    async def _answer(self, id: str, state: ApprovalState, by: str) -> ApprovalState | None:
        row = await self._load(id)
        opened = self._opened(row) if row is not None else None
        if row is None or opened is None:
            return None
        text = self._seals.write_answer(opened.question, state, by)
        place = and_(row_of(id, row.owner, row.epoch), APPROVALS.c.state == ApprovalState.OPEN)
        ended = self._now if state is ApprovalState.DECLINED else None
        if not await self._change(place, {"state": state, "answer": text, "ended": ended}):
            return None
        parked = self._parked.get(id)
        if parked is None:
            self._others.pop(id, None)
            self._watchers.notify()
            return state if state is ApprovalState.DECLINED else await self._outcome(id)
        if parked.state is not ApprovalState.OPEN:  # its caller has given up meanwhile
            return None if parked.ended is not None else parked.state
        self._take_answer(parked, state, text, by)
        return state

    def _take_answer(self, parked: ParkedCall, state: ApprovalState, text: str, by: str) -> None:
        self._owned[parked.question.id].answer = text
        parked.answered_by = by
        self._set(parked, state)

    async def _outcome(self, id: str) -> ApprovalState | None:
        """Return the state after the owner has used the approval, or None if it gave the call up."""
        end = time.monotonic() + SENT
        while time.monotonic() < end:
            async with self._database.connect() as connection:
                state = await connection.scalar(select(APPROVALS.c.state).where(APPROVALS.c.id == id))
            if state != ApprovalState.APPROVED:
                return ApprovalState.DISPATCHED if state == ApprovalState.DISPATCHED else None
            await asyncio.sleep(STEP)
        return ApprovalState.APPROVED

    async def _renew(self, ids: Iterable[str]) -> None:
        own = [id for id in ids if id in self._owned]
        if not own:
            return
        async with self._writing, self._database.connect() as connection:
            mine = and_(APPROVALS.c.id.in_(own), APPROVALS.c.owner == self._owner, is_alive(connection))
            await connection.execute(update(APPROVALS).where(mine).values(seen=database_time(connection)))
            await connection.commit()

    async def _read(self) -> list[Row[Any]]:
        """Return this process's unfinished rows, and the questions of others that can be answered."""
        async with self._database.connect() as connection:
            mine = APPROVALS.c.id.in_([id for id, parked in self._parked.items() if parked.ended is None])
            query = states(connection).where(or_(mine, is_answerable(connection, self._now(connection))))
            return list((await connection.execute(query)).all())

    async def _load(self, id: str) -> Row[Any] | None:
        """Return the row of a question that can be answered."""
        async with self._database.connect() as connection:
            answerable = is_answerable(connection, self._now(connection))
            rows = await connection.execute(questions(connection).where(APPROVALS.c.id == id, answerable))
            row: Row[Any] | None = rows.one_or_none()
            return row

    async def _change(self, place: ColumnElement[bool], values: Mapping[str, Any]) -> bool:
        """Update the rows at `place` whose lease has not lapsed; a callable value is a time. Return whether any was."""
        async with self._writing, self._database.connect() as connection:
            written = {name: value(connection) if callable(value) else value for name, value in values.items()}
            changed = await connection.execute(update(APPROVALS).where(place, is_alive(connection)).values(written))
            await connection.commit()
            return bool(changed.rowcount)

    def _approved(self, parked: ParkedCall, owned: _Owned) -> ColumnElement[bool]:
        """Select the row of an approved call of this process, with the answer that was verified."""
        mine = row_of(parked.question.id, self._owner, owned.epoch)
        return and_(mine, APPROVALS.c.state == ApprovalState.APPROVED, APPROVALS.c.answer == owned.answer)

    async def _delete_old(self) -> None:
        async with self._writing, self._database.connect() as connection:
            await forget_old(connection, self._now(connection), REFUSAL_WINDOW)
            await connection.commit()
        today = self._clock()
        self._spent = {id: until for id, until in self._spent.items() if until + REFUSAL_WINDOW > today}

    async def _look_at(self, id: str, row: Row[Any] | None) -> None:
        """Apply what the row of an unfinished call of this process says: an answer, a handover, the loss of it."""
        parked, owned = self._parked.get(id), self._owned.get(id)
        if parked is None or owned is None or parked.ended is not None:
            return
        if row is None or row.epoch != owned.epoch or not row.alive:
            self._set(parked, ApprovalState.VOID)
            return
        if parked.state is ApprovalState.OPEN and row.state in (ApprovalState.APPROVED, ApprovalState.DECLINED):
            state = ApprovalState(row.state)
            by = self._seals.read_answer(parked.question, state, row.answer)
            if by is None:
                log.warning("an answer to the question %s is not of this gateway: the call is void", id)
                self._move(parked, ApprovalState.VOID)
                return
            self._take_answer(parked, state, row.answer, by)
        if row.wanted is not None and parked.ended is None:
            await whole(self._hand_over(parked, owned, row.wanted))

    async def _list(self, rows: set[str]) -> None:
        """Keep the open questions of other processes; altered ones are left out."""
        new = rows - self._others.keys() - self._altered
        if not new and rows == self._others.keys() | self._altered:
            return
        new_ones: dict[str, OpenQuestion] = {}
        if new:
            async with self._database.connect() as connection:
                for row in await connection.execute(questions(connection).where(APPROVALS.c.id.in_(new))):
                    if (opened := self._opened(row)) is not None:
                        new_ones[row.id] = opened
        before = self._others
        self._altered = (self._altered | (new - new_ones.keys())) & rows
        self._others = {id: one for id, one in (before | new_ones).items() if id in rows}
        if before.keys() != self._others.keys():
            self._watchers.notify()

    def _opened(self, row: Row[Any]) -> OpenQuestion | None:
        """Return the question of a row; None for an altered one."""
        try:
            return self._seals.open_question(row)
        except SealBroken as error:
            log.warning("the question %s is not shown: %s", row.id, error)
            return None

    async def _hand_over(self, parked: ParkedCall, owned: _Owned, to: str) -> None:
        """Give a call that nobody waits for here to the process at which it was repeated; it is void here first."""
        id = parked.question.id
        mine = row_of(id, self._owner, owned.epoch)
        if parked.holding or owned.using.locked():
            await self._change(mine, {"wanted": None})
            return
        signature = self._seals.sign_handover(id, to, owned.epoch + 1, parked.state, owned.answer)
        state = parked.state
        self._set(parked, ApprovalState.VOID)
        del self._parked[id]  # it may come back
        changes = {"owner": to, "epoch": owned.epoch + 1, "wanted": None, "handover": signature, "seen": database_time}
        await self._change(and_(mine, APPROVALS.c.state == state), changes)

    async def _take_over(self, same: Row[Any], ask: Ask, caller: Caller, request: Request | None) -> Pending | None:
        """Ask the owner of `same` for the call; return None if the question ends meanwhile. Raises `Refusal`."""
        place = and_(row_of(same.id, same.owner, same.epoch), APPROVALS.c.wanted.is_(None))
        await self._change(place, {"wanted": self._owner})
        end = time.monotonic() + HANDOVER
        while time.monotonic() < end:
            async with self._database.connect() as connection:
                read = await connection.execute(questions(connection).where(APPROVALS.c.id == same.id))
                row: Any = read.one_or_none()
            if row is None or not row.alive or row.state not in _UNFINISHED:
                return None
            if row.owner == self._owner:
                return self._receive(row, same.epoch, ask, caller, request)
            if row.wanted != self._owner:
                break
            await asyncio.sleep(STEP)
        raise Refusal(Reason.APPROVAL_UNAVAILABLE, ELSEWHERE, status=202)

    def _receive(self, row: Row[Any], before: int, ask: Ask, caller: Caller, request: Request | None) -> Pending:
        """Go on with a call that another process has handed over. Raises `Refusal` if the row is an altered one."""
        opened, state = self._opened(row), ApprovalState(row.state)
        used = row.id in self._spent or row.id in self._parked
        if opened is None or used or not self._seals.is_handover(row, self._owner, before + 1):
            log.warning("the question %s was not handed over by a process of this gateway", row.id)
            raise Refusal(Reason.APPROVAL_UNAVAILABLE, ELSEWHERE)
        question = opened.question
        call = hash_of(question.principal, question.app, question.view, question.digest, question.policy_version)
        by = self._seals.read_answer(question, state, row.answer) if state is ApprovalState.APPROVED else None
        if call != _call_hash(ask, caller) or (state is ApprovalState.APPROVED and by is None):
            raise Refusal(Reason.APPROVAL_UNAVAILABLE, ELSEWHERE)
        self._owned[row.id] = _Owned(row.epoch, row.answer)
        self._others.pop(row.id, None)
        now = self._steady()
        parked = ParkedCall(question, caller, request, now + row.left, asked_at=now)
        self._parked[row.id] = parked
        if by is not None:
            self._take_answer(parked, state, row.answer, by)
        self._watchers.notify()
        return Pending(question)


async def _reach(work: Awaitable[T]) -> T:
    """Run `work` to its end. Raises `Refusal` (`approval-unavailable`, status 503) while the database is down."""
    try:
        return await whole(work)
    except OSError as error:
        raise _unreachable() from error


def _unreachable() -> Refusal:
    return Refusal(Reason.APPROVAL_UNAVAILABLE, UNREACHABLE, status=503, headers=(("retry-after", "5"),))


def _call_hash(ask: Ask, caller: Caller) -> str:
    """Return the hash that identical calls of one view share."""
    return hash_of(caller.principal.id, caller.app, caller.view, ask.digest, ask.policy_version)
