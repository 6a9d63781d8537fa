"""The doors of the fast path, `/mcp` and the sites of apps, and the choice between them by host and path."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from gateway.bounds import Shares
from gateway.callers.entitlements import Admits, admit_all
from gateway.doors.client_connection import received_headers
from gateway.doors.client_limits import InFlight
from gateway.doors.guard import Guard, GuardedRequest
from gateway.doors.mcp import Mounts
from gateway.doors.revocation import Revocations
from gateway.doors.site import SiteDoor, streamed_head
from gateway.errors import Refusal
from gateway.exchange.streams import WITH_HEAD, Stream
from gateway.fastpath.http1 import (
    BODILESS,
    LAST_CHUNK,
    JsonAnswer,
    RequestHead,
    ResponseWriter,
    StreamStart,
    chunk,
    site_head,
    stream_head,
)
from gateway.mcp.fast import Fast, TracedCall
from gateway.mcp.server import McpMount
from gateway.mcp.standing_streams import StreamRequest
from gateway.model import BodyType, Principal, Request
from gateway.traces import continue_trace

R = TypeVar("R")


class FastRoute(Protocol[R]):
    """The requests with one head, at one door; `R` is a request that was read."""

    @property
    def app(self) -> str:
        """The app or upstream that the requests are for; empty for those of all."""
        ...

    @property
    def needs(self) -> str:
        """The capability that opens this door."""
        ...

    def is_current(self) -> bool:
        """Return whether the configuration that it was made for is still in use."""
        ...

    def read(self, body: bytes) -> R | None:
        """Return the request with this body; None, without a side effect, if aiohttp must serve it."""
        ...

    @property
    def places(self) -> Shares:
        """The places of requests of this kind that are in flight, by person."""
        ...

    async def caller(self, request: GuardedRequest) -> Principal | None:
        """Return the authorized caller; None if the guard or the door would refuse."""
        ...

    def can_answer(self, request: R, principal: Principal) -> bool:
        """Return whether the request of this caller can be answered here; False leaves it to aiohttp."""
        ...

    async def answer(self, request: R, principal: Principal, writer: ResponseWriter) -> None:
        """Run the request, and write its answer."""
        ...


HOLDING: Final = 256
"""Connections that cache request heads: of thousands that are idle, the heads would take half of the memory."""


class HeadHolder(Protocol):
    """A connection that caches request heads."""

    def forget_heads(self) -> None: ...


class HeadHolders:
    """The connections that cache request heads; beyond `most`, the least recently used one forgets its heads."""

    def __init__(self, most: int = HOLDING) -> None:
        self._most = most
        self._connections: OrderedDict[HeadHolder, None] = OrderedDict()

    def note_use(self, connection: HeadHolder) -> None:
        """Note that a connection uses its heads."""
        self._connections[connection] = None
        self._connections.move_to_end(connection)
        if len(self._connections) > self._most:
            self._connections.popitem(last=False)[0].forget_heads()

    def discard(self, connection: HeadHolder) -> None:
        """Note that a connection was closed."""
        self._connections.pop(connection, None)


class RouteFinder(Protocol):
    """Finds routes, and guards their requests: `gateway.fastpath.routes.FastRoutes`."""

    holders: HeadHolders

    def find(self, head: RequestHead) -> FastRoute[Any] | None:
        """Return the route of a head, None if the fast path has none."""
        ...

    def client(self, request: GuardedRequest) -> str | None:
        """Return the address of the client, as reported by trusted proxies."""
        ...

    def generation(self) -> int:
        """Return a number that changes when callers must be identified again, such as after a logout."""
        ...

    def hold(
        self, principal: Principal, end: Callable[[], None], app: str = "", needs: str = ""
    ) -> AbstractContextManager[None]:
        """Call `end` when the credential of `principal` is revoked or expires while the block runs.

        So is it when the principal may no longer use `app`, or loses the capability `needs`.
        """
        ...


C = TypeVar("C", bound=TracedCall)


class McpRoute(Generic[C]):
    """Calls of `tool` at the MCP server `mount`; `current` returns the fast path that the mount has now."""

    needs = "mcp"

    def __init__(
        self,
        head: RequestHead,
        mount: str,
        fast: Fast[C],
        tool: bytes,
        current: Callable[[], Fast[Any] | None],
        identify: Callable[[GuardedRequest, str], Awaitable[Principal | None]],
        admits: Admits,
        places: Shares,
    ) -> None:
        self.app = mount
        self.places = places
        self._fast = fast
        self._tool = tool
        self._current = current
        self._identify = identify
        self._admits = admits
        self._trace_headers = head.headers if "traceparent" in head.headers else None

    def is_current(self) -> bool:
        """Return whether the mount still has this fast path."""
        return self._current() is self._fast

    def read(self, body: bytes) -> C | None:
        """Return the call; None if the SDK has to judge it."""
        return self._fast.read(self._tool, body)

    async def caller(self, request: GuardedRequest) -> Principal | None:
        """Return the authorized caller, or None."""
        principal = await self._identify(request, self.app)
        allowed = principal is not None and principal.may("mcp") and self._admits(principal, self.app)
        return principal if allowed else None

    def can_answer(self, request: C, principal: Principal) -> bool:
        """Return True: what was read can be answered."""
        return True

    async def answer(self, request: C, principal: Principal, writer: ResponseWriter) -> None:
        """Call the tool, and write the JSON-RPC message that answers."""
        fast = self._fast
        answer = JsonAnswer(writer, fast.silence)
        try:
            with continue_trace(request.trace or self._trace_headers):
                text, status = await fast.message(request, principal)
        finally:
            answer.end()
        if isinstance(text, str):
            writer.write(answer.rest(text, status), principal.person)
        else:
            await writer.write_parts(answer.pieces(text, status), principal.person, sum(map(len, text)))


class StreamRoute:
    """Requests with one head for the standing stream of a session at the MCP server `mount`.

    An idle session with its stream takes a fifth of the memory that it takes in the SDK with one of aiohttp's handlers.
    """

    needs = "mcp"

    def __init__(
        self,
        mount: str,
        face: McpMount,
        stream_request: StreamRequest,
        current: Callable[[], McpMount | None],
        identify: Callable[[GuardedRequest, str], Awaitable[Principal | None]],
        admits: Admits,
        places: Shares,
    ) -> None:
        self.app = mount
        self.places = places
        self._face = face
        self._stream_request = stream_request
        self._current = current
        self._identify = identify
        self._admits = admits

    def is_current(self) -> bool:
        """Return whether the mount is still served."""
        return self._current() is self._face

    def read(self, body: bytes) -> StreamRequest | None:
        """Return the request."""
        return self._stream_request

    async def caller(self, request: GuardedRequest) -> Principal | None:
        """Return the authorized caller, whose session continues here after a restart; or None."""
        principal = await self._identify(request, self.app)
        if principal is None or not principal.may("mcp") or not self._admits(principal, self.app):
            return None
        path = f"/mcp/{self.app}" if self.app else "/mcp"
        await self._face.adopt(self._stream_request, principal, path, request.headers)
        return principal

    def can_answer(self, request: StreamRequest, principal: Principal) -> bool:
        """Return whether the session and the place in its stream are known, and no stream of it is open."""
        return self._face.can_stand(request, principal)

    async def answer(self, request: StreamRequest, principal: Principal, writer: ResponseWriter) -> None:
        """Serve the stream until the client or the session is gone."""
        writer.send(stream_head(request.id, last=writer.closing))
        await self._face.stand(request, writer, chunk)
        writer.send(LAST_CHUNK)


class SiteRoute:
    """Requests with one head at the site `door`; `current` returns the site that the host has now."""

    needs = "app"

    def __init__(
        self,
        head: RequestHead,
        door: SiteDoor,
        current: Callable[[], SiteDoor | None],
        identify: Callable[[GuardedRequest], Awaitable[Principal | None]],
        places: Shares,
    ) -> None:
        self.places = places
        self._head = head
        self._door = door
        self._current = current
        self._identify = identify
        self.app = door.app
        self._request = Request(head.method, head.target, received_headers(head.fields), stream=True, leads=True)

    def is_current(self) -> bool:
        """Return whether the site is still served."""
        return self._current() is self._door

    def read(self, body: bytes) -> Request | None:
        """Return the request; None if it may be for a file of the site, or its body is too large."""
        head = self._head
        if not self._door.is_plain_call(head.method, head.path, head.headers) or len(body) > self._door.largest():
            return None
        return replace(self._request, body=body, body_type=BodyType.BASE64) if body else self._request

    async def caller(self, request: GuardedRequest) -> Principal | None:
        """Return the authorized caller, or None."""
        principal = await self._identify(request)
        return principal if principal is not None and self._door.admits(principal) else None

    def can_answer(self, request: Request, principal: Principal) -> bool:
        """Return True: what was read can be answered."""
        return True

    async def answer(self, request: Request, principal: Principal, writer: ResponseWriter) -> None:
        """Run the exchange, and write the backend's answer."""
        outcome = await self._door.open(request, principal)
        if isinstance(outcome, Stream):
            await _stream(outcome, writer)
        else:
            head = site_head(outcome, len(outcome.body), last=writer.closing)
            writer.write(head + outcome.body, principal.person)


