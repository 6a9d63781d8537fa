"""The record in the database: filled with the lines of journals, and queried."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain as joined
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Row, Select, and_, func, or_, select, text, tuple_
from sqlalchemy.ext.asyncio.engine import AsyncConnection

from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Json
from gateway.stores.copying import PlacedLine, Position, SinkSuperseded
from gateway.stores.lines import Line, read_line
from gateway.stores.schema import AUDIT, FILLED, FILLERS
from gateway.stores.sql import Database, insert
from gateway.stores.sqlite_lines import COLUMNS, PLACE, insert_rows, line_row
from gateway.stores.verify import FoundLine

_PAGE: Final = 2000
_PLACE: Final = text(PLACE)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """The record of one exchange or tool call: the fields of its intent, overridden by its outcome's.

    Times are in seconds since the epoch; `ended_at` is None while there is no outcome.
    """

    id: str
    time: float
    ended_at: float | None
    fields: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter for records: each given value must match. `since` and `until` are in seconds since the epoch.

    `id` is that of a record, or of its cause.
    """

    app: str | None = None
    principal: str | None = None
    view: str | None = None
    door: str | None = None
    initiator: str | None = None
    decision: str | None = None
    reason: str | None = None
    trace: str | None = None
    client: str | None = None
    id: str | None = None
    since: float | None = None
    until: float | None = None

    def fits(self, record: StoredRecord) -> bool:
        """Return whether a record from another source matches."""
        values = ((one.name, getattr(self, one.name)) for one in fields(self))
        conditions = {name: value for name, value in values if value is not None}
        if self.since is not None and record.time < self.since:
            return False
        if self.until is not None and record.time >= self.until:
            return False
        if self.id is not None and self.id not in (record.id, record.fields.get("cause")):
            return False
        others = conditions.keys() - {"since", "until", "id"}
        return all(record.fields.get(name) == conditions[name] for name in others)


class Records:
    """The records of all journals in `database`; the sink of each of them."""

    name = "database"

    def __init__(self, database: Database) -> None:
        self.database = database
        self._caught_up: Callable[[], Awaitable[None]] | None = None

    def follow(self, caught_up: Callable[[], Awaitable[None]]) -> None:
        """Make each query wait for `caught_up`: until the journal of this process is copied."""
        self._caught_up = caught_up

    async def query(self, limit: int, fitting: Filter = Filter(), before: str | None = None) -> list[StoredRecord]:
        """Return the newest matching records first, older than the record with the id `before`.

        Raises OSError while the database is down.
        """
        if self._caught_up is not None:
            await self._caught_up()
        async with self.database.connect() as connection:
            edge: Any = None
            if before is not None:
                # By the id alone: with `opens` in the condition SQLite scans the index of the newest instead.
                statement = select(AUDIT.c.time, AUDIT.c.writer, AUDIT.c.seq, AUDIT.c.opens).where(AUDIT.c.id == before)
                edge = next((row for row in await connection.execute(statement) if row.opens), None)
                if edge is None:
                    return []
            return [_record(row) for row in await connection.execute(_newest(limit, fitting, edge))]

    async def with_ids(self, ids: Collection[str]) -> dict[str, StoredRecord]:
        """Return the records with these ids."""
        first = AUDIT.alias("first")
        query, left = _joined_lines(first, AUDIT.alias("outcome")).where(first.c.opens), [*ids]
        records: dict[str, StoredRecord] = {}
        async with self.database.connect() as connection:
            while left:
                some, left = left[:_PAGE], left[_PAGE:]
                rows = await connection.execute(query.where(first.c.id.in_(some)))
                records |= {row.id: _record(row) for row in rows}
        return records

    async def position(self, chain: str) -> Position | None:
        """Return the progress of the journal `chain` in the database."""
        async with self.database.connect() as connection:
            row = (await connection.execute(select(FILLED).where(FILLED.c.chain == chain))).first()
        return Position(row.offset, row.hash) if row is not None else None

    async def take_over(self, chain: str) -> int:
        """Begin a new epoch of the journal `chain`: a store with an older one raises `SinkSuperseded` from now on."""
        async with self.database.connect() as connection:
            again = {"epoch": FILLERS.c.epoch + 1}
            row = insert(connection, FILLERS).values(chain=chain, epoch=1)
            taking = row.on_conflict_do_update(index_elements=["chain"], set_=again).returning(FILLERS.c.epoch)
            epoch = int((await connection.execute(taking)).scalar_one())
            await connection.commit()
        return epoch

    async def store(self, chain: str, lines: Sequence[PlacedLine], position: Position, epoch: int) -> None:
        """Insert the missing lines and the position, in one transaction. Raises `SinkSuperseded` for an older epoch."""
        mine = and_(FILLERS.c.chain == chain, FILLERS.c.epoch == epoch)
        async with self.database.connect() as connection:
            # The first statement, and a write: no other process can take over between it and the commit.
            if not (await connection.execute(FILLERS.update().where(mine).values(epoch=epoch))).rowcount:
                raise SinkSuperseded
            await _insert(connection, chain, lines)
            await connection.execute(_PLACE, {"chain": chain, "end": position.end, "hash": position.hash})
            await connection.commit()

    async def chains(self) -> list[str]:
        """Return the journals that were filled into the database."""
        async with self.database.connect() as connection:
            return [*await connection.scalars(select(FILLED.c.chain).order_by(FILLED.c.chain))]

    async def sizes(self) -> dict[str, int]:
        """Return the number of lines of each journal, also of one whose lines are all missing."""
        query = select(AUDIT.c.chain, func.count().label("lines")).group_by(AUDIT.c.chain).order_by(AUDIT.c.chain)
        async with self.database.connect() as connection:
            line_counts = {row.chain: row.lines for row in await connection.execute(query)}
        return dict.fromkeys(await self.chains(), 0) | line_counts

    async def lines(self, chain: str) -> AsyncIterator[FoundLine]:
        """Yield every line of one journal from the database, oldest first, and whether its columns match the line.

        Queries find records by their columns: a changed one hides a record, or shows it as another's.
        """
        last, open_ids = -1, set[str]()
        query = select(AUDIT).where(AUDIT.c.chain == chain).order_by(AUDIT.c.position).limit(_PAGE)
        async with self.database.connect() as connection:
            while rows := (await connection.execute(query.where(AUDIT.c.position > last))).all():
                for row in rows:
                    place, raw = f"writer {row.writer}, number {row.seq}", row.line.encode("utf-8", "replace")
                    yield FoundLine(place, raw, _find_altered(row, raw, open_ids))
                last = rows[-1].position


