"""A backend that is reached by HTTP: one request out exactly as it was decided on, one bounded answer back."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache
from typing import Final, Protocol

import aiohttp
from msgspec.structs import replace
from multidict import CIMultiDict
from yarl import URL

from gateway.backends.body import ACCEPT_ENCODING, Body, Decoder
from gateway.backends.connect import USER_AGENT, Connections, Network, Origin, translated
from gateway.backends.fields import FRAMING, NAME, coding, follows, head, length_kept, length_told, received, silence
from gateway.backends.http1 import Malformed
from gateway.backends.incoming import Incoming, arriving
from gateway.backends.slices import Slices
from gateway.backends.wires import Lost, Wires
from gateway.errors import Reason, Refusal
from gateway.model import Arriving, Headers, Outbound, Response
from gateway.policy.headers import EVENT_ID, LAST_EVENT_ID

_WRITTEN_WHOLE = 256 * 1024
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_METHOD = re.compile(r"(?!CONNECT$|TRACE$|TRACK$)[A-Z]+\Z")
_PLAIN_VALUE = re.compile(r"[\t\x20-\x7e]*\Z")
_SENT_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")
_URL = re.compile(r"(?P<origin>https?://[^/?#@\\\s]+)(?P<target>/[\x21\x22\x24-\x7e]*)\Z")


class Spec(Protocol):
    """What a backend, or a credential's issuer, says of the way to it."""

    @property
    def name(self) -> str:
        """The name that the policy or the configuration gives it."""
        ...

    @property
    def network(self) -> Network:
        """Which addresses may be connected to."""
        ...


