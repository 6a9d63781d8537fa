"""The bridge: one WebSocket of a host page carries all its views, and HTTP beside it their large bodies."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

from aiohttp import web

from gateway import mux
from gateway.arriving import NoRoom
from gateway.backends.websocket_frames import read_in_turn
from gateway.doors.authorization import lacking_any
from gateway.doors.bridge.bridge_state import BridgeState
from gateway.doors.bridge.host_page import HostPage
from gateway.doors.bridge.uploads import Bodies, OpenBody
from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import SECURE, no_websocket, opens_websocket, refusal_response, state_refusal
from gateway.errors import MuxError, Refusal
from gateway.eventloop.fair_share import RoundRobin
from gateway.exchange.streams import BESIDE, OPEN_BYTES, OPEN_SECONDS
from gateway.mcp.asgi import Ending
from gateway.model import Principal

PROTOCOL = "webmcp-gateway.v1"

HEARTBEAT = 15.0

_NO_ROOM = (
    "The bodies of this caller, or of all together, leave no room at present; `mcp.bodies_each` and `mcp.bodies` say "
    "how much there is."
)

log = logging.getLogger(__name__)


class BridgeDoor:
    """The WebSocket of each host page, and the bodies that its frames name."""

    def __init__(self, state: BridgeState, in_turn: RoundRobin) -> None:
        self._state = state
        self._in_turn = in_turn
        self._pages: dict[web.WebSocketResponse, HostPage] = {}

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the bridge, for the console's site."""
        return [
            web.get("/bridge", self._connect),
            web.put("/bridge/bodies/{id}", self._put_body),
            web.get("/bridge/bodies/{id}", self._get_body),
        ]

    @property
    def count(self) -> int:
        """The number of open WebSockets."""
        return len(self._pages)

    async def close(self) -> None:
        """Close every connection at shutdown; the views end with them."""
        await close_all(list(self._pages), 1001, b"the gateway stops")
        self._state.end_lost()

    async def end_all(self, principal: Principal) -> None:
        """End every connection and view of a person who logs out."""
        mine = [socket for socket, page in self._pages.items() if page.principal == principal]
        await close_all(mine, 1008, b"logged out")
        self._state.end_lost(principal)

    async def end_hosted(self, origins: Collection[str]) -> None:
        """End the connections of pages of these host sites, which have changed: they may connect again."""
        await close_all([one for one, page in self._pages.items() if page.hosted_at in origins], 1008, b"changed")

    async def end_excluded(self) -> None:
        """End the views of apps that their principals may not use any more, also on open connections."""
        for view in self._state.views.list_excluded():
            self._state.end(view)
        for page in list(self._pages.values()):
            await page.end_closed()

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        if not opens_websocket(request, PROTOCOL):
            return no_websocket(
                f"The bridge is a WebSocket with the subprotocol {PROTOCOL}: a proxy in front of the gateway must pass "
                "Upgrade, Connection and the fields Sec-WebSocket-* on."
            )
        # No compression: content of pages and models is mixed with secrets here, and latency matters more than size.
        socket = web.WebSocketResponse(
            protocols=(PROTOCOL,),
            heartbeat=HEARTBEAT,
            max_msg_size=mux.FRAME_LIMIT + 1,
            compress=False,
            autoping=False,  # aiohttp answers all pending pings at once
        )
        await socket.prepare(request)
        read_in_turn(request.protocol, self._in_turn)
        page = self._pages[socket] = HostPage(self._state, socket, request)
        try:
            await page.run()
        finally:
            del self._pages[socket]
        return socket

    async def _put_body(self, request: web.Request) -> web.Response:
        if (refusal := lacking_any(request, "bridge")) is not None:
            return refusal
        principal = request[PRINCIPAL].id
        rest = partial(self._state.views.precedence.rest, principal)
        try:
            stored = await self._state.bodies.receive(request.match_info["id"], request, principal, rest)
        except NoRoom:
            answer = refusal_response(503, "no-room", _NO_ROOM, {"retry-after": "1"})
            answer.force_close()  # the rest of the body is not read
            return answer
        except web.HTTPLengthRequired:
            return refusal_response(411, "length-required", "A body needs a content-length.")
        except web.HTTPRequestEntityTooLarge as error:  # its text names the limit of this type
            return refusal_response(413, "request-too-large", str(error.text))
        except MuxError as error:
            return refusal_response(413, "request-too-large", error.detail)
        except UnicodeDecodeError:
            return refusal_response(400, "bad-request", "A body is JSON in UTF-8.")
        if not stored:
            return refusal_response(409, "body-refused", "This id is invalid, or already used.")
        if self._state.elsewhere is not None:
            try:
                await self._state.elsewhere.announce(request.match_info["id"], request[PRINCIPAL])
            except OSError:
                self._state.bodies.release(request.match_info["id"])
                return state_refusal("The body cannot be announced")
        return web.Response(status=204, headers=SECURE)

    async def _get_body(self, request: web.Request) -> web.StreamResponse:
        if (refusal := lacking_any(request, "bridge")) is not None:
            return refusal
        id, principal = request.match_info["id"], request[PRINCIPAL]
        bodies, rest = self._state.bodies, partial(self._state.views.precedence.rest, principal.id)
        if (answer := await send_body(request, bodies, id, principal, rest)) is not None:
            return answer
        if self._state.elsewhere is not None:
            from gateway.mcp.elsewhere import return_answer  # noqa: PLC0415  here, so that only nodes load it

            try:
                async with self._state.elsewhere.open_body(id, principal) as held:
                    if held is not None:
                        return await return_answer(request, held, Ending())
            except Refusal as error:
                return refusal_response(error.status, error.reason, error.detail, dict(error.headers))
        return refusal_response(404, "unknown-body", "No such body waits; each can be taken once.")


async def send_body(
    request: web.Request, bodies: Bodies, id: str, principal: Principal, rest: Callable[[], Awaitable[None]]
) -> web.StreamResponse | None:
    """Send a body that waits here for this caller; return None if it is missing. `rest` is awaited between pieces."""
    content = bodies.take(id, principal.id)
    if content is None:
        return None
    bodies.release(id)
    headers = {**SECURE, "cache-control": "no-store"}
    if isinstance(content, OpenBody):
        return await _send_open(request, content, headers, rest)
    if isinstance(content, bytes):
        return web.Response(body=content, content_type="application/octet-stream", headers=headers)
    return web.Response(text=content, content_type="application/json", headers=headers)


async def _send_open(
    request: web.Request, body: OpenBody, headers: dict[str, str], rest: Callable[[], Awaitable[None]]
) -> web.StreamResponse:
    """Send a part of a stream while it arrives, until no more is there at once."""
    answer = web.StreamResponse(headers={**headers, "content-type": "application/octet-stream"})
    await answer.prepare(request)
    sent, until, piece = 0, time.monotonic() + OPEN_SECONDS, body.first
    while piece:
        await answer.write(piece)
        sent += len(piece)
        if sent > OPEN_BYTES - BESIDE or time.monotonic() >= until:
            break
        await rest()
        piece = await body.more()
    return answer


async def close_all(sockets: Sequence[web.WebSocketResponse], code: int, why: bytes) -> None:
    """Close the sockets concurrently: an unresponsive page takes ten seconds, and delays no other."""
    failures = await asyncio.gather(
        *(socket.close(code=code, message=why) for socket in sockets), return_exceptions=True
    )
    for failure in failures:
        if isinstance(failure, BaseException):
            log.warning("a host page could not be notified that its connection ends: %r", failure)