def _find_altered(row: Row[Any], raw: bytes, open_ids: set[str]) -> str | None:
    """Report the first column of a row that does not match its line; `open_ids` are the ids of intents before it."""
    try:
        line = read_line(raw)
    except ValueError:  # which is told of where the chain is looked at
        return None
    if line.record.phase == "intent":
        open_ids.add(line.record.id)
    right = dict(zip(COLUMNS, line_row(row.chain, PlacedLine(line, row.position), open_ids), strict=True))
    wrong = next((name for name in COLUMNS if name != "line" and getattr(row, name) != right[name]), None)
    if line.record.phase == "outcome":
        open_ids.discard(line.record.id)
    return f"was altered: its column {wrong} differs from the line" if wrong is not None else None


async def _insert(connection: AsyncConnection, chain: str, lines: Sequence[PlacedLine]) -> None:
    """Insert the lines that are missing."""
    known = await _find_opened(connection, [one.line for one in lines])
    rows = [line_row(chain, one, known) for one in lines]
    if connection.dialect.name == "sqlite":
        # One step for all: at each step, SQLite's thread and the event loop wait for each other.
        await connection.exec_driver_sql(insert_rows(len(rows)), tuple(joined.from_iterable(rows)))
    else:
        values = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        await connection.execute(insert(connection, AUDIT).on_conflict_do_nothing(), values)


async def _find_opened(connection: AsyncConnection, lines: Sequence[Line]) -> set[str]:
    """Return the ids of these lines that have an intent, here or in the database."""
    ids = [line.record.id for line in lines if line.record.phase == "outcome"]
    here = {line.record.id for line in lines if line.record.phase == "intent"}
    elsewhere = [id for id in ids if id not in here]
    if elsewhere:
        here.update(await connection.scalars(select(AUDIT.c.id).where(AUDIT.c.id.in_(elsewhere))))
    return here


def _newest(limit: int, record_filter: Filter, edge: Any) -> Select[Any]:
    first, outcome = AUDIT.alias("first"), AUDIT.alias("outcome")
    rows = (
        _joined_lines(first, outcome)
        .where(first.c.opens, *_conditions(record_filter, first, outcome))
        .order_by(first.c.time.desc(), first.c.writer.desc(), first.c.seq.desc())
        .limit(limit)
    )
    if edge is None:
        return rows
    return rows.where(tuple_(first.c.time, first.c.writer, first.c.seq) < tuple_(edge.time, edge.writer, edge.seq))


def _joined_lines(first: FromClause, outcome: FromClause) -> Select[Any]:
    """Select the first line of each record, with its outcome's if there is one."""
    end = and_(outcome.c.id == first.c.id, outcome.c.phase == "outcome")
    columns = (first.c.id, first.c.time, first.c.line, outcome.c.time.label("ended"), outcome.c.line.label("end"))
    return select(*columns).select_from(first.outerjoin(outcome, end))


def _conditions(record_filter: Filter, first: FromClause, outcome: FromClause) -> Iterator[ColumnElement[bool]]:
    for name in ("app", "principal", "view", "door", "initiator", "trace", "client"):
        value = getattr(record_filter, name)
        if value is not None:
            yield first.c[name] == value
    if record_filter.decision is not None:
        yield or_(first.c.decision == record_filter.decision, outcome.c.decision == record_filter.decision)
    if record_filter.reason is not None:
        yield outcome.c.reason == record_filter.reason
    if record_filter.id is not None:
        yield or_(
            first.c.id == record_filter.id,
            first.c.line.contains(f'"cause":{plain_json(record_filter.id)}', autoescape=True),
        )
    if record_filter.since is not None:
        yield first.c.time >= record_filter.since
    if record_filter.until is not None:
        yield first.c.time < record_filter.until


def _record(row: Row[Any]) -> StoredRecord:
    fields = _fields(row.line)
    if row.end is not None:
        fields |= _fields(row.end)
    return StoredRecord(row.id, row.time, row.ended, fields)


def _fields(line: str) -> dict[str, Json]:
    """Return the fields of a line; empty if retention deleted its values."""
    fields: dict[str, Json] = parse_json(line).get("fields", {})
    return fields
