"""The frames of a WebSocket are read for a moment in each turn of the event loop, however many came at once."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

from aiohttp.client_proto import ResponseHandler
from aiohttp.http import WebSocketReader
from aiohttp.web_protocol import RequestHandler

from gateway.backends.in_turn import InTurn

NORMAL: Final = b"\x03\xe8"
"""How a connection ends as it should (RFC 6455 7.4.1)."""

SLICE: Final = 1024
"""Bytes that are read before the clock is asked: some hundred frames at most."""

MOMENT: Final = 0.0005
"""Seconds that one turn may take."""

FULL: Final = 0.005
"""Seconds until it is seen again whether there is room for more messages."""


def read_in_turn(protocol: ResponseHandler | RequestHandler | None, in_turn: InTurn) -> None:
    """Read the frames of a WebSocket so: aiohttp parses all that came at once, in one turn.

    aiohttp has no public name for what reads them, nor for stopping it.
    """
    parser: WebSocketReader | None = None if protocol is None else protocol._payload_parser
    if protocol is not None and parser is not None:
        protocol._payload_parser = _Frames(protocol, parser, in_turn)


class _Frames:
    """Stands before the parser; while it holds a rest back, nothing more is read of the connection."""

    def __init__(self, protocol: ResponseHandler | RequestHandler, parser: WebSocketReader, in_turn: InTurn) -> None:
        self._protocol = protocol
        self._parser = parser
        self._in_turn = in_turn
        self._rest = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take what came; as aiohttp's parser, give whether it is wrong."""
        if self._rest:
            self._rest += data
            return False, b""
        ends, start = perf_counter() + MOMENT, 0
        while start < len(data):
            wrong, left = self._parser.feed_data(data[start : start + SLICE])
            if wrong:
                return wrong, left
            start += SLICE
            if self._protocol._reading_paused or perf_counter() > ends:
                break
        self._rest = data[start:]
        if self._rest:
            self._protocol._pause_reading_for_buffer()
            self._in_turn.add(self._go_on)
        return False, b""

    def feed_eof(self) -> None:
        """No more comes."""
        self._rest = b""
        self._parser.feed_eof()

    def _go_on(self) -> None:
        """Read more, unless messages wait to be taken."""
        protocol = self._protocol
        if protocol.transport is None or protocol.transport.is_closing():
            self._rest = b""
        elif protocol._reading_paused:
            asyncio.get_running_loop().call_later(FULL, self._go_on)
        else:
            data, self._rest = self._rest, b""
            protocol.data_received(data)
            if not self._rest:
                protocol._resume_reading_for_buffer()
