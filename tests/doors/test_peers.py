"""Open connections of clients are bounded by address and in total."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from gateway.doors import runner
from gateway.doors.client_connection import ConnectionLimits
from gateway.doors.client_limits import Peers, Unread
from gateway.doors.runner import ClientConnections
from tests.doors.test_in_flight import configure
from tests.doors.test_metrics import scrape, total
from tests.world import World, running


def take_places(peers: Peers, *addresses: str) -> list[bool]:
    """Return whether each of these connections gets a place."""
    return [peers.take(address) is not None for address in addresses]


@pytest.mark.bound("client connections")
def test_an_address_has_so_many_connections() -> None:
    """An IPv6 network counts as one address; each address has a bound, and a closed connection frees its place."""
    peers = Peers(2, 100)
    assert take_places(peers, "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2") == [True, True, False, True]
    six = [peers.take(f"2001:db8::{number}") for number in (1, 2, 3)]
    assert [place is not None for place in six] == [True, True, False]
    assert take_places(peers, "2001:db8:0:1::1", "::ffff:192.0.2.1") == [True, False]
    peers.give(six[0] or "")
    assert take_places(peers, "2001:db8::9", "2001:db8::a") == [True, False]


@pytest.mark.bound("client connections")
def test_all_together_have_so_many() -> None:
    """Once half of the places are taken, an address with many gets no more, while others do."""
    peers = Peers(100, 128)
    assert all(take_places(peers, *["192.0.2.1"] * 65))
    assert take_places(peers, *["192.0.2.2"] * 3) == [True, True, False]
    assert take_places(peers, "192.0.2.1", "192.0.2.3") == [False, True]


@pytest.mark.parametrize("remote", ["127.0.0.1", "::1", "127.9.9.9", "198.51.100.7", "/run/gateway.sock", None])
def test_behind_a_proxy_an_address_tells_nothing(remote: str | None) -> None:
    """Each connection of a proxy, or of this machine, counts for itself; only the total is bounded."""
    peers = Peers(2, 100, (ip_network("198.51.100.0/24"),))
    places = [peers.take(remote) for _ in range(101)]
    assert None not in places[:100]
    assert places[100] is None


def test_connections_leave_files_to_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """For connections to backends, and for the database."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (40, 40))
    assert take_places(Peers(1000, 1000), *["127.0.0.1"] * 31) == [True] * 30 + [False]


@asynccontextmanager
async def listening(peers: Peers) -> AsyncIterator[tuple[str, int]]:
    """Yield a real server that reads nothing of a refused connection."""
    made = ClientConnections(cast(Any, None), ConnectionLimits(peers, Unread(), lambda _: None))
    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()
        await made.drain(0)


async def test_one_too_many_is_told_so_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """For any request; a closed connection frees its place."""
    monkeypatch.setattr("gateway.doors.client_limits.address_of", lambda _: ip_address("192.0.2.1"))
    async with asyncio.timeout(60), listening(Peers(1, 100)) as (host, port):
        _, first = await asyncio.open_connection(host, port)
        reader, second = await asyncio.open_connection(host, port)
        said = await reader.read()
        assert said.startswith(b"HTTP/1.1 503 ")
        assert b"server.connections_each" in said
        second.close()
        first.close()
        await first.wait_closed()
        while True:
            reader, third = await asyncio.open_connection(host, port)
            try:
                async with asyncio.timeout(0.2):
                    refused = await reader.read(1)
            except TimeoutError:
                refused = b""
            third.close()
            if not refused:
                break


@pytest.mark.bound("idle connections")
async def test_an_idle_connection_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that never sent anything."""
    monkeypatch.setattr(runner, "IDLE", 0.1)
    monkeypatch.setattr(runner, "SWEEP", 0.05)
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
        assert await reader.read() == b""
        writer.close()


@pytest.mark.bound("client connections")
async def test_the_gateway_holds_to_what_is_configured(tmp_path: Path) -> None:
    """One connection too many is refused, counted and recorded; a closed one frees its place."""
    async with asyncio.timeout(60), running(tmp_path, extra="auth: [token]\n") as world:
        configure(world, "connections: 2")
        await world.gateway.stop()
        await world.start_gateway()
        open_ones = [await asyncio.open_connection("127.0.0.1", world.gateway.port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        writer.close()
        for _, one in open_ones:
            one.close()
            await one.wait_closed()
        while True:
            with suppress(aiohttp.ClientError):
                metrics = await scrape(world)
                break
        assert total(metrics, "bounds_exceeded_total", bound="client connections") >= 1
        await world.gateway.stop()
        (said,) = (line["fields"] for line in world.records() if line["fields"].get("of") == "bound")
        assert (said["bound"], said["principal"], said["client"]) == ("client connections", None, "127.0.0.1")
