"""The connection to Redis: what it refuses, what each failure costs, and that it comes back by itself."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import RedisUnavailable, StartError
from gateway.stores.redis.connection import PROBE, Redis, UnfitRedis, check_fitness
from gateway.stores.redis.rates import RedisBuckets, bucket_of
from gateway.telemetry import Metrics
from gateway.token_buckets import Rate
from tests.certificates import self_signed
from tests.redis_server import RedisServer, redis_server
from tests.stores.redis.conftest import failures, is_back, until
from tests.world import bind_socket

FIT = {"redis_version": "7.0.15", "redis_mode": "standalone", "role": "master", "maxmemory_policy": "noeviction"}
GATEWAY_RIGHTS = (
    "~webmcp:*", "&webmcp:*", "-@all", "+info", "+ping", "+select", "+client|setname", "+eval", "+evalsha",
    "+script|load", "+time", "+type", "+get", "+set", "+hget", "+hset", "+pexpire",
)  # fmt: skip
PER_HOUR = Rate(3, 3600.0)


async def take(redis: Redis, key: str = "webmcp:rate:x") -> bool:
    """Take one of three cells; return whether there was one."""
    return (await RedisBuckets(redis).take([bucket_of(PER_HOUR, key)])).exceeded is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"redis_version": "6.2.14"}, "this is Redis 6.2.14: Redis 7 or Valkey is required"),
        ({"redis_version": ""}, "of an unknown version"),
        ({"redis_mode": "cluster"}, "Redis Cluster, where the keys of one call lie on several servers"),
        ({"cluster_enabled": "1"}, "Redis Cluster"),
        ({"redis_mode": "sentinel"}, "this is a Sentinel"),
        ({"role": "slave"}, "this is a replica"),
        ({"maxmemory_policy": "allkeys-lru"}, "its maxmemory-policy is allkeys-lru, which evicts keys"),
    ],
)
def test_a_redis_that_is_unfit_is_refused_with_its_reason(wrong: dict[str, str], said: str) -> None:
    """Its version, its role and its configuration count; a Valkey declares the version that it continues."""
    check_fitness(FIT | {"server_name": "valkey", "valkey_version": "8.1.0", "redis_version": "7.2.4"})
    with pytest.raises(UnfitRedis, match=said):
        check_fitness(FIT | wrong)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, "maxmemory-policy is allkeys-lru"),
        ({"cluster_enabled": "yes"}, "Redis Cluster"),
        ({"replicaof": "127.0.0.1 1"}, "this is a replica"),
        ({"requirepass": "another-Zq8password"}, "Redis refuses this gateway"),
    ],
)
async def test_a_start_with_an_unfit_redis_is_refused(settings: dict[str, str], said: str) -> None:
    """The message names the setting."""
    with redis_server(**settings) as server, pytest.raises(StartError, match=r"^stores\.redis: ") as refused:
        async with Redis(server.url, Metrics()):
            pass
    assert said in str(refused.value)


async def test_a_user_with_too_few_rights_is_refused(server: RedisServer) -> None:
    """It needs scripts: without them each call would fail."""
    server.ask("ACL", "SETUSER", "reader", "on", ">Zq8few-rights", "~*", "+info", "+client", "+select")
    with pytest.raises(StartError, match=r"Redis refuses this gateway: .*eval"):
        async with Redis(f"redis://reader:Zq8few-rights@127.0.0.1:{server.port}/0", Metrics()):
            pass


async def test_a_redis_that_is_not_there_is_no_reason_not_to_start(
    server: RedisServer, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    """A gateway that restarts meanwhile serves with local limits; it connects once Redis is there, and says both."""
    server.stop()
    async with Redis(server.url, metrics) as redis:
        assert redis.problem is not None
        with pytest.raises(RedisUnavailable):
            await take(redis)
        server.start()
        await is_back(redis)
        assert await take(redis)
    lines = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [line.partition(":")[0] for line in lines] == ["Redis cannot be used", "Redis can be used again"]


def pause(server: RedisServer) -> None:
    """Let all commands of clients wait."""
    server.ask("CLIENT", "PAUSE", 600_000, "ALL")


def pause_writes(server: RedisServer) -> None:
    """Let all commands that write wait."""
    server.ask("CLIENT", "PAUSE", 600_000, "WRITE")


def end_pause(server: RedisServer) -> None:
    """The only command that a paused server answers is this one's connection… so it is killed and started again."""
    server.stop()
    server.start()


def unpause(server: RedisServer) -> None:
    """End a pause of writes."""
    server.ask("CLIENT", "UNPAUSE")


def demote(server: RedisServer) -> None:
    """Make it a replica of a server that is not there."""
    server.ask("REPLICAOF", "127.0.0.1", 1)


def promote(server: RedisServer) -> None:
    """Make it a primary."""
    server.ask("REPLICAOF", "NO", "ONE")


def evict(server: RedisServer) -> None:
    """Let it evict keys."""
    server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-random")


def keep(server: RedisServer) -> None:
    """Let it evict none."""
    server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")


def fill(server: RedisServer) -> None:
    """Let its memory be full."""
    server.ask("CONFIG", "SET", "maxmemory", 1)


def empty(server: RedisServer) -> None:
    """Let it have memory."""
    server.ask("CONFIG", "SET", "maxmemory", 0)


def require_replicas(server: RedisServer) -> None:
    """Let it refuse writes without a replica."""
    server.ask("CONFIG", "SET", "min-replicas-to-write", 1)


