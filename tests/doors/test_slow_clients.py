"""Clients that stop in the middle of a request, or send it in a trickle."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest

from gateway.doors import client_limits, runner
from gateway.model import LARGEST_BODY
from tests.doors.bridge.test_bridge import console
from tests.mcp.fast_cases import HEAD as CALL_HEAD
from tests.mcp.fast_cases import message
from tests.mcp.mounts import Mount
from tests.world import World

HEAD = (
    "POST {path} HTTP/1.1\r\nhost: {host}.localhost:{port}\r\nwebmcp-gateway-client: 1\r\n"
    "content-type: application/json\r\naccept: application/json, text/event-stream\r\ncontent-length: 10\r\n\r\n"
)


@pytest.mark.parametrize(("host", "path"), [("cart", "/api/cart"), ("gateway", "/mcp/cart")])
async def test_half_a_body_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch, host: str, path: str) -> None:
    """The connection is closed, and the backend received nothing."""
    monkeypatch.setattr(client_limits, "SILENCE", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    writer.write(HEAD.format(path=path, host=host, port=world.gateway.port).encode() + b"[")
    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):
            await reader.read()
    writer.close()
    with suppress(ConnectionResetError):
        await writer.wait_closed()
    assert world.arrived() == []


DOORS = [
    ("localhost", "/mcp"),
    ("localhost", "/healthz"),
    ("cart.localhost", "/api/cart"),
    ("gateway.localhost", "/mcp/cart"),
    ("gateway.localhost", "/bridge"),
    ("gateway.localhost", "/api/state"),
    ("sandbox.localhost", "/"),
    ("nobody.example", "/"),
]


async def send_slowly(world: World, first: bytes, byte: bytes) -> None:
    """Send the first part, then a byte at a time, until the gateway closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    writer.write(first)

    async def trickle() -> None:
        with suppress(ConnectionError):
            while True:
                writer.write(byte)
                await writer.drain()
                await asyncio.sleep(0.02)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        trickling = tasks.create_task(trickle())
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        trickling.cancel()
    writer.close()
    with suppress(ConnectionResetError):
        await writer.wait_closed()


@pytest.mark.parametrize(("host", "path"), DOORS, ids=lambda text: text)
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.bound("incomplete request heads")
async def test_a_head_that_trickles_is_cut_at_every_door(
    world: World, monkeypatch: pytest.MonkeyPatch, host: str, path: str, method: str
) -> None:
    """Although it never stops for long."""
    monkeypatch.setattr(runner, "HEAD_WITHIN", 0.2)
    monkeypatch.setattr(runner, "SWEEP", 0.05)
    await send_slowly(
        world, f"{method} {path} HTTP/1.1\r\nhost: {host}:{world.gateway.port}\r\nx-slow: ".encode(), b"a"
    )


async def test_a_second_head_that_trickles_is_cut_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an answered request on the same connection."""
    monkeypatch.setattr(runner, "HEAD_WITHIN", 0.2)
    monkeypatch.setattr(runner, "SWEEP", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    writer.write(f"GET /healthz HTTP/1.1\r\nhost: localhost:{world.gateway.port}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"GET /healthz HTTP/1.1\r\n")
    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):
            await reader.read()
    writer.close()


@pytest.mark.parametrize(("host", "path"), [("cart", "/api/cart"), ("gateway", "/mcp/cart")])
@pytest.mark.bound("request bodies that no handler reads yet")
async def test_a_body_that_trickles_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch, host: str, path: str
) -> None:
    """Although it grows all the time."""
    monkeypatch.setattr(client_limits, "SILENCE", 0.1)
    head = HEAD.replace("content-length: 10", "content-length: 100000")
    await send_slowly(world, head.format(path=path, host=host, port=world.gateway.port).encode() + b"[", b" ")
    assert world.arrived() == []


async def test_a_body_that_grows_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pause is shorter than the bound, and enough bytes arrive."""
    monkeypatch.setattr(client_limits, "SILENCE", 1.5)
    monkeypatch.setattr(client_limits, "RATE", 1.0)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    writer.write(HEAD.format(path="/mcp/cart", host="gateway", port=world.gateway.port).encode())
    for byte in b"[       ] ":
        writer.write(bytes([byte]))
        await asyncio.sleep(0.25)
    async with asyncio.timeout(60):
        assert (await reader.readline()).startswith(b"HTTP/1.1 4")
    writer.close()
    await writer.wait_closed()


LARGE = 100
"""Large answers requested at once: more than the system buffers for one connection."""


@asynccontextmanager
async def asked_for_much(*more: str) -> AsyncIterator[socket.socket]:
    """Yield a connection on which all of these were requested, and nothing was read yet."""
    body = message(arguments={"url": "/big", "_view": "proof"}).encode()
    fields = [*(f"{name}: {value}" for name, value in CALL_HEAD.items()), f"content-length: {len(body)}", *more]
    async with Mount(app="cart", front=True).serve() as served:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", urlsplit(served.url).port))
            head = "\r\n".join(["POST /mcp HTTP/1.1", *fields, "", ""]).encode()
            await loop.sock_sendall(client, (head + body) * LARGE)
            yield client


async def said_for_ever(client: socket.socket) -> None:
    """Write, and never read. Raises `ConnectionError` once the connection is gone."""
    while True:
        await asyncio.get_running_loop().sock_sendall(client, b"\r\n")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("more", [[], ["te: trailers"]], ids=["short way", "aiohttp"])
