"""The port `McpSessions`: each of one principal and mount, bounded exactly, and adopted after its process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from sqlalchemy import select, update

from gateway.errors import DatabaseUnavailable
from gateway.model import Principal
from gateway.ports.sessions import McpClientState, McpSessions, SessionKind, TooManySessions
from gateway.stores import mcp_sessions as stored
from gateway.stores.mcp_sessions import DatabaseMcpSessions
from gateway.stores.schema import MCP_SESSIONS
from gateway.stores.sealing import KeyFile, KeyRing
from gateway.stores.sessions import DatabaseSessions, IssuedTokens
from gateway.stores.sql import Database
from tests.clock import Clock
from tests.mcp.memory_sessions import MemoryMcpSessions

ANN, BOB, EVE = (Principal("https://issuer.example", "client", subject) for subject in ("ann", "bob", "eve"))
STATE = McpClientState("2025-06-18", {"name": "c", "version": "1"}, {"roots": {}}, "info", ("ui://a", "ui://b"))
IDLE = 100.0


@dataclass
class Lost:
    """The ids of the sessions that were lost."""

    ids: list[str] = field(default_factory=list)

    def of(self, id: str) -> Callable[[], None]:
        """Return the callback of a session."""
        return lambda: self.ids.append(id)


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    """The keys of all processes."""
    return KeyRing(KeyFile(tmp_path / "key"))


def of_process(database: Database, ring: KeyRing, clock: Clock, most: int = 3, each: int = 2) -> DatabaseMcpSessions:
    """The sessions of one process."""
    return DatabaseMcpSessions(database, ring, most=most, each=each, idle=IDLE, clock=clock)


@pytest.fixture
def before(database: Database, ring: KeyRing, clock: Clock) -> DatabaseMcpSessions:
    """The process that runs first."""
    return of_process(database, ring, clock)


@pytest.fixture
def after(other_database: Database, ring: KeyRing, clock: Clock) -> DatabaseMcpSessions:
    """The process that runs after it."""
    return of_process(other_database, ring, clock)


@pytest.fixture(params=["memory", "database"])
def sessions(request: pytest.FixtureRequest, before: DatabaseMcpSessions) -> McpSessions:
    """Each implementation: three sessions per mount, two of each principal."""
    return MemoryMcpSessions(3, 2) if request.param == "memory" else before


async def open_(sessions: McpSessions, id: str, principal: Principal = ANN, mount: str = "cart") -> None:
    """Open a session of this state."""
    await sessions.open(id, principal, mount, STATE, lambda: None)


async def adopt(
    sessions: McpSessions, id: str = "a", principal: Principal = ANN, mount: str = "cart"
) -> McpClientState | None:
    """Adopt a session."""
    return await sessions.adopt(id, principal, mount, lambda: None)


async def test_a_session_counts_until_it_ends(sessions: McpSessions) -> None:
    """A session that ends twice, or is unknown, makes no further room, and is not adopted."""
    await open_(sessions, "a")
    await open_(sessions, "b")
    for id in ("a", "a", "unknown"):
        await sessions.end(id)
        sessions.leave(id)
    await open_(sessions, "c")
    with pytest.raises(TooManySessions):
        await open_(sessions, "d")
    assert await adopt(sessions) is None


async def test_sessions_are_bounded_per_principal_and_in_all_at_each_mount(sessions: McpSessions) -> None:
    """A refused session is not registered; one that ends makes room, one that is left does not."""
    await open_(sessions, "a")
    await open_(sessions, "b")
    sessions.leave("b")
    with pytest.raises(TooManySessions) as of_ann:
        await open_(sessions, "c")
    assert (of_ann.value.most, of_ann.value.of_all) == (2, False)
    await open_(sessions, "d", BOB)
    with pytest.raises(TooManySessions) as of_all:
        await open_(sessions, "e", EVE)
    assert (of_all.value.most, of_all.value.of_all) == (3, True)
    await open_(sessions, "f", ANN, "notes")
    await sessions.end("a")
    await open_(sessions, "c")


async def test_concurrent_sessions_are_no_more(sessions: McpSessions) -> None:
    """Ten that are opened at once share the bound."""
    outcomes = await asyncio.gather(*[open_(sessions, f"{n}") for n in range(10)], return_exceptions=True)
    assert outcomes.count(None) == 2
    assert sum(isinstance(outcome, TooManySessions) for outcome in outcomes) == 8


async def test_a_session_that_was_left_is_adopted_with_its_state_once(sessions: McpSessions) -> None:
    """By its principal, at its mount; while it runs, it is not adopted."""
    await open_(sessions, "a")
    await sessions.change("a", lambda state: replace(state, level="error", subscriptions=("ui://c",)))
    await sessions.change("unknown", lambda state: state)
    assert await adopt(sessions) is None
    sessions.leave("a")
    assert await adopt(sessions, principal=EVE) is None
    assert await adopt(sessions, mount="") is None
    assert await adopt(sessions) == replace(STATE, level="error", subscriptions=("ui://c",))
    assert await adopt(sessions) is None


async def test_processes_that_adopt_at_once(
    before: DatabaseMcpSessions, after: DatabaseMcpSessions, database: Database, ring: KeyRing, clock: Clock
) -> None:
    """The newest has the session; each other process loses it at its next write."""
    lost = Lost()
    await before.open("a", ANN, "cart", STATE, lost.of("before"))
    rivals = {"after": after, "rival": of_process(database, ring, clock)}
    adopting = [one.adopt("a", ANN, "cart", lost.of(name)) for name, one in rivals.items()]
    adopted = await asyncio.gather(*adopting)
    for one in (before, *rivals.values()):
        with one.use("a"):
            await one.flush()
    assert "before" in lost.ids
    assert adopted.count(None) + len(lost.ids) == 2
    await before.end("a")
    assert await adopt(of_process(database, ring, clock)) is not None


async def test_a_session_of_a_killed_process_is_stored_by_its_hash(
    before: DatabaseMcpSessions, after: DatabaseMcpSessions, database: Database
) -> None:
    """Nothing in the row reveals the id, the client, or its capabilities."""
    await open_(before, "a" * 32)
    async with database.connect() as connection:
        row = (await connection.execute(select(MCP_SESSIONS))).one()
    assert not any(shown in str(row) for shown in ("a" * 32, "roots", "ui://a", "info"))
    assert await adopt(after, "a" * 32) == STATE


async def test_a_session_expires_when_it_has_been_idle(
    before: DatabaseMcpSessions, after: DatabaseMcpSessions, clock: Clock
) -> None:
    """Uses and open streams keep it, as of the latest write."""
    await open_(before, "a")
    await open_(before, "b", BOB)
    await open_(before, "c", EVE)
    with before.use("b"):
        with before.use("a"):
            pass
        clock.now += IDLE
        await before.flush()
    clock.now += IDLE
    assert await adopt(after, "c", EVE) is None
    assert await adopt(after, "a") is not None
    clock.now += IDLE
    assert await adopt(after, "b", BOB) is None


async def test_expired_sessions_take_no_places(before: DatabaseMcpSessions, clock: Clock) -> None:
    """Even before they are deleted."""
    await open_(before, "a")
    await open_(before, "b")
    clock.now += 2 * IDLE
    await open_(before, "c")


@pytest.mark.parametrize("change", [{"principal": EVE.id}, {"mount": ""}, {"state": b"\0" * 40}])
async def test_a_row_that_somebody_rewrote_is_not_adopted(
    before: DatabaseMcpSessions, after: DatabaseMcpSessions, database: Database, change: dict[str, object]
) -> None:
    """Its state is sealed for its principal and mount."""
    await open_(before, "a")
    async with database.connect() as connection:
        await connection.execute(update(MCP_SESSIONS).values(change))
        await connection.commit()
    for principal in (ANN, EVE):
        for mount in ("cart", ""):
            assert await adopt(after, "a", principal, mount) is None


async def test_a_state_moved_between_rows_is_not_adopted(
    before: DatabaseMcpSessions, after: DatabaseMcpSessions, database: Database
) -> None:
    """It is sealed for one id."""
    await open_(before, "a")
    await open_(before, "b")
    async with database.connect() as connection:
        states = [row.state for row in (await connection.execute(select(MCP_SESSIONS)))]
        await connection.execute(update(MCP_SESSIONS).values(state=states[0]))
        await connection.commit()
    assert [await adopt(after, id) for id in ("a", "b")].count(None) == 1


async def test_a_state_that_is_too_large_is_not_stored(
    before: DatabaseMcpSessions, after: DatabaseMcpSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session runs, and ends with its process."""
    monkeypatch.setattr(stored, "LARGEST", 10)
    await open_(before, "a")
    with before.use("a"):
        await before.flush()
    assert await adopt(after) is None