def require_none(server: RedisServer) -> None:
    """Let it write without a replica."""
    server.ask("CONFIG", "SET", "min-replicas-to-write", 0)


@pytest.mark.parametrize(
    ("break_it", "mend_it", "said", "counted"),
    [
        (RedisServer.stop, RedisServer.start, "", "connection"),
        (RedisServer.freeze, RedisServer.thaw, "it does not answer within", "timeout"),
        (pause, end_pause, "it does not answer within", "timeout"),
        (pause_writes, unpause, "it does not answer within", "timeout"),
        (demote, promote, "", "error"),
        (evict, keep, "maxmemory-policy is allkeys-random", "unfit"),
        (fill, empty, "its memory is full", "error"),
        (require_replicas, require_none, "too few replicas", "error"),
    ],
    ids=["killed", "frozen", "paused", "writes paused", "read-only", "evicting", "full", "without replicas"],
)
async def test_a_redis_that_fails_is_left_alone_until_it_works(
    server: RedisServer,
    metrics: Metrics,
    break_it: Callable[[RedisServer], None],
    mend_it: Callable[[RedisServer], None],
    said: str,
    counted: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commands fail at once while the circuit is open; it closes only after a write has worked."""
    monkeypatch.setattr("gateway.stores.redis.connection.CHECKED", 0.2)
    async with Redis(server.url, metrics) as redis:
        assert await take(redis)
        break_it(server)
        with contextlib.suppress(RedisUnavailable):
            await take(redis)
        await until(lambda: not redis.usable)
        assert said in (redis.problem or "")
        assert counted in failures(metrics)
        sent = metrics.redis_seconds
        before = rounds(sent)
        for _ in range(100):
            with pytest.raises(RedisUnavailable):
                await take(redis)
        assert rounds(sent) == before
        await asyncio.sleep(0.6)  # several attempts of the reconnection
        assert not redis.usable
        mend_it(server)
        await is_back(redis)
        assert await take(redis, "webmcp:rate:new")


def rounds(durations: Any) -> float:
    """Return the number of round trips so far."""
    (family,) = durations.collect()
    return sum([float(sample.value) for sample in family.samples if sample.name.endswith("_count")])


async def test_lost_scripts_are_loaded_again(server: RedisServer, metrics: Metrics) -> None:
    """A Redis may forget them without a restart; nothing fails, and no cell counts twice."""
    async with Redis(server.url, metrics) as redis:
        assert await take(redis)
        server.ask("SCRIPT", "FLUSH")
        assert [await take(redis) for _ in range(3)] == [True, True, False]
    assert failures(metrics) == set()


async def test_commands_of_callers_that_have_gone_hurt_no_other(server: RedisServer, metrics: Metrics) -> None:
    """Half of twenty concurrent calls are cancelled."""
    async with Redis(server.url, metrics) as redis:
        calls = [asyncio.ensure_future(take(redis, f"webmcp:rate:{number}")) for number in range(20)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert outcomes[1::2] == [True] * 10
        assert await take(redis)


async def test_calls_that_come_together_share_a_round_trip(server: RedisServer, metrics: Metrics) -> None:
    """A hundred calls in one turn of the loop need one batch."""
    async with Redis(server.url, metrics) as redis:
        before = rounds(metrics.redis_seconds)
        await asyncio.gather(*[redis.calls.run(PROBE, ["webmcp:probe"], []) for _ in range(100)])
        assert rounds(metrics.redis_seconds) == before + 1


async def test_only_keys_with_the_prefix_are_written(server: RedisServer, metrics: Metrics) -> None:
    """Others may share the server, though not its eviction policy."""
    server.ask("SET", "theirs", "1")
    async with Redis(server.url, metrics) as redis:
        await take(redis)
        assert {key.partition(":")[0] for key in server.names()} == {"theirs", "webmcp"}


async def test_tls_with_an_own_authority_and_a_user_of_its_own(tmp_path: Path, metrics: Metrics) -> None:
    """`rediss://`: both ends have a certificate; without the authority, or with another password, it is not used."""
    certificate, key = self_signed("localhost")
    (tmp_path / "redis.pem").write_bytes(certificate)
    (tmp_path / "redis.key").write_bytes(key)
    pem, private = str(tmp_path / "redis.pem"), str(tmp_path / "redis.key")
    with bind_socket() as reserved:
        port = int(reserved.getsockname()[1])
        with redis_server(
            tls_port=str(port), tls_cert_file=pem, tls_key_file=private, tls_ca_cert_file=pem, tls_auth_clients="yes"
        ) as server:
            server.ask("ACL", "SETUSER", "gateway", "on", ">Zq8tls-password", *GATEWAY_RIGHTS)
            place = f"localhost:{port}/0?ssl_ca_certs={pem}"
            own = f"&ssl_certfile={pem}&ssl_keyfile={private}"
            async with Redis(f"rediss://gateway:Zq8tls-password@{place}{own}", metrics) as redis:
                assert redis.problem is None
                assert await take(redis)
            with pytest.raises(StartError, match="Redis refuses this gateway"):
                async with Redis(f"rediss://gateway:Zq8another-one@{place}{own}", metrics):
                    pass
            for where in (f"localhost:{port}/0", place):  # without the authority, and without a certificate of its own
                async with Redis(f"rediss://gateway:Zq8tls-password@{where}", metrics) as redis:
                    assert redis.problem is not None
                    with pytest.raises(RedisUnavailable):
                        await take(redis)
