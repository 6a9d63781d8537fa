"""Idle connections are kept for the next request."""

import asyncio

import pytest

from gateway.backends import connection_pool
from gateway.backends.http import HttpBackend
from gateway.model import Outbound
from tests.backends.peers import raw_peer

KEPT = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def keeps(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer, and wait for the next request."""
    writer.write(KEPT)
    await writer.drain()


async def test_a_connection_that_nobody_needs_is_closed(backend: HttpBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle connection is reused until it has been unused for too long."""
    async with raw_peer(keeps) as peer, asyncio.timeout(60):
        for _ in range(2):
            await backend.send(Outbound("GET", peer.url()))
        assert peer.connections == 1
        assert not peer.closed.is_set()
    monkeypatch.setattr(connection_pool, "KEEP_ALIVE_SECONDS", 0.05)
    async with raw_peer(keeps) as peer, asyncio.timeout(60):
        await backend.send(Outbound("GET", peer.url()))
        await peer.closed.wait()
