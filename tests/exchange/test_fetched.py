"""Tests of `gateway.exchange.fetched`: who waits while it is looked whether a stored token has changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.credentials import Token
from gateway.errors import Reason, Refusal
from gateway.exchange.fetched import AHEAD, LOOK, Fetched
from gateway.model import LOCAL, Principal, Secret
from gateway.stores.sealing import KeyFile, KeyRing
from gateway.stores.sql import Database
from gateway.stores.tokens import Kept, TokenStore
from tests.clock import Clock

MANY = 32


class SlowStore(TokenStore):
    """The database takes its time, until `open` is set; `loads` counts how often it was asked."""

    def __init__(self, database: Database, ring: KeyRing) -> None:
        super().__init__(database, ring)
        self.open = asyncio.Event()
        self.open.set()
        self.loads = 0

    async def load(self, credential: str, principal: str) -> Kept | None:
        self.loads += 1
        await self.open.wait()
        return await super().load(credential, principal)


class Issuer:
    """Gives `token-1`, `token-2` and so on, or refuses."""

    def __init__(self) -> None:
        self.given = 0
        self.refuses = False

    async def __call__(self, _: Principal, before: Token | None, now: float) -> Token:
        self.given += 1
        if self.refuses:
            raise Refusal(Reason.CREDENTIAL_FAILED, "not now")
        return Token(Secret(f"token-{self.given}"), "Bearer", now + 1000.0)


class House:
    """A credential over a slow database."""

    def __init__(self, store: SlowStore) -> None:
        self.store = store
        self.clock = Clock()
        self.issuer = Issuer()
        self.tokens = Fetched("shop", self.issuer, store, now=self.clock)

    async def token(self) -> str:
        """The token of one call."""
        return (await self.tokens.token(LOCAL)).value.reveal()


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[House]:
    """With a token that is known to be the stored one."""
    async with Database(f"sqlite:///{folder}/gateway.db") as database:
        found = House(SlowStore(database, KeyRing(KeyFile(folder / "gateway.key"))))
        assert await found.token() == "token-1"
        found.store.loads = 0
        yield found


async def test_one_call_looks_while_the_others_use_what_is_there(tmp_path: Path) -> None:
    """However long the database takes, until the token would be used unseen for too long."""
    async with house(tmp_path) as home:
        home.clock.now += AHEAD
        home.store.open.clear()
        first = asyncio.create_task(home.token())
        await asyncio.sleep(0)
        assert [await asyncio.wait_for(home.token(), 5) for _ in range(MANY)] == ["token-1"] * MANY
        assert not first.done()
        home.store.open.set()
        assert await first == "token-1"
        assert home.store.loads == 1


async def test_all_wait_for_one_look_at_a_token_that_was_not_seen_for_long(tmp_path: Path) -> None:
    """They go on together with what it finds: a token that was revoked meanwhile is not used any more."""
    async with house(tmp_path) as home:
        home.clock.now += AHEAD
        home.store.open.clear()
        first = asyncio.create_task(home.token())
        await asyncio.sleep(0)
        home.clock.now += LOOK - AHEAD
        calls = [asyncio.create_task(home.token()) for _ in range(MANY)]
        await asyncio.sleep(0)
        assert not any(call.done() for call in calls)
        await home.store.delete("shop", "")
        home.store.open.set()
        assert {await call for call in [first, *calls]} == {"token-2"}
        assert home.issuer.given == 2


async def test_a_look_is_made_whole_for_the_others_when_its_call_is_cancelled(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        home.clock.now += LOOK
        home.store.open.clear()
        first, second = asyncio.create_task(home.token()), asyncio.create_task(home.token())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        home.store.open.set()
        assert await second == "token-1"
        with pytest.raises(asyncio.CancelledError):
            await first
        assert home.store.loads == 1


async def test_a_failure_is_for_those_who_waited_for_it(tmp_path: Path) -> None:
    """Each of them is told; the next call tries again."""
    async with house(tmp_path) as home:
        home.clock.now += 1000
        home.issuer.refuses = True
        found = await asyncio.gather(*[home.token() for _ in range(MANY)], return_exceptions=True)
        assert [one.reason for one in found if isinstance(one, Refusal)] == [Reason.CREDENTIAL_FAILED] * MANY
        assert home.issuer.given == 2
        home.issuer.refuses = False
        assert await home.token() == "token-3"


async def test_who_comes_after_a_change_does_not_get_what_was_looked_for_before(tmp_path: Path) -> None:
    """A person connects while a call is about to be told that there is nothing."""
    async with house(tmp_path) as home:
        home.clock.now += 1000
        home.issuer.refuses = True
        home.store.open.clear()
        before = asyncio.create_task(home.token())
        await asyncio.sleep(0)
        await home.store.put("shop", "", Token(Secret("connected"), "Bearer", home.clock.now + 1000), "c", 1.0)
        home.tokens.forget("")
        after = asyncio.create_task(home.token())
        await asyncio.sleep(0)
        home.store.open.set()
        assert await after == "connected"
        assert await before == "connected"
        assert home.store.loads == 2
