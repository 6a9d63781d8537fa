"""Copies journal lines into the database in a child process while the gateway is under load."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from gateway.model import Json
from gateway.stores import copier, filler
from gateway.stores import filler as module
from gateway.stores.copying import BATCH, CopyResult, PlacedLine, Position, SinkSuperseded, Stretch
from gateway.stores.filler import Filler, FillProcess, NoProcess
from gateway.stores.journal import Journal
from gateway.stores.records import Records
from gateway.stores.sql import Database, sqlite_file
from gateway.stores.sqlite_lines import SqliteLines
from tests.stores.journals import journal_lines
from tests.stores.test_sql import caught_up, query, record


class Seen(FillProcess):
    """Keeps which processes copied, and why copying was refused."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.pids = set[int]()
        self.refused = list[str]()

    async def copy(self, stretch: Stretch) -> CopyResult:
        """Copy, and note the process."""
        try:
            copied = await super().copy(stretch)
        except NoProcess as error:
            self.refused.append(str(error))
            raise
        assert self._process is not None
        self.pids.add(self._process.pid)
        return copied


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits."""
    monkeypatch.setattr(filler, "LATEST_SECONDS", 0.05)


@asynccontextmanager
async def busy(path: Path, url: str, aside: FillProcess) -> AsyncIterator[Journal]:
    """Yield a journal that grows all the time, and is copied meanwhile."""
    async with Database(url) as database, Journal(path) as journal, asyncio.TaskGroup() as group:

        async def grow() -> None:
            while True:
                journal.append(record(str(journal.seq)))
                await asyncio.sleep(0.001)

        jobs = [group.create_task(job) for job in (Filler(Records(database), journal, aside=aside).run(), grow())]
        yield journal
        jobs[1].cancel()
        await caught_up(path, url)
        jobs[0].cancel()


async def wait_copied(url: str, lines: int) -> None:
    """Wait until so many lines are in the database."""
    async with asyncio.timeout(60):
        while True:
            connection = sqlite3.connect(url.removeprefix("sqlite:///"))
            found = connection.execute("SELECT count(*) FROM audit").fetchone()[0]
            connection.close()
            if found >= lines:
                return
            await asyncio.sleep(0.01)


async def test_while_exchanges_come_another_process_copies(path: Path, url: str) -> None:
    """The same one all the time; it ends with the filler."""
    aside = Seen(url)
    async with busy(path, url, aside):
        await wait_copied(url, 2 * BATCH)
        (pid,) = aside.pids
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + module.NICE)
    assert not aside.refused
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_it_is_started_before_it_copies(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting takes a while; it ends with the filler, whether or not it copied anything."""
    monkeypatch.setattr(filler, "LATEST_SECONDS", 60.0)
    monkeypatch.setattr(filler, "BEGIN_SECONDS", 0.0)
    monkeypatch.setattr(filler, "LINGER_SECONDS", 0.1)
    aside = Seen(url)
    async with busy(path, url, aside):
        async with asyncio.timeout(60):
            while aside._process is None:
                await asyncio.sleep(0.01)
        pid = aside._process.pid
        assert not aside.pids
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_without_that_process_this_one_copies(path: Path, url: str, caplog: pytest.LogCaptureFixture) -> None:
    """If it is killed, which is logged."""
    aside = Seen(url)
    async with busy(path, url, aside) as journal:
        await wait_copied(url, BATCH)
        os.kill(next(iter(aside.pids)), signal.SIGKILL)
        await wait_copied(url, journal.seq + BATCH)
    assert aside.refused == ["it ended with status -9"]
    assert "which does it now: it ended with status -9" in caplog.text


