"""Login links while the database is busy or broken."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.model import LOCAL
from gateway.ports.sessions import SessionKind
from gateway.stores.sessions import DatabaseSessions
from gateway.stores.sql import Database
from tests.callers.doors import Knock, answer
from tests.callers.people import NAVIGATION
from tests.world import World, running


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[World]:
    """Yield the cart behind a gateway that requires tokens."""
    async with running(tmp_path, extra="auth: [token]\n") as world:
        yield world


async def link(world: World) -> str:
    """Return the code of a new login link."""
    async with Database(world.config.database.reveal()) as database:
        made = await DatabaseSessions(database).put(SessionKind.LINK, LOCAL, now=time.time(), life=600)
    return made.reveal()


def open_link(world: World, code: str) -> Knock:
    """Return the request of a browser in which a person opens the link with `code`."""
    return Knock("GET", f"{world.console}/login/link?code={code}", NAVIGATION)


def direct(world: World) -> sqlite3.Connection:
    """Return a connection of another program to the gateway's database."""
    place = world.config.database.reveal().removeprefix("sqlite:///")
    return sqlite3.connect(place, isolation_level=None, check_same_thread=False)


async def test_an_invalid_link_waits_for_no_writer(guarded: World) -> None:
    """Anybody can send one: it must not take the database's write lock, or wait for it."""
    with closing(direct(guarded)) as other:
        await asyncio.to_thread(other.execute, "begin immediate")
        assert (await answer(open_link(guarded, "made-up"), {}))[0] == 403


async def test_a_database_that_fails_is_said_to_be_unavailable(
    guarded: World, caplog: pytest.LogCaptureFixture
) -> None:
    """With 503 and one line in the log, at handlers without an answer of their own for it."""
    code = await link(guarded)
    with closing(direct(guarded)) as other:
        await asyncio.to_thread(other.execute, "alter table sessions rename to gone")
        status, headers, body = await answer(open_link(guarded, code), {})
        await asyncio.to_thread(other.execute, "alter table gone rename to sessions")
    assert (status, headers["Retry-After"], b"database-unavailable" in body) == (503, "1", True)
    (line,) = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert "the database cannot be used" in line.getMessage()
    assert line.exc_info is None
    assert (await answer(open_link(guarded, code), {}))[0] == 200
