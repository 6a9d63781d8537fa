"""Wrong tokens are counted by address, in bounded memory, and looked up at a limited rate."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

import pytest

from gateway.doors import client_limits
from gateway.doors.client_limits import Lookup, LookupLimits
from gateway.policy import Rate
from tests.clock import Clock


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
