"""MCP servers with the holes that `attack` looks for: each is real, small, and wrong in one way."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

RESULT: dict[str, object] = {"jsonrpc": "2.0", "id": None, "result": {"tools": []}}
_BLANK = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(rb"(?i)content-length:\s*(\d+)")
_LAST_CHUNK = re.compile(rb"0\r?\n\r?\n")

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    """A TCP server on a free port, which this yields."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=8 * 1024 * 1024)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answer(status: int = 200, body: object = RESULT, more: str = "") -> bytes:
    """The bytes of an HTTP answer."""
    text = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{more}content-length: {len(text)}\r\n\r\n"
    return head.encode("ascii") + text


class Trusting:
    """Answers anything that it can parse with a result: by the first length it finds, for any host, to any message.

    It gives every session one id, and ends none. A partial request blocks all connections.
    """

    def __init__(self) -> None:
        self._reading = asyncio.Lock()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kept = b""
        while kept or (kept := await reader.read(65536)):
            async with self._reading:
                while (size := self._size(kept)) is None:
                    part = await reader.read(65536)
                    if not part:
                        return
                    kept += part
            kept = kept[size:]
            writer.write(answer(more="mcp-session-id: a\r\n"))
            await writer.drain()

    def _size(self, data: bytes) -> int | None:
        """The size of the request that `data` begins with, in bytes; None while it is incomplete."""
        blank = _BLANK.search(data)
        if blank is None:
            return len(data) if len(data) > 60_000 else None
        if b"transfer-encoding" in data[: blank.start()].lower():
            last = _LAST_CHUNK.search(data, blank.start())
            return last.end() if last else None
        length = _LENGTH.search(data[: blank.start()])
        size = blank.end() + (int(length[1]) if length else 0)
        return size if len(data) >= size else None


async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers clients with a user-agent, but none of their sessions; rejects or upgrades others."""
    while head := await reader.readuntil(b"\r\n\r\n"):
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1]) if length is not None else 0)
        if b"user-agent" in head.lower():
            number = secrets.token_hex(16) if b'"initialize"' in body else None
            more = f"mcp-session-id: {number}\r\n" if number else ""
            writer.write(answer(404, {}) if b"mcp-session-id" in head.lower() else answer(more=more))
            continue
        if b"expect" not in head:
            writer.write(answer(101 if b"upgrade" in head else 400))
            await writer.drain()
        return