async def _stream(stream: Stream, writer: ResponseWriter) -> None:
    """Write each part as it comes, with the browser's backpressure."""
    # Redaction may change the length of the body, which a browser would reject.
    head = site_head(streamed_head(stream.head), None, last=writer.closing)
    start = StreamStart(writer, head, WITH_HEAD, holds=stream.head.says_by_and_by())
    try:
        bodiless = stream.head.status in BODILESS
        async for part in stream:
            if part and not bodiless:
                start.send(chunk(part))
                await writer.drain()
        if not bodiless:
            start.send(LAST_CHUNK)
        start.flush()
    except Refusal:
        start.flush()
        writer.abort()  # the browser must not take a truncated body for a whole one
    finally:
        await stream.aclose()


_MCP: Final = re.compile(r"/mcp(?:/([A-Za-z0-9_-]{1,64}))?")


class FastRoutes:
    """The routes of a gateway: `everything` is the MCP server at `/mcp` itself, `site` finds a site by its host."""

    def __init__(
        self,
        guard: Guard,
        revocations: Revocations,
        in_flight: InFlight,
        site: Callable[[str], SiteDoor | None],
        everything: McpMount,
        *mounts: Mounts,
        admits: Admits = admit_all,
    ) -> None:
        self._guard = guard
        self._admits = admits
        self._site = site
        self._everything = everything
        self._mounts = mounts
        self.holders = HeadHolders()
        self.hold = revocations.hold
        self._in_flight = in_flight
        self.client = guard.client
        self.generation = guard.generation

    def find(self, head: RequestHead) -> FastRoute[Any] | None:
        """Return the route of a head, None if the fast path has none."""
        host = head.headers.get("host", "").lower()
        site = self._site(host)
        if site is not None:
            places = self._in_flight.requests
            return SiteRoute(head, site, lambda: self._site(host), self._guard.caller_at_site, places)
        match = _MCP.fullmatch(head.target)
        if match is None or head.method not in ("GET", "POST"):
            return None
        mount = match[1] or ""
        face = self._face(mount)
        if face is None:
            return None
        guard, admits = self._guard.caller, self._admits
        if head.method == "GET":
            stream_request = face.stream_request(head.fields)
            if stream_request is None:
                return None
            streams = self._in_flight.streams
            return StreamRoute(mount, face, stream_request, lambda: self._face(mount), guard, admits, streams)
        fast = face.fast
        tool = fast.tool(head.fields) if fast is not None else None
        if fast is None or tool is None:
            return None
        return McpRoute(head, mount, fast, tool, lambda: self._fast(mount), guard, admits, self._in_flight.requests)

    def _fast(self, mount: str) -> Fast[Any] | None:
        """Return the current fast path of a mount past the MCP SDK."""
        face = self._face(mount)
        return face.fast if face is not None else None

    def _face(self, mount: str) -> McpMount | None:
        """Return the current mount of this name; "" is `/mcp`."""
        if not mount:
            return self._everything
        return next((face for faces in self._mounts if (face := faces.get(mount)) is not None), None)
