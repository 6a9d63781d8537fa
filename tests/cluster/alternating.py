"""Load balancers that alternate: one of requests, and one of connections, whose bytes it does not touch."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import cycle

import aiohttp
from aiohttp import web

from tests.world import local_client

OWN = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade", "content-length"})
"""Header fields of one connection, which are not passed on (RFC 9110, 7.6.1)."""


@asynccontextmanager
async def alternating_connections(listening: socket.socket, *ports: int) -> AsyncIterator[None]:
    """Pass each connection to the next of `ports`, byte by byte, with its half-closes and its resets."""
    turns = cycle(ports)
    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", next(turns))
            try:
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            finally:
                far_writer.close()
        except (OSError, asyncio.CancelledError):  # it is cancelled at the end of the test
            writer.transport.abort()
        finally:
            writer.close()
            connections.discard(task)

    server = await asyncio.start_server(accept, sock=listening)
    try:
        yield
    finally:
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until the end; a connection that breaks breaks the other one."""
    try:
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()
    except OSError:
        writer.transport.abort()


@asynccontextmanager
async def alternating(port: int, *ports: int) -> AsyncIterator[None]:
    """Listen on `port`, and pass each request and WebSocket on to the next of `ports`."""
    turns = cycle(ports)

    async def handle(request: web.Request) -> web.StreamResponse:
        url = f"http://127.0.0.1:{next(turns)}{request.raw_path}"
        if request.headers.get("upgrade", "").lower() == "websocket":
            return await _carry(http, request, url)
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in OWN]
        body = await request.read()
        async with http.request(
            request.method, url, headers=headers, data=body or None, allow_redirects=False, auto_decompress=False
        ) as answer:
            kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in OWN]
            stream = web.StreamResponse(status=answer.status)
            stream.headers.extend(kept)
            await stream.prepare(request)
            async for chunk in answer.content.iter_any():
                await stream.write(chunk)
            return stream

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, auto_decompress=False)
    async with local_client(auto_decompress=False) as http:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            yield
        finally:
            await runner.cleanup()


async def _carry(http: aiohttp.ClientSession, request: web.Request, url: str) -> web.StreamResponse:
    """Pass the frames of a WebSocket on in both directions until one side closes."""
    names = request.headers.get("sec-websocket-protocol", "")
    protocols = [name.strip() for name in names.split(",") if name.strip()]
    kept = {
        name: value
        for name, value in request.headers.items()
        if name.lower() not in OWN and not name.lower().startswith("sec-websocket-")
    }
    async with http.ws_connect(url, headers=kept, protocols=protocols) as far:
        near = web.WebSocketResponse(protocols=protocols)
        await near.prepare(request)
        going = asyncio.create_task(_pass(near, far))
        await _pass(far, near)
        going.cancel()
    return near


async def _pass(
    one: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
    other: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
) -> None:
    async for message in one:
        await other.send_str(str(message.data))
    await other.close()
