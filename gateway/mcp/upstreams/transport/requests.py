"""HTTP requests to an upstream: the credential, the redirects that are followed, and answers, also event streams."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from time import perf_counter
from typing import Final

from yarl import URL

from gateway.backends.codings import Body
from gateway.backends.connect import Connections, Network, Origin
from gateway.backends.http import http_client, split_url
from gateway.backends.http1 import BodyReader, ConnectionLost, MalformedResponse, ResponseReader
from gateway.errors import Reason, Refusal
from gateway.event_stream import Event, EventReader
from gateway.eventloop.fair_share import TimeSlices
from gateway.exchange.authenticate import InjectedFields
from gateway.exchange.filter import SecretRedactor
from gateway.jsontext.messages import LONG, decode, read
from gateway.mcp.upstreams.catalog.listing import LISTS
from gateway.mcp.upstreams.transport.conversation import Receive, Unreadable, UpstreamLost, is_answer
from gateway.model import Headers, with_path

EVENTS: Final = "text/event-stream"

RETRY = 1.0
"""Seconds before a stream is resumed if the server names no `retry`."""

SHORTEST_RETRY, LONGEST_RETRY = 0.05, 60.0
"""Limits on the server's `retry`: one that ends each stream at once must not cause a busy loop."""


class StreamPosition:
    """The read position in a stream, across its connections; `retry` is in seconds.
    `tries` limits consecutive failed attempts to resume it; None for one whose answer is awaited.
    """

    def __init__(self, request_id: int | None, tries: int | None = None) -> None:
        self.request_id = request_id
        self.tries = tries
        self.last: str | None = None
        self.retry = RETRY
        self.answered = False

    def answers(self, message: object) -> bool:
        """Return whether `message` is the answer that the stream was opened for."""
        if isinstance(message, dict) and "method" not in message and is_answer(message, self.request_id):
            self.answered = True
        return self.answered


class HttpAnswer:
    """One answer: the events of a stream are processed as they come, any other body is kept. `failure` is the fault.
    `other` receives events that are no messages. With it, invalid JSON becomes `Unreadable`; without it, an error.
    """

    def __init__(
        self,
        method: str,
        limit: int,
        stream: StreamPosition,
        take: Receive,
        credentials: Credentials,
        moments: TimeSlices,
        other: Callable[[Event], None] | None = None,
    ) -> None:
        self.reading = ResponseReader(method, limit, self._open_body)
        self.failure: UpstreamLost | None = None
        self._slow: asyncio.Task[None] | None = None
        self._kind: str | None = None
        self._limit = limit
        self._stream = stream
        self._take = take
        self._credentials = credentials
        self._moments = moments
        self._other = other

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.reading.head.status

    @property
    def kind(self) -> str:
        """The media type, in lower case and without parameters."""
        if self._kind is None:
            self._kind = (self.header("content-type") or "").partition(";")[0].strip().lower()
        return self._kind

    def header(self, name: str) -> str | None:
        """Return the first value of a field."""
        return next((value for known, value in self.reading.head.headers if known == name), None)

    @property
    def resumable(self) -> bool:
        """True if it is a stream that can be resumed where it broke."""
        return self.status == 200 and self.kind == EVENTS and self._stream.last is not None

    async def message(self) -> object:
        """Return the body's JSON value. Raises ValueError."""
        with self._credentials.hiding() as echo:
            return await read(self.reading.body(), self._moments, LISTS, echo)

    def _open_body(self, reading: ResponseReader, coding: str) -> BodyReader:
        if reading.head.status != 200 or self.kind != EVENTS or coding.lower() not in ("", "identity"):
            return Body(coding, self._limit)
        return _Events(self, EventReader(self._limit))

    async def wait_for_end(self) -> None:
        """Wait until everything received is processed."""
        if self._slow is not None:
            await self._slow

    def close(self) -> None:
        """Cancel the processing."""
        if self._slow is not None:
            self._slow.cancel()

    def events(self, reader: EventReader, data: bytes) -> None:
        """Process the events in `data`, up to the answer; longer work is deferred to scheduled turns."""
        events, began = reader.feed(data), perf_counter()
        try:
            for event in events:
                if event is not None and len(event.data) > LONG:
                    self._hold(chain([event], events))
                    return
                if event is not None and self._is_message(event) and self._take_event(self._decode_event(event), event):
                    began = perf_counter()
                if self.reading.enough:
                    return
                if self._moments.count_work(perf_counter() - began):
                    self._hold(events)
                    return
                began = perf_counter()
        except (ValueError, UpstreamLost) as error:
            self._fail(error)

    def _hold(self, events: Iterator[Event | None]) -> None:
        self._slow = asyncio.ensure_future(self._slowly(events))
        self.reading.paused, self.reading.until = True, self._slow

    async def _slowly(self, events: Iterator[Event | None]) -> None:
        """Process further events in turns; long ones are parsed in pieces, and the stream is not read meanwhile."""
        began = perf_counter()
        try:
            for event in chain([None], events):
                if event is not None and self._is_message(event):
                    message = self._decode_event(event) if len(event.data) <= LONG else await self._long(event)
                    if self._take_event(message, event):
                        began = perf_counter()
                if self.reading.enough:
                    return
                await self._moments.spend(perf_counter() - began)
                began = perf_counter()
        except (ValueError, UpstreamLost) as error:
            self._fail(error)

    def _is_message(self, event: Event) -> bool:
        stream = self._stream
        stream.last = event.id or stream.last
        if event.retry is not None:
            stream.retry = max(SHORTEST_RETRY, min(event.retry / 1000, LONGEST_RETRY))
        if self._other is not None and event.type != "message":
            self._other(event)
        return event.type == "message" and event.data != b""

    def _decode_event(self, event: Event) -> object:
        with self._credentials.hiding() as echo:
            try:
                return decode(echo.whole(bytes(event.data)))
            except ValueError as error:
                return self._unreadable(event, error)

    async def _long(self, event: Event) -> object:
        with self._credentials.hiding() as echo:
            try:
                return await read(event.data, self._moments, LISTS, echo)
            except ValueError as error:
                return self._unreadable(event, error)

    def _unreadable(self, event: Event, error: ValueError) -> Unreadable:
        if self._other is None:
            raise error
        return Unreadable.of(event.data, error)

    def _take_event(self, message: object, event: Event) -> bool:
        awaited = self._take(message, self._stream.request_id, len(event.data))
        if self._stream.answers(message):
            self.reading.enough = True
        return awaited

    def _fail(self, error: ValueError | UpstreamLost) -> None:
        self.failure = error if isinstance(error, UpstreamLost) else UpstreamLost(f"the upstream sent {error}")
        self.reading.enough, self.reading.reusable = True, False