class HttpBackend:
    """Sends requests over connections of `connections`, to addresses that the network of `spec` allows."""

    def __init__(self, spec: Spec, connections: Connections, tls: ssl.SSLContext | None = None) -> None:
        self._spec = spec
        self._connections = connections
        self._tls = tls
        self._wires: dict[Origin, Wires] = {}

    async def send(self, request: Outbound) -> Response:
        """The backend's answer: decompressed, its framing and `content-encoding` fields removed.

        Fields of `FRAMING` and `accept-encoding` in the request are replaced by our own. Raises `Refusal`:
        `backend-unreachable`, `backend-timeout`, `backend-protocol`, `response-too-large`, `address-denied`,
        and `bad-request` for what cannot be sent as it is.
        """
        if len(request.body) > _WRITTEN_WHOLE:
            async with self._in_time(request.timeout):
                return await self._exchange(request)
        origin, host, target = place(request.url)
        data = _written(request, host, target)
        wires = self._wires.get(origin)
        if wires is None:
            wires = self._wires[origin] = Wires(
                self._connections, self._spec.network, origin, self._spec.name, self._tls
            )
        try:
            read = await wires.ask(request.method, data, request.response_limit, request.timeout)
        except TimeoutError as error:
            raise self._late(request.timeout) from error
        found = read.head
        length = length_kept(request.method, found.length if found.coding is None else None)
        return head(found.status, found.shown, found.reason, self._spec.name, read.body(), length)

    async def close(self) -> None:
        """End what is idle; connections in use end with their exchange, all of them with `Connections`."""
        for wires in self._wires.values():
            wires.close()

    @asynccontextmanager
    async def stream(self, request: Outbound) -> AsyncIterator[Arriving]:
        """The answer while it arrives, under the same limits; its `timeout` holds for the head, `silence` after it."""
        if not request.body and not all(_PLAIN_VALUE.match(value) for _, value in request.headers):
            async with self._streamed(request) as found:
                yield found
            return
        async with self._in_time(request.timeout):
            answer = await self._asked(request, streams=True)
        try:
            headers = received(answer.raw_headers, self._spec.name)
            length = length_told(answer.raw_headers)
            response = head(answer.status, headers, answer.reason, self._spec.name, length=length)
            decoder = Decoder(coding(headers), request.response_limit)
            if follows(request.method, answer.status):
                decoder.expect(length)
            yield Arriving(response, self._parts(answer, decoder, silence(response, request.timeout)))
        finally:
            answer.close()

    @asynccontextmanager
    async def _streamed(self, request: Outbound) -> AsyncIterator[Arriving]:
        """The same of a request whose header fields aiohttp's client cannot write."""
        origin, host, target = place(request.url)
        wires = Wires(self._connections, self._spec.network, origin, self._spec.name, self._tls)
        data = _written(request, host, target)
        try:
            async with arriving(wires, request.method, data, request.response_limit) as incoming:
                async with self._in_time(request.timeout):
                    with self._read():
                        found = await incoming.head()
                length = length_kept(request.method, found.length if found.coding is None else None)
                answer = head(found.status, found.shown, found.reason, self._spec.name, length=length)
                decoder = Decoder(found.coding or "", request.response_limit)
                yield Arriving(answer, self._pieces(incoming, decoder, silence(answer, request.timeout)))
        finally:
            wires.close()

    async def _pieces(self, incoming: Incoming, decoder: Decoder, timeout: float) -> AsyncIterator[bytes]:
        while True:
            async with self._in_time(timeout):
                with self._read():
                    came = await incoming.next()
            if not came:
                if incoming.until_close:
                    decoder.check_end()
                return
            for piece in decoder.feed(came):
                if piece:
                    yield piece

    async def _exchange(self, request: Outbound) -> Response:
        answer = await self._asked(request)
        try:
            headers = received(answer.raw_headers, self._spec.name)
            length = length_kept(request.method, length_told(answer.raw_headers))
            response = head(answer.status, headers, answer.reason, self._spec.name, length=length)
            body = Body(coding(headers), request.response_limit)
            async with self._unbroken():
                async for chunk in answer.content.iter_any():
                    body.feed(chunk)
            if _until_close(answer):
                body.check_end()
            return replace(response, body=body.close())
        finally:
            answer.close()  # does nothing once the body was read to its end: the connection is back in the pool

    async def _parts(self, answer: aiohttp.ClientResponse, decoder: Decoder, timeout: float) -> AsyncIterator[bytes]:
        while True:
            async with self._in_time(timeout), self._unbroken():
                chunk = await answer.content.readany()
            if not chunk:
                if _until_close(answer):
                    decoder.check_end()
                return
            for piece in decoder.feed(chunk):
                if piece:
                    yield piece

    async def _asked(self, request: Outbound, *, streams: bool = False) -> aiohttp.ClientResponse:
        session = self._connections.open(self._spec.network, self._tls, streams=streams)
        url, target = _exact_url(request.url)
        if not _METHOD.match(request.method):
            raise Refusal(Reason.BAD_REQUEST, f"the method {request.method!r} cannot be sent")
        return await session.request(
            request.method,
            url,
            headers=_sent_headers(request.headers),
            data=_payload(request.body),
            allow_redirects=False,
            middlewares=(_Exact(target), translated),
        )

    @asynccontextmanager
    async def _in_time(self, seconds: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise self._late(seconds) from error

    def _late(self, seconds: float) -> Refusal:
        return Refusal(Reason.BACKEND_TIMEOUT, f"backend {self._spec.name!r} did not answer within {seconds:g} s")

    @contextmanager
    def _read(self) -> Iterator[None]:
        try:
            yield
        except Lost as error:
            detail = f"backend {self._spec.name!r} closed the connection without an answer"
            raise Refusal(Reason.BACKEND_UNREACHABLE, detail) from error
        except Malformed as error:
            detail = f"backend {self._spec.name!r} broke off, or answered with something that is not HTTP: {error}"
            raise Refusal(Reason.BACKEND_PROTOCOL, detail) from error

    @asynccontextmanager
    async def _unbroken(self) -> AsyncIterator[None]:
        try:
            yield
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            detail = f"backend {self._spec.name!r} broke off in the middle of its answer"
            raise Refusal(Reason.BACKEND_PROTOCOL, detail) from error


def _until_close(answer: aiohttp.ClientResponse) -> bool:
    """Whether only the connection's end says where the body ends (RFC 9112 6.3)."""
    return "content-length" not in answer.headers and "transfer-encoding" not in answer.headers


class _Exact:
    """Holds that the request as aiohttp built it asks for the very bytes that were decided on."""

    def __init__(self, target: str) -> None:
        self._target = target

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if request.url.raw_path_qs != self._target:
            raise Refusal(Reason.BAD_REQUEST, "the URL would change on its way out")
        return await handler(request)


def _exact_url(text: str) -> tuple[URL, str]:
    """The URL without any rewriting, and its path and query as they must appear in the request line."""
    parts = _URL.match(text)
    if parts is None:
        raise Refusal(Reason.BAD_REQUEST, "the URL to send to is not absolute, or not percent-encoded")
    try:
        url = URL(text, encoded=True)
        _ = url.port
    except ValueError as error:
        raise Refusal(Reason.BAD_REQUEST, "the URL to send to is not valid") from error
    return url, parts["target"]


def _sent_headers(headers: Headers) -> CIMultiDict[str]:
    sent = CIMultiDict({"accept-encoding": ACCEPT_ENCODING})
    for name, value in headers:
        if name in FRAMING or name == "accept-encoding":
            continue
        if not NAME.match(name.encode()) or not _can_be_sent(name, value):
            raise _unsendable(name)
        try:
            sent.add(name, value.encode("latin-1").decode())  # aiohttp writes UTF-8, and no other bytes
        except UnicodeDecodeError:
            raise _unsendable(name) from None
    return sent


def _can_be_sent(name: str, value: str) -> bool:
    """Whether the characters of `value` are bytes of a field (RFC 9110, 5.5) or of an event ID (HTML, 9.2.2)."""
    return _SENT_VALUE.match(value) is not None or (name == LAST_EVENT_ID and EVENT_ID.fullmatch(value) is not None)


def _unsendable(name: str) -> Refusal:
    return Refusal(Reason.BAD_REQUEST, f"the header {name!r} holds characters that cannot be sent")


def _written(request: Outbound, host: str, target: str) -> bytes:
    """The request as it goes over the wire. Raises `Refusal` (`bad-request`)."""
    method, body = request.method, request.body
    if not _METHOD.match(method):
        raise Refusal(Reason.BAD_REQUEST, f"the method {method!r} cannot be sent")
    lines = [f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: {ACCEPT_ENCODING}"]
    named = False
    for name, value in request.headers:
        if name in FRAMING or name == "accept-encoding":
            continue
        if not _is_name(name) or not _can_be_sent(name, value):
            raise _unsendable(name)
        named = named or name == "user-agent"
        lines.append(f"{name}: {value}")
    if not named:
        lines.append(f"User-Agent: {USER_AGENT}")
    if body or method not in _BODILESS:
        lines.append(f"Content-Length: {len(body)}")
    lines.append("\r\n")
    written = "\r\n".join(lines).encode("latin-1")  # each character is a byte (Fetch, "isomorphic encode")
    return written + body if body else written


@lru_cache(maxsize=512)
def _is_name(name: str) -> bool:
    return NAME.match(name.encode()) is not None


@lru_cache(maxsize=256)
def place(text: str) -> tuple[Origin, str, str]:
    """Where a URL leads: the origin, its `Host` field, and path and query as they are. Raises `Refusal`."""
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


def _payload(body: bytes) -> bytes | Slices | None:
    # In one piece large bodies would hold up the event loop, and aiohttp warns of that.
    return Slices(body) if len(body) > _WRITTEN_WHOLE else body or None
