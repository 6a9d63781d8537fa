"""The rows of approvals and grants: sealed with the gateway's keys, and their answers signed with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Row, Select, and_, func, or_, select
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from gateway.callers.people import caller_fields, caller_of
from gateway.crypto import digest, frame_parts
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Caller, Initiator, Principal, Question
from gateway.ports.approvals import ApprovalState, Grant, OpenQuestion
from gateway.stores.schema import APPROVAL_RATES, APPROVALS
from gateway.stores.sealing import KeyRing
from gateway.stores.sql import database_time, insert
from gateway.token_buckets import Rate, take

TimeOf: TypeAlias = Callable[[AsyncConnection], ColumnElement[float]]
"""Returns the current time, in seconds since the epoch, for a statement."""

LAPSED: Final = 10.0
"""Seconds without renewal, on the database's clock, after which a question's process counts as gone."""


class ApprovalSeals:
    """Seals questions and grants, and signs what processes tell each other by their rows. Raises StartError."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._keys = ring.derive("answers to approvals")

    def seal_question(self, question: Question, principal: Principal) -> tuple[str, bytes]:
        """Return the key's id and the sealed question of the call of `principal`."""
        values = {"question": asdict(question), "principal": caller_fields(principal)}
        return self._ring.seal(plain_json(values), _place("approval", question.id))

    def open_question(self, row: Row[Any]) -> OpenQuestion:
        """Return the question of a row. Raises `SealBroken`."""
        content = parse_json(self._ring.open(row.seal, bytes(row.sealed), _place("approval", row.id)))
        values = content["question"]
        values["headers"] = tuple((name, value) for name, value in values["headers"])
        values["initiator"] = Initiator(values["initiator"])
        return OpenQuestion(Question(**values), caller_of(content["principal"]))

    def seal_grant(self, grant: Grant) -> tuple[str, bytes]:
        """Return the key's id and the sealed grant."""
        values = {**asdict(grant), "principal": caller_fields(grant.principal)}
        return self._ring.seal(plain_json(values), _place("grant", grant.id))

    def open_grant(self, row: Row[Any]) -> Grant:
        """Return the grant of a row. Raises `SealBroken`."""
        values = parse_json(self._ring.open(row.seal, bytes(row.sealed), _place("grant", row.id)))
        return Grant(**{**values, "principal": caller_of(values["principal"])})

    def write_answer(self, question: Question, state: ApprovalState, by: str) -> str:
        """Return the answer of the person `by`, signed for this question."""
        return plain_json([by, self._keys.sign(*_answered(question, state, by))])

    def read_answer(self, question: Question, state: ApprovalState, text: str | None) -> str | None:
        """Return who answered, if the answer's signature is of this gateway, for this question and state."""
        try:
            by, signature = parse_json(text or "null")
        except (ValueError, TypeError):
            return None
        if not isinstance(by, str) or not isinstance(signature, str):
            return None
        return by if self._keys.verify(signature, *_answered(question, state, by)) else None

    def sign_handover(self, id: str, to: str, epoch: int, state: ApprovalState, answer: str | None) -> str:
        """Return the signature with which a process gives its call to the process `to`, as owner `epoch`."""
        return self._keys.sign("handover", id, to, str(epoch), state, answer or "")

    def is_handover(self, row: Row[Any], to: str, epoch: int) -> bool:
        """Return whether the row's former owner has given the call to the process `to`, as owner `epoch`."""
        parts = ("handover", row.id, to, str(epoch), row.state, row.answer or "")
        return row.epoch == epoch and self._keys.verify(row.handover or "", *parts)


def row_of(id: str, owner: str, epoch: int) -> ColumnElement[bool]:
    """Select the row of a question while `owner` owns it in this epoch."""
    return and_(APPROVALS.c.id == id, APPROVALS.c.owner == owner, APPROVALS.c.epoch == epoch)


def is_alive(connection: AsyncConnection) -> ColumnElement[bool]:
    """Select the rows whose owner has renewed its lease."""
    return APPROVALS.c.seen > database_time(connection) - LAPSED


def is_answerable(connection: AsyncConnection, now: ColumnElement[float]) -> ColumnElement[bool]:
    """Select the open questions whose owner is alive and which have not expired."""
    return and_(APPROVALS.c.state == ApprovalState.OPEN, is_alive(connection), APPROVALS.c.expires > now)


def states(connection: AsyncConnection) -> Select[Any]:
    """Select rows without their questions."""
    table = APPROVALS.c
    columns = (table.id, table.call, table.view, table.state, table.owner, table.epoch, table.wanted, table.answer)
    return select(*columns, is_alive(connection).label("alive"))


def questions(connection: AsyncConnection) -> Select[Any]:
    """Select whole rows; `left` is the seconds until a question expires."""
    table = APPROVALS.c
    left = (table.expires - database_time(connection)).label("left")
    return states(connection).add_columns(table.handover, table.seal, table.sealed, left)


async def take_rate(connection: AsyncConnection, principal: str, now: ColumnElement[float], rate: Rate) -> float | None:
    """Count a new question of a principal; return the seconds to wait instead if there were too many recently."""
    table = APPROVAL_RATES.c
    moment = await connection.scalar(select(now)) or 0.0
    known = await connection.scalar(select(table.tat).where(table.principal == principal))
    draw = take(known or 0.0, moment, rate)
    if not draw.allowed:
        return draw.retry_after
    stored = insert(connection, APPROVAL_RATES).values(principal=principal, tat=draw.tat)
    await connection.execute(stored.on_conflict_do_update(index_elements=["principal"], set_={"tat": draw.tat}))
    return None


async def count_refusals(connection: AsyncConnection, caller: Caller, since: ColumnElement[float]) -> int:
    """Return how many questions of the caller's view were refused since then."""
    table = APPROVALS.c
    of_view = and_(
        table.principal == caller.principal.id, table.app == caller.app, table.view.is_not_distinct_from(caller.view)
    )
    refused = and_(of_view, table.state == ApprovalState.DECLINED, table.ended > since)
    return await connection.scalar(select(func.count()).where(refused)) or 0


async def forget_old(connection: AsyncConnection, now: ColumnElement[float], keep: float) -> None:
    """Delete the questions that ended `kept` seconds ago, or whose process has gone then, and rates that are full."""
    table = APPROVALS.c
    over = or_(table.ended < now - keep, table.seen < database_time(connection) - keep)
    await connection.execute(APPROVALS.delete().where(over))
    await connection.execute(APPROVAL_RATES.delete().where(APPROVAL_RATES.c.tat < now))


def hash_of(*parts: str | None) -> str:
    """Return the hash of texts that may have any characters; None differs from every text."""
    framed = frame_parts(*(f"={part}" if part is not None else "" for part in parts))
    return digest(framed.decode("utf-8", "surrogatepass")).hex()


def _answered(question: Question, state: ApprovalState, by: str) -> tuple[str, ...]:
    return ("answer", question.id, question.digest, question.policy_version, state, by)


def _place(kind: str, id: str) -> str:
    return plain_json([kind, id])
