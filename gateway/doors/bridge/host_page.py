"""The connection of a host page: the dispatch of its frames, and its views with two channels each."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from aiohttp import WebSocketError, WSCloseCode, WSMsgType, web

from gateway import mux
from gateway.backends.websocket_frames import NORMAL
from gateway.bounds import Area, Bound
from gateway.contract import UploadedBody
from gateway.crypto import digest
from gateway.doors.bridge.bridge_state import CONNECTIONS, BridgeState, Ticket
from gateway.doors.bridge.uploads import BodiesElsewhere, OpenBody
from gateway.doors.refused_callers import REFUSED
from gateway.doors.responses import refusal_response, state_refusal
from gateway.errors import MuxError, Reason, Refusal
from gateway.jsontext.sizes import is_bulky, why
from gateway.jsontext.writing import is_large
from gateway.mcp import results
from gateway.mcp.view_server import NO_SERVER, Beside, PageTools, UiPeer, read_html
from gateway.model import Caller, Channel, Door, Initiator, Json, Principal, ViewTool
from gateway.views.view import View

UNSENT = 128 * 1024
"""Bytes that the kernel buffers unsent: a model's messages wait behind these."""


class Outbox:
    """The texts for the WebSocket that answers `request`."""

    def __init__(self, wire: web.WebSocketResponse, request: web.Request) -> None:
        self._wire = wire
        self._waiting: deque[str] = deque()
        self._writing = asyncio.Lock()
        self._rest: asyncio.Task[None] | None = None
        _hold_little(request.transport)

    async def put(self, texts: Sequence[str], *, first: bool = False) -> None:
        """Write `texts`, in order or before the queue; return once they are written.
        Without texts it returns at once, so that the caller keeps reading, such as a model's answer.
        """
        if not texts:
            return
        if first:
            for text in texts:
                await self._write(text)
            return
        self._waiting += texts
        try:
            await self._write_all()
        except asyncio.CancelledError:
            # Queued texts must still be written; the task ends with the connection at the latest.
            if self._waiting and (self._rest is None or self._rest.done()):
                self._rest = asyncio.ensure_future(self._write_all())
            raise

    async def _write_all(self) -> None:
        async with self._writing:
            while self._waiting:
                await self._write(self._waiting.popleft())

    async def _write(self, text: str) -> None:
        with suppress(ConnectionError):
            await self._wire.send_str(text)


def _hold_little(transport: asyncio.Transport | None) -> None:
    wire: socket.socket | None = transport.get_extra_info("socket") if transport is not None else None
    option: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", None)
    if wire is not None and option is not None:
        with suppress(OSError):  # not every socket is TCP
            wire.setsockopt(socket.IPPROTO_TCP, option, UNSENT)


BYTES = "$bytes"
"""The member of `params` that names the bytes of its `body`; written by host pages only, never by apps."""


def names_bytes(message: dict[str, Json]) -> bool:
    """Return whether an upstream's answer appears to have bytes beside it; as an uploaded body it cannot name any."""
    result = message.get("result")
    meta = result.get("_meta") if isinstance(result, dict) else None
    return isinstance(meta, dict) and results.BYTES in meta


log = logging.getLogger(__name__)

TOO_LARGE = "too-large"
"""The placeholder for bytes that were too many to put."""

GREETING = 10.0
"""Seconds that a host page has to say hello."""

CHECKS = 16
"""Pages whose HTML is compared at once."""

FETCHES = 16
"""Messages that wait at once for bodies of another process; beyond that, the connection is not read further."""

BOUNDS: Final = (
    Bound(
        Area.BRIDGE,
        "bridge connections without a ticket",
        f"{GREETING:g} s",
        "it is closed",
    ),
    Bound(
        Area.BRIDGE,
        "comparisons of an app's HTML with that of a host page",
        f"{CHECKS} at once per connection",
        "`busy`",
    ),
)

(_GREETING, _CHECKS) = BOUNDS

DIFFERS: Final = (
    "This is not the HTML that the gateway has of this app now, so that the app's policy does not serve it. "
    "Read the resource again, or leave the reading to the gateway."
)

BATCH = 16
"""Frames processed before the event loop gets its turn."""

INVALID_PARAMS = -32602


@dataclass(slots=True, eq=False)
class _Seat:
    """A view on a connection: its ui peer, the stack that ends it, and the digest of its resume token."""

    view: View
    peer: UiPeer
    ending: AsyncExitStack
    token: bytes


