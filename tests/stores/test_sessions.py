"""Logins, and the codes and sessions derived from one, are bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.model import LOCAL
from gateway.stores import sessions as module
from gateway.stores.sessions import SessionKind, Sessions
from gateway.stores.sql import Database

ADA, BOB = (replace(LOCAL, subject=name) for name in ("ada", "bob"))


@pytest.mark.parametrize("kind", [SessionKind.CODE, SessionKind.SITE])
@pytest.mark.bound("logins with their codes and sessions")
async def test_what_comes_of_a_login_has_a_bound(url: str, monkeypatch: pytest.MonkeyPatch, kind: SessionKind) -> None:
    """The oldest is evicted; another login has a separate bound, and the login itself stays."""
    monkeypatch.setattr(module, "EACH", 2)
    async with Database(url) as database:
        sessions = Sessions(database)

        async def put(now: float, family: str) -> str:
            return (await sessions.put(kind, ADA, now=now, life=100.0, family=family)).reveal()

        login = (await sessions.put(SessionKind.CONSOLE, ADA, now=0.0, life=100.0)).reveal()
        first, second, third = [await put(float(number), "one") for number in range(3)]
        others = [await put(0.0, "two") for _ in range(2)]
        found = [await sessions.find(kind, shown, 5.0) is not None for shown in (first, second, third, *others)]
        assert found == [False, True, True, True, True]
        assert await sessions.find(SessionKind.CONSOLE, login, 5.0) is not None


@pytest.mark.bound("logins with their codes and sessions")
async def test_a_person_has_so_many_logins(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all of their clients; the oldest ends with everything derived from it."""
    monkeypatch.setattr(module, "EACH", 2)
    async with Database(url) as database:
        sessions = Sessions(database)
        logins = []
        for number, person in enumerate((ADA, replace(ADA, client="other"), BOB)):
            logins.append((await sessions.put(SessionKind.CONSOLE, person, now=float(number), life=100.0)).reveal())
        family = (await sessions.find(SessionKind.CONSOLE, logins[0], 5.0) or pytest.fail("gone")).family
        site = (await sessions.put(SessionKind.SITE, ADA, now=3.0, life=97.0, family=family)).reveal()
        logins.append((await sessions.put(SessionKind.CONSOLE, ADA, now=4.0, life=100.0)).reveal())
        found = [await sessions.find(SessionKind.CONSOLE, login, 5.0) is not None for login in logins]
        assert found == [False, True, True, True]
        assert await sessions.find(SessionKind.SITE, site, 5.0) is None
        assert not await sessions.lives(family, 5.0)


async def test_links_of_the_command_line_have_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the operator can make them."""
    monkeypatch.setattr(module, "EACH", 1)
    async with Database(url) as database:
        sessions = Sessions(database)
        links = [(await sessions.put(SessionKind.LINK, ADA, now=0.0, life=100.0)).reveal() for _ in range(3)]
        assert all([await sessions.find(SessionKind.LINK, link, 5.0) for link in links])
