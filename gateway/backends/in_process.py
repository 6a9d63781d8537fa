"""Backends in the gateway's own process: an ASGI application, and a plugin's, held to the limits of every backend."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast
from urllib.parse import unquote_to_bytes, urlsplit

from msgspec.structs import replace

from gateway.backends.codings import Decoder
from gateway.backends.fields import (
    content_encoding,
    declared_length,
    kept_length,
    length_is_of_body,
    parse_fields,
    response_head,
    silence_timeout,
    without_coding,
)
from gateway.errors import Reason, Refusal, StartError
from gateway.hooks import foreign
from gateway.model import Arriving, Backend, Outbound, Response, StreamingBackend

Message: TypeAlias = MutableMapping[str, Any]
Application: TypeAlias = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
"""An ASGI 3 application."""

AHEAD = 8
"""Messages that an application may send before they are read (backpressure)."""

log = logging.getLogger(__name__)


class AsgiBackend:
    """Calls `application`; `name` is its name in the policy. Its lifespan begins with the first request."""

    def __init__(self, name: str, application: Application) -> None:
        self._name = name
        self._application = _without_exit(application)
        self._lifespan = _Lifespan(name, self._application)

    async def send(self, request: Outbound) -> Response:
        """Return the application's response. Raises `Refusal`: `backend-*`, `response-too-large`."""
        try:
            async with asyncio.timeout(request.timeout), self.stream(request) as arriving:
                body = b"".join([part async for part in arriving.parts])
                return replace(arriving.head, body=body, length=kept_length(request.method, arriving.head.length))
        except TimeoutError as error:
            raise self._too_slow(request.timeout) from error

    @asynccontextmanager
    async def stream(self, request: Outbound) -> AsyncIterator[Arriving]:
        """Yield the response while it arrives; the application is cancelled when the context ends."""
        await self._lifespan.begin()
        call = _ApplicationCall(request, self._application)
        try:
            start = await self._next(call, request.timeout)
            if start["type"] != "http.response.start":
                raise self._protocol_refusal("sent a body before its head")
            headers = parse_fields(start.get("headers", ()), self._name)
            length = declared_length(start.get("headers", ()))
            answer = response_head(start["status"], without_coding(headers), None, self._name, length=length)
            decoder = Decoder(content_encoding(headers), request.response_limit)
            if length_is_of_body(request.method, answer.status):
                decoder.expect(length)
            yield Arriving(answer, self._parts(call, decoder, request.method, silence_timeout(answer, request.timeout)))
        finally:
            await call.give_up()

    async def close(self) -> None:
        """End the application's lifespan."""
        await self._lifespan.end()

    async def _parts(
        self, call: _ApplicationCall, decoder: Decoder, method: str, timeout: float
    ) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._next(call, timeout)
            more = bool(message.get("more_body", False))
            body = message.get("body", b"")
            if body and method != "HEAD":
                for piece in decoder.feed(body):
                    yield piece

    async def _next(self, call: _ApplicationCall, seconds: float) -> Message:
        message = await call.next(seconds)
        if message is not None:
            return message
        if call.running.done():
            raise self._protocol_refusal("ended before its answer did")
        raise self._too_slow(seconds)

    def _protocol_refusal(self, what: str) -> Refusal:
        return Refusal(Reason.BACKEND_PROTOCOL, f"backend {self._name!r} {what}")

    def _too_slow(self, seconds: float) -> Refusal:
        return Refusal(Reason.BACKEND_TIMEOUT, f"backend {self._name!r} did not answer within {seconds:g} s")