async def test_a_logout_and_a_revocation_end_the_sessions_that_they_opened(
    before: DatabaseMcpSessions, after: DatabaseMcpSessions, database: Database, clock: Clock
) -> None:
    """Here at the next write, elsewhere at once; other sessions of the person go on."""
    tokens, logins, lost = IssuedTokens(database), DatabaseSessions(database), Lost()
    id = (await tokens.create("laptop", ("mcp",), None, now=clock.now, expires=clock.now + 1000)).reveal().split("_")[1]
    login = await logins.put(SessionKind.CONSOLE, ANN, now=clock.now, life=1000)
    found = await logins.find(SessionKind.CONSOLE, login.reveal(), clock.now)
    assert found is not None
    for name, proof in (("a", f"token:{id}"), ("b", found.principal.proof), ("c", "")):
        principal = replace(EVE if name == "c" else ANN, proof=proof)
        await before.open(name, principal, "cart", STATE, lost.of(name))
    await tokens.revoke("laptop", clock.now)
    await logins.end(found.family)
    with before.use("a"), before.use("b"), before.use("c"):
        await before.flush()
    assert sorted(lost.ids) == ["a", "b"]
    assert [await adopt(after, *one) is None for one in (("a", ANN), ("b", ANN), ("c", EVE))] == [True, True, False]


async def test_a_session_that_opens_while_the_database_is_down_is_stored_later(
    before: DatabaseMcpSessions, after: DatabaseMcpSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the limits of this process; one that ended meanwhile is not."""

    def down(*_: object) -> None:
        raise DatabaseUnavailable("down")

    with monkeypatch.context() as broken:
        broken.setattr(Database, "connect", down)
        await open_(before, "a")
        await open_(before, "b")
        with pytest.raises(TooManySessions):
            await open_(before, "c")
        await before.end("b")
        with before.use("a"):
            await before.flush()
        with pytest.raises(DatabaseUnavailable):
            await adopt(after)
    assert await adopt(after) is None
    await before.flush()
    assert await adopt(after) == STATE
    assert await adopt(after, "b") is None
