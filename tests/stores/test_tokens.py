"""Tests of `gateway.stores.tokens` and `sealing`: encrypted tokens, and one renewal at a time, on both databases."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.credentials import Account, Token
from gateway.credentials.token_requests import new_key as proof_key
from gateway.errors import GrantEnded, Reason, Refusal, StartError
from gateway.exchange.oauth_tokens import OAuthTokens, Ownership
from gateway.model import LOCAL, Principal, Secret
from gateway.stores.sealing import GivenKeys, KeyFile, KeyRing, SealBroken, new_key, parse_keys
from gateway.stores.sql import Database
from gateway.stores.tokens import TokenStore
from tests.clock import Clock
from tests.postgresql import postgresql

TOKEN = Token(
    Secret("the-access-token"),
    "DPoP",
    2000.0,
    refresh=Secret("the-refresh-token"),
    scope="a b",
    key=Secret('{"kty": "EC"}'),
    account=Account("17", "ann@example.com"),
)


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/gateway.db"
    else:
        with postgresql() as server:
            yield server.url


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return KeyRing(KeyFile(tmp_path / "gateway.key"))


async def test_a_token_is_kept_as_it_is(url: str, ring: KeyRing) -> None:
    """With all its fields; a later version replaces the version that it names, and no other."""
    async with Database(url) as database:
        store = TokenStore(database, ring)
        first = await store.save("shop", "ann", TOKEN, "c", before=None, now=1.0)
        found = await store.load("shop", "ann")
        assert first is not None
        assert found is not None
        assert found.token.value.reveal() == "the-access-token"
        assert found.token.key is not None
        assert (found.token.account, found.connection, found.version) == (TOKEN.account, "c", first.version)
        assert await store.save("shop", "ann", TOKEN, "c", before=None, now=2.0) is None
        second = await store.save("shop", "ann", TOKEN, "c", before=first.version, now=2.0)
        assert second is not None
        assert await store.save("shop", "ann", TOKEN, "c", before=first.version, now=3.0) is None
        assert await store.delete("shop", "ann", first.version) is False
        assert await store.delete("shop", "ann", second.version) is True
        assert await store.load("shop", "ann") is None


async def test_a_lease_has_one_holder_and_outlives_nobody(url: str, ring: KeyRing) -> None:
    """It ends on release, on expiry, and if the clock was set back."""
    async with Database(url) as database:
        store = TokenStore(database, ring)
        claims = await asyncio.gather(*(store.claim("shop", "ann", f"h{n}", 100.0, 60.0) for n in range(10)))
        assert sum(claims) == 1
        holder = f"h{claims.index(True)}"
        assert not await store.claim("shop", "ann", "other", 159.0, 60.0)
        assert await store.claim("shop", "bob", "other", 159.0, 60.0)
        assert await store.claim("shop", "ann", "after", 160.0, 60.0)
        await store.release("shop", "ann", holder)
        assert not await store.claim("shop", "ann", "other", 161.0, 60.0)
        await store.release("shop", "ann", "after")
        assert await store.claim("shop", "ann", "other", 161.0, 60.0)
        assert await store.claim("shop", "ann", "clock went back", 1.0, 60.0)


async def test_two_processes_renew_once(url: str, ring: KeyRing) -> None:
    """Each has separate connections; the slower one uses the other's result."""
    asked: list[str] = []

    async def obtain(principal: Principal, before: Token | None, now: float) -> Token:
        assert before is not None
        assert before.refresh is not None
        asked.append(before.refresh.reveal())
        await asyncio.sleep(0.05)
        return Token(Secret(f"token-{len(asked)}"), "Bearer", 5000.0, refresh=Secret(f"refresh-{len(asked)}"))

    ownership = Ownership(per_person=True, connect_url=lambda _: "http://console.test/")
    async with Database(url) as one, Database(url) as other:
        await TokenStore(one, ring).put("shop", LOCAL.person, TOKEN, "c", 1.0)
        stores = [TokenStore(database, ring) for database in (one, other)]
        sources = [OAuthTokens("shop", obtain, store, ownership, now=lambda: 3000.0) for store in stores]
        tokens = await asyncio.gather(*(source.token(LOCAL) for source in sources for _ in range(50)))
    assert asked == ["the-refresh-token"]
    assert {token.value.reveal() for token in tokens} == {"token-1"}


