"""A network between gateways and Redis that is slow or broken, and a failover to a replica that is behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gateway.errors import RedisUnavailable
from gateway.model import LOCAL
from gateway.policy import Rate
from gateway.stores.redis.connection import Redis
from gateway.stores.redis.rates import RedisBuckets, bucket_of
from gateway.telemetry import Metrics
from tests.redis_server import RedisServer, be_patient, redis_server
from tests.stores.redis.conftest import failures, is_back, until
from tests.stores.redis.test_directory import gateway, view


class Network:
    """A proxy before a Redis: `port` is where it leads, `delay` the seconds that each answer waits, None for ever."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.delay: float | None = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client."""
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.TaskGroup() as tasks:
                for task in (
                    tasks.create_task(self._carry(reader, back, answers=False)),
                    tasks.create_task(self._carry(there, writer, answers=True)),
                ):
                    self._tasks.add(task)
        except* (OSError, ConnectionError):
            pass
        finally:
            for one in (writer, back):
                one.close()
                with contextlib.suppress(OSError):
                    await one.wait_closed()

    def cut(self) -> None:
        """Break all connections."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(65536):
            while answers and self.delay is None:
                await asyncio.sleep(0.05)
            if answers and self.delay:
                await asyncio.sleep(self.delay)
            writer.write(data)
            await writer.drain()
        raise ConnectionError("the other end has closed")


@asynccontextmanager
async def network(server: RedisServer) -> AsyncIterator[tuple[Network, str]]:
    """The proxy, and the URL that leads through it."""
    made = Network(server.port)
    listening = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    try:
        yield made, f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}/0"
    finally:
        listening.close()
        made.cut()
        await asyncio.sleep(0.1)


async def take(redis: Redis) -> bool:
    """Take one of three cells; return whether there was one."""
    return (await RedisBuckets(redis).take([bucket_of(Rate(3, 3600.0), "webmcp:rate:x")])).exceeded is None


async def test_a_redis_that_is_too_slow_costs_calls_nothing(
    server: RedisServer, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow one is waited for; one that is slower than the timeout is left alone until it is faster."""
    be_patient(monkeypatch, 1.0)
    async with network(server) as (between, url), Redis(url, metrics) as redis:
        between.delay = 0.05
        assert await take(redis)
        between.delay = 2.0
        with pytest.raises(RedisUnavailable, match="does not answer within"):
            await take(redis)
        assert not redis.usable
        with pytest.raises(RedisUnavailable):
            await take(redis)
        between.delay = 0.0
        await is_back(redis)
        assert await take(redis)
        assert failures(metrics) == {"timeout"}


async def test_a_partition_is_noticed_and_its_end_too(server: RedisServer, metrics: Metrics) -> None:
    """No packet says that the other side is gone."""
    async with network(server) as (between, url), Redis(url, metrics) as redis:
        assert await take(redis)
        between.delay = None
        with pytest.raises(RedisUnavailable):
            await take(redis)
        await asyncio.sleep(0.6)
        assert not redis.usable
        between.delay = 0.0
        await is_back(redis)
        assert await take(redis)


async def test_a_stale_replica_that_is_promoted_is_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that it does not know may be made again; views are all right after a moment."""
    monkeypatch.setattr("gateway.stores.redis.connection.CHECKED", 0.5)
    with redis_server() as primary, TemporaryDirectory() as folder:
        replica = RedisServer(Path(folder), replicaof=f"127.0.0.1 {primary.port}")
        replica.start()
        try:
            async with (
                network(primary) as (between, url),
                gateway(url, "a") as one,
                gateway(url, "b") as other,
            ):
                for members in (one.members, other.members, one.members):
                    await members.announce()
                one.directory.put(LOCAL, view("kept"))
                one.directory.put(LOCAL, view("gone", 2.0))
                assert await take(one.redis)
                await until(lambda: [found.id for found in other.directory.of(LOCAL)] == ["kept", "gone"])
                await until(lambda: "webmcp:rate:x" in replica.names() and len(replica.names()) >= 4)
                replica.ask("REPLICAOF", "NO", "ONE")
                one.directory.remove(LOCAL, "gone")
                one.directory.put(LOCAL, view("new", 3.0))
                assert [await take(one.redis) for _ in range(3)] == [True, True, False]
                await until(lambda: [found.id for found in other.directory.of(LOCAL)] == ["kept", "new"])
                between.port = replica.port
                between.cut()
                await until(lambda: not one.redis.usable or one.redis.problem is None)
                await asyncio.sleep(1)
                await is_back(one.redis)
                await is_back(other.redis)
                assert [await take(one.redis) for _ in range(3)] == [True, True, False]
                expected = tuple(replace(found, owner="incarnation of a") for found in one.directory.of(LOCAL))
                await until(lambda: other.directory.of(LOCAL) == expected)
                assert [found.id for found in expected] == ["kept", "new"]
        finally:
            replica.stop()
