"""Clients that stop in the middle of a body."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from gateway.doors import slow
from tests.world import World

HEAD = (
    "POST {path} HTTP/1.1\r\nhost: {host}.localhost:{port}\r\nwebmcp-gateway-client: 1\r\n"
    "content-type: application/json\r\naccept: application/json, text/event-stream\r\ncontent-length: 10\r\n\r\n"
)


@pytest.mark.parametrize(("host", "path"), [("cart", "/api/cart"), ("gateway", "/mcp/cart")])
async def test_half_a_body_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch, host: str, path: str) -> None:
    """The connection ends by itself, and nothing was asked of the backend."""
    monkeypatch.setattr(slow, "SILENCE", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    writer.write(HEAD.format(path=path, host=host, port=world.gateway.port).encode() + b"[")
    async with asyncio.timeout(10):
        with suppress(ConnectionResetError):
            await reader.read()
    writer.close()
    with suppress(ConnectionResetError):
        await writer.wait_closed()
    assert world.arrived() == []


async def test_a_body_that_grows_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly: each silence is shorter than the bound."""
    monkeypatch.setattr(slow, "SILENCE", 0.5)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    writer.write(HEAD.format(path="/mcp/cart", host="gateway", port=world.gateway.port).encode())
    for byte in b"[       ] ":
        writer.write(bytes([byte]))
        await asyncio.sleep(0.1)
    async with asyncio.timeout(10):
        assert (await reader.readline()).startswith(b"HTTP/1.1 4")
    writer.close()
    await writer.wait_closed()
