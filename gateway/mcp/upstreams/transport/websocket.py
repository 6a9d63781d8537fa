"""An upstream at the other end of a WebSocket, one message in each text frame."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from time import perf_counter

import aiohttp

from gateway.backends.connect import OpenSession, RedirectRefusal
from gateway.backends.websocket import connect_websocket, handler_of, leave_websocket
from gateway.backends.websocket_frames import Handler
from gateway.errors import Refusal
from gateway.eventloop.fair_share import RoundRobin, TimeSlices
from gateway.jsontext.messages import encode_in_thread, read
from gateway.mcp.upstreams.catalog.listing import LISTS
from gateway.mcp.upstreams.transport.conversation import Message, Receive, Unreadable, UpstreamFlood, UpstreamLost
from gateway.mcp.upstreams.transport.requests import Credentials, RedirectTrail

STUCK = 10.0
"""Seconds that sending may take."""


class WebSocket:
    """Carries messages in frames of the subprotocol `mcp`. The credential is sent when the connection opens."""

    def __init__(
        self, session: OpenSession, url: str, *, credentials: Credentials, limit: int, in_turn: RoundRobin
    ) -> None:
        self._open = session
        self._in_turn = in_turn
        self._url = url
        self._credentials = credentials
        self._limit = limit
        self._socket: asyncio.Future[aiohttp.ClientWebSocketResponse] = asyncio.get_running_loop().create_future()

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        socket = await asyncio.shield(self._socket)
        try:
            text = (await encode_in_thread(message)).decode("ascii")
            async with asyncio.timeout(STUCK):
                await socket.send_str(text)
        except (OSError, aiohttp.ClientError) as error:  # TimeoutError is an OSError
            raise UpstreamLost("the connection to the upstream broke") from error

    async def abandon(self, id: int) -> bool:
        return False

    async def run(self, receive: Receive) -> None:
        try:
            socket = await self._open_socket()
            try:
                self._socket.set_result(socket)
                await self._read(socket, handler_of(socket), receive)
            finally:
                await leave_websocket(socket)
        except Refusal as refusal:
            raise self._fail(UpstreamLost.of_refusal(refusal)) from refusal
        except UpstreamLost as lost:
            self._fail(lost)
            raise
        except aiohttp.WSServerHandshakeError as error:
            why = f"the upstream refused the WebSocket with HTTP status {error.status}"
            raise self._fail(UpstreamLost(why)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._fail(UpstreamLost("the upstream refused the WebSocket, or closed it")) from error
        raise UpstreamLost("the upstream closed the connection")

    async def _open_socket(self) -> aiohttp.ClientWebSocketResponse:
        """Return the connection, after redirects within the origin (RFC 6455, 4.1)."""
        trail, url = RedirectTrail(self._url), self._url
        while True:
            try:
                return await connect_websocket(
                    self._open,
                    url,
                    protocols=("mcp",),
                    headers=await self._credentials.headers("GET", url),
                    limit=self._limit,
                )
            except RedirectRefusal as redirect:
                url = trail.follow(redirect.code, redirect.location)

    async def _read(self, socket: aiohttp.ClientWebSocketResponse, handler: Handler | None, receive: Receive) -> None:
        moments = TimeSlices(self._in_turn)
        async for frame in socket:
            began = perf_counter()
            awaited = False
            if frame.type is aiohttp.WSMsgType.ERROR:
                raise UpstreamLost(f"the upstream sent an invalid WebSocket frame: {frame.data}")
            if frame.type is aiohttp.WSMsgType.PING:
                with suppress(aiohttp.ClientError, OSError):  # closed; earlier messages are still to be read
                    await socket.pong(frame.data)
            if frame.type in (aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG):
                receive(None, None, 0)
            elif frame.type is aiohttp.WSMsgType.TEXT:
                if handler is not None:
                    handler.message_received()
                awaited = receive(await self._message(frame.data, moments), None, len(frame.data))
            else:
                raise UpstreamLost("the upstream sent a frame that is not text")
            if not awaited:
                await moments.spend(perf_counter() - began)
        if handler is not None and handler.flooded:
            raise UpstreamFlood("the upstream sent a message of too many fragments")

    async def _message(self, text: str, moments: TimeSlices) -> object:
        with self._credentials.hiding() as echo:
            try:
                return await read(text, moments, LISTS, echo)
            except ValueError as error:
                return Unreadable.of(text, error)

    def _fail(self, lost: UpstreamLost) -> UpstreamLost:
        if not self._socket.done():
            self._socket.set_exception(UpstreamLost(str(lost), unsent=True, refusal=lost.refusal))
            self._socket.exception()  # marks the exception as retrieved
        return lost
