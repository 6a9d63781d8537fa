"""An ASGI application behind an aiohttp handler: each request is answered whole or as a stream."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from aiohttp import web
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST
from multidict import CIMultiDict
from starlette.authentication import AuthCredentials
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Scope

from gateway.event_stream import unbuffered_headers
from gateway.eventloop.fair_share import Pieces
from gateway.model import Principal
from gateway.traces import CLIENT


class User(AuthenticatedUser):
    """A principal as the SDK's authenticated user; the SDK compares client, issuer and subject."""

    def __init__(self, principal: Principal) -> None:
        super().__init__(
            AccessToken(
                token="",  # required by the SDK, which only ever compares the three below
                client_id=principal.client,
                scopes=sorted(principal.capabilities),
                subject=principal.subject,
                claims={"iss": principal.issuer},
            )
        )
        self.principal = principal
        self.address = CLIENT.get()


def principal_of(request: Request | None) -> Principal:
    """Return the sender of `request`; the audit log gets its client's address from here on.
    A session of the SDK runs in a separate task, which began with another request. Raises `MCPError` for a request that
    passed no door of the gateway.
    """
    user = request.scope.get("user") if request is not None else None
    if not isinstance(user, User):
        raise MCPError(INVALID_REQUEST, "This request came without a principal.")
    CLIENT.set(user.address)
    return user.principal


def current_principal() -> Principal | None:
    """Return the sender of the current request, for callbacks to which the SDK passes no request."""
    user = auth_context_var.get()
    return user.principal if isinstance(user, User) else None


HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
     b"transfer-encoding", b"upgrade")
)  # fmt: skip
"""Hop-by-hop header fields (RFC 9110, 7.6.1)."""

ENDING = "webmcp-gateway.ending"

LEFT_OUT = "webmcp-gateway.left-out"
"""The scope key of the parts left out of an exchange's messages, in pieces, by their placeholder; each is used once."""

GRACE = 5.0
"""Seconds that the application has to end after its client disconnected."""


