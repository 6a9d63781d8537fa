"""The directory over several gateways: seen at once, signed, and right again after every loss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gateway.bounds import Shares
from gateway.crypto import SigningKeys
from gateway.model import LOCAL, Principal, ViewTool
from gateway.policy import Rate
from gateway.ports.views import LiveView
from gateway.stores.redis import directory as module
from gateway.stores.redis.connection import Redis
from gateway.stores.redis.directory import RedisDirectory
from gateway.stores.redis.members import Members
from gateway.stores.redis.rates import RedisBuckets, RedisShares, bucket_of, short
from gateway.telemetry import Metrics
from gateway.views.memory import MemoryDirectory
from tests.redis_server import RedisServer
from tests.stores.redis.conftest import failures, until

EVE = replace(LOCAL, subject="eve-Zq8")
ADD = ViewTool("cart_add", "add", "Add", "Adds.", {"type": "object"}, {"readOnlyHint": True}, None)
KEYS = SigningKeys((b"k" * 32,))


@dataclass
class Gateway:
    """The part of a gateway that knows views."""

    redis: Redis
    members: Members
    directory: RedisDirectory
    metrics: Metrics
    kill: Callable[[], None]

    def ids(self, principal: Principal = LOCAL) -> list[str]:
        """Return the ids of a principal's views, oldest first."""
        return [view.id for view in self.directory.of(principal)]


@asynccontextmanager
async def gateway(url: str, node: str, keys: SigningKeys = KEYS) -> AsyncIterator[Gateway]:
    """Run one; at the end it leaves, unless it was killed."""
    metrics = Metrics()
    async with Redis(url, metrics) as redis:
        members = Members(redis, node)
        directory = RedisDirectory(redis, members, MemoryDirectory(), keys, lambda: f"incarnation of {node}")
        jobs = [asyncio.ensure_future(members.run()), asyncio.ensure_future(directory.run())]
        killed: list[bool] = []

        def kill() -> None:
            killed.append(True)
            for job in jobs:
                job.cancel()

        try:
            yield Gateway(redis, members, directory, metrics, kill)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            if not killed:
                await directory.close()
                await members.leave()


@asynccontextmanager
async def two(server: RedisServer) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """Two gateways that know each other."""
    async with gateway(server.url, "a") as one, gateway(server.url, "b") as other:
        for members in (one.members, other.members, one.members):
            await members.announce()
        yield one, other


def view(id: str, opened: float = 1.0, *tools: ViewTool, app: str = "cart", owner: str = "") -> LiveView:
    """Return a live view."""
    return LiveView(id, app, app.title(), opened, tools, owner)


async def test_a_view_is_seen_at_another_gateway_with_its_tools_and_owner(server: RedisServer) -> None:
    """Of the principal who has it alone, in the order of their opening; a change and the end are seen, too."""
    async with two(server) as (one, other):
        one.directory.put(LOCAL, view("first", 1.0, ADD))
        other.directory.put(LOCAL, view("second", 2.0))
        await until(lambda: one.ids() == other.ids() == ["first", "second"])
        owned = view("first", 1.0, ADD, owner="incarnation of a")
        assert other.directory.of(LOCAL, "cart") == (owned, view("second", 2.0))
        assert other.directory.of(LOCAL, "notes") == other.directory.of(EVE) == ()
        assert [found for _, found in other.directory.all()] == [owned, view("second", 2.0)]
        seen: list[tuple[Principal, int]] = []
        other.directory.watch(lambda whose: seen.append((whose, len(other.directory.of(whose)[0].tools))))
        one.directory.put(LOCAL, view("first", 1.0))
        await until(lambda: seen == [(LOCAL, 0)])
        one.directory.remove(LOCAL, "first")
        await until(lambda: other.ids() == ["second"])


async def test_the_first_call_of_a_principal_waits_for_its_views(server: RedisServer) -> None:
    """A client without a session, which cannot be notified, finds the tool at once."""
    async with two(server) as (one, other):
        one.directory.put(LOCAL, view("first", 1.0, ADD))
        await until(lambda: any(name.startswith("webmcp:views:") for name in server.names()))
        waits = other.directory.learn(LOCAL)
        assert waits is not None
        await waits
        assert other.ids() == ["first"]
        assert other.directory.learn(LOCAL) is None