class _Events:
    """Receives a body that is a stream of events."""

    def __init__(self, answer: HttpAnswer, reader: EventReader) -> None:
        self._answer = answer
        self._reader = reader

    def feed(self, data: bytes) -> None:
        if not self._answer.reading.enough:
            self._answer.events(self._reader, data)

    def close(self) -> bytes:
        return b""


_NO_SECRETS: Final = nullcontext(SecretRedactor(()))

REMEMBERED: Final = 2
"""Credential values to redact: an answer may still contain the previous one."""


class Credentials:
    """`inject` returns the credential by method and URL, `take_response` decides on a retry.

    `on_echo` notes masking.
    """

    def __init__(
        self,
        inject: Callable[[str, str], Awaitable[InjectedFields]],
        take_response: Callable[[InjectedFields, str, int, Headers], Awaitable[bool]],
        on_echo: Callable[[], None],
    ) -> None:
        self._inject = inject
        self._on_echo = on_echo
        self._secrets: tuple[tuple[str, ...], ...] = ()
        self.take_response = take_response

    async def inject(self, method: str, url: str) -> InjectedFields:
        """Return the credential for one request."""
        credential_fields = await self._inject(method, url)
        if credential_fields.secrets and credential_fields.secrets not in self._secrets:
            self._secrets = (credential_fields.secrets, *self._secrets[: REMEMBERED - 1])
        return credential_fields

    async def headers(self, method: str, url: str) -> dict[str, str]:
        """Return the header fields for one request."""
        return dict((await self.inject(method, url)).headers)

    def hide_text(self, text: str) -> str:
        """Return a text of the upstream with every value of the credential masked."""
        with self.hiding() as echo:
            return echo.text(text)

    def hiding(self) -> AbstractContextManager[SecretRedactor]:
        """Yield a filter that masks every value of the credential in one message."""
        return self._hiding() if self._secrets else _NO_SECRETS

    @contextmanager
    def _hiding(self) -> Iterator[SecretRedactor]:
        echo = SecretRedactor(chain.from_iterable(self._secrets))
        try:
            yield echo
        finally:
            if echo.names:
                self._on_echo()


REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

MAX_REDIRECTS: Final = 5
"""Consecutive redirects of one request."""

_REPEATED: Final = frozenset({307, 308})
"""Redirects that repeat the request with its method and body (RFC 9110, 15.4.8 and 15.4.9)."""

_NOT_IN_URL: Final = re.compile(r"[^!-~]")

_SHOWN: Final = 200
"""Characters of a foreign address in a message."""


class RedirectTrail:
    """The addresses of one request, which began at `url`; credentials stay within its origin."""

    def __init__(self, url: str) -> None:
        self._urls = [with_path(as_http(url))]

    def follow(self, status: int, location: str | None) -> str:
        """Return the next address after a status of `REDIRECTS`. Raises `UpstreamLost` with the reason to refuse it."""
        here = self._urls[-1]
        if not location:
            raise UpstreamLost(f"it answered with the redirect {status}, which names no address")
        try:
            there = URL(here).join(URL(as_http(_in_ascii(location)))).with_fragment(None)
            same = there.origin() == URL(here).origin()
        except ValueError:
            raise UpstreamLost(f"it redirects to {_show_address(location)}, which is not a URL") from None
        if not same:
            raise UpstreamLost(
                f"it answered with the redirect {status} to {_show_address(str(there))}, which is another origin: "
                "write that URL in gateway.yaml if it is the right one"
            )
        if status not in _REPEATED:
            raise UpstreamLost(
                f"it answered with the redirect {status} to {_show_address(str(there))}, which does not keep a POST: "
                "write that URL in gateway.yaml"
            )
        address = with_path(str(there.with_user(None)))
        if address in self._urls:
            raise UpstreamLost(f"it redirects in a circle, to {_show_address(address)} again")
        if len(self._urls) > MAX_REDIRECTS:
            raise UpstreamLost(f"it redirects more than {MAX_REDIRECTS} times in a row")
        self._urls.append(address)
        return address