class Ending:
    """The end of an exchange with a client: the client disconnected, or the gateway ended its stream.
    `size` is the number of bytes of its request's body.
    """

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self._end = asyncio.Event()
        self._callbacks: set[Callable[[], None]] = set()

    def end(self) -> None:
        """Signal the end; repeating it has no effect."""
        self._end.set()
        while self._callbacks:
            self._callbacks.pop()()

    @property
    def ended(self) -> bool:
        """True if the exchange has ended."""
        return self._end.is_set()

    async def wait(self) -> None:
        """Wait for the end."""
        await self._end.wait()

    @contextmanager
    def calling(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call `callback` if the exchange ends within the block."""
        self._callbacks.add(callback)
        try:
            yield
        finally:
            self._callbacks.discard(callback)

    @contextmanager
    def outlive(self) -> Iterator[None]:
        """Suspend the callbacks within the block: the call there continues after a disconnect."""
        callbacks, self._callbacks = self._callbacks, set()
        try:
            yield
        finally:
            self._callbacks = callbacks


def ending_of(request: Request | None) -> Ending:
    """Return the ending of the exchange that `request` belongs to; without a request, one that never comes."""
    return cast(Ending, request.scope[ENDING]) if request is not None else Ending()


def put_in(scope: Scope, part: bytes) -> list[bytes]:
    """Return `part` of an answer in pieces, with its placeholders replaced by the parts left out."""
    values: dict[bytes, list[bytes]] | None = scope.get(LEFT_OUT)
    if not values:
        return [part]
    marks = b"|".join(map(re.escape, list(values)))  # a thread may leave out another part meanwhile
    return [piece for mark in re.split(b"(%b)" % marks, part) for piece in values.pop(mark, (mark,))]


async def serve(
    app: ASGIApp, request: web.Request, user: User, ending: Ending, body: bytes | None = None
) -> web.StreamResponse:
    """Return the answer of `app` to `request`, whose `body` may have been read already.
    The server must run with `handler_cancellation=True`: only that reveals a disconnected client. The application is
    then notified by `http.disconnect`, as ASGI specifies, and not cancelled: the SDK treats a cancelled opening request
    as failed, and clients close that stream as soon as they have read its one event.
    """
    scope = _scope(request, user, ending)
    exchange = _Exchange(request, ending, scope, body)
    running = asyncio.ensure_future(app(scope, exchange.receive, exchange.send))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        ending.end()
        await asyncio.wait({running}, timeout=GRACE)
        raise
    finally:
        ending.end()
        if not running.done():
            running.cancel()
            await asyncio.wait({running})
    return await exchange.answer()


def _scope(request: web.Request, user: User, ending: Ending) -> Scope:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": f"{request.version.major}.{request.version.minor}",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.rel_url.raw_path.encode("ascii"),
        "query_string": request.rel_url.raw_query_string.encode("ascii"),
        "root_path": "",
        "headers": list(_fields(request.raw_headers)),
        "client": tuple(peer[:2]) if isinstance(peer, tuple) else None,
        "server": None,
        "user": user,
        "auth": AuthCredentials(user.scopes),
        ENDING: ending,
    }


def plain_scope(path: str, headers: Mapping[str, str], user: User) -> Scope:
    """Return the scope of a GET request that was read without aiohttp."""
    fields = ((name.encode(), value.encode("latin-1")) for name, value in headers.items())
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("ascii"),
        "query_string": b"",
        "root_path": "",
        "headers": list(_fields(fields)),
        "client": None,
        "server": None,
        "user": user,
        "auth": AuthCredentials(user.scopes),
    }


def _fields(raw: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the fields as the application compares them: names in lower case, and the value of `host` too."""
    for name, value in raw:
        lower_name = name.lower()
        if lower_name not in HOP_BY_HOP:
            yield lower_name, value.lower() if lower_name == b"host" else value


class _Exchange:
    """The `receive` and `send` callables of one ASGI request."""

    def __init__(self, request: web.Request, ending: Ending, scope: Scope, body: bytes | None) -> None:
        self._request = request
        self._given = body
        self._scope = scope
        self._ending = ending
        self._read = False
        self._response: web.StreamResponse | None = None
        self._whole: list[bytes] | None = None

    async def receive(self) -> Message:
        if not self._read:
            body, self._given = self._given, None
            if body is None:
                body = await self._request.content.readany()
            self._read = self._request.content.at_eof()
            return {"type": "http.request", "body": body, "more_body": not self._read}
        # Waits for the end: an application that received an empty message at once would ask again for ever.
        await self._ending.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        try:
            if message["type"] == "http.response.start":
                await self._start(message["status"], message["headers"])
            else:
                await self._body(message.get("body", b""), message.get("more_body", False))
        except ConnectionError:
            self._ending.end()  # ASGI: data sent to a disconnected client is dropped without an error

    async def answer(self) -> web.StreamResponse:
        if self._response is None:
            return web.Response(status=500)
        if self._whole is None:
            return self._response
        body = b"".join(self._whole) if len(self._whole) == 1 else Pieces(self._whole)
        return web.Response(status=self._response.status, headers=self._response.headers, body=body)

    async def _start(self, status: int, raw: list[tuple[bytes, bytes]]) -> None:
        headers = CIMultiDict(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in raw
            if name.lower() not in HOP_BY_HOP and name.lower() != b"content-length"
        )
        if headers.get("content-type", "").startswith("text/event-stream"):
            headers.update(unbuffered_headers([*headers.items()]))
        self._response = web.StreamResponse(status=status, headers=headers)
        if any(name.lower() == b"content-length" for name, _ in raw) or status in (204, 304):
            self._whole = []  # the length is known: head and body leave in one write
        else:
            await self._response.prepare(self._request)  # a stream's head must not wait for its first event

    async def _body(self, part: bytes, more: bool) -> None:
        if self._response is None:
            raise RuntimeError("The application sent a body before its head.")
        pieces = put_in(self._scope, part)
        if self._whole is not None:
            self._whole += pieces
            return
        for piece in pieces:
            if piece:
                await self._response.write(piece)
        if not more:
            await self._response.write_eof()
