"""WebSockets that the gateway opens, to backends of apps and to upstreams, over the vetted connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

import aiohttp
from aiohttp import WSCloseCode, WSMsgType
from multidict import CIMultiDict
from yarl import URL

from gateway.backends.connect import OpenSession, RedirectRefusal
from gateway.backends.websocket_frames import NORMAL, Handler
from gateway.errors import Reason, Refusal
from gateway.eventloop.fair_share import RoundRobin, TimeSlices
from gateway.model import Headers, Outbound, Response, SocketEnd, Upgraded

HEARTBEAT: Final = 30.0
"""Seconds between two pings of the connection; a missing pong ends it."""

FAREWELL: Final = 2.0
"""Seconds that sending the close frame may take."""

CLOSING: Final = 10.0
"""Seconds that the backend has to answer a close frame."""

STUCK: Final = 60.0
"""Seconds that a backend may take for a message before the connection counts as lost."""

NO_STATUS: Final = 1005
"""The code of a close frame without one (RFC 6455, 7.1.5)."""

ABNORMAL: Final = SocketEnd(WSCloseCode.ABNORMAL_CLOSURE, clean=False)
"""The end without a close frame."""

log = logging.getLogger(__name__)


async def connect_websocket(
    session: OpenSession,
    url: str | URL,
    *,
    protocols: Sequence[str],
    headers: Mapping[str, str] | CIMultiDict[str],
    limit: int,
) -> aiohttp.ClientWebSocketResponse:
    """Open a WebSocket.

    Raises `RedirectRefusal` and the errors of aiohttp, `WSServerHandshakeError` if it is refused.
    """
    return await session().ws_connect(
        url,
        protocols=protocols,
        heartbeat=HEARTBEAT,
        max_msg_size=limit,
        headers=headers,
        timeout=aiohttp.ClientWSTimeout(ws_close=FAREWELL),
        autoclose=False,  # the reader answers a close frame
        autoping=False,  # aiohttp answers all pending pings at once
    )


def handler_of(socket: aiohttp.ClientWebSocketResponse) -> Handler | None:
    """Return the gateway's end of the connection, which slices frames."""
    connection = socket._response.connection  # there is no public name
    return connection.protocol if connection is not None and isinstance(connection.protocol, Handler) else None


async def leave_websocket(socket: aiohttp.ClientWebSocketResponse) -> None:
    """Send a close frame, if the other end accepts it, and stop reading: `close` alone reads all pending data."""
    with suppress(aiohttp.ClientError, OSError):  # TimeoutError is an OSError
        async with asyncio.timeout(FAREWELL):
            await socket.send_frame(NORMAL, WSMsgType.CLOSE)
    socket._response.close()  # there is no public name
    await socket.close()