def _without_exit(application: Application) -> Application:
    """Wrap an application so that `SystemExit` ends its own call only: the process is the gateway's."""

    async def call(
        scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        try:
            await application(scope, receive, send)
        except SystemExit as error:
            raise RuntimeError(f"it tried to end the process: {error!r}") from error

    return call


class _ApplicationCall:
    """One running call of the application, with its `receive` and `send`."""

    def __init__(self, request: Outbound, application: Application) -> None:
        self._body: bytes | None = request.body
        self._messages: asyncio.Queue[Message] = asyncio.Queue(AHEAD)
        self._disconnect = asyncio.Event()
        self.running = asyncio.ensure_future(application(_scope(request), self._receive, self._send))

    async def next(self, seconds: float) -> Message | None:
        """Return the application's next message; None if it ended, or none came in time."""
        if not self._messages.empty():
            return self._messages.get_nowait()
        getting = asyncio.ensure_future(self._messages.get())
        try:
            await asyncio.wait({getting, self.running}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return getting.result() if getting.done() else None
        finally:
            getting.cancel()

    async def give_up(self) -> None:
        """Notify the application of the disconnect, and cancel it."""
        self._disconnect.set()
        self.running.cancel()
        await asyncio.wait({self.running})
        if not self.running.cancelled() and (error := self.running.exception()) is not None:
            log.error("an ASGI application failed: %r", error)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._disconnect.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "http.response.body"):
            await self._messages.put(message)


def _scope(request: Outbound) -> Message:
    url = urlsplit(request.url)
    headers = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in request.headers]
    if request.body:
        headers.append((b"content-length", b"%d" % len(request.body)))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": url.scheme,
        "path": unquote_to_bytes(url.path).decode(errors="replace"),
        "raw_path": url.path.encode("ascii"),
        "query_string": url.query.encode("ascii"),
        "root_path": "",
        "headers": [(b"host", url.netloc.encode("ascii")), *headers],
        "client": None,
        "server": (url.hostname, url.port),
    }


class _Lifespan:
    """Startup and shutdown of an application (ASGI lifespan 2.0); one without lifespan support is served as it is."""

    def __init__(self, name: str, application: Application) -> None:
        self._name = name
        self._application = application
        self._lock = asyncio.Lock()
        self._running: asyncio.Future[None] | None = None
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._answers: asyncio.Queue[Message] = asyncio.Queue()

    async def begin(self) -> None:
        """Start up once; concurrent calls wait for it. Raises `Refusal` if the application reports a failure."""
        async with self._lock:
            if self._running is not None:
                return
            scope: Message = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}}
            running = asyncio.ensure_future(self._application(scope, self._messages.get, self._answers.put))
            answer = await self._say("lifespan.startup", running)
            if running.done() and running.exception() is not None:
                log.info("the ASGI application of backend %r does not support lifespan events", self._name)
            if answer == "lifespan.startup.failed":
                detail = f"backend {self._name!r} failed at its start; the log of the application says why"
                raise Refusal(Reason.BACKEND_UNAVAILABLE, detail)
            self._running = running

    async def end(self) -> None:
        """Let the application clean up."""
        running, self._running = self._running, None
        if running is not None:
            await self._say("lifespan.shutdown", running)

    async def _say(self, event: str, running: asyncio.Future[None]) -> str | None:
        self._messages.put_nowait({"type": event})
        answer = asyncio.ensure_future(self._answers.get())
        pending: set[asyncio.Future[Any]] = {running, answer}
        try:
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            return str(answer.result()["type"]) if answer.done() else None
        finally:
            answer.cancel()


def load_application(place: str, what: str) -> Application:
    """Import the ASGI application at `place`, `module:name`, for `what`. Raises `StartError`."""
    module, _, name = place.partition(":")
    try:
        target: object = importlib.import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
    except Exception as error:  # foreign code may raise anything on import; it stops the start
        raise StartError(f"{what}: {place} cannot be imported: {error!r}") from error
    if not callable(target):
        raise StartError(f"{what}: {place} is not an ASGI application: it cannot be called")
    return cast(Application, target)


