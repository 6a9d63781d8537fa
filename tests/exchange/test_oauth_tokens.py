"""Tests of `gateway.exchange.oauth_tokens`: which calls wait for the check whether a stored token has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.credentials import Token
from gateway.errors import Reason, Refusal
from gateway.exchange import oauth_tokens
from gateway.exchange.oauth_tokens import AHEAD, LOOK, OAuthTokens, Ownership
from gateway.model import LOCAL, Principal, Secret
from gateway.stores.sealing import KeyFile, KeyRing
from gateway.stores.sql import Database
from gateway.stores.tokens import StoredToken, TokenStore
from tests.clock import Clock

MANY = 32


class SlowStore(TokenStore):
    """A store that returns what it found once `open` is set, and fails then if it is `down`.

    `loads` counts its queries.
    """

    def __init__(self, database: Database, ring: KeyRing) -> None:
        super().__init__(database, ring)
        self.open = asyncio.Event()
        self.open.set()
        self.loads = 0
        self.down = False

    async def load(self, credential: str, principal: str) -> StoredToken | None:
        self.loads += 1
        found = await super().load(credential, principal)
        await self.open.wait()
        if self.down:
            raise OSError("the database is down")
        return found


class Issuer:
    """Issues `the-token-1`, `the-token-2` and so on, or refuses."""

    def __init__(self) -> None:
        self.given = 0
        self.refuses = False

    async def __call__(self, _: Principal, before: Token | None, now: float) -> Token:
        self.given += 1
        if self.refuses:
            raise Refusal(Reason.CREDENTIAL_FAILED, "not now")
        return Token(Secret(f"the-token-{self.given}"), "Bearer", now + 1000.0)


class House:
    """A credential over a slow database."""

    def __init__(self, store: SlowStore) -> None:
        self.store = store
        self.clock = Clock()
        self.issuer = Issuer()
        self.tokens = OAuthTokens("shop", self.issuer, store, now=self.clock)

    async def token(self) -> str:
        """Return the token of one call."""
        return (await self.tokens.token(LOCAL)).value.reveal()


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[House]:
    """Yield a house whose cached token is the stored one."""
    async with Database(f"sqlite:///{folder}/gateway.db") as database:
        found = House(SlowStore(database, KeyRing(KeyFile(folder / "gateway.key"))))
        assert await found.token() == "the-token-1"
        found.store.loads = 0
        yield found


async def begin_calls(home: House, calls: int = 1) -> list[asyncio.Task[str]]:
    """Start these calls; the first waits for the database, which does not answer yet."""
    home.store.open.clear()
    home.store.loads = 0
    tasks = [asyncio.create_task(home.token()) for _ in range(calls)]
    while not home.store.loads:
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)  # its result is on the way
    return tasks


async def test_one_call_looks_while_the_others_use_what_is_there(tmp_path: Path) -> None:
    """However long the database takes, until the token has gone unchecked for too long."""
    async with house(tmp_path) as home:
        home.clock.now += AHEAD
        [first] = await begin_calls(home)
        assert [await asyncio.wait_for(home.token(), 5) for _ in range(MANY)] == ["the-token-1"] * MANY
        assert not first.done()
        home.store.open.set()
        assert await first == "the-token-1"
        assert home.store.loads == 1


async def test_all_wait_for_one_look_at_a_token_that_was_not_seen_for_long(tmp_path: Path) -> None:
    """They share one query and its result: a revoked token is no longer used."""
    async with house(tmp_path) as home:
        await home.store.delete("shop", "")
        home.clock.now += AHEAD
        [first] = await begin_calls(home)
        home.clock.now += LOOK - AHEAD
        calls = [asyncio.create_task(home.token()) for _ in range(MANY)]
        await asyncio.sleep(0.05)
        assert not any(call.done() for call in calls)
        home.store.open.set()
        assert {await call for call in [first, *calls]} == {"the-token-2"}
        assert home.issuer.given == 2


async def test_what_a_look_finds_gone_nobody_uses_any_more(tmp_path: Path) -> None:
    """Not even until the next regular check."""
    async with house(tmp_path) as home:
        await home.store.delete("shop", "")
        home.clock.now += AHEAD
        home.issuer.refuses = True
        for _ in range(2):
            with pytest.raises(Refusal):
                await home.token()


async def test_a_look_is_made_whole_for_the_others_when_its_call_is_cancelled(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        home.clock.now += LOOK
        first, second = await begin_calls(home, 2)
        first.cancel()
        await asyncio.sleep(0)
        home.store.open.set()
        assert await second == "the-token-1"
        with pytest.raises(asyncio.CancelledError):
            await first
        assert home.store.loads == 1


async def test_who_waits_for_the_look_of_another_call_may_leave(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        home.clock.now += LOOK
        first, second = await begin_calls(home, 2)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(second, 5)
        assert not first.done()
        home.store.open.set()
        assert await first == "the-token-1"


async def test_a_call_that_was_cancelled_is_not_refused(tmp_path: Path) -> None:
    """For any result of its query."""
    async with house(tmp_path) as home:
        home.clock.now += 1000
        home.issuer.refuses = True
        [first] = await begin_calls(home)
        first.cancel()
        home.store.open.set()
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_a_failure_is_for_those_who_waited_for_it(tmp_path: Path) -> None:
    """Each of them fails; the next call tries again."""
    async with house(tmp_path) as home:
        home.clock.now += 1000
        home.issuer.refuses = True
        found = await asyncio.gather(*[home.token() for _ in range(MANY)], return_exceptions=True)
        assert [one.reason for one in found if isinstance(one, Refusal)] == [Reason.CREDENTIAL_FAILED] * MANY
        assert home.issuer.given == 2
        home.issuer.refuses = False
        assert await home.token() == "the-token-3"


async def test_who_comes_after_a_change_does_not_get_what_was_looked_for_before(tmp_path: Path) -> None:
    """Nor does any later call: the newly connected account stays, whichever query ends last."""
    async with house(tmp_path) as home:
        home.clock.now += AHEAD
        [before] = await begin_calls(home)
        await home.store.put(
            "shop", "", Token(Secret("the-token-of-another-account"), "Bearer", home.clock.now + 1000), "c", 1.0
        )
        home.tokens.forget("")
        after = asyncio.create_task(home.token())
        await asyncio.sleep(0.05)
        home.store.open.set()
        assert [await before, await after, await home.token()] == ["the-token-1", *["the-token-of-another-account"] * 2]
        assert home.store.loads == 2


async def test_a_token_that_was_refused_while_it_was_looked_for_is_renewed(tmp_path: Path) -> None:
    """Also if the database is down, and cannot show whether another process renewed it."""
    async with house(tmp_path) as home:
        used = await home.tokens.inject(LOCAL, "GET", "https://shop.example/api")
        home.clock.now += AHEAD
        [looking] = await begin_calls(home)
        assert await home.tokens.take_response(LOCAL, used, "https://shop.example/api", 401, ())
        retried = asyncio.create_task(home.token())
        await asyncio.sleep(0)
        home.store.down = True
        home.store.open.set()
        assert [await looking, await retried] == ["the-token-2", "the-token-2"]


async def test_what_is_held_goes_on_while_the_database_is_down(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        home.store.down = True
        for _ in range(3):
            home.clock.now += LOOK
            assert await home.token() == "the-token-1"
        assert (home.store.loads, home.issuer.given) == (3, 1)


@pytest.mark.bound("cached tokens of accounts")
async def test_what_is_held_for_too_many_is_looked_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest entry is evicted; its owner gets the same token again, never another person's."""
    monkeypatch.setattr(oauth_tokens, "CACHED", 2)
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        store = SlowStore(database, KeyRing(KeyFile(tmp_path / "gateway.key")))
        tokens = OAuthTokens("shop", Issuer(), store, Ownership(per_person=True), now=Clock())
        people = [replace(LOCAL, subject=name) for name in ("ann", "bob", "eve")]
        first = [(await tokens.token(one)).value.reveal() for one in people]
        store.loads = 0
        again = [(await tokens.token(one)).value.reveal() for one in (people[2], people[1])]
        assert (again, store.loads) == ([first[2], first[1]], 0)
        assert ((await tokens.token(people[0])).value.reveal(), store.loads) == (first[0], 1)
