"""Backends that keep the raw bytes of every request, and answer with the bytes of a case."""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import brotli

from tests.codings import zstd_of

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Arrived:
    """One request as raw bytes."""

    backend: str
    raw: bytes

    @property
    def line(self) -> str:
        """The request line."""
        return self.raw.partition(b"\r\n")[0].decode("latin-1").removesuffix(" HTTP/1.1")

    @property
    def target(self) -> str:
        """The request target."""
        return self.line.partition(" ")[2]

    @property
    def body(self) -> bytes:
        """The bytes after the head."""
        return self.raw.partition(b"\r\n\r\n")[2]

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The header fields, names in lower case."""
        head = self.raw.partition(b"\r\n\r\n")[0].decode("latin-1")
        fields = [line.partition(":") for line in head.split("\r\n")[1:]]
        return [(name.lower(), value.strip()) for name, _, value in fields]


@dataclass(slots=True)
class RawBackend:
    """A TCP server. `answers` are sent in turn, one for each request; after them each gets `default`."""

    name: str
    arrived: list[Arrived]
    default: bytes = OK
    answers: list[Sequence[Any]] = field(default_factory=list)
    port: int = 0
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._answer(reader, writer):
                    pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        raw = await _request(reader)
        self.arrived.append(Arrived(self.name, raw))
        if not self.answers:
            head, end, body = self.default.partition(b"\r\n\r\n")
            writer.write(head + end + (b"" if raw.startswith(b"HEAD ") else body))
            await writer.drain()
            return True
        for part in self.answers.pop(0):
            await _write(writer, part)
        return False


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if length is not None:
        return head + await reader.readexactly(int(length[1]))
    if _CHUNKED.search(head) is None:
        return head
    body = b""
    while not body.endswith(b"0\r\n\r\n"):
        body += await reader.read(65536)
    return head + body


async def _write(writer: asyncio.StreamWriter, part: Any) -> None:
    """Write one part of a hostile answer: text, or an instruction."""
    match part:
        case str():
            writer.write(part.encode("latin-1"))
        case {"sleep": seconds}:
            await asyncio.sleep(seconds)
        case {"hold": _}:  # until the gateway has closed the connection
            while not writer.transport.is_closing():
                await asyncio.sleep(0.02)
        case {"reset": _}:
            writer.transport.abort()
        case {"drip": text, "every": seconds}:
            for char in text:
                writer.write(char.encode("latin-1"))
                await writer.drain()
                await asyncio.sleep(seconds)
        case {"endless": text}:
            while True:
                writer.write(text.encode("latin-1") * 64)
                await writer.drain()
                await asyncio.sleep(0)
        case {"zeros": count, "coding": coding}:
            body = bomb(count, coding)
            writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
        case {"text": text, "coding": coding}:
            body = compress(text.encode("latin-1"), coding)
            writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
        case _:
            raise AssertionError(f"no such part of an answer: {part}")
    await writer.drain()


@lru_cache
def bomb(count: int, coding: str) -> bytes:
    """This number of zeros in a coding, compressed once."""
    return compress(bytes(count), coding)


def compress(body: bytes, coding: str) -> bytes:
    """The body in a content coding, or in two, applied one after the other."""
    for one in coding.split("+"):
        match one:
            case "gzip":
                body = gzip.compress(body, mtime=0)
            case "zlib":
                body = zlib.compress(body)
            case "deflate":
                body = zlib.compress(body)[2:-4]
            case "br":
                body = brotli.compress(body, quality=4)
            case "zstd":
                body = zstd_of(body)
            case "half":
                body = body[: len(body) // 2]
            case _:
                raise AssertionError(one)
    return body
