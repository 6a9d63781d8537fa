"""Tests of `gateway.stores.sql`: the database has the journal's lines, through restarts and outages."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import StartError
from gateway.model import LOCAL, AuditRecord, Json
from gateway.ports.sessions import SessionKind
from gateway.stores import filler
from gateway.stores.copying import BATCH, PlacedLine, Position, SinkSuperseded
from gateway.stores.filler import Filler
from gateway.stores.journal import UNKNOWN, Journal
from gateway.stores.records import Filter, Records
from gateway.stores.sessions import DatabaseSessions
from gateway.stores.sql import Database
from gateway.stores.verify import verify_chain
from tests.stores.journals import journal_lines


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits."""
    monkeypatch.setattr(filler, "LINGER_SECONDS", 0.01)
    monkeypatch.setattr(filler, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(filler, "LONGEST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr("gateway.stores.sql.SQLITE_BUSY_SECONDS", 0.1)


def record(id: str, phase: str = "outcome", time: float = 1000.0, app: str = "cart", **fields: Json) -> AuditRecord:
    return AuditRecord(id, phase, time, {"app": app, **fields})


@asynccontextmanager
async def filling(database: Database, journal: Journal) -> AsyncIterator[None]:
    """Fill the database in the background."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(Filler(Records(database), journal).run())
        try:
            yield
        finally:
            task.cancel()


async def caught_up(path: Path, url: str) -> None:
    """Wait until the database has exactly the lines of the journal."""
    wanted = sorted((line.writer, line.seq, line.text) for line in journal_lines(path))
    found: list[tuple[str, int, str]] = []
    async with asyncio.timeout(60):
        while len(found) < len(wanted):
            found = query(url, "SELECT writer, seq, line FROM audit ORDER BY writer, seq")  # type: ignore[assignment]
            await asyncio.sleep(0.01)
    assert found == wanted


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    """Return what another program reads in the database."""
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    try:
        return list(connection.execute(statement))
    finally:
        connection.close()


async def test_filled(path: Path, url: str) -> None:
    """Earlier and later lines arrive in the database as in the journal."""
    async with Journal(path) as journal, Database(url) as database:
        journal.append(record("a", "intent"))
        async with filling(database, journal):
            await caught_up(path, url)
            journal.append(record("a"))
            journal.append(record("b"))
            await caught_up(path, url)


async def test_more_than_a_batch(path: Path, url: str) -> None:
    """A long backlog arrives whole."""
    async with Journal(path) as journal, Database(url) as database:
        for number in range(3 * BATCH + 7):
            journal.append(record(str(number)))
        async with filling(database, journal):
            await caught_up(path, url)


async def test_while_lines_come(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a constant load they are copied after a while."""
    monkeypatch.setattr(filler, "LINGER_SECONDS", 0.05)
    monkeypatch.setattr(filler, "LATEST_SECONDS", 0.2)
    async with Journal(path) as journal, Database(url) as database, filling(database, journal):
        async with asyncio.timeout(60):
            while not query(url, "SELECT id FROM audit WHERE phase = 'outcome'"):
                journal.append(record(str(journal.seq)))
                await asyncio.sleep(0.005)
        await caught_up(path, url)


async def test_a_reader_finds_what_was_written(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query waits until pending lines are copied, however long they would linger otherwise."""
    monkeypatch.setattr(filler, "LINGER_SECONDS", 3600)
    async with Journal(path) as journal, Database(url) as database, asyncio.TaskGroup() as group:
        records, copying = Records(database), Filler(Records(database), journal)
        records.follow(copying.caught_up)
        task = group.create_task(copying.run())
        lines = 2 * BATCH
        for number in range(3):
            for line in range(lines):
                journal.append(record(f"{number}-{line}"))
            found = await asyncio.gather(records.query(1), records.query(5000))
            assert (found[0][0].id, len(found[1])) == (f"{number}-{lines - 1}", lines * (number + 1))
        task.cancel()


async def test_a_reader_does_not_wait_for_a_database_that_is_down(
    path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets an error, instead of waiting for lines that do not come."""
    monkeypatch.setattr(filler, "ASKED_SECONDS", 3600)
    async with asyncio.timeout(60), Journal(path) as journal, Database(url) as database, asyncio.TaskGroup() as group:
        file = Path(url.removeprefix("sqlite:///"))
        file.unlink()
        file.mkdir()
        await database.reconnect()
        records, told = Records(database), list[str | None]()
        copying = Filler(records, journal, tell=told.append)
        records.follow(copying.caught_up)
        task = group.create_task(copying.run())
        await until(lambda: bool(told))
        with pytest.raises(OSError, match="cannot be used"):
            await records.query(1)
        task.cancel()


async def test_the_end_of_the_journal(path: Path, url: str) -> None:
    """When the journal closes, its last lines still go into the database, and the filling ends."""
    async with Database(url) as database, asyncio.TaskGroup() as group:
        async with Journal(path) as journal:
            task = group.create_task(Filler(Records(database), journal).run())
            for id in "abc":
                journal.append(record(id))
                await asyncio.sleep(0.02)
            journal.append(record("d"))
        await asyncio.wait_for(task, 20)
        await caught_up(path, url)
        await asyncio.wait_for(Filler(Records(database), journal).run(), 20)


async def test_restart(path: Path, url: str) -> None:
    """The database continues from its position, each line once."""
    for id in "abc":
        async with Journal(path) as journal, Database(url) as database:
            journal.append(record(id, "intent"))
            async with filling(database, journal):
                await caught_up(path, url)
            journal.append(record(f"late-{id}"))
    async with Journal(path) as journal, Database(url) as database, filling(database, journal):
        await caught_up(path, url)
        found = await Records(database).query(10)
    assert {one.id for one in found} == {"a", "b", "c", "late-a", "late-b", "late-c"}
    assert {one.fields.get("reason") for one in found if len(one.id) == 1} == {UNKNOWN}


async def test_position_lost(path: Path, url: str) -> None:
    """A database without its position reads everything again, and has each line once."""
    async with Journal(path) as journal, Database(url) as database:
        journal.append(record("a", "intent"))
        journal.append(record("a"))
        async with filling(database, journal):
            await caught_up(path, url)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.execute("DELETE FROM audit_filled")
    connection.commit()
    connection.close()
    async with Journal(path) as journal, Database(url) as database, filling(database, journal):
        journal.append(record("b"))
        await caught_up(path, url)
        assert sorted(one.id for one in await Records(database).query(10)) == ["a", "b"]


async def test_journal_lost_its_end(path: Path, url: str) -> None:
    """A loss of power left the journal shorter than the database's position: later lines still arrive."""
    async with Journal(path) as journal, Database(url) as database:
        for id in "abc":
            journal.append(record(id))
        async with filling(database, journal):
            await caught_up(path, url)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))
    async with Journal(path) as journal, Database(url) as database, filling(database, journal):
        for id in "defg":
            journal.append(record(id, padding="x" * 500))
        await until(lambda: len(query(url, "SELECT id FROM audit WHERE phase <> 'note'")) == 7)
    assert {row[0] for row in query(url, "SELECT id FROM audit WHERE phase <> 'note'")} == set("abcdefg")


async def test_locked_database(path: Path, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """While another program locks the database, the journal continues; afterwards the database catches up."""
    async with Journal(path) as journal, Database(url) as database, filling(database, journal):
        other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        journal.append(record("a", "intent", secret="hunter2"))
        await until(lambda: "falls behind" in caplog.text)
        journal.append(record("a"))
        other.execute("ROLLBACK")
        other.close()
        await caught_up(path, url)
    assert "hunter2" not in caplog.text


async def test_database_down(path: Path, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """While the database is down, the filler retries; when it is back, nothing is missing."""
    file = Path(url.removeprefix("sqlite:///"))
    async with Database(url):
        pass
    away = file.with_suffix(".away")
    async with Journal(path) as journal, Database(url) as database:
        file.rename(away)
        file.mkdir()  # a folder cannot be opened as a database
        async with filling(database, journal):
            await database.reconnect()
            journal.append(record("a"))
            await until(lambda: "falls behind" in caplog.text)
            journal.append(record("b"))
            file.rmdir()
            away.rename(file)
            await caught_up(path, url)


async def test_damaged_line(path: Path, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged line in the middle does not delay the lines after it, and is reported."""
    async with Journal(path) as journal:
        for id in "abc":
            journal.append(record(id))
    path.write_bytes(path.read_bytes().replace(b'"id":"b"', b'"id":"X"'))
    async with Journal(path) as journal, Database(url) as database, filling(database, journal):
        await until(lambda: len(query(url, "SELECT id FROM audit WHERE phase <> 'note'")) == 2)
        await until(lambda: "was altered" in caplog.text)


async def test_query_joins_intent_and_outcome(path: Path, url: str) -> None:
    """A record merges the fields of its intent and its outcome; newest first; open ones have no end."""
    async with Journal(path) as journal, Database(url) as database, filling(database, journal):
        journal.append(record("a", "intent", 1.0, url="/a", status=None))
        journal.append(record("b", "intent", 2.0, url="/b"))
        journal.append(record("c", "outcome", 3.0, url="/c", reason="policy-denied"))
        journal.append(record("a", "outcome", 4.0, status=200))
        await caught_up(path, url)
        found = await Records(database).query(10)
    assert [(one.id, one.time, one.ended_at) for one in found] == [("c", 3.0, 3.0), ("b", 2.0, None), ("a", 1.0, 4.0)]
    assert found[2].fields == {"app": "cart", "url": "/a", "status": 200}


async def test_query_pages_and_filters(path: Path, url: str) -> None:
    """Pages follow each other without gap or overlap, though many records share a time; apps are filtered."""
    async with Journal(path) as journal, Database(url) as database, filling(database, journal):
        for number in range(30):
            app = "cart" if number % 3 else "desk"
            journal.append(record(str(number), "intent", 5.0, app))
            journal.append(record(str(number), "outcome", 6.0, app))
        await caught_up(path, url)
        everything = [one.id for one in await Records(database).query(100)]
        pages: list[str] = []
        while page := await Records(database).query(7, before=pages[-1] if pages else None):
            pages.extend(one.id for one in page)
        desk = await Records(database).query(100, Filter(app="desk"))
        older = await Records(database).query(100, Filter(app="desk"), before=desk[3].id)
    assert everything == [str(number) for number in reversed(range(30))]
    assert pages == everything
    assert [one.id for one in desk] == [str(number) for number in reversed(range(0, 30, 3))]
    assert older == desk[4:]


async def test_query_of_an_unknown_page(url: str) -> None:
    """The page before an unknown record is empty."""
    async with Database(url) as database:
        assert await Records(database).query(10, before="nothing") == []


async def test_private(url: str) -> None:
    """The file is readable by the owner only."""
    async with Database(url):
        assert stat.S_IMODE(os.stat(url.removeprefix("sqlite:///")).st_mode) == 0o600


async def test_another_one_in_the_same_process_takes_no_locks_away(url: str) -> None:
    """Otherwise the next process to close the file takes itself for the last one, and later writes are lost."""
    file = url.removeprefix("sqlite:///")
    last = (
        f"import sqlite3; c = sqlite3.connect({file!r}); c.execute('SELECT count(*) FROM audit').fetchall(); c.close()"
    )
    async with Database(url) as database, database.connect() as connection:
        await connection.execute(text("SELECT 1 FROM audit"))
        async with Database(url):
            pass
        subprocess.run([sys.executable, "-c", last], check=True)
        assert Path(f"{file}-wal").exists()


async def test_database_of_a_newer_gateway(url: str) -> None:
    """A database that only a newer version can use is refused, and left unchanged."""
    async with Database(url):
        pass
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.execute("UPDATE schema_version SET version = 99, oldest = 99")
    connection.commit()
    connection.close()
    with pytest.raises(StartError, match="version 99"):
        async with Database(url):
            pass
    assert query(url, "SELECT version FROM schema_version") == [(99,)]


@pytest.mark.parametrize(
    "wrong", ["sqlite:////nowhere/at/all.db", "nonsense", "mysql://root:hunter2@127.0.0.1/x", "sqlite+pysqlcipher://"]
)
async def test_databases_that_cannot_be_used(wrong: str) -> None:
    """The start fails with an error that contains no password."""
    with pytest.raises(StartError, match="cannot be used") as caught:
        async with Database(wrong):
            pass
    assert "hunter2" not in str(caught.value)


async def test_a_file_that_is_no_database(url: str) -> None:
    """A file of another kind is refused."""
    Path(url.removeprefix("sqlite:///")).write_text("dear diary\n" * 1000)
    with pytest.raises(StartError, match="not a database"):
        async with Database(url):
            pass


async def test_closed(url: str) -> None:
    """A closed database raises the error of one that is down."""
    async with Database(url) as database:
        pass
    with pytest.raises(OSError, match="not open"):
        await Records(database).query(1)


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until `condition()` holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def test_who_is_cancelled_while_the_database_fails_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error instead would be taken for an outage, and retried: the gateway would never stop."""
    close = AsyncConnection.close

    async def failing(connection: AsyncConnection) -> None:
        await close(connection)
        raise SQLAlchemyError("disk full")

    reached = asyncio.Event()

    async def held(database: Database) -> None:
        async with database.connect():
            reached.set()
            await asyncio.Event().wait()

    async with Database(f"sqlite:///{tmp_path / 'a.db'}") as database:
        task = asyncio.create_task(held(database))
        await reached.wait()
        monkeypatch.setattr(AsyncConnection, "close", failing)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        monkeypatch.undo()


async def test_the_end_waits_for_connections_that_are_lent(url: str) -> None:
    """A connection returned later would never be closed; afterwards none can be borrowed."""
    lent, release = asyncio.Event(), asyncio.Event()
    database = Database(url)

    async def use() -> None:
        async with database.connect():
            lent.set()
            await release.wait()

    async with database:
        task = asyncio.create_task(use())
        await lent.wait()
        asyncio.get_running_loop().call_later(0.05, release.set)
    assert task.done()
    with pytest.raises(OSError, match="not open"):
        await use()


async def test_who_was_superseded_stores_nothing(path: Path, url: str) -> None:
    """A process left by a dead gateway, with an old epoch, neither adds lines nor moves the position back."""
    async with Journal(path) as journal:
        journal.append(record("a"))
    first, second = journal_lines(path)[:2]
    chain = journal.chain
    async with Database(url) as database:
        records = Records(database)
        old = await records.take_over(chain)
        new = await records.take_over(chain)
        await records.store(chain, [PlacedLine(first, 10), PlacedLine(second, 20)], Position(20, second.hash), new)
        with pytest.raises(SinkSuperseded):
            await records.store(chain, [PlacedLine(first, 10)], Position(10, first.hash), old)
        assert await records.position(chain) == Position(20, second.hash)
        assert await records.take_over("another journal") == 1


async def test_a_filler_that_was_superseded_takes_over_again(path: Path, url: str) -> None:
    """It has the journal open, so it is the one that fills the database."""
    async with Journal(path) as journal, Database(url) as database, filling(database, journal):
        await caught_up(path, url)
        await Records(database).take_over(journal.chain)
        journal.append(record("a"))
        await caught_up(path, url)


BEFORE_CLIENTS, BEFORE_OWNERS = 11, 12
"""The schema versions before clients of lines, and before owners of quotas and sessions."""


async def test_a_database_of_before_gets_owners(url: str) -> None:
    """With the indexes for counting them; existing rows stay."""
    async with Database(url) as database:
        old = await DatabaseSessions(database).put(SessionKind.CONSOLE, LOCAL, now=0.0, life=100.0)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    for table, columns in (("quotas", ("owner",)), ("sessions", ("owner", "created"))):
        connection.execute(f"DROP INDEX {table}_owner")
        for column in columns:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.execute("UPDATE schema_version SET version = ?", (BEFORE_OWNERS,))
    connection.commit()
    connection.close()
    async with Database(url) as database:
        sessions = DatabaseSessions(database)
        await sessions.put(SessionKind.CONSOLE, LOCAL, now=1.0, life=100.0)
        assert await sessions.find(SessionKind.CONSOLE, old.reveal(), 2.0) is not None
    assert query(url, "SELECT name FROM sqlite_master WHERE name LIKE '%_owner' ORDER BY name") == [
        *(("idempotency_keys_owner",), ("quotas_owner",), ("sessions_owner",))
    ]


async def test_a_database_of_before_gets_the_clients_of_lines_that_come(path: Path, url: str) -> None:
    """Old lines stay unchanged, have no client, and still verify; new ones can be found by theirs."""
    async with Journal(path) as journal, Database(url) as database, filling(database, journal):
        journal.append(record("old"))
        await caught_up(path, url)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    before = connection.execute("SELECT writer, seq, line FROM audit ORDER BY writer, seq").fetchall()
    connection.execute("ALTER TABLE audit DROP COLUMN client")
    connection.execute("UPDATE schema_version SET version = ?", (BEFORE_CLIENTS,))
    connection.commit()
    connection.close()
    async with Journal(path) as journal, Database(url) as database, filling(database, journal):
        journal.append(record("new", client="203.0.113.7"))
        await caught_up(path, url)
        records = Records(database)
        found = [one.id for one in await records.query(10, Filter(client="203.0.113.7"))]
        assert found == ["new"]
        assert {one.id for one in await records.query(10)} == {"old", "new"}
        lines = [line async for line in records.lines(journal.chain)]
    assert verify_chain(lines).sound
    rows = query(url, "SELECT writer, seq, line FROM audit ORDER BY writer, seq")
    assert set(before) <= set(rows)
    async with Database(url):  # and once more, with nothing to do
        pass