async def test_redis_holds_no_name_of_a_person(server: RedisServer) -> None:
    """Keys are digests; a content has the tools of the page."""
    async with two(server) as (one, other):
        one.directory.put(EVE, view("first", 1.0, ADD))
        await until(lambda: other.ids(EVE) == ["first"])
        (key,) = [name for name in server.names() if name.startswith("webmcp:views:")]
        stored = b" ".join(
            server.ask("HGETALL", key).values()
            if isinstance(server.ask("HGETALL", key), dict)
            else server.ask("HGETALL", key)
        )
        assert b"cart_add" in stored
        assert "eve-Zq8" not in " ".join(server.names())
        assert b"eve-Zq8" not in stored


@pytest.mark.parametrize("loss", ["FLUSHALL", "restart", "frozen"])
async def test_every_loss_is_made_up_for(server: RedisServer, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views come, change and go meanwhile; afterwards both gateways know the same."""
    monkeypatch.setattr("gateway.stores.redis.connection.CHECKED", 0.5)
    monkeypatch.setattr("gateway.stores.redis.members.BEAT", 0.5)
    async with two(server) as (one, other):
        for opened, id in enumerate(("kept", "changed", "gone"), 1):
            one.directory.put(LOCAL, view(id, opened))
        await until(lambda: len(other.ids()) == 3)
        if loss == "FLUSHALL":
            server.ask("FLUSHALL")
        else:
            server.stop() if loss == "restart" else server.freeze()
            await until(lambda: not one.redis.usable and not other.redis.usable)
        one.directory.put(LOCAL, view("changed", 2.0, ADD))
        one.directory.remove(LOCAL, "gone")
        one.directory.put(LOCAL, view("new", 4.0))
        if loss == "restart":
            server.start()
        elif loss == "frozen":
            server.thaw()
        expected = [view("kept"), view("changed", 2.0, ADD), view("new", 4.0)]
        await until(
            lambda: other.directory.of(LOCAL) == tuple(replace(one, owner="incarnation of a") for one in expected)
        )


async def test_without_redis_there_are_the_views_of_this_gateway(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy counts for a while, so that a short loss changes nothing; then watchers are notified."""
    monkeypatch.setattr(module, "EVERY", 1.0)
    async with two(server) as (one, other):
        one.directory.put(LOCAL, view("theirs"))
        other.directory.put(LOCAL, view("own", 2.0))
        await until(lambda: other.ids() == ["theirs", "own"])
        server.stop()
        await until(lambda: not other.redis.usable)
        assert other.ids() == ["theirs", "own"]
        seen: list[Principal] = []
        other.directory.watch(seen.append)
        await until(lambda: other.ids() == ["own"])
        assert seen == [LOCAL]
        other.directory.put(LOCAL, view("more", 3.0))
        assert other.ids() == ["own", "more"]


async def test_the_views_of_a_killed_gateway_go(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has not announced itself for some time; those of one that stopped go at once."""
    monkeypatch.setattr("gateway.stores.redis.members.LIFE", 2.0)
    monkeypatch.setattr("gateway.stores.redis.members.BEAT", 0.5)
    async with gateway(server.url, "b") as other:
        async with gateway(server.url, "a") as one:
            one.directory.put(LOCAL, view("left"))
            await until(lambda: other.ids() == ["left"])
            one.kill()
            seen: list[Principal] = []
            other.directory.watch(seen.append)
            await until(lambda: other.ids() == [])
            assert LOCAL in seen
        async with gateway(server.url, "c") as third:
            third.directory.put(LOCAL, view("stopped"))
            await until(lambda: other.ids() == ["stopped"])
        await until(lambda: other.ids() == [])


async def test_a_missed_message_is_made_up_for(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is read again every 30 seconds, here every second."""
    monkeypatch.setattr(module, "EVERY", 1.0)
    async with two(server) as (one, other):
        one.directory.put(LOCAL, view("first"))
        await until(lambda: other.ids() == ["first"])
        for name in [name for name in server.names() if name.startswith("webmcp:interest:")]:
            server.ask("DEL", name)
        one.directory.put(LOCAL, view("second", 2.0))
        await until(lambda: other.ids() == ["first", "second"])


@pytest.mark.parametrize("content", ["9:a:00:{}", "x", "", "9:a", "9:a:bad:" + "{" * 9])
async def test_who_can_only_write_into_redis_shows_no_model_a_tool(server: RedisServer, content: str) -> None:
    """Nor by a view of another principal or of other keys; the valid ones stay."""
    async with two(server) as (one, other), gateway(server.url, "c", SigningKeys((b"x" * 32,))) as stranger:
        one.directory.put(LOCAL, view("first", 1.0, ADD))
        one.directory.put(EVE, view("eve's"))
        await until(lambda: other.ids() == ["first"] and other.ids(EVE) == ["eve's"])
        mine, eves = (f"webmcp:views:{short('views', who.id)}" for who in (LOCAL, EVE))
        stranger.directory.put(LOCAL, view("forged", 1.0, ADD))
        server.ask("HSET", mine, "forged too", content)
        server.ask("HSET", mine, "eve's", server.ask("HGET", eves, "eve's"))
        server.ask("HSET", mine, "renamed", server.ask("HGET", mine, "first"))
        one.directory.put(LOCAL, view("second", 2.0))
        await until(lambda: "second" in other.ids())
        assert other.ids() == ["first", "second"]
        assert "foreign" in failures(other.metrics)


@pytest.mark.parametrize(
    "write", [("SET", "KEY", "x"), ("LPUSH", "KEY", "x"), ("HSET", "KEY", "#", "nan"), ("HSET", "KEY", "#", "9e99")]
)
async def test_foreign_data_under_its_keys_are_replaced(server: RedisServer, write: tuple[str, ...]) -> None:
    """Of whatever type; the next change is seen."""
    async with two(server) as (one, other):
        one.directory.put(LOCAL, view("first"))
        await until(lambda: other.ids() == ["first"])
        for kind in ("views", "interest"):
            key = f"webmcp:{kind}:{short('views', LOCAL.id)}"
            if kind == "views" or write[0] != "HSET":
                server.ask("DEL", key)
                server.ask(*(key if word == "KEY" else word for word in write))
        one.directory.rewrite()
        one.directory.put(LOCAL, view("second", 2.0))
        other.directory._reconnected()
        await until(lambda: other.ids() == ["first", "second"])


@pytest.mark.bound("principals whose views at other processes are followed")
async def test_the_number_of_followed_principals_is_bounded(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that called least recently is followed again at its next call."""
    monkeypatch.setattr(module, "FOLLOWED", 2)
    async with two(server) as (one, other):
        people = [replace(LOCAL, subject=name) for name in ("x", "y", "z")]
        for who in people:
            one.directory.put(who, view(f"of {who.subject}"))
        for who in (*people, *people):
            await until(lambda who=who: other.ids(who) == [f"of {who.subject}"])  # type: ignore[misc]  # bound at once
        assert len(other.directory._followed) == 2


async def test_a_user_with_the_documented_rights_suffices(server: RedisServer) -> None:
    """Every command that a gateway sends works, also those in its scripts."""
    text = (Path(__file__).parents[3] / "docs" / "deployment.md").read_text("utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("ACL SETUSER")]
    server.ask(*line.replace("PASSWORD", "Zq8all-rights").split())
    url = f"redis://gateway:Zq8all-rights@127.0.0.1:{server.port}/0"
    async with gateway(url, "a") as one, gateway(url, "b") as other:
        one.directory.put(LOCAL, view("first"))
        await until(lambda: other.ids() == ["first"])
        one.directory.put(LOCAL, view("first", 1.0, ADD))
        await until(lambda: other.directory.of(LOCAL)[0].tools == (ADD,))
        buckets, shares = RedisBuckets(one.redis), Shares(100, 100)
        for field in ("", "view"):
            taken = await buckets.take([bucket_of(Rate(3, 60.0), f"webmcp:rate:{field}", field)])
            buckets.give_back(taken.buckets)
        assert shares.take("ada", 50)
        await RedisShares(one.redis, one.members, {"bodies": shares}).exchange()
        assert failures(one.metrics) == failures(other.metrics) == set()
