"""Peers for the tests of `gateway.backends`: raw servers that send exactly the bytes of a test, and networks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.backends.http import HttpBackend
from gateway.errors import Reason, Refusal
from gateway.model import Outbound, Response

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Allowing:
    """A network that allows exactly `addresses`."""

    addresses: frozenset[str] = frozenset()

    def allows(self, ip: str) -> bool:
        return ip in self.addresses


LOOPBACK = Allowing(frozenset({"127.0.0.1", "::1"}))
NOWHERE = Allowing()


@dataclass(frozen=True)
class Shop:
    """A backend spec as the policy gives it."""

    network: Allowing = LOOPBACK
    name: str = "shop"


@dataclass
class Peer:
    """The requests and connections of a raw server."""

    port: int
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def url(self, target: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{target}"


@asynccontextmanager
async def raw_peer(script: Script | bytes) -> AsyncIterator[Peer]:
    """A server that reads a request's head, and then writes `script` and closes, or runs `script`."""

    running = set[asyncio.Task[None] | None]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer.connections += 1
        running.add(asyncio.current_task())
        try:
            while head := await read_head(reader):
                peer.requests.append(head)
                if isinstance(script, bytes):
                    writer.write(script)
                    await writer.drain()
                    return
                await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            running.discard(asyncio.current_task())
            writer.close()
            peer.closed.set()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, family=socket.AF_INET)
    peer = Peer(server.sockets[0].getsockname()[1])
    try:
        yield peer
    finally:
        server.close()
        for task in running:
            if task is not None:
                task.cancel()  # scripts may sleep for an hour


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """Read the request line and fields; return no bytes when the client has gone."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


class Names(AbstractResolver):
    """Resolves from a table; each lookup of a name takes its next answer, and repeats the last one."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self._answers = {name.replace("_", "."): list(answer) for name, answer in answers.items()}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        answers = self._answers.get(host)
        if not answers:
            raise OSError(f"unknown name {host}")
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
            for address in addresses
        ]

    async def close(self) -> None:
        """Do nothing: no resources are held."""


async def refusal_reason(backend: HttpBackend, script: Script | bytes, request: Outbound | None = None) -> Reason:
    """The reason for the refusal of a request to a peer with this script."""
    async with raw_peer(script) as peer:
        request = request or Outbound("GET", "")
        with pytest.raises(Refusal) as caught:
            await backend.send(
                Outbound(
                    request.method,
                    peer.url("/x"),
                    request.headers,
                    request.body,
                    timeout=request.timeout,
                    response_limit=request.response_limit,
                )
            )
    return caught.value.reason


async def fetch_from(backend: HttpBackend, script: Script | bytes, method: str = "GET") -> Response:
    """The answer of a peer with this script."""
    async with raw_peer(script) as peer:
        return await backend.send(Outbound(method, peer.url()))
