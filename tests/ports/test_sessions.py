"""The ports `Sessions` and `ApiTokens`: taken once, ended with their family, bounded, and there after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.model import LOCAL
from gateway.ports.sessions import ApiTokens, SessionKind, Sessions
from gateway.stores import sessions as module
from gateway.stores.sessions import DatabaseSessions, IssuedTokens
from gateway.stores.sql import Database

ADA, BOB = (replace(LOCAL, subject=name, roles=frozenset({"staff"})) for name in ("ada", "bob"))

Make = Callable[[Database], Sessions]
"""Makes an implementation for one process."""


@pytest.fixture(params=[DatabaseSessions])
def make(request: pytest.FixtureRequest) -> Make:
    """Each implementation."""
    made: Make = request.param
    return made


@pytest.fixture
def sessions(make: Make, database: Database) -> Sessions:
    """No sessions yet, in this process."""
    return make(database)


@pytest.fixture
def elsewhere(make: Make, other_database: Database) -> Sessions:
    """The same, in another process."""
    return make(other_database)


async def login(sessions: Sessions, now: float = 0.0) -> str:
    """Log Ada in for 100 seconds; return the bearer value."""
    return (await sessions.put(SessionKind.CONSOLE, ADA, now=now, life=100.0, origin="https://console.test")).reveal()


async def family_of(sessions: Sessions, shown: str) -> str:
    """Return the family of a login."""
    found = await sessions.find(SessionKind.CONSOLE, shown, 0.0)
    assert found is not None
    return found.family


async def test_a_session_is_found_by_its_value_until_it_expires(sessions: Sessions, elsewhere: Sessions) -> None:
    """In each process, with its principal and its extra values."""
    shown = await login(sessions)
    found = await elsewhere.find(SessionKind.CONSOLE, shown, 99.0)
    assert found is not None
    assert (found.principal, found.principal.roles, found.expires) == (ADA, ADA.roles, 100.0)
    assert (found.principal.proof, found.more["origin"]) == (f"session:{found.family}", "https://console.test")
    assert await elsewhere.find(SessionKind.CONSOLE, shown, 100.0) is None
    assert not await elsewhere.lives(found.family, 100.0)


@pytest.mark.parametrize("kind", [SessionKind.SITE, SessionKind.CODE, SessionKind.LINK])
async def test_a_session_of_one_kind_is_none_of_another(sessions: Sessions, kind: SessionKind) -> None:
    """The value of a login is no code; an invented value is nothing."""
    shown = await login(sessions)
    assert await sessions.find(kind, shown, 1.0) is None
    assert await sessions.take(kind, shown, 1.0) is None
    assert await sessions.find(SessionKind.CONSOLE, "invented", 1.0) is None
    assert not await sessions.lives("invented", 1.0)


async def test_a_code_is_taken_once(sessions: Sessions, elsewhere: Sessions) -> None:
    """Of ten concurrent callers in two processes one gets it; an expired one nobody does."""
    code = (await sessions.put(SessionKind.CODE, ADA, now=0.0, life=30.0, family="login")).reveal()
    taken = await asyncio.gather(*[which.take(SessionKind.CODE, code, 1.0) for which in (sessions, elsewhere) * 5])
    assert [found.principal for found in taken if found is not None] == [ADA]
    late = (await sessions.put(SessionKind.CODE, ADA, now=0.0, life=30.0, family="login")).reveal()
    assert await elsewhere.take(SessionKind.CODE, late, 30.0) is None


async def test_a_logout_ends_the_whole_family_in_every_process(sessions: Sessions, elsewhere: Sessions) -> None:
    """The sessions on the sites of apps, too; other logins of the person stay."""
    shown, other = await login(sessions), await login(sessions)
    family = await family_of(sessions, shown)
    site = (await sessions.put(SessionKind.SITE, ADA, now=0.0, life=100.0, family=family)).reveal()
    await elsewhere.end(family)
    assert await sessions.find(SessionKind.CONSOLE, shown, 1.0) is None
    assert await sessions.find(SessionKind.SITE, site, 1.0) is None
    assert not await sessions.lives(family, 1.0)
    assert await sessions.find(SessionKind.CONSOLE, other, 1.0) is not None


async def test_sessions_and_their_secret_outlive_a_restart(make: Make, url: str) -> None:
    """The value is stored nowhere itself."""
    async with Database(url) as database:
        shown, secret = await login(make(database)), await make(database).secret()
    async with Database(url) as database:
        assert await make(database).secret() == secret
        assert await make(database).find(SessionKind.CONSOLE, shown, 1.0) is not None
        async with database.connect() as connection:
            (row,) = (await connection.exec_driver_sql("SELECT * FROM sessions")).all()
    assert shown not in repr(row)


async def test_processes_that_start_together_have_one_secret(sessions: Sessions, elsewhere: Sessions) -> None:
    """A login that began at one ends at the other."""
    one, other = await asyncio.gather(sessions.secret(), elsewhere.secret())
    assert len(one) == 32
    assert one == other


@pytest.mark.parametrize("kind", [SessionKind.CODE, SessionKind.SITE])
@pytest.mark.bound("logins with their codes and sessions")
async def test_what_comes_of_a_login_has_a_bound(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, kind: SessionKind
) -> None:
    """The oldest is evicted; another login has a separate bound, and the login itself stays."""
    monkeypatch.setattr(module, "EACH", 2)

    async def put(now: float, family: str) -> str:
        return (await sessions.put(kind, ADA, now=now, life=100.0, family=family)).reveal()

    shown = await login(sessions)
    first, second, third = [await put(float(number), "one") for number in range(3)]
    others = [await put(0.0, "two") for _ in range(2)]
    found = [await sessions.find(kind, each, 5.0) is not None for each in (first, second, third, *others)]
    assert found == [False, True, True, True, True]
    assert await sessions.find(SessionKind.CONSOLE, shown, 5.0) is not None


@pytest.mark.bound("logins with their codes and sessions")
async def test_a_person_has_so_many_logins(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all of their clients; the oldest ends with everything derived from it."""
    monkeypatch.setattr(module, "EACH", 2)
    logins = []
    for number, person in enumerate((ADA, replace(ADA, client="other"), BOB)):
        logins.append((await sessions.put(SessionKind.CONSOLE, person, now=float(number), life=100.0)).reveal())
    family = await family_of(sessions, logins[0])
    site = (await sessions.put(SessionKind.SITE, ADA, now=3.0, life=97.0, family=family)).reveal()
    logins.append(await login(sessions, 4.0))
    found = [await sessions.find(SessionKind.CONSOLE, each, 5.0) is not None for each in logins]
    assert found == [False, True, True, True]
    assert await sessions.find(SessionKind.SITE, site, 5.0) is None
    assert not await sessions.lives(family, 5.0)


