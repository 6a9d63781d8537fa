"""Someone who can write the database of several processes, but has no key, wants to log in, adopt or move something.

Approvals and grants are in tests/ports/test_shared_approvals.py, values that are used once in test_one_time.py there.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import insert, select, update

from gateway.crypto import SigningKeys, digest
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import LOCAL, Principal, Secret
from gateway.ports.sessions import McpClientState, SessionKind
from gateway.ports.views import StoredLaunch
from gateway.stores.mcp_sessions import DatabaseMcpSessions
from gateway.stores.schema import ISSUED, LAUNCHES, MCP_SESSIONS, SESSIONS, TOUCH_KEYS
from gateway.stores.sealing import GivenKeys, KeyRing, new_key
from gateway.stores.security_keys import SecurityKey, SecurityKeys
from gateway.stores.sessions import DatabaseSessions, IssuedTokens
from gateway.stores.sql import Database
from gateway.stores.view_state import DatabaseLaunches

NOW, DAY = 1000.0, 86400.0
ANN, EVE = (Principal("https://id.test", "console", name, session=True) for name in ("ann", "eve"))
ROW = {"family": "eves", "expires": NOW + DAY, "owner": EVE.person, "created": NOW}


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """The database that the processes share."""
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as opened:
        yield opened


@pytest.fixture
def keys() -> SigningKeys:
    """The keys that the writer does not have."""
    return SigningKeys((secrets.token_bytes(32),))


async def write(database: Database, *statements: object) -> None:
    """Run statements as the writer."""
    async with database.connect() as connection:
        for statement in statements:
            await connection.execute(statement)  # type: ignore[call-overload]  # inserts and updates
        await connection.commit()


async def found(sessions: DatabaseSessions, kind: SessionKind, shown: str) -> bool:
    """Return whether a bearer value logs in, in any way."""
    return await sessions.find(kind, shown, NOW) is not None or await sessions.take(kind, shown, NOW) is not None


@pytest.mark.parametrize("kind", list(SessionKind))
@pytest.mark.parametrize("mac", [{}, {"mac": None}, {"mac": ""}, {"mac": 1}, {"mac": "0" * 64}])
async def test_a_login_that_was_written_is_none(
    database: Database, keys: SigningKeys, kind: SessionKind, mac: dict[str, object]
) -> None:
    """For no kind of session or code; and it is no sign that a logged-out person is still there."""
    sessions = DatabaseSessions(database, keys)
    person = {"issuer": "https://id.test", "client": "console", "subject": "ann", "roles": ["admin"], "claims": {}}
    value = plain_json({"principal": person, "more": {}, **mac})
    row = {**ROW, "key": digest(f"{kind}:eves value").hex(), "kind": kind, "value": value}
    await write(database, insert(SESSIONS).values(row))
    assert not await found(sessions, kind, "eves value")
    assert not await sessions.lives("eves", NOW)


async def test_an_own_login_does_not_become_another_persons(database: Database, keys: SigningKeys) -> None:
    """Nor one that lasts longer, of another family, or with other values; unchanged it is one."""
    sessions = DatabaseSessions(database, keys)
    own = await sessions.put(SessionKind.CONSOLE, EVE, now=NOW, life=60.0, origin="http://console.localhost")
    async with database.connect() as connection:
        row = (await connection.execute(select(SESSIONS))).one()
    value = parse_json(row.value)
    other = {**value, "principal": {**value["principal"], "subject": "ann"}}
    roles = {**value, "principal": {**value["principal"], "roles": ["admin"]}}
    place = {**value, "more": {"origin": "http://another.localhost"}}
    for changed in (
        {"value": plain_json(other)},
        {"value": plain_json(roles)},
        {"value": plain_json(place)},
        {"expires": NOW + DAY},
        {"family": "anns"},
        {"kind": SessionKind.SITE},
    ):
        await write(database, update(SESSIONS).values({**changed}))
        assert await sessions.find(SessionKind.CONSOLE, own.reveal(), NOW) is None, changed
        await write(database, update(SESSIONS).values(row._asdict()))
    assert await sessions.find(SessionKind.CONSOLE, own.reveal(), NOW) is not None


async def test_an_id_token_that_is_sealed_again_leaves_the_login_valid(database: Database, keys: SigningKeys) -> None:
    """It has a seal of its own."""
    sessions = DatabaseSessions(database, keys)
    own = await sessions.put(SessionKind.CONSOLE, ANN, now=NOW, life=60.0, hint="old.c2VhbGVk")
    async with database.connect() as connection:
        text = (await connection.execute(select(SESSIONS.c.value))).scalar_one()
    await write(database, update(SESSIONS).values(value=text.replace("old.c2VhbGVk", "new.b3RoZXI=")))
    assert await sessions.find(SessionKind.CONSOLE, own.reveal(), NOW) is not None


async def test_an_api_token_has_the_rights_with_which_it_was_issued(database: Database, keys: SigningKeys) -> None:
    """A written one has none."""
    tokens = IssuedTokens(database, keys)
    await tokens.create("eve", ["mcp"], "eve", now=NOW, expires=NOW + DAY)
    async with database.connect() as connection:
        row = (await connection.execute(select(ISSUED))).one()
    for changed in ({"capabilities": "approve mcp"}, {"person": "ann"}, {"expires": NOW + 1e9}, {"mac": None}):
        await write(database, update(ISSUED).values({**changed}))
        assert await tokens.find(row.id) is None, changed
        await write(database, update(ISSUED).values(row._asdict()))
    forged = {**row._asdict(), "id": "forged", "name": "forged", "digest": digest("eves")}
    await write(database, insert(ISSUED).values(forged))
    assert await tokens.find("forged") is None
    assert await tokens.find(row.id) is not None
    assert await tokens.revoke("eve", NOW) == 1
    assert (await tokens.find(row.id) or pytest.fail("it is still known, as revoked")).revoked == NOW


async def test_a_security_key_that_was_written_is_none(database: Database, keys: SigningKeys) -> None:
    """Neither a new one, nor another person's, nor one with another public key; a use changes nothing."""
    known = SecurityKeys(database, keys)
    own = SecurityKey("eves", EVE.person, "key", b"public", 0, NOW)
    await known.add(own)
    await known.store_use("eves", 7)
    assert await known.of(EVE.person) == [replace(own, count=7)]
    for changed in ({"person": ANN.person}, {"public": b"another"}, {"mac": None}):
        await write(database, update(TOUCH_KEYS).values({**changed}))
        assert [await known.of(person) for person in (ANN.person, EVE.person)] == [[], []], changed
        await write(database, update(TOUCH_KEYS).values(person=EVE.person, public=b"public"))
        async with database.connect() as connection:
            await connection.execute(TOUCH_KEYS.delete())
            await connection.commit()
        await known.add(own)


async def test_a_session_and_a_view_stay_their_principals(database: Database) -> None:
    """Whatever is written about their owners."""
    ring = KeyRing(GivenKeys("KEYS", Secret(new_key())))
    sessions = DatabaseMcpSessions(database, ring, most=10, each=10, idle=60.0, clock=lambda: NOW)
    await sessions.open("id", LOCAL, "/mcp", McpClientState("2025-11-25"), lambda: None)
    sessions.leave("id")
    await write(database, update(MCP_SESSIONS).values(principal=EVE.id))
    assert await sessions.adopt("id", EVE, "/mcp", lambda: None) is None
    launches = DatabaseLaunches(database, ring, lambda: NOW)
    await launches.put("value", StoredLaunch("view", LOCAL.id, "cart", chosen=False, left=60.0), 10)
    await write(database, update(LAUNCHES).values(principal=EVE.id))
    assert await launches.find("value", EVE.id) is None
    assert await launches.of_view("view", EVE.id) is None