class HostPage:
    """The views on one WebSocket."""

    def __init__(self, state: BridgeState, socket: web.WebSocketResponse, request: web.Request) -> None:
        self._state = state
        self._socket = socket
        self._origin = request.headers.get("origin")
        self._transport = request.transport
        self._mux = mux.ServerConnection()
        self._seats: dict[str, _Seat] = {}
        self._frames = 0
        self._ticket: Ticket | None = None
        self._outbox = Outbox(socket, request)
        self._request = request
        self._checks: set[asyncio.Task[None]] = set()
        self._fetches: set[asyncio.Task[None]] = set()

    @property
    def principal(self) -> Principal | None:
        """The page's principal, once it has sent its ticket."""
        return self._ticket.principal if self._ticket is not None else None

    @property
    def hosted_at(self) -> str | None:
        """The origin of the page if it is one of a host site."""
        return self._ticket.origin if self._ticket is not None and self._ticket.hosted else None

    async def run(self) -> None:
        try:
            await self._receive(GREETING)
            if self._ticket is not None:
                await self._serve(self._ticket.principal)
        except MuxError as error:
            if error.code == TOO_LARGE:
                mux.FRAMES.report(self.principal.id if self.principal is not None else None)
            await self._flush()
        finally:
            await self._leave()
            await self._hang_up()

    async def _serve(self, principal: Principal) -> None:
        with (
            self._state.places.place(principal.person) as free,
            self._state.revocations.hold(principal, self._cut_off, needs="bridge"),
        ):
            if not free:
                CONNECTIONS.report(principal.id)
                await self._say(mux.ErrorFrame("too-many", "Too many host pages of this person are open. Close one."))
            while free and await self._receive(None):
                pass

    async def _hang_up(self) -> None:
        """Send a close frame and stop reading: `close` alone reads everything that the page still sends, at once."""
        with suppress(ConnectionError):
            if not self._socket.closed and self._transport is not None:
                await self._socket.send_frame(NORMAL, WSMsgType.CLOSE)
                self._transport.close()
            await self._socket.close()

    def _cut_off(self) -> None:
        """Abort the connection when the caller's credential ends."""
        if self._transport is not None:
            self._transport.abort()

    async def _receive(self, seconds: float | None) -> bool:
        """Process one frame. Return False if the socket is closed. Raises `MuxError`."""
        try:
            message = await self._socket.receive(timeout=seconds)
        except TimeoutError:
            _GREETING.report()
            return False
        self._frames += 1
        if not self._frames % BATCH:
            await asyncio.sleep(0)  # a flood must not starve others
        if message.type is WSMsgType.PING:
            with suppress(ConnectionError):
                await self._socket.pong(message.data)
        if message.type in (WSMsgType.PING, WSMsgType.PONG):
            return True
        if message.type is WSMsgType.TEXT and is_bulky(message.data, mux.BODY_LIMIT):
            # The gateway's host page sends large bodies beside frames. A page that makes its host send such a frame
            # harms only itself, not the others on this connection.
            log.warning("a frame of the bridge is dropped: it has %s", why(mux.BODY_LIMIT))
            return True
        if message.type is WSMsgType.TEXT:
            for event in self._mux.receive_data(message.data):
                await self._take(event)
            await self._flush()
            return True
        failed = message.data if message.type is WSMsgType.ERROR else None
        if isinstance(failed, WebSocketError) and failed.code == WSCloseCode.MESSAGE_TOO_BIG:
            mux.FRAMES.report(self.principal.id if self.principal is not None else None)
        if message.type is WSMsgType.BINARY:
            raise MuxError("bad-frame", "frames are text")
        return False

    async def _take(self, event: mux.Frame) -> None:
        match event:
            case mux.Hello(ticket):
                try:
                    self._ticket = await self._state.tickets.redeem(ticket, self._origin)
                except OSError:
                    self._request[REFUSED] = state_refusal("No ticket can be read")
                    await self._say(mux.ErrorFrame(Reason.STATE_UNAVAILABLE, "No ticket can be read now. Try again."))
                    return
                if self._ticket is not None and not self._state.revocations.accepts(self._ticket.principal):
                    self._ticket = None  # it is no caller any more since the configuration changed
                if self._ticket is None:
                    self._request[REFUSED] = refusal_response(
                        403, "bad-ticket", "This ticket is unknown, used or expired."
                    )
                    await self._say(mux.ErrorFrame("bad-ticket", "This ticket is unknown, used or expired."))
            case mux.Open():
                await self._open(event)
            case mux.Resume(view, token):
                await self._resume(view, token)
            case mux.Message():
                await self._route(event)
            case mux.Gesture(view, age):
                if self._ticket is not None and self._ticket.attest:
                    self._state.views.taints.attest_gesture(self._seats[view].view, age / 1000)
            case mux.Close(view, _):
                await self._close(view)
            case _:
                pass

    async def _open(self, frame: mux.Open) -> None:
        """Open a view; the HTML that the page has already is compared beside the other frames of this connection."""
        refused = self._refusal_of(frame)
        if refused is None and frame.sha256 is not None:
            if len(self._checks) < CHECKS:
                check = asyncio.create_task(self._open_checked(frame, frame.sha256))
                self._checks.add(check)
                check.add_done_callback(self._checks.discard)
                return
            _CHECKS.report(self.principal.id if self.principal is not None else None)
            refused = mux.ErrorFrame("busy", "The HTML of too many apps is compared at once.", ref=frame.ref)
        await (self._open_view(frame) if refused is None else self._say(refused))

    def _refusal_of(self, frame: mux.Open) -> mux.ErrorFrame | None:
        """Return why this page may not open this app, or None."""
        app, what = _app_of(frame), "app" if frame.upstream is None else "upstream"
        ticket, known = self._ticket, self._state.server_of(app, frame.resource) is not None
        if ticket is not None and known and app in ticket.apps and self._state.admits(ticket.principal, app):
            return None
        return mux.ErrorFrame("unknown-app", f"There is no {what} {app!r} here for this page.", ref=frame.ref)

    async def _open_checked(self, frame: mux.Open, sha256: str) -> None:
        """Open a view if the gateway's own HTML has this digest."""
        app, ticket = _app_of(frame), self._ticket
        server = self._state.server_of(app, frame.resource)
        if ticket is None or server is None:
            return
        caller = Caller(ticket.principal, app, Door.BRIDGE, Initiator.PAGE, "page")
        refused: mux.ErrorFrame | None = None
        try:
            html = await read_html(server, self._resource_of(frame), caller)
        except Refusal as refusal:
            refused = mux.ErrorFrame(refusal.reason, refusal.detail[:1024], ref=frame.ref)
        else:
            earlier = self._state.served.get(app, tuple) if frame.resource is None else tuple
            if html is None or not await asyncio.to_thread(_has, sha256, html, earlier):
                refused = mux.ErrorFrame("html-differs", DIFFERS, ref=frame.ref)
        refused = refused or self._refusal_of(frame)  # it may have changed meanwhile
        with suppress(MuxError):  # the connection ends
            await (self._open_view(frame) if refused is None else self._say(refused))

    def _resource_of(self, frame: mux.Open) -> str:
        return frame.resource or self._state.resources[_app_of(frame)].uri

    async def _open_view(self, frame: mux.Open) -> None:
        if self._ticket is None:
            return
        principal, app = self._ticket.principal, _app_of(frame)
        await self._state.views.taints.learn(principal, app)
        try:
            view = self._state.views.open_bridged(principal, app, frame.resource)
        except Refusal as refusal:
            await self._say(mux.ErrorFrame(refusal.reason, refusal.detail, ref=frame.ref))
            return
        token = self._state.resuming.issue(view, self._origin)
        await self._begin(view, token, mux.Opened(frame.ref, view.id, self._resource_of(frame), (), token))

    async def _resume(self, id: str, token: str) -> None:
        ticket = self._ticket
        view = self._state.take_up(id, token, ticket.principal, self._origin) if ticket is not None else None
        try:
            view = view or await self._move(id, token)
        except Refusal as refusal:
            await self._say(mux.ErrorFrame(refusal.reason, refusal.detail, view=id))
            return
        if view is None:
            await self._say(mux.ErrorFrame("unknown-view", "This view is closed. Open it again.", view=id))
            return
        following = self._state.resuming.issue(view, self._origin)
        await self._begin(view, following, mux.Resume(id, following))

    async def _move(self, id: str, token: str) -> View | None:
        """Return a view of another process under its id, as a new one; None if the token does not prove it.

        Raises `Refusal` if there are too many views.
        """
        if self._ticket is None:
            return None
        principal = self._ticket.principal
        app = self._state.resuming.app_of_moved(token, id, principal, self._origin)
        if app is None or app not in self._state.resources or app not in self._ticket.apps:
            return None
        if not self._state.admits(principal, app):
            return None
        moved = await self._state.views.take_over(id)
        await self._state.views.taints.learn(principal, app)
        return self._state.views.move_bridged(principal, app, id, moved)

    async def _begin(self, view: View, token: str, resumed: mux.Frame) -> None:
        """Announce the view to the page, and seat it; an unannounced view ends."""
        try:
            await self._say(resumed)
        except BaseException:  # on cancellation too: the page could not resume it
            self._state.end(view)
            raise
        await self._seat(view, token)

    async def _seat(self, view: View, token: str) -> None:
        async def on_ui(
            message: dict[str, Json], *, own: bool = False, leaving: Callable[[], object] = lambda: None
        ) -> None:
            await self._say_message(mux.Message(view.id, Channel.UI, message), own=own, leaving=leaving)

        async def on_webmcp(message: dict[str, Json]) -> None:
            await self._say_message(mux.Message(view.id, Channel.WEBMCP, message))

        views = self._state.views
        ending = AsyncExitStack()

        def caller(reported_model: bool) -> Caller:
            return views.caller_of(view, Door.BRIDGE, reported_model=reported_model)

        def turn() -> Awaitable[None]:
            return views.precedence.turn(view.principal.id)

        async def tools() -> Sequence[ViewTool]:
            if view.calls is not None:
                await asyncio.gather(view.calls.catch_up(), return_exceptions=True)  # else it keeps its tools
            return view.tools

        server = self._state.server_of(view.app, view.resource) or NO_SERVER
        if self._state.forwarder is not None:
            server = PageTools(server, self._state.forwarder, tools)
        page = self.hosted_at
        streams = self._state.event_streams
        offer = partial(streams.offer, view.principal) if streams is not None else None
        peer = UiPeer(server, caller, on_ui, self._aside, turn, view.principal.id, page, offer)
        await ending.enter_async_context(peer)
        self._seats[view.id] = _Seat(view, peer, ending, digest(token))
        views.connect(view, on_webmcp, on_ui)

    async def _route(self, frame: mux.Message) -> None:
        if self._state.elsewhere is not None and (absent := self._absent_bodies(frame.message)):
            fetch = asyncio.create_task(self._route_fetched(frame, absent, self._state.elsewhere))  # delays no other
            self._fetches.add(fetch)
            fetch.add_done_callback(self._fetches.discard)
            if len(self._fetches) >= FETCHES:
                await asyncio.wait(self._fetches, return_when=asyncio.FIRST_COMPLETED)
            return
        await self._route_here(frame)

    def _absent_bodies(self, message: dict[str, Json]) -> list[str]:
        """Return the ids of bodies that a message names, and that no host page has sent to this process."""
        params = message.get("params")
        named = [mux.named_body(message), params.get(BYTES) if isinstance(params, dict) else None]
        return [id for id in named if isinstance(id, str) and id != TOO_LARGE and not self._state.bodies.has(id)]

    async def _route_fetched(self, frame: mux.Message, ids: Sequence[str], elsewhere: BodiesElsewhere) -> None:
        """Fetch bodies that another process has received, then route the message that names them."""
        if self._ticket is None:
            return
        for id in ids:
            fetched = await elsewhere.fetch_body(id, self._ticket.principal)
            if fetched is not None:
                content = fetched[0].decode("utf-8", "replace") if fetched[1] else fetched[0]
                self._state.bodies.put(id, self._ticket.principal.id, content)
        if frame.view in self._seats:
            with suppress(MuxError):  # the connection ends
                await self._route_here(frame)

    async def _route_here(self, frame: mux.Message) -> None:
        seat = self._seats[frame.view]
        try:
            message, beside = self._whole(frame.message), None
            if frame.channel is Channel.UI:
                message, beside = self._beside(message)
        except MuxError as error:
            await self._refuse(seat.view, frame, error)
            return
        if frame.channel is Channel.UI:
            await seat.peer.receive(message, beside)
            return
        if "result" in message:
            self._state.views.precedence.note_arrival(seat.view.principal.id)
        if seat.view.session is not None and not seat.view.session.receive(message):
            self._state.views.disconnect(seat.view)

    def _whole(self, message: dict[str, Json]) -> dict[str, Json]:
        """Return the message with the body that it names. Raises `MuxError` for an unknown body or invalid JSON."""
        body = mux.named_body(message)
        if body is None or self._ticket is None:
            return message
        text = self._state.bodies.take(body, self._ticket.principal.id)
        if not isinstance(text, str):
            raise MuxError("unknown-body", "the message names a body that was not put")
        return mux.join_body(message, text)

    def _beside(self, message: dict[str, Json]) -> tuple[dict[str, Json], Beside | None]:
        """Return the message without the name of its bytes, and those bytes. Raises `MuxError`."""
        params = message.get("params")
        if not isinstance(params, dict) or BYTES not in params or self._ticket is None:
            return message, None
        id, bodies = params[BYTES], self._state.bodies
        message = {**message, "params": {name: value for name, value in params.items() if name != BYTES}}
        if id == TOO_LARGE:
            return message, Beside(UploadedBody(None), lambda: None)
        content = bodies.take(id, self._ticket.principal.id) if isinstance(id, str) else None
        if not isinstance(id, str) or not isinstance(content, bytes):
            raise MuxError("unknown-body", "the message names bytes that were not put")
        return message, Beside(UploadedBody(content), lambda: bodies.release(id))

    async def _refuse(self, view: View, frame: mux.Message, error: MuxError) -> None:
        """Fail a message whose body is missing, or the call that it answers; the others continue."""
        id = frame.message.get("id")
        failure: dict[str, Json] = {"code": INVALID_PARAMS, "message": f"{error.code}: {error.detail}"}
        answer: dict[str, Json] = {"jsonrpc": "2.0", "id": id, "error": failure}
        if "method" not in frame.message:
            if frame.channel is Channel.WEBMCP and view.session is not None:
                view.session.receive(answer)
        elif id is not None:
            await self._say(mux.Message(frame.view, frame.channel, answer))

    async def _close(self, id: str) -> None:
        seat = self._seats.pop(id, None)
        if seat is not None:
            try:
                await seat.ending.aclose()
            finally:
                self._state.end(seat.view)

    async def end_closed(self) -> None:
        """Tell the page of its views that the gateway has closed, and cancel their calls in flight."""
        for id, seat in list(self._seats.items()):
            if self._state.views.is_open(seat.view):
                continue
            with suppress(MuxError):  # the page closes the view at the same time
                await self._say(mux.Close(id, "This app is not available any more."))
            await self._close(id)

    async def _leave(self) -> None:
        """End the calls in flight after a disconnect; the views wait to be resumed.
        The server may cancel this before the last call has ended.
        """
        self._mux.connection_lost()
        for check in self._checks | self._fetches:
            check.cancel()
        async with AsyncExitStack() as endings:
            for seat in self._seats.values():
                endings.push_async_exit(seat.ending)
                self._state.lose(seat.view, seat.token, self._origin)
            self._seats.clear()

    async def _say_message(
        self, frame: mux.Message, *, own: bool = False, leaving: Callable[[], object] = lambda: None
    ) -> None:
        """Send a message; only the gateway's `own` answers may name bytes sent beside them."""
        message = frame.message
        if self._ticket is None:
            return
        id = self._state.bodies.new_id()
        split = await asyncio.to_thread(_split, message, own, id) if is_large(message) else _split(message, own, id)
        if split is not None:
            id, named, text = split
            if self._state.bodies.put(id, self._ticket.principal.id, text):
                frame = mux.Message(frame.view, frame.channel, named)
        leaving()
        await self._say(frame)

    def _aside(self, body: bytes, more: results.More | None) -> str | None:
        """Store the bytes of an answer for the host page; return their name, None if there is no room."""
        id, ticket = self._state.bodies.new_id(), self._ticket
        content = body if more is None else OpenBody(body, more)
        return id if ticket is not None and self._state.bodies.put(id, ticket.principal.id, content) else None

    async def _say(self, frame: mux.Frame) -> None:
        for answer in self._mux.send(frame):
            if isinstance(answer, mux.Message) and answer.view in self._seats:
                await self._route(answer)
        await self._flush(first=isinstance(frame, mux.Message) and frame.channel is Channel.WEBMCP)

    async def _flush(self, *, first: bool = False) -> None:
        await self._outbox.put(self._mux.pending_output(), first=first)


def _app_of(frame: mux.Open) -> str:
    return frame.app or frame.upstream or ""


def _has(sha256: str, html: str, earlier: Callable[[], Iterable[str]]) -> bool:
    """Return whether the page, or one as it was read earlier, has this digest."""
    pages = chain((html,), earlier())
    return any(hashlib.sha256(page.encode("utf-8", "surrogatepass")).hexdigest() == sha256 for page in pages)


def _split(message: dict[str, Json], own: bool, id: str) -> tuple[str, dict[str, Json], str] | None:
    """Return `id`, the message that names it, and the body, if the body must be sent beside the frame."""
    if not mux.is_large(message) and (own or not names_bytes(message)):
        return None
    return id, *mux.split_body(message, id)
