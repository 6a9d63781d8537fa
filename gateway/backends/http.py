"""An HTTP backend: sends each request exactly as it was decided on, and reads one bounded response."""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import lru_cache, partial
from typing import Final, Protocol

from msgspec.structs import replace
from yarl import URL

from gateway.backends.aiohttp_client import AiohttpClient
from gateway.backends.codings import ACCEPT_ENCODING, Decoder
from gateway.backends.connect import CONNECTIONS_PER_HOST, USER_AGENT, Connections, Network, Origin
from gateway.backends.connection_pool import ConnectionPool
from gateway.backends.fields import FRAMING, NAME, kept_length, length_is_of_body, response_head, silence_timeout
from gateway.backends.http1 import RETRIED, ConnectionLost, MalformedResponse, ResponseHead, ResponseReader
from gateway.backends.websocket import open_websocket
from gateway.errors import Reason, Refusal
from gateway.model import Arriving, Outbound, Response, Upgraded
from gateway.policy.headers import EVENT_ID, LAST_EVENT_ID

BUFFER_BYTES: Final = 256 * 1024
"""Bytes of a body that may be buffered; beyond that the connection is not read (backpressure)."""


class HttpClient(Protocol):
    """Requests to one origin, each with the bytes of its head, `data`, and its body."""

    async def fetch(self, method: str, data: bytes, limit: int, timeout: float, body: bytes = b"") -> ResponseReader:
        """Return the complete response. `timeout` is in seconds, for all of it.

        A safe request is repeated once if its connection proves to be closed (RFC 9110 9.2.2). Raises `Refusal` and
        TimeoutError.
        """
        ...

    async def send(self, data: bytes, reading: ResponseReader, body: bytes = b"") -> None:
        """Send a request; `reading` takes the response, completely or until it has enough.

        The caller sets a timeout. Raises `Refusal` without a connection, `ConnectionLost` without a response, and
        `MalformedResponse`.
        """
        ...

    def close(self) -> None:
        """Close idle connections."""
        ...


def http_client(
    connections: Connections,
    network: Network,
    origin: Origin,
    name: str,
    tls: ssl.SSLContext | None = None,
    size: int = CONNECTIONS_PER_HOST,
) -> HttpClient:
    """Return the client for one origin with at most `size` connections, as `server.http_client` chooses it.

    `network` allows their addresses; `name` is the origin's name in messages.
    """
    client = AiohttpClient if connections.use_aiohttp else ConnectionPool
    return client(connections, network, origin, name, tls, size)


class StreamedResponse:
    """The response to one request with `method`: its head, then its body in pieces."""

    def __init__(self, method: str, limit: int) -> None:
        self.reading = ResponseReader(method, limit, self._open_body)
        self._change = asyncio.Event()
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._ending: asyncio.Task[None] | None = None

    async def head(self) -> ResponseHead:
        """Return the head. Raises `ConnectionLost`, `MalformedResponse` and `Refusal`."""
        while not self.reading.in_body and self._ending is None:
            await self._wait()
        self._check()
        return self.reading.head

    @property
    def until_close(self) -> bool:
        """True if only the connection's end marks the end of the body (RFC 9112 6.3)."""
        return not self.reading.head.chunked and self.reading.head.length is None

    async def next(self) -> bytes:
        """Return the buffered bytes of the body, still coded; empty at its end. Raises `MalformedResponse`."""
        while not self._pieces and self._ending is None:
            await self._wait()
        if not self._pieces:
            self._check()
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if isinstance(self.reading.until, asyncio.Future) and not self.reading.until.done():
            self.reading.until.set_result(None)
        return data

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size > BUFFER_BYTES:
            self.reading.paused, self.reading.until = True, asyncio.get_running_loop().create_future()
        self._change.set()

    def close(self) -> bytes:
        """Return nothing: the body is not stored."""
        return b""

    def end(self, task: asyncio.Task[None]) -> None:
        """The exchange has ended, with success or an error."""
        self._ending = task
        self._change.set()

    def _open_body(self, _: ResponseReader, __: str) -> StreamedResponse:
        self._change.set()
        return self

    def _check(self) -> None:
        if self._ending is not None:
            self._ending.result()

    async def _wait(self) -> None:
        self._change.clear()
        await self._change.wait()


@asynccontextmanager
async def open_response(
    client: HttpClient, method: str, data: bytes, limit: int, body: bytes = b""
) -> AsyncIterator[StreamedResponse]:
    """Yield the response to the request with the head `data`; the rest of it is discarded at the end of the block."""
    response = StreamedResponse(method, limit)
    task = asyncio.create_task(client.send(data, response.reading, body))
    task.add_done_callback(response.end)
    try:
        yield response
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


