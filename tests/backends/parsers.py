"""The parsers of both HTTP clients, fed with pieces of one connection's bytes, which then ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from aiohttp import ClientPayloadError
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpResponseParser

from gateway.backends.connect import HEADER_FIELDS, LINE_BYTES
from gateway.backends.http1 import MalformedResponse, ResponseReader
from gateway.errors import Refusal

Outcome: TypeAlias = tuple[int, bytes] | None
"""The status and the body; None if the response is refused, or never complete."""

LIMIT = 2**20
_BODILESS = (101, 204, 304)


def read_by_gateway(pieces: Sequence[bytes], method: str = "GET") -> Outcome:
    """Return the status and the body; None if the response is refused, or not complete."""
    reading, complete = ResponseReader(method, LIMIT), False
    try:
        for piece in filter(None, pieces):
            complete = reading.feed(piece)
            while reading.paused:
                reading.resume()
                complete = reading.feed(b"")
            if complete:
                break
        return (reading.head.status, reading.body()) if complete or reading.eof() else None
    except (MalformedResponse, Refusal):
        return None


def read_by_aiohttp(pieces: Sequence[bytes], method: str = "GET") -> Outcome:
    """As `read_by_gateway`, by the parser of aiohttp's client."""
    loop = asyncio.new_event_loop()
    try:
        parser = HttpResponseParser(
            BaseProtocol(loop),
            loop,
            LIMIT,
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
            max_headers=HEADER_FIELDS,
            payload_exception=ClientPayloadError,
            response_with_body=method != "HEAD",
            read_until_eof=True,
            auto_decompress=False,
        )
        return _final(parser, pieces)
    except (HttpProcessingError, ClientPayloadError):
        return None
    finally:
        loop.close()


def _final(parser: HttpResponseParser, pieces: Sequence[bytes]) -> Outcome:
    final = []
    for piece in filter(None, pieces):
        final += [(head, body) for head, body in parser.feed_data(piece)[0] if head.code >= 200 or head.code == 101]
        if final and final[0][1].is_eof():
            break
    else:
        parser.feed_eof()
    if not final or final[0][1].exception() is not None or not final[0][1].is_eof():
        return None
    head, body = final[0]
    return head.code, b"" if head.code in _BODILESS else b"".join(getattr(body, "_buffer", ()))
