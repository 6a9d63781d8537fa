"""aiohttp's client in place of the gateway's own (`server.http_client: aiohttp`), with the same limits and errors.

It exists to measure and to doubt the own one: `make bench` shows both, and the tests of the backends run with both.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Final

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict
from yarl import URL

from gateway.backends.connect import Connections, Network, Origin, refusal
from gateway.backends.http1 import RETRIED, ConnectionLost, MalformedResponse, ResponseReader, frame_head
from gateway.errors import Reason, Refusal

PIECE: Final = 64 * 1024
"""Bytes of a request's body that are written at once."""

_HTTP_1_0: Final = (1, 0)
_SWITCHING: Final = 101
_NOT_COMPLETED: Final = "payload is not completed"
"""aiohttp has no type of its own for a body that breaks off."""

_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class _NoHead(Exception):
    """The connection ended before a response; not a `ClientError`, after which aiohttp repeats PUT and DELETE."""


class AiohttpClient:
    """Requests to one origin; the arguments are those of `ConnectionPool`."""

    def __init__(
        self,
        connections: Connections,
        network: Network,
        origin: Origin,
        name: str,
        tls: ssl.SSLContext | None,
        size: int,
    ) -> None:
        self._connections = connections
        self._network = network
        self._origin = origin
        self._name = name
        self._tls = tls
        self._size = size

    async def fetch(self, method: str, data: bytes, limit: int, timeout: float, body: bytes = b"") -> ResponseReader:
        """As `HttpClient`."""
        ends = time.monotonic() + timeout
        for attempt in range(2):
            reading = ResponseReader(method, limit)
            try:
                async with asyncio.timeout(ends - time.monotonic()):
                    await self.send(data, reading, body)
            except ConnectionLost as error:
                if attempt or method not in RETRIED:
                    detail = f"{self._origin.authority} closed the connection without an answer"
                    raise Refusal(Reason.BACKEND_UNREACHABLE, detail) from error
            except MalformedResponse as error:
                detail = f"backend {self._name!r} broke off, or answered with something that is not HTTP: {error}"
                raise Refusal(Reason.BACKEND_PROTOCOL, detail) from error
            else:
                return reading
        raise AssertionError("the second attempt returns or raises")

    async def send(self, data: bytes, reading: ResponseReader, body: bytes = b"") -> None:
        """As `HttpClient`."""
        method, target, fields, rest = _parts(data)
        body = rest + body
        session = self._connections.open(self._network, self._tls, self._size)
        url = URL(f"{self._origin.scheme}://{fields['host']}{target}", encoded=True)
        request = session.request(
            method,
            url,
            headers=fields,
            data=_pieces(body) if len(body) > PIECE else body or None,
            allow_redirects=False,
            middlewares=(_once,),
            skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
        )
        try:
            async with request as response:
                await self._read(response, reading)
        except _NoHead as error:
            raise ConnectionLost from error
        except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError, HttpProcessingError) as error:
            broken_off = _NOT_COMPLETED in str(error)
            raise MalformedResponse("it ended in the middle of its answer" if broken_off else str(error)) from error
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
            raise refusal(url, error) from error
        except aiohttp.ClientError as error:
            raise MalformedResponse("it ended in the middle of its answer") from error

    def close(self) -> None:
        """Do nothing: the connections belong to a session, which others may share."""

    async def _read(self, response: aiohttp.ClientResponse, reading: ResponseReader) -> None:
        if response.status == _SWITCHING:
            raise MalformedResponse(f"it answered with the status {response.status}")
        headers = tuple(
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.raw_headers
        )
        persistent = response.version is not None and response.version > _HTTP_1_0
        reading.begin(frame_head(persistent, response.status, response.reason or "", headers))
        async for piece in response.content.iter_any():
            began = perf_counter()
            reading.feed(piece)
            while reading.paused and not reading.enough:
                await self._wait_to_resume(reading, perf_counter() - began)
                began = perf_counter()
                reading.resume()
                reading.feed(b"")
            if reading.enough:
                return
        reading.finish()

    async def _wait_to_resume(self, reading: ResponseReader, work_seconds: float) -> None:
        """Wait until the consumer of the body has room again, or for a turn among other long responses."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def resume(_: object = None) -> None:
            if not turn.done():
                turn.set_result(None)

        if reading.until is None:
            self._connections.in_turn.add(resume, work_seconds)
        else:
            reading.until.add_done_callback(resume)
        await turn


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request once: the caller knows which ones may be repeated."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientConnectionError, OSError) as error:
        raise _NoHead from error


def _parts(data: bytes) -> tuple[str, str, CIMultiDict[str], bytes]:
    """Return the method, the target and the fields of a request's head, and what follows it.

    Raises `Refusal` for bytes that aiohttp's client cannot send: it writes fields as UTF-8, without control characters.
    """
    head, _, rest = data.partition(b"\r\n\r\n")
    try:
        first, *lines = head.decode().split("\r\n")
    except UnicodeDecodeError as error:
        raise _header_refusal() from error
    if _CONTROL.search("".join(lines)):
        raise _header_refusal()
    method, target, _ = first.split(" ")
    fields = CIMultiDict((name, value) for name, _, value in (line.partition(": ") for line in lines))
    return method, target, fields, rest


def _header_refusal() -> Refusal:
    return Refusal(Reason.BAD_REQUEST, "a header holds characters that aiohttp's client cannot send")


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), PIECE):
        yield body[at : at + PIECE]
