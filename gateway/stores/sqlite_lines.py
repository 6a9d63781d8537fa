"""Stores journal lines in SQLite without SQLAlchemy, which takes longer to import than thousands of lines to copy."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from gateway.errors import DatabaseUnavailable
from gateway.model import Json
from gateway.stores.copying import PlacedLine, Position, SinkSuperseded
from gateway.stores.lines import NOTE

BUSY_SECONDS: Final = 2.0
"""Seconds that a transaction waits for another one."""

CACHE: Final = 16 * 1024
"""KiB of the database that are kept in memory: lines are sorted into several indexes, all over the file."""

CHECKPOINT: Final = 4000
"""Pages after which changes are copied from the write-ahead log, fewer times than by default."""

COPIED: Final = ("app", "principal", "view", "door", "initiator", "decision", "reason", "trace", "client")
"""Fields of a line that have separate columns."""

COLUMNS: Final = (
    *("writer", "seq", "chain", "position", "id", "phase", "opens", "time"),
    *COPIED,
    *("status", "line"),
)
PLACE: Final = (
    'INSERT INTO audit_filled (chain, "offset", hash) VALUES (:chain, :end, :hash) '
    'ON CONFLICT (chain) DO UPDATE SET "offset" = excluded."offset", hash = excluded.hash'
)
_MINE: Final = "UPDATE audit_fillers SET epoch = :epoch WHERE chain = :chain AND epoch = :epoch"


class SqliteLines:
    """Stores lines in the database in `file`, whose tables exist, as `gateway.stores.records.Records` does.

    A context manager: entering it raises OSError if the file cannot be used.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    async def store(self, chain: str, lines: Sequence[PlacedLine], position: Position, epoch: int) -> None:
        """Insert the missing lines and the position, in one transaction.

        Raises `SinkSuperseded` for an older epoch, and OSError while the database is down.
        """
        try:
            with self._connect() as connection:
                # The first statement, and a write: no other process can take over between it and the commit.
                if not connection.execute(_MINE, {"chain": chain, "epoch": epoch}).rowcount:
                    raise SinkSuperseded
                rows = _rows(connection, chain, lines)
                connection.executemany(insert_rows(1), rows)
                connection.execute(PLACE, {"chain": chain, "end": position.end, "hash": position.hash})
        except sqlite3.Error as error:
            self._close()  # the file may have been replaced
            raise DatabaseUnavailable(f"the database cannot be used: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        """Return the connection, opened anew after an error."""
        if self._connection is None:
            try:
                self._connection = _open(self._file)
            except sqlite3.Error as error:
                raise DatabaseUnavailable(f"the database cannot be used: {error}") from error
        return self._connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _open(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", timeout=BUSY_SECONDS, uri=True)
    for setting in ("synchronous = NORMAL", f"cache_size = -{CACHE}", f"wal_autocheckpoint = {CHECKPOINT}"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def _rows(connection: sqlite3.Connection, chain: str, lines: Sequence[PlacedLine]) -> list[tuple[object, ...]]:
    records = [one.line.record for one in lines]
    open_ids = {record.id for record in records if record.phase == "intent"}
    ids = [record.id for record in records if record.phase == "outcome" and record.id not in open_ids]
    if ids:
        places = ", ".join("?" * len(ids))
        known = connection.execute(f"SELECT id FROM audit WHERE id IN ({places})", ids)  # noqa: S608  places alone
        open_ids.update(id for (id,) in known)
    return [line_row(chain, one, open_ids) for one in lines]


@lru_cache(maxsize=16)
def insert_rows(rows: int) -> str:
    """Return the statement that inserts so many rows of `COLUMNS`, in one step."""
    places = f"({', '.join('?' * len(COLUMNS))})"
    columns = ", ".join(COLUMNS)
    values = ", ".join([places] * rows)
    return f"INSERT INTO audit ({columns}) VALUES {values} ON CONFLICT DO NOTHING"  # noqa: S608  names of ours


def line_row(chain: str, one: PlacedLine, open_ids: set[str]) -> tuple[object, ...]:
    """Return the values of `COLUMNS`; `open_ids` are the ids that have an intent."""
    line = one.line
    record = line.record
    field, phase = record.fields.get, record.phase
    status = field("status")
    return (
        line.writer,
        line.seq,
        chain,
        one.end,
        _word(record.id),
        phase,
        phase == "intent" or (phase == "outcome" and record.id not in open_ids),
        record.time,
        *[_word(field(name)) for name in COPIED],
        status if isinstance(status, int) and phase != NOTE else None,
        line.text,
    )


def _word(value: Json) -> str | None:
    """Return a text that every database accepts: no NUL, no lone surrogate."""
    if type(value) is str and value.isascii() and "\0" not in value:
        return value
    if not isinstance(value, str):
        return None
    return value.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