async def test_who_gives_up_in_the_middle_loses_no_rotated_token(url: str, ring: KeyRing) -> None:
    """The server has already used up the old refresh token: the answer is stored although its caller was cancelled."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def obtain(principal: Principal, before: Token | None, now: float) -> Token:
        begun.set()
        await go_on.wait()
        return Token(Secret("new"), "Bearer", 5000.0, refresh=Secret("rotated"))

    ownership = Ownership(per_person=True, connect_url=lambda _: "http://console.test/")
    async with Database(url) as database:
        store = TokenStore(database, ring)
        await store.put("shop", LOCAL.person, TOKEN, "c", 1.0)
        source = OAuthTokens("shop", obtain, store, ownership, now=lambda: 3000.0)
        calling = asyncio.ensure_future(source.token(LOCAL))
        await begun.wait()
        calling.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await calling
        kept = await store.load("shop", LOCAL.person)
    assert kept is not None
    assert kept.token.refresh is not None
    assert kept.token.refresh.reveal() == "rotated"


async def test_a_grant_that_ended_is_forgotten_but_not_its_successor(tmp_path: Path, ring: KeyRing) -> None:
    """While one process learns that the old refresh token is used up, the person connects again."""
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        store = TokenStore(database, ring)
        await store.put("shop", LOCAL.person, TOKEN, "old", 1.0)

        async def obtain(principal: Principal, before: Token | None, now: float) -> Token:
            await store.put("shop", LOCAL.person, TOKEN, "new", 2.0)
            raise GrantEnded("credential 'shop': over")

        ownership = Ownership(per_person=True, connect_url=lambda _: "http://console.test/")
        source = OAuthTokens("shop", obtain, store, ownership, now=lambda: 3000.0)
        with pytest.raises(Refusal) as refused:
            await source.token(LOCAL)
        assert refused.value.reason is Reason.CREDENTIAL_NEEDED
        kept = await store.load("shop", LOCAL.person)
        assert kept is not None
        assert kept.connection == "new"


@pytest.mark.parametrize(("life", "used"), [(100.0, 89.0), (100.0, 4.0), (3600.0, 3569.0)])
async def test_a_token_is_renewed_a_little_before_its_end(url: str, ring: KeyRing, life: float, used: float) -> None:
    """Thirty seconds, or a tenth of its lifetime; also if it was checked a moment before."""
    given: list[float] = []

    async def obtain(principal: Principal, before: Token | None, now: float) -> Token:
        given.append(now)
        return Token(Secret(f"token-{len(given)}"), "Bearer", now + life)

    clock = Clock()
    async with Database(url) as database:
        source = OAuthTokens("shop", obtain, TokenStore(database, ring), now=clock)
        for _ in range(2):
            clock.now = given[-1] + used if given else 1000.0
            await source.token(LOCAL)
        assert len(given) == 1
        clock.now = given[0] + life - min(30.0, life / 10)
        await source.token(LOCAL)
        assert len(given) == 2


@pytest.mark.parametrize("bound", [True, False])
async def test_a_nonce_of_a_good_answer_stands_in_the_next_proof(tmp_path: Path, ring: KeyRing, bound: bool) -> None:
    """RFC 9449, 8.2; tokens without a key have no proof."""

    async def obtain(principal: Principal, before: Token | None, now: float) -> Token:
        return Token(Secret("token"), "DPoP" if bound else "Bearer", now + 300, key=proof_key() if bound else None)

    url, offered = "http://shop.test/items", (("dpop-nonce", "n-17"),)
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        source = OAuthTokens("shop", obtain, TokenStore(database, ring), now=lambda: 3000.0)
        first = await source.inject(LOCAL, "GET", url)
        assert await source.take_response(LOCAL, first, url, 200, offered) is False
        second = dict((await source.inject(LOCAL, "GET", url)).headers)
    assert ("dpop" in second) is bound
    if bound:
        claims = second["dpop"].split(".")[1]
        assert json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["nonce"] == "n-17"


async def test_shared_principals_get_no_account_of_a_person(tmp_path: Path, ring: KeyRing) -> None:
    """Not even one that is stored under their name."""

    async def obtain(principal: Principal, before: Token | None, now: float) -> Token:
        raise AssertionError

    shared = Principal("issuer", "client", "robot", shared=True)
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        store = TokenStore(database, ring)
        await store.put("shop", shared.person, TOKEN, "c", 1.0)
        source = OAuthTokens(
            "shop", obtain, store, Ownership(per_person=True, connect_url=lambda _: ""), now=lambda: 1.0
        )
        with pytest.raises(Refusal) as refused:
            await source.token(shared)
    assert refused.value.reason is Reason.CREDENTIAL_FAILED


async def test_nothing_readable_is_in_the_file_and_rows_cannot_be_swapped(tmp_path: Path, ring: KeyRing) -> None:
    """Write access to the database is not enough to give one person's token to another."""
    path = tmp_path / "gateway.db"
    async with Database(f"sqlite:///{path}") as database:
        store = TokenStore(database, ring)
        await store.put("shop", "ann", TOKEN, "c", 1.0)
        await store.put("shop", "bob", TOKEN, "c", 1.0)
        await store.remember("state", '{"verifier": "the-verifier"}', 1.0, 100.0)
    written = b"".join(file.read_bytes() for file in tmp_path.glob("gateway.db*"))
    for secret in (b"the-access-token", b"the-refresh-token", b"ann@example.com", b"the-verifier"):
        assert secret not in written
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE credential_tokens SET sealed = (SELECT sealed FROM credential_tokens WHERE principal = 'ann')"
            " WHERE principal = 'bob'"
        )
    connection.close()
    async with Database(f"sqlite:///{path}") as database:
        with pytest.raises(SealBroken):
            await TokenStore(database, ring).load("shop", "bob")