_SIZED: Final = frozenset({"POST", "PUT"})
"""Methods whose requests tell that they have no body (Fetch, HTTP-network-or-cache fetch, step 8)."""

_METHOD = re.compile(r"(?!CONNECT$|TRACE$|TRACK$)[A-Z]+\Z")
_SENT_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")
_URL = re.compile(r"(?P<origin>https?://[^/?#@\\\s]+)(?P<target>/[\x21\x22\x24-\x7e]*)\Z")


class Spec(Protocol):
    """The connection settings of a backend, or of a credential's issuer."""

    @property
    def name(self) -> str:
        """Its name in the policy or the configuration."""
        ...

    @property
    def network(self) -> Network:
        """The addresses that may be connected to."""
        ...


class HttpBackend:
    """Sends requests over `connections`, to addresses that the network of `spec` allows."""

    def __init__(self, spec: Spec, connections: Connections, tls: ssl.SSLContext | None = None) -> None:
        self._spec = spec
        self._connections = connections
        self._tls = tls
        self._pools: dict[Origin, HttpClient] = {}
        self._stream_pools: dict[Origin, HttpClient] = {}  # their number is bounded by callers

    async def send(self, request: Outbound) -> Response:
        """Return the backend's response: decompressed, without framing and `content-encoding` fields.

        Fields of `FRAMING` and `accept-encoding` in the request are replaced by our own. Raises `Refusal`:
        `backend-unreachable`, `backend-timeout`, `backend-protocol`, `response-too-large`, `address-denied`, and
        `bad-request` for a request that cannot be sent as it is.
        """
        origin, data = _request_head(request)
        pool = self._pool(origin, self._pools, CONNECTIONS_PER_HOST)
        try:
            read = await pool.fetch(request.method, data, request.response_limit, request.timeout, request.body)
        except TimeoutError as error:
            raise self._timeout_refusal(request.timeout) from error
        head = read.head
        length = kept_length(request.method, head.length if head.coding is None else None)
        return response_head(head.status, head.passed_on, head.reason, self._spec.name, read.body(), length)

    async def close(self) -> None:
        """Close idle connections; those in use end with their exchange, all of them with `Connections`."""
        for pool in (*self._pools.values(), *self._stream_pools.values()):
            pool.close()

    @asynccontextmanager
    async def stream(self, request: Outbound) -> AsyncIterator[Arriving]:
        """Yield the response while it arrives, with the same limits; `timeout` is for the head, `silence` after it."""
        async with AsyncExitStack() as stack:
            async with self._time_limit(request.timeout):
                response, head = await self._open(request, stack)
            length = head.length if head.coding is None else None
            answer = response_head(head.status, head.passed_on, head.reason, self._spec.name, length=length)
            decoder = Decoder(head.coding or "", request.response_limit)
            if length_is_of_body(request.method, head.status):
                decoder.expect(length)
            yield Arriving(answer, self._pieces(response, decoder, silence_timeout(answer, request.timeout)))

    def upgrade(
        self, request: Outbound, protocols: Sequence[str], message: int
    ) -> AbstractAsyncContextManager[Upgraded]:
        """Open a WebSocket until the context ends; see `SocketBackend`."""
        origin, _ = _request_head(request)  # refuses what cannot be sent
        own = ("origin", _origin_text(origin))
        headers = (*(field for field in request.headers if field[0] not in _OF_UPGRADE), own)
        session = partial(self._connections.open, self._spec.network, self._tls, 0)
        return open_websocket(
            session, self._connections.in_turn, replace(request, headers=headers), protocols, message, self._spec.name
        )

    def _pool(self, origin: Origin, pools: dict[Origin, HttpClient], size: int) -> HttpClient:
        pool = pools.get(origin)
        if pool is None:
            pool = http_client(self._connections, self._spec.network, origin, self._spec.name, self._tls, size)
            pools[origin] = pool
        return pool

    async def _open(self, request: Outbound, stack: AsyncExitStack) -> tuple[StreamedResponse, ResponseHead]:
        """Return a response whose head has arrived; `stack` ends it."""
        origin, data = _request_head(request)
        pool = self._pool(origin, self._stream_pools, sys.maxsize)

        async def ask() -> tuple[StreamedResponse, ResponseHead]:
            outgoing = open_response(pool, request.method, data, request.response_limit, request.body)
            response = await stack.enter_async_context(outgoing)
            return response, await response.head()

        with self._translate_errors():
            try:
                return await ask()
            except ConnectionLost:
                if request.method not in RETRIED:
                    raise
            return await ask()

    async def _pieces(self, response: StreamedResponse, decoder: Decoder, timeout: float) -> AsyncIterator[bytes]:
        while True:
            async with self._time_limit(timeout):
                with self._translate_errors():
                    data = await response.next()
            if not data:
                if response.until_close:
                    decoder.check_end()
                return
            for piece in decoder.feed(data):
                if piece:
                    yield piece

    @asynccontextmanager
    async def _time_limit(self, seconds: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise self._timeout_refusal(seconds) from error

    def _timeout_refusal(self, seconds: float) -> Refusal:
        return Refusal(Reason.BACKEND_TIMEOUT, f"backend {self._spec.name!r} did not answer within {seconds:g} s")

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except ConnectionLost as error:
            detail = f"backend {self._spec.name!r} closed the connection without an answer"
            raise Refusal(Reason.BACKEND_UNREACHABLE, detail) from error
        except MalformedResponse as error:
            detail = f"backend {self._spec.name!r} broke off, or answered with something that is not HTTP: {error}"
            raise Refusal(Reason.BACKEND_PROTOCOL, detail) from error


_OF_UPGRADE: Final = FRAMING | {"accept-encoding", "origin", "upgrade", "sec-websocket-extensions"}
"""Fields that the opening request of a WebSocket has of its own."""


def _origin_text(origin: Origin) -> str:
    """Return the value of `Origin` for a page of the backend's own site (RFC 6454, 6.2)."""
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    port = "" if origin.port == _PORTS[origin.scheme] else f":{origin.port}"
    return f"{origin.scheme}://{host}{port}"


_PORTS: Final = {"http": 80, "https": 443}


def _is_sendable(name: str, value: str) -> bool:
    """Return whether the characters of `value` are bytes of a field (RFC 9110, 5.5) or of an event ID (HTML, 9.2.2)."""
    return _SENT_VALUE.match(value) is not None or (name == LAST_EVENT_ID and EVENT_ID.fullmatch(value) is not None)


def _header_refusal(name: str) -> Refusal:
    return Refusal(Reason.BAD_REQUEST, f"the header {name!r} holds characters that cannot be sent")


def _request_head(request: Outbound) -> tuple[Origin, bytes]:
    """Return a request's origin, and its head as sent. Raises `Refusal` (`bad-request`)."""
    method, body = request.method, request.body
    origin, host, target = split_url(request.url)
    if not _METHOD.match(method):
        raise Refusal(Reason.BAD_REQUEST, f"the method {method!r} cannot be sent")
    lines = [f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: {ACCEPT_ENCODING}"]
    named = False
    for name, value in request.headers:
        if name in FRAMING or name == "accept-encoding":
            continue
        if not _is_name(name) or not _is_sendable(name, value):
            raise _header_refusal(name)
        named = named or name == "user-agent"
        lines.append(f"{name}: {value}")
    if not named:
        lines.append(f"User-Agent: {USER_AGENT}")
    if body or method in _SIZED:
        lines.append(f"Content-Length: {len(body)}")
    lines.append("\r\n")
    return origin, "\r\n".join(lines).encode("latin-1")  # each character is a byte (Fetch, "isomorphic encode")


@lru_cache(maxsize=512)
def _is_name(name: str) -> bool:
    return NAME.match(name.encode()) is not None


@lru_cache(maxsize=256)
def split_url(text: str) -> tuple[Origin, str, str]:
    """Return a URL's origin, its `Host` field, and its unchanged path and query. Raises `Refusal`."""
    parts = _URL.match(text)
    if parts is None:
        raise Refusal(Reason.BAD_REQUEST, "the URL to send to is not absolute, or not percent-encoded")
    target = parts["target"]
    if target.find("?") == len(target) - 1:
        raise Refusal(Reason.BAD_REQUEST, "the URL would change on its way out")
    return *_origin(parts["origin"]), target


@lru_cache(maxsize=256)
def _origin(text: str) -> tuple[Origin, str]:
    try:
        url = URL(text, encoded=True)
        origin, host = Origin(url.scheme, url.raw_host or "", url.port or 0), url.host_port_subcomponent
    except ValueError as error:
        raise Refusal(Reason.BAD_REQUEST, "the URL to send to is not valid") from error
    if not origin.host or not origin.port or host is None or not host.isascii():
        raise Refusal(Reason.BAD_REQUEST, "the URL to send to is not valid")
    return origin, host
