"""Wrong tokens are counted by address, in bounded memory, and looked up at a limited rate."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

import pytest

from gateway.doors import client_limits
from gateway.doors.client_limits import Lookup, LookupLimits
from gateway.policy import Rate
from gateway.stores.redis.connection import Redis
from gateway.stores.redis.rates import RedisAttempts, RedisBuckets
from gateway.telemetry import Metrics
from tests.clock import Clock
from tests.redis_server import be_patient, redis_server


@pytest.mark.bound("look-ups of invalid opaque tokens and login codes at an issuer")
async def test_an_address_asks_so_often_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A valid token costs nothing, and one IPv6 subscriber is one address."""
    monkeypatch.setattr(client_limits, "WRONG", Rate(3, 60.0))
    clock = Clock()
    counted = LookupLimits(clock)

    async def asks(address: str, *, right: bool = False) -> bool:
        guess = Lookup(counted, lambda: ip_address(address))
        asked = await guess.may_ask() and await guess.may_ask()
        if right:
            guess.right()
        return asked

    assert all([await asks("2001:db8::1", right=True) for _ in range(10)])
    assert [await asks(f"2001:db8::{number}") for number in range(1, 6)] == [True, True, True, False, False]
    assert await asks("2001:db8:0:1::1")
    assert await asks("192.0.2.1")
    clock.now += 20.1
    assert [await asks("2001:db8::9"), await asks("2001:db8::9")] == [True, False]


@pytest.mark.bound("addresses with counted invalid tokens")
async def test_whoever_has_many_addresses_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further addresses of a network count together; those of another network are not affected."""
    monkeypatch.setattr(client_limits, "WRONG", Rate(2, 60.0))
    monkeypatch.setattr(client_limits, "EACH", 4)
    monkeypatch.setattr(client_limits, "IN_ALL", 8)
    counted = LookupLimits(Clock())
    network = int(IPv6Address("2001:db8::"))
    own = [await counted.take(IPv6Address(network + (number << 64))) for number in range(4)]
    assert all(own)
    further = [await counted.take(IPv6Address(network + (number << 64))) for number in range(4, 100)]
    assert [bool(one) for one in further] == [True, True, *[False] * 94]
    assert await counted.take(ip_address("192.0.2.1"))
    for number in range(100):
        await counted.take(IPv6Address(network + (number << 80)))
    assert len(counted) <= 8 + 1
    assert await counted.take(ip_address("192.0.2.1"))


async def test_several_processes_count_an_address_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Redis, without the address; a valid token costs none of them anything, and each counts alone without Redis."""
    be_patient(monkeypatch)
    monkeypatch.setattr(client_limits, "WRONG", Rate(4, 3600.0))
    address = ip_address("192.0.2.77")
    with redis_server() as server:
        async with Redis(server.url, Metrics()) as here, Redis(server.url, Metrics()) as there:
            one, other = (LookupLimits(attempts=RedisAttempts(RedisBuckets(redis))) for redis in (here, there))
            for limits in (one, other) * 2:
                assert await limits.take(address)
            assert not await one.take(address)
            assert not await other.take(address)
            assert await other.take(ip_address("192.0.2.78"))
            assert not any("192.0.2" in name for name in server.names())
            one.give_back((4, int(address)))
            assert await other.take(address)
            here.fail(OSError("the network is down"))
            assert await one.take(address)
