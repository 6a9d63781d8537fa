"""Carries the WebSocket of a page on the app's own site: frames in both directions until one end closes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from aiohttp import WebSocketError, WSMsgType, web

from gateway.backends.websocket_frames import read_in_turn
from gateway.eventloop.fair_share import RoundRobin
from gateway.exchange.sockets import GOING_AWAY, NO_STATUS, TOO_BIG, CloseRequest, OpenSocket
from gateway.model import Caller, SocketEnd

HEARTBEAT: Final = 30.0
"""Seconds between two pings of the browser; a missing pong ends the connection."""

FAREWELL: Final = 10.0
"""Seconds that a browser has to answer a close frame."""


async def carry(request: web.Request, socket: OpenSocket, caller: Caller, in_turn: RoundRobin) -> web.WebSocketResponse:
    """Answer the opening request of the browser, and carry messages until one end closes."""
    wire = web.WebSocketResponse(
        protocols=(socket.protocol,) if socket.protocol else (),
        heartbeat=HEARTBEAT,
        timeout=FAREWELL,
        max_msg_size=socket.rule.message + 1,  # aiohttp refuses a message of exactly this size
        compress=False,
        autoclose=False,
        autoping=False,  # aiohttp answers all pending pings at once
    )
    await wire.prepare(request)
    read_in_turn(request.protocol, in_turn)
    up = asyncio.create_task(_from_browser(wire, socket, caller))
    try:
        end = await _to_browser(wire, socket)
        if end is not None and await _close(wire, end):
            with suppress(TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await asyncio.shield(up)
    finally:
        up.cancel()
        await asyncio.gather(up, return_exceptions=True)
        if request.transport is not None:
            request.transport.close()
    return wire


async def _to_browser(wire: web.WebSocketResponse, socket: OpenSocket) -> SocketEnd | None:
    """Send the backend's messages; return its end, None if the browser is gone."""
    while True:
        message = await socket.receive()
        try:
            if isinstance(message, str):
                await wire.send_str(message)
            elif isinstance(message, bytes):
                await wire.send_bytes(message)
            else:
                return message
        except ConnectionError:
            return None


async def _from_browser(wire: web.WebSocketResponse, socket: OpenSocket, caller: Caller) -> None:
    """Send the browser's messages; its close frame, or its end, closes the WebSocket."""
    with suppress(ConnectionError):
        while True:
            frame = await wire.receive()
            match frame.type:
                case WSMsgType.TEXT | WSMsgType.BINARY:
                    data = frame.data
                    await socket.send(data if isinstance(data, str) else bytes(data), caller)
                case WSMsgType.PING:
                    await wire.pong(frame.data)
                case WSMsgType.PONG:
                    pass
                case WSMsgType.CLOSE:
                    await socket.close(CloseRequest(frame.data or None, frame.extra or ""))
                    return
                case WSMsgType.ERROR if _is_too_large(frame.data):
                    socket.too_large()
                    return
                case _:
                    await socket.close(CloseRequest(GOING_AWAY))
                    return


def _is_too_large(error: object) -> bool:
    return isinstance(error, WebSocketError) and error.code == TOO_BIG


async def _close(wire: web.WebSocketResponse, end: SocketEnd) -> bool:
    """Send a close frame as the backend did; return False if the connection breaks off, as the backend's did."""
    if not end.clean:
        return False
    content = b"" if end.code == NO_STATUS else end.code.to_bytes(2) + end.reason.encode()
    try:
        await wire.send_frame(content, WSMsgType.CLOSE)
    except ConnectionError:
        return False
    return True