async def test_links_of_the_command_line_have_none(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the operator can make them."""
    monkeypatch.setattr(module, "EACH", 1)
    links = [(await sessions.put(SessionKind.LINK, ADA, now=0.0, life=100.0)).reveal() for _ in range(3)]
    assert all([await sessions.find(SessionKind.LINK, link, 5.0) for link in links])


async def test_nobody_is_logged_in_while_the_store_is_down(sessions: Sessions, database: Database) -> None:
    """Every method raises."""
    await database.__aexit__(None, None, None)
    for asked in (
        sessions.find(SessionKind.CONSOLE, "x", 1.0),
        sessions.take(SessionKind.CODE, "x", 1.0),
        sessions.lives("x", 1.0),
        sessions.end("x"),
        login(sessions),
    ):
        with pytest.raises(OSError, match="not open"):
            await asked


async def test_an_api_token_is_found_until_it_is_revoked(database: Database, other_database: Database) -> None:
    """In each process; an unknown id is nothing."""
    tokens, elsewhere = IssuedTokens(database), IssuedTokens(other_database)
    name = f"ci {database!r}"
    await tokens.create(name, {"mcp"}, None, now=0.0, expires=100.0)
    id = next(grant.id for grant in await tokens.list_all() if grant.name == name)
    port: ApiTokens = elsewhere
    found = await port.find(id)
    assert found is not None
    assert (found.good(1.0), found.good(100.0)) == (True, False)
    assert await tokens.revoke(name, 1.0) == 1
    revoked = await port.find(id)
    assert revoked is not None
    assert not revoked.good(2.0)
    assert await port.find("unknown") is None
