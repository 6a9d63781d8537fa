"""A plugin's backend, held to the limits of every backend: time, size, and valid HTTP responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from gateway.backends.codings import Decoder
from gateway.backends.fields import (
    content_encoding,
    declared_length,
    kept_length,
    parse_fields,
    response_head,
    silence_timeout,
    without_coding,
)
from gateway.errors import Reason, Refusal
from gateway.hooks import foreign
from gateway.model import Arriving, Backend, Outbound, Response, StreamingBackend

log = logging.getLogger(__name__)


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
                    given = await self._backend.send(request)
        except TimeoutError as error:
            raise Refusal(Reason.BACKEND_TIMEOUT, f"backend {self._name!r} did not answer in time") from error
        answer, decoder = self._head(given, request)
        body = b"".join(self._decode(decoder, given.body))
        return Response(answer.status, answer.headers, body, reason_phrase=answer.reason_phrase, length=answer.length)

    async def close(self) -> None:
        """Close the plugin; its failure does not prevent others from closing."""
        try:
            with foreign():
                await self._backend.close()
        except (Exception, SystemExit):  # a plugin is foreign code: its error can only be logged
            log.exception("backend %r: its plugin failed in close", self._name)

    def _head(self, given: object, request: Outbound) -> tuple[Response, Decoder]:
        """Return the head of the plugin's response, and the decoder of its body."""
        if not isinstance(given, Response):
            raise self._wrong(f"gave {type(given).__name__}, which is not a gateway.model.Response")
        if type(given.status) is not int:
            raise self._wrong(f"gave the status {given.status!r}, which is not a whole number")
        raw = tuple(self._raw(given.headers))
        headers = parse_fields(raw, self._name)
        told = given.length if given.length is not None else declared_length(raw)
        length = kept_length(request.method, told)
        answer = response_head(given.status, without_coding(headers), given.reason_phrase, self._name, length=length)
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
