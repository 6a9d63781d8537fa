"""No answer names the software that sent it, or its version."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import WSMsgType

from tests.callers.doors import knocks
from tests.world import World

CLIENT = "webmcp-gateway-client: 1\r\n"


async def head(world: World, data: bytes) -> bytes:
    """Return the head of the gateway's answer to these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    writer.write(data)
    writer.write_eof() if not data.endswith(b"\r\n\r\n") else None
    try:
        async with asyncio.timeout(60):
            return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()


def server_fields(found: bytes) -> set[bytes]:
    """Return the values of `Server`."""
    lines = (line.partition(b":") for line in found.split(b"\r\n"))
    return {value.strip() for name, _, value in lines if name.lower() == b"server"}


@pytest.mark.parametrize(
    "lines",
    [
        "GET /healthz HTTP/1.1\r\nhost: {plain}\r\n",
        "GET /no HTTP/1.1\r\nhost: {plain}\r\n" + CLIENT,
        "GET /healthz HTTP/1.1\r\nhost: evil.example\r\n",
        "GET / HTTP/1.1\r\nhost: {console}\r\norigin: null\r\n",
        "GET /assets/no.js HTTP/1.1\r\nhost: {console}\r\n" + CLIENT,
        "POST /approvals/webhook HTTP/1.1\r\nhost: {plain}\r\ncontent-length: 0\r\n",
        "GET /bridge HTTP/1.1\r\nhost: {console}\r\n" + CLIENT,
        "BREW /mcp HTTP/1.1\r\nhost: {plain}\r\n" + CLIENT,
        "GET /metrics HTTP/1.1\r\nhost: {plain}\r\n",
        "GET /api/no-such-thing HTTP/1.1\r\nhost: {site}\r\n" + CLIENT,
        "GET / HTTP/1.1\r\nhost: {sandbox}\r\nsec-fetch-site: none\r\n",
        "GET /mcp HTTP/2.0\r\nhost: {plain}\r\n",
        "GET /healthz HTTP/1.1\r\nhost: {plain}\r\nno colon\r\n",
        "GET /healthz HTTP/1.1\r\nhost: {plain}\r\nx: " + "y" * 70_000 + "\r\n",
        "POST /mcp HTTP/1.1\r\nhost: {plain}\r\ncontent-length: x\r\n",
        "GET http://[ HTTP/1.1\r\nhost: {plain}\r\n",
        "\x16\x03\x01\r\n",
    ],
)
async def test_no_answer_names_software(shared_world: World, lines: str) -> None:
    """Neither of any door, nor of the parser to malformed HTTP."""
    port = shared_world.gateway.port
    names = {name: f"{name}.localhost:{port}" for name in ("sandbox",)}
    names |= {"plain": f"localhost:{port}", "console": f"gateway.localhost:{port}", "site": f"cart.localhost:{port}"}
    found = await head(shared_world, lines.format(**names).encode() + b"\r\n")
    assert found.startswith(b"HTTP/"), found
    assert server_fields(found) == {b"webmcp-gateway"}


async def test_no_door_names_software(shared_world: World) -> None:
    """Nor in successful answers, including the upgrade to a WebSocket and a static file."""
    async with shared_world.client(headers={"webmcp-gateway-client": "1"}) as client:
        for name, knock in knocks(shared_world).items():
            async with client.request(knock.method, knock.url, headers=knock.headers, data=knock.body) as answer:
                assert answer.headers.getall("server") == ["webmcp-gateway"], name
        async with client.ws_connect(f"{shared_world.console}/bridge", protocols=("webmcp-gateway.v1",)) as socket:
            assert socket._response.headers.getall("server") == ["webmcp-gateway"]
            await socket.close()
            assert socket.closed or (await socket.receive()).type is WSMsgType.CLOSED