class ClientSocket:
    """A WebSocket to a backend: the protocol `BackendSocket`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, in_turn: RoundRobin) -> None:
        self.protocol = socket.protocol or ""
        self._socket = socket
        self._handler = handler_of(socket)
        self._moments = TimeSlices(in_turn)
        self._end: SocketEnd | None = None
        self._sent_close = False
        self._timer: asyncio.TimerHandle | None = None

    async def receive(self) -> str | bytes | SocketEnd:
        """Return the next message; messages after a close frame of ours are dropped, as browsers drop them."""
        while self._end is None:
            frame = await self._socket.receive()
            match frame.type:
                case WSMsgType.TEXT | WSMsgType.BINARY:
                    if self._handler is not None:
                        self._handler.message_received()
                    if not self._sent_close:
                        return bytes(frame.data) if frame.type is WSMsgType.BINARY else str(frame.data)
                    await self._moments.spend(0.0)
                case WSMsgType.PING:
                    with suppress(aiohttp.ClientError, OSError):
                        await self._socket.pong(frame.data)
                    await self._moments.spend(0.0)
                case WSMsgType.PONG:
                    pass
                case WSMsgType.CLOSE:
                    await self._answer_close(int(frame.data or 0), str(frame.extra or ""))
                case WSMsgType.ERROR:
                    self._end = _end_of_error(frame.data)
                case _:
                    self._end = ABNORMAL
        return self._end

    async def send(self, message: str | bytes) -> None:
        """Send a message. Raises ConnectionError after the end, and for a backend that takes nothing."""
        if self._end is not None or self._sent_close:
            raise ConnectionResetError("the WebSocket is closed")
        try:
            async with asyncio.timeout(STUCK):
                if isinstance(message, str):
                    await self._socket.send_str(message)
                else:
                    await self._socket.send_bytes(message)
        except (aiohttp.ClientError, OSError) as error:
            self.abort()
            raise ConnectionResetError("the WebSocket is broken") from error

    async def close(self, code: int | None, reason: str) -> None:
        """Begin the closing handshake, once."""
        if self._sent_close or self._end is not None:
            return
        self._timer = asyncio.get_running_loop().call_later(CLOSING, self.abort)
        await self._send_close(b"" if code is None else code.to_bytes(2) + reason.encode())

    def abort(self) -> None:
        """End the connection now."""
        if self._handler is not None and self._handler.transport is not None:
            self._handler.transport.abort()
        self._socket._response.close()  # there is no public name

    def stop(self) -> None:
        """Stop the timer of the closing handshake."""
        if self._timer is not None:
            self._timer.cancel()

    async def _answer_close(self, code: int, reason: str) -> None:
        if not self._sent_close:
            await self._send_close(code.to_bytes(2) if code else b"")
        self._end = SocketEnd(code or NO_STATUS, reason)

    async def _send_close(self, content: bytes) -> None:
        self._sent_close = True
        with suppress(aiohttp.ClientError, OSError):
            async with asyncio.timeout(FAREWELL):
                await self._socket.send_frame(content, WSMsgType.CLOSE)


def _end_of_error(error: object) -> SocketEnd:
    """Return the end of a connection that violated the protocol; a page is told only of a message that is too large."""
    if isinstance(error, aiohttp.WebSocketError) and error.code == WSCloseCode.MESSAGE_TOO_BIG:
        return SocketEnd(WSCloseCode.MESSAGE_TOO_BIG, "a message is larger than `websocket.message` allows")
    return ABNORMAL


@asynccontextmanager
async def open_websocket(
    session: OpenSession, in_turn: RoundRobin, request: Outbound, protocols: Sequence[str], message: int, name: str
) -> AsyncIterator[Upgraded]:
    """Open a WebSocket to the backend `name` until the context ends. Raises `Refusal`.

    A redirect is not followed: browsers follow none (WHATWG WebSockets, "establish a WebSocket connection").
    """
    headers = CIMultiDict(request.headers)
    try:
        async with asyncio.timeout(request.timeout):
            opened = await connect_websocket(
                session,
                URL(request.url, encoded=True),
                protocols=protocols,
                headers=headers,
                limit=message + 1,  # aiohttp refuses a message of exactly this size
            )
    except aiohttp.WSServerHandshakeError as error:
        yield Upgraded(Response(_refused_status(error.status), _headers(error.headers)))
        return
    except RedirectRefusal as error:
        raise Refusal(Reason.BACKEND_PROTOCOL, f"backend {name!r} redirects instead of opening a WebSocket") from error
    except TimeoutError as error:
        detail = f"backend {name!r} did not open the WebSocket within {request.timeout:g} s"
        raise Refusal(Reason.BACKEND_TIMEOUT, detail) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        detail = f"backend {name!r} answered with something that is not a WebSocket"
        raise Refusal(Reason.BACKEND_PROTOCOL, detail) from error
    socket = ClientSocket(opened, in_turn)
    try:
        _check_protocol(opened, protocols, name)
        yield Upgraded(Response(HTTPStatus.SWITCHING_PROTOCOLS, _headers(opened._response.headers)), socket)
    finally:
        socket.stop()
        await leave_websocket(opened)


def _check_protocol(socket: aiohttp.ClientWebSocketResponse, protocols: Sequence[str], name: str) -> None:
    """Refuse what a browser refuses: a subprotocol that was not asked for, and none in answer to some."""
    chosen = socket._response.headers.getall("sec-websocket-protocol", [])
    if len(chosen) != (1 if protocols else 0) or (chosen and chosen[0].strip() not in protocols):
        raise Refusal(Reason.BACKEND_PROTOCOL, f"backend {name!r} chose no subprotocol that the page asked for")


def _refused_status(status: int) -> int:
    """Return the status of a refused upgrade; an answer 101 to something else is the backend's fault, too."""
    return status if status >= HTTPStatus.BAD_REQUEST else HTTPStatus.BAD_GATEWAY


def _headers(headers: Mapping[str, str] | None) -> Headers:
    return tuple((name.lower(), value) for name, value in headers.items()) if headers is not None else ()