def wrap_plugin(name: str, backend: Backend) -> Backend:
    """Wrap a plugin's backend; `name` is its name in the policy. A streaming one still streams."""
    return (
        _Streaming(name, backend, backend) if isinstance(backend, StreamingBackend) else _PluginBackend(name, backend)
    )


class _PluginBackend:
    def __init__(self, name: str, backend: Backend) -> None:
        self._name = name
        self._backend = backend

    async def send(self, request: Outbound) -> Response:
        """Return the plugin's response. Raises `Refusal`: `backend-*`, `response-too-large`."""
        try:
            with foreign():
                async with asyncio.timeout(request.timeout):
                    plugin_answer = await self._backend.send(request)
        except TimeoutError as error:
            raise Refusal(Reason.BACKEND_TIMEOUT, f"backend {self._name!r} did not answer in time") from error
        answer, decoder = self._head(plugin_answer, request)
        body = b"".join(self._decode(decoder, plugin_answer.body))
        return Response(answer.status, answer.headers, body, reason_phrase=answer.reason_phrase, length=answer.length)

    async def close(self) -> None:
        """Close the plugin; its failure does not prevent others from closing."""
        try:
            with foreign():
                await self._backend.close()
        except (Exception, SystemExit):  # a plugin is foreign code: its error can only be logged
            log.exception("backend %r: its plugin failed in close", self._name)

    def _head(self, plugin_answer: object, request: Outbound) -> tuple[Response, Decoder]:
        """Return the head of the plugin's response, and the decoder of its body."""
        if not isinstance(plugin_answer, Response):
            raise self._wrong(f"gave {type(plugin_answer).__name__}, which is not a gateway.model.Response")
        if type(plugin_answer.status) is not int:
            raise self._wrong(f"gave the status {plugin_answer.status!r}, which is not a whole number")
        raw = tuple(self._raw(plugin_answer.headers))
        headers = parse_fields(raw, self._name)
        expected_length = plugin_answer.length if plugin_answer.length is not None else declared_length(raw)
        length = kept_length(request.method, expected_length)
        answer = response_head(
            plugin_answer.status, without_coding(headers), plugin_answer.reason_phrase, self._name, length=length
        )
        return answer, Decoder(content_encoding(headers), request.response_limit)

    def _raw(self, headers: Iterable[tuple[str, str]]) -> Iterable[tuple[bytes, bytes]]:
        try:
            return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        except (TypeError, ValueError, AttributeError):
            raise self._wrong("gave headers that are not pairs of strings") from None

    def _decode(self, decoder: Decoder, body: object) -> Iterable[bytes]:
        if not isinstance(body, bytes):
            raise self._wrong(f"gave {type(body).__name__} as a body, which takes bytes")
        return decoder.feed(body)

    def _wrong(self, what: str) -> Refusal:
        return Refusal(Reason.BACKEND_PROTOCOL, f"backend {self._name!r}: its plugin {what}")


class _Streaming(_PluginBackend):
    def __init__(self, name: str, backend: Backend, streaming: StreamingBackend) -> None:
        super().__init__(name, backend)
        self._streaming = streaming

    @asynccontextmanager
    async def stream(self, request: Outbound) -> AsyncIterator[Arriving]:
        """Yield the plugin's response while it arrives; the caller bounds the wait for the head."""
        with foreign():
            async with self._streaming.stream(request) as arriving:
                answer, decoder = self._head(arriving.head, request)
                yield Arriving(answer, self._parts(arriving.parts, decoder, silence_timeout(answer, request.timeout)))

    async def _parts(self, parts: AsyncIterator[bytes], decoder: Decoder, seconds: float) -> AsyncIterator[bytes]:
        try:
            while True:
                with foreign():
                    async with asyncio.timeout(seconds):
                        part = await anext(parts, None)
                if part is None:
                    return
                for piece in self._decode(decoder, part):
                    yield piece
        except TimeoutError as error:
            raise Refusal(Reason.BACKEND_TIMEOUT, f"backend {self._name!r} fell silent") from error
