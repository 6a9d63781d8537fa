"""The answers of the fast path, in the same form as aiohttp's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from aiohttp.helpers import rfc822_formatted_time

from gateway.doors.responses import NAME
from gateway.eventloop.shared_timeouts import Alarms
from gateway.mcp.fast import EVENTS, PING, last_event

_CLOSING: Final = b"Connection: close\r\n"
_START: Final = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\n"
_REASONS: Final = {one.value: one.phrase.encode() for one in HTTPStatus}
_SERVER: Final = f"Server: {NAME}\r\n\r\n".encode("ascii")


class Answering:
    """One answer: whole, or an event stream that begins after some seconds of silence, with pings."""

    def __init__(self, transport: asyncio.Transport, alarms: Alarms, *, last: bool) -> None:
        self._last = _CLOSING if last else b""
        self._transport = transport
        self._begun = False
        self._alarms = alarms
        self._alarm = alarms.set(self._ping)

    def end(self) -> None:
        """Stop the pings, as the answer is complete or the call was cancelled."""
        self._alarms.cancel(self._alarm)

    def rest(self, text: str, status: int) -> bytes:
        """Return the remaining bytes, with the answer."""
        if self._begun:
            return b"".join(_chunk(piece) for piece in last_event(text)) + b"0\r\n\r\n"
        body = text.encode()
        return _head(len(body), status, self._last) + body

    def pieces(self, answer: list[bytes], status: int) -> Iterator[bytes]:
        """Yield the same for a long answer."""
        if self._begun:
            yield from map(_chunk, last_event(answer))
            yield b"0\r\n\r\n"
        else:
            yield _head(sum(map(len, answer)), status, self._last)
            yield from answer

    def _ping(self) -> None:
        if not self._begun:
            self._begun = True
            self._transport.write(_event_head(self._last))
        self._transport.write(_chunk(PING))
        self._alarm = self._alarms.set(self._ping)


def _head(length: int, status: int, more: bytes) -> bytes:
    """Return the head of an answer in aiohttp's form."""
    start = _START % (status, _REASONS[status])
    return b"%bContent-Length: %d\r\nDate: %b\r\n%b%b" % (start, length, _date(), more, _SERVER)


def _event_head(more: bytes) -> bytes:
    fields = "".join(f"{name}: {value}\r\n" for name, value in EVENTS.items())
    head = f"HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\nDate: "
    return b"%b%b\r\n%b%b" % (head.encode("ascii"), _date(), more, _SERVER)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _date() -> bytes:
    return rfc822_formatted_time().encode("ascii")