async def test_a_login_is_recalled_once_and_in_time(url: str, ring: KeyRing) -> None:
    """By one of many concurrent calls."""
    async with Database(url) as database:
        store = TokenStore(database, ring)
        await store.remember("state", "text", 1.0, 100.0)
        found = await asyncio.gather(*(store.recall("state", 50.0) for _ in range(5)))
        assert sorted(found, key=str) == [None, None, None, None, "text"]
        await store.remember("late", "text", 1.0, 100.0)
        assert await store.recall("late", 100.0) is None


@pytest.mark.parametrize("text", ["", "short", "a" * 44 + "!", "é" * 32])
def test_what_is_no_key_is_refused_without_a_word_of_it(text: str) -> None:
    """The error has the remedy and nothing of the value."""
    with pytest.raises(StartError) as refused:
        parse_keys(text)
    assert "rotate-key --print" in str(refused.value)
    assert not text or text not in str(refused.value)


def test_keys_of_the_environment_rotate_by_order() -> None:
    """The first encrypts, all decrypt; the gateway cannot write to the environment."""
    old, new = new_key(), new_key()
    id, sealed = KeyRing(GivenKeys("KEY", Secret(old))).seal("text", "place")
    both = KeyRing(GivenKeys("KEY", Secret(f"{new} {old}")))
    assert both.open(id, sealed, "place") == "text"
    assert both.seal("text", "place")[0] != id
    with pytest.raises(StartError, match="in front of the old ones"):
        both.rotate()


def test_two_processes_make_one_key(tmp_path: Path) -> None:
    """The slower one uses the existing key."""
    file = KeyFile(tmp_path / "gateway.key")
    assert KeyRing(file).ids == KeyRing(file).ids
    assert (tmp_path / "gateway.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["gateway.key"]
