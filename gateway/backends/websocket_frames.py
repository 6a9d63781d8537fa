"""Time-slices the parsing of WebSocket frames, however many arrive at once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from http import HTTPStatus
from time import perf_counter, thread_time
from typing import Any, Final

from aiohttp.client_exceptions import ClientPayloadError
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage, WebSocketReader
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import RequestHandler

from gateway.eventloop.fair_share import MOMENT, RoundRobin

NORMAL: Final = b"\x03\xe8"
"""The close code of a normal end (RFC 6455 7.4.1)."""

SLICE: Final = 1024
"""Bytes that are parsed between two looks at the clock: some hundred frames at most."""

FULL: Final = 0.005
"""Seconds between two checks whether there is room for more messages."""

LONGEST: Final = 1.0
"""Seconds of processor time for parsing one message of a server: more means an attack by fragments."""


class Handler(ResponseHandler):
    """Aiohttp's end of a client connection; also slices frames that arrive with the opening response of a WebSocket.

    A connection on which more arrives than was requested is closed: aiohttp would take it for the answer to the next
    request. `flooded`: it was ended because of a message of too many fragments.
    """

    def __init__(self, in_turn: RoundRobin, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._in_turn = in_turn
        self._frames: _Frames | None = None
        self._requested = False

    def set_response_params(self, **params: Any) -> None:
        self._requested = True
        super().set_response_params(**params)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        message, body = data
        self._requested = self._requested and message.code < HTTPStatus.OK
        if body is EMPTY_PAYLOAD and (message.chunked or message.headers.get("content-length", "0") != "0"):
            self.force_close()  # its fields declare a body that such a response does not have
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        read = self._payload is None or self._payload.is_eof()
        if data and read and not (self._requested or self._upgraded or self._frames):
            self.close()
        else:
            super().data_received(data)

    def set_parser(self, parser: Any, payload: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        self._frames = _Frames(self, parser, self._in_turn, LONGEST)
        super().set_parser(self._frames, payload, data_received_cb)

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        super().set_exception(exc, *cause)
        # Aiohttp does not pass parse errors of a body to its reader, which would wait forever.
        body = None if self._frames is not None else self._payload
        if body is not None and not body.is_eof() and body.exception() is None:
            body.set_exception(ClientPayloadError("the body is broken"), exc)

    def message_received(self) -> None:
        """A message is complete."""
        if self._frames is not None:
            self._frames.work_seconds = 0.0

    @property
    def flooded(self) -> bool:
        return self._frames is not None and self._frames.flooded


class MaskedFrames:
    """Wraps aiohttp's parser at a server, which takes unmasked frames: an unmasked one ends the connection with 1002
    (RFC 6455, 5.1). Of each frame only the first bytes are looked at.
    """

    __slots__ = ("_head", "_left", "_parser")

    def __init__(self, parser: WebSocketReader) -> None:
        self._parser = parser
        self._head = b""
        self._left = 0

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take received bytes; return, as aiohttp's parser does, whether they are invalid."""
        if self._left >= len(data):
            self._left -= len(data)
        else:
            data = self._masked(self._head + data if self._head else data)
        return self._parser.feed_data(data)

    def feed_eof(self) -> None:
        """The connection has ended."""
        self._parser.feed_eof()

    def _masked(self, data: bytes) -> bytes:
        """Return the bytes for the parser: up to an unmasked frame, or to a head that is incomplete yet."""
        start, end = self._left, len(data)
        while start + 2 <= end:
            second = data[start + 1]
            if second < _MASKED:
                return data[:start] + _INVALID
            longer = _LONGER.get(second, 0)
            if longer and start + 2 + longer > end:
                break
            length = int.from_bytes(data[start + 2 : start + 2 + longer]) if longer else second - _MASKED
            start += 2 + longer + _MASK + length
        if start < end:
            self._head, self._left = data[start:], 0
            return data[:start]
        self._head, self._left = b"", start - end
        return data


_MASKED: Final = 0x80
"""The bit of a head's second byte that says that the frame is masked; the others are its length."""

_LONGER: Final = {_MASKED + 126: 2, _MASKED + 127: 8}
"""The bytes of a longer length that follows the head, by its second byte."""

_MASK: Final = 4
"""Bytes of a mask."""

_INVALID: Final = b"\x20\x80"
"""The head of a frame with a reserved bit that no extension uses: aiohttp's parser closes with 1002."""


def read_in_turn(protocol: RequestHandler, in_turn: RoundRobin) -> None:
    """Slice the frames of a client: aiohttp parses all that arrived at once, in one iteration.

    aiohttp has no public name for their reader, nor for pausing it.
    """
    parser = protocol._payload_parser
    if parser is not None:
        protocol._payload_parser = _Frames(protocol, parser, in_turn, math.inf)


class _Frames:
    """Wraps the parser; while it holds back a rest, the connection is not read.

    `work_seconds` is the processor time of parsing with a rest held back, in seconds: other programs of a busy machine
    do not count. After more than `longest` the connection ends.
    """

    def __init__(
        self, protocol: ResponseHandler | RequestHandler, parser: WebSocketReader, in_turn: RoundRobin, longest: float
    ) -> None:
        self.work_seconds = 0.0
        self._longest = longest
        self._protocol = protocol
        self._parser = parser
        self._in_turn = in_turn
        self._rest = b""

    @property
    def flooded(self) -> bool:
        """True if it took too long."""
        return self.work_seconds > self._longest

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take received bytes; return, as aiohttp's parser does, whether they are invalid."""
        if self._rest:
            self._hold(self._rest + data)
            return False, b""
        began, at_work, start = perf_counter(), thread_time(), 0
        while start < len(data):
            wrong, left = self._parser.feed_data(data[start : start + SLICE])
            if wrong:
                return wrong, left
            start += SLICE
            if self._protocol._reading_paused or perf_counter() > began + MOMENT:
                break
        if start < len(data):
            self.work_seconds += thread_time() - at_work
            self._hold(data[start:])
            self._in_turn.add(self._go_on, perf_counter() - began)
        return False, b""

    def feed_eof(self) -> None:
        """The connection has ended."""
        self._rest = b""
        self._parser.feed_eof()

    def _hold(self, rest: bytes) -> None:
        self._rest = rest
        self._protocol._pause_reading_for_buffer()

    def _go_on(self) -> None:
        """Parse more, unless messages wait to be read."""
        protocol = self._protocol
        if protocol.transport is None or protocol.transport.is_closing():
            self._rest = b""
        elif self.flooded:
            protocol.transport.abort()
        elif protocol._reading_paused:
            asyncio.get_running_loop().call_later(FULL, self._go_on)
        else:
            data, self._rest = self._rest, b""
            protocol.data_received(data)
            if not self._rest:
                protocol._resume_reading_for_buffer()
