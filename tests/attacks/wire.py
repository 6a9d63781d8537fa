"""HTTP/1.1 by hand: requests that no client library would send, and their answers as bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

WAIT = 10.0


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """The bytes of an answer; `status` 0 means that the connection ended without one."""

    raw: bytes

    @property
    def status(self) -> int:
        """The status code."""
        parts = self.raw.split(b" ", 2)
        return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0

    @property
    def headers(self) -> dict[str, str]:
        """The header fields, names in lower case, repeated ones joined."""
        found: dict[str, str] = {}
        for line in self.raw.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]:
            name, _, value = line.partition(":")
            key = name.lower()
            found[key] = f"{found[key]}, {value.strip()}" if key in found else value.strip()
        return found

    @property
    def text(self) -> str:
        """The body."""
        return self.raw.partition(b"\r\n\r\n")[2].decode("utf-8", "replace")


def request_bytes(method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes) -> bytes:
    """The bytes of a request, unchecked; a length is added if there is a body without framing."""
    names = {name.lower() for name, _ in headers}
    fields = list(headers)
    if (body or method in ("POST", "PUT", "PATCH")) and not names & {"content-length", "transfer-encoding"}:
        fields.append(("content-length", str(len(body))))
    line = f"{method} {target} HTTP/1.1".encode("utf-8", "surrogatepass")
    lines = [line, *(_field(name, value) for name, value in fields), b"connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _field(name: str, value: str) -> bytes:
    """A header line in Latin-1, as browsers send it, or in UTF-8 if it has other characters."""
    field = f"{name}: {value}"
    return field.encode("utf-8" if max(field) > "\xff" else "latin-1", "surrogatepass")


async def exchange(
    port: int, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes = b""
) -> WireAnswer:
    """Send one request over a separate connection; return all bytes of the answer."""
    return await raw_exchange(port, request_bytes(method, target, headers, body))


async def raw_exchange(port: int, data: bytes, wait: float = WAIT) -> WireAnswer:
    """Send the bytes; return all bytes until the gateway closes, or `wait` seconds have passed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    came = bytearray()
    try:
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(wait):
                with suppress(ConnectionError):
                    writer.write(data)
                    await writer.drain()
                while part := await reader.read(65536):
                    came += part
    finally:
        writer.close()
    return WireAnswer(bytes(came))