async def test_where_no_process_can_be_started(
    path: Path, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The gateway's own process copies from the beginning."""
    monkeypatch.setattr(sys, "executable", str(path))
    async with busy(path, url, FillProcess(url)):
        await wait_copied(url, BATCH)
    assert "it cannot be started" in caplog.text


async def test_after_a_while_it_ends(path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And another one is started when lines come again."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    aside = Seen(url)
    async with Database(url) as database, Journal(path) as journal:
        epoch = await Records(database).take_over(journal.chain)
        for _ in range(2):
            start = journal.position
            journal.append(record(str(journal.seq)))
            stretch = Stretch(str(path), journal.chain, start, journal.position, epoch)
            assert (await aside.copy(stretch)).end == journal.position
            await asyncio.sleep(0.01)
        assert len(aside.pids) == 2
        await aside.close()


async def test_what_is_wrong_there_is_told_here(path: Path, url: str) -> None:
    """An altered line, and a missing database."""
    async with Database(url) as database, Journal(path) as journal:
        epoch = await Records(database).take_over(journal.chain)
        journal.append(record("a"))
        path.write_bytes(path.read_bytes().replace(b'"id":"a"', b'"id":"b"'))
        aside = FillProcess(url)
        copied = await aside.copy(Stretch(str(path), journal.chain, 0, journal.position, epoch))
        await aside.close()
    assert [wrong.partition(", it ")[2] for wrong in copied.wrong] == ["was altered: its hash does not fit"]
    aside = FillProcess("sqlite:////nowhere/at/all.db")
    for _ in range(2):  # another one may find it there
        with pytest.raises(OSError, match="cannot be used"):
            await aside.copy(Stretch(str(path), "a", 0, 1, 1))


async def test_it_ends_with_the_gateway_that_started_it(path: Path, url: str) -> None:
    """At once, although it waits for a locked database: nothing of its stretch is stored afterwards."""
    async with Database(url) as database, Journal(path) as journal:
        epoch = await Records(database).take_over(journal.chain)
        journal.append(record("a"))
        stretch = Stretch(str(path), journal.chain, 0, journal.position, epoch)
        first = msgspec.json.encode(stretch) + b"\n"
        journal.append(record("b"))
        second = msgspec.json.encode(msgspec.structs.replace(stretch, end=journal.position)) + b"\n"
    locked = sqlite3.connect(url.removeprefix("sqlite:///"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", copier.__name__), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode((url, str(sqlite_file(url)))) + b"\n" + first)
    assert b'"end"' in await process.stdout.readline()
    locked.execute("BEGIN IMMEDIATE")
    process.stdin.write(second)
    process.stdin.close()  # as the system does for a killed process
    said = await process.communicate()
    locked.close()
    assert (process.returncode, *said) == (0, b"", b"")
    lines = sqlite3.connect(url.removeprefix("sqlite:///"))
    assert lines.execute("SELECT count(*) FROM audit WHERE id = 'b'").fetchone() == (0,)
    lines.close()


async def test_without_sqlalchemy_the_same_rows_are_stored(path: Path, tmp_path: Path) -> None:
    """Whichever batch has a call's intent, and if lines come again; a superseded process stores nothing."""
    odd: Json = "nul \0, surrogate \ud800"
    async with Journal(path) as journal:
        for number in range(3):
            journal.append(record(str(number), "intent", view=odd))
        for number in range(5):
            journal.append(record(str(number), app="sho\u0301p", status=200, reason=odd, decision=7))
        chain = journal.chain
    placed = [PlacedLine(line, 100 * number) for number, line in enumerate(journal_lines(path), 1)]
    found = []
    for name in ("records", "lines"):
        url = f"sqlite:///{tmp_path / name}.db"
        async with Database(url) as database:
            records = Records(database)
            old, new = await records.take_over(chain), await records.take_over(chain)
            with SqliteLines(tmp_path / f"{name}.db") as lines:
                store = records.store if name == "records" else lines.store
                for batch in (placed[:3], placed[2:7], placed):
                    await store(chain, batch, Position(batch[-1].end, batch[-1].line.hash), new)
                with pytest.raises(SinkSuperseded):
                    await store(chain, placed[:1], Position(100, placed[0].line.hash), old)
        found.append([query(url, f"SELECT * FROM {table} ORDER BY 1, 2") for table in ("audit", "audit_filled")])
    assert found[0] == found[1]
    assert len(found[0][0]) == len(placed)


async def test_a_database_that_is_gone_is_not_made_anew(path: Path, tmp_path: Path) -> None:
    """The gateway, which creates its tables, hears of it."""
    async with Journal(path) as journal:
        journal.append(record("a"))
    line = journal_lines(path)[0]
    file = tmp_path / "gone.db"
    async with Database(f"sqlite:///{file}"):
        pass
    with SqliteLines(file) as lines:
        for one in tmp_path.glob("gone.db*"):
            one.unlink()
        for _ in range(2):
            with pytest.raises(OSError):
                await lines.store("chain", [PlacedLine(line, 10)], Position(10, line.hash), 1)
    with pytest.raises(OSError, match="cannot be used"), SqliteLines(file):
        pass
    assert not file.exists()


def test_a_process_for_sqlite_does_without_sqlalchemy() -> None:
    """Its import would take most of the start."""
    imports = "import sys, gateway.stores.copying, gateway.stores.sqlite_lines"
    command = [sys.executable, "-c", f"{imports}; sys.exit('sqlalchemy' in sys.modules)"]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("sqlite:////var/gateway.db", "/var/gateway.db"),
        ("sqlite:///gateway.db", "gateway.db"),
        ("sqlite:///gateway.db?timeout=9", None),
        ("sqlite://", None),
        ("postgresql://db/gateway", None),
    ],
)
def test_files_of_sqlite(url: str, file: str | None) -> None:
    """A URL with options of a driver is left to SQLAlchemy."""
    assert sqlite_file(url) == (Path(file) if file is not None else None)