@pytest.mark.bound("unread responses")
async def test_who_takes_nothing_of_its_answers_is_cut_off(monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    """Otherwise the answers would be held for as long as the client likes."""
    monkeypatch.setattr(runner, "TAKEN_WITHIN", 0.2)
    monkeypatch.setattr(runner, "SWEEP", 0.05)
    async with asked_for_much(*more) as client, asyncio.timeout(60):
        with pytest.raises(ConnectionError):
            await said_for_ever(client)


@pytest.mark.parametrize("more", [[], ["te: trailers"]], ids=["short way", "aiohttp"])
async def test_who_takes_answers_slowly_gets_them_all(monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    """Although all of them take longer than the time allowed without progress."""
    monkeypatch.setattr(runner, "TAKEN_WITHIN", 6.0)
    monkeypatch.setattr(runner, "SWEEP", 0.05)
    got, began = b"", asyncio.get_running_loop().time()
    async with asked_for_much(*more) as client, asyncio.timeout(60):
        while got.count(b"HTTP/1.1 200 OK") < LARGE:
            part = await asyncio.get_running_loop().sock_recv(client, 256 * 1024)
            assert part
            got += part
            if asyncio.get_running_loop().time() < began + 7.0:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize(("host", "path"), DOORS)
@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"])
@pytest.mark.bound("request heads")
async def test_a_head_without_end_is_not_held(world: World, host: str, path: str, before: bytes) -> None:
    """The caller is unknown before the head's end: it is not stored, and the connection closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    if before:
        writer.write(before.replace(b"localhost", f"localhost:{world.gateway.port}".encode()))
        await reader.readuntil(b"}")
    writer.write(f"POST {path} HTTP/1.1\r\nhost: {host}:{world.gateway.port}\r\n".encode())
    for number in range(20):
        writer.write(b"x-%d: %s\r\n" % (number, b"y" * 7000))
    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):  # unread input resets the connection, and the answer may be lost with it
            assert b"HTTP/1.1 431 " in await reader.read()
    writer.close()


@pytest.mark.parametrize(("host", "path"), DOORS)
@pytest.mark.parametrize("fields", [b"x: %s\r\n" % (b"y" * 9000), b"x: y\r\n" * 200], ids=["line", "fields"])
async def test_a_head_beyond_what_is_read_is_refused_as_that(world: World, host: str, path: str, fields: bytes) -> None:
    """A line that is too long, or too many fields: 431 (RFC 6585, 5), not an invalid request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    writer.write(f"POST {path} HTTP/1.1\r\nhost: {host}:{world.gateway.port}\r\n".encode() + fields + b"\r\n")
    async with asyncio.timeout(60):
        assert (await reader.read()).startswith((b"HTTP/1.0 431 ", b"HTTP/1.1 431 "))
    writer.close()


@pytest.mark.parametrize(("host", "path"), DOORS)
@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"])
async def test_a_target_beyond_what_is_read_is_refused_as_that(
    world: World, host: str, path: str, before: bytes
) -> None:
    """In one piece or in several, on a new connection and on one with an earlier answer: 414 (RFC 9110, 15.5.15)."""
    for cut in (9000, 20, 8250):
        reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
        async with asyncio.timeout(60):
            if before:
                writer.write(before.replace(b"localhost", f"localhost:{world.gateway.port}".encode()))
                await reader.readuntil(b"}")
            head = f"POST {path}?{'y' * 8300} HTTP/1.1\r\nhost: {host}:{world.gateway.port}\r\n\r\n".encode()
            writer.write(head[:cut])
            await asyncio.sleep(0.05)
            writer.write(head[cut:])
            assert (await reader.read()).startswith((b"HTTP/1.0 414 ", b"HTTP/1.1 414 "))
        writer.close()


async def test_a_long_head_with_an_end_is_read(world: World) -> None:
    """Wherever it is split, and whatever follows it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    head = f"GET /healthz HTTP/1.1\r\nhost: localhost:{world.gateway.port}\r\n".encode()
    head += b"".join(b"x-%d: %s\r\n" % (number, b"y" * 7000) for number in range(8)) + b"\r\n"
    for cut in (1, len(head) // 2, len(head) - 3, len(head) - 1):
        writer.write(head[:cut])
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(head[cut:])
        async with asyncio.timeout(60):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await reader.readuntil(b"}")
    writer.close()


@pytest.mark.parametrize("expect", ["", "expect: 100-continue\r\n"], ids=["", "expect"])
@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("cart.localhost", "/api/cart"),
        ("localhost", "/mcp"),
        ("gateway.localhost", "/mcp/cart"),
        ("gateway.localhost", "/bridge/tickets"),
        ("gateway.localhost", "/api/approvals/x"),
    ],
)
async def test_the_length_alone_refuses_a_body(world: World, host: str, path: str, expect: str) -> None:
    """Nothing of the body is sent; whoever sends it nevertheless can read the answer, and then the end."""
    async with console(world) as http:
        csrf = http.headers["webmcp-gateway-csrf"]
    length = 8 * LARGEST_BODY
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    origin = f"http://{host}:{world.gateway.port}"
    fields = f"origin: {origin}\r\nwebmcp-gateway-csrf: {csrf}\r\naccept: application/json, text/event-stream\r\n"
    writer.write(
        f"POST {path} HTTP/1.1\r\nhost: {host}:{world.gateway.port}\r\n{fields}{expect}"
        f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n".encode()
    )
    async with asyncio.timeout(60):
        head = await reader.readuntil(b"\r\n\r\n")
        if expect and b" 100 " in head:
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 413 "), head
        assert b"connection: close" in head.lower()
        for _ in range(8):  # the answer can be read by whoever sends on
            writer.write(b" " * 65536)
            await writer.drain()
        await reader.readuntil(b"}")
    writer.close()
    with suppress(ConnectionResetError, BrokenPipeError):
        await writer.wait_closed()
    assert world.arrived() == []