def as_http(url: str) -> str:
    """Return a WebSocket URL as that of its opening request (RFC 6455, 4.1)."""
    return f"http{url[2:]}" if url.startswith(("ws:", "wss:")) else url


def _in_ascii(location: str) -> str:
    """Percent-encode the bytes of a header's value, one character each, that a URL must not contain."""
    return _NOT_IN_URL.sub(lambda match: f"%{ord(match[0]):02X}", location)


def _show_address(address: str) -> str:
    return ascii(address[:_SHOWN])[1:-1]


log = logging.getLogger(__name__)

_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_ANSWERED: Final = frozenset({Reason.RESPONSE_TOO_LARGE, Reason.BACKEND_PROTOCOL})
"""Refusals of an answer; all others occur before anything is sent."""


class Requests:
    """Requests to `url`, and to other addresses of its origin."""

    def __init__(self, connections: Connections, network: Network, url: str, *, credentials: Credentials) -> None:
        origin, host, target = _split(url)
        self._url = url
        self._host = host
        self._head = self._to(target)
        self._client = http_client(connections, network, origin, host)
        self._credentials = credentials

    async def ask(
        self,
        method: str,
        body: bytes | None,
        fields: Mapping[str, str],
        make: Callable[[str], HttpAnswer],
        url: str = "",
    ) -> HttpAnswer:
        """Return the answer, made by `make` for its URL, once it is complete, or what was awaited of it.
        `url` overrides the default one. Redirects are followed within the origin, with method and body. Raises
        `UpstreamLost`, and `ConnectionLost` if nothing came back.
        """
        first_url = url = url or self._url
        trail: RedirectTrail | None = None
        while True:
            answer, changed = await self._once(method, body, fields, make(url), url)
            if changed and answer.status >= 300:
                answer, _ = await self._once(method, body, fields, make(url), url)
            if answer.status not in REDIRECTS:
                return answer
            trail = trail or RedirectTrail(first_url)
            try:
                url = trail.follow(answer.status, answer.header("location"))
            except UpstreamLost as lost:
                raise UpstreamLost(self._credentials.hide_text(str(lost))) from lost

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    async def _once(
        self, method: str, body: bytes | None, fields: Mapping[str, str], answer: HttpAnswer, url: str
    ) -> tuple[HttpAnswer, bool]:
        """Return the answer, and whether another attempt would carry another credential."""
        try:
            head = self._head if url == self._url else self._to(_split(url)[2])
            credential = await self._credentials.inject(method, url)
            data = _write(method, head, {**fields, **dict(credential.headers)}, body)
            try:
                await self._client.send(data, answer.reading)
            except MalformedResponse as error:
                if not answer.resumable:
                    raise
                log.debug("a stream of an upstream broke, and is taken up again there: %s", error)
            await answer.wait_for_end()
        except Refusal as refusal:
            if refusal.reason not in _ANSWERED:
                raise UpstreamLost.of_refusal(refusal) from refusal
            raise UpstreamLost(refusal.detail) from refusal
        except MalformedResponse as error:
            raise UpstreamLost(f"the upstream answered with something that is not HTTP: {error}") from error
        except ConnectionLost:
            raise
        except OSError as error:
            raise ConnectionLost from error
        finally:
            answer.close()
        if answer.failure is not None:
            raise answer.failure
        try:
            changed = await self._credentials.take_response(credential, url, answer.status, answer.reading.head.headers)
        except Refusal as refusal:
            if answer.status >= 300:
                raise UpstreamLost.of_refusal(refusal) from refusal
            raise UpstreamLost(refusal.detail) from refusal
        return answer, changed

    def _to(self, target: str) -> str:
        return f" {target} HTTP/1.1\r\nhost: {self._host}\r\n"


def origin_of(url: str) -> Origin:
    """Return the origin of an upstream's URL. Raises `Refusal`."""
    return _split(as_http(url))[0]


def _split(url: str) -> tuple[Origin, str, str]:
    """Return `split_url` of a URL in any valid spelling."""
    return split_url(with_path(str(URL(url).with_fragment(None))))


def _write(method: str, head: str, fields: Mapping[str, str], body: bytes | None) -> bytes:
    if not _VALUE.fullmatch("".join(fields.values())):
        name = next(name for name, value in fields.items() if not _VALUE.fullmatch(value))
        raise UpstreamLost(f"the field {name} for the upstream holds characters that cannot be sent")
    lines = [method, head, *[f"{name}: {value}\r\n" for name, value in fields.items()]]
    if body is not None:
        lines.append(f"content-length: {len(body)}\r\n")
    return "".join((*lines, "\r\n")).encode() + (body or b"")
