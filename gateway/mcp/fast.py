"""The fast path for a `tools/call` of `http_request` or of the relay: it bypasses the SDK and splices the answer.
It handles only requests that the SDK would answer with the very same bytes; all others, and every error, are left to
the SDK.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import chain
from typing import Final, Protocol, TypeVar

from aiohttp import web
from mcp_types import SERVER_INFO_META_KEY

from gateway.contract import text_of_json
from gateway.errors import Reason, Refusal
from gateway.eventloop.fair_share import Pieces
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import DEL, compact, compact_ascii, escape_parts, gather, quote, write_pieces
from gateway.mcp.catalog import Catalog
from gateway.mcp.envelope import TOOL, EnvelopeReader, FastCall, Fields, Heads
from gateway.mcp.mount_interfaces import MountClient
from gateway.mcp.results import LONG, content_of, is_failure, text_of, values_of
from gateway.model import Json, Principal, Response
from gateway.traces import continue_trace

log = logging.getLogger(__name__)

SILENCE = 15.0
"""Seconds of silence after which the SDK begins an event stream, so that no intermediary considers the call dead."""

_JSON: Final = {"content-type": "application/json"}
EVENTS: Final = {
    "content-type": "text/event-stream",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
PING: Final = b": ping\r\n\r\n"


class Traced(Protocol):
    """A parsed call; `trace` is the trace context that it carries."""

    @property
    def trace(self) -> Mapping[str, Json]: ...


C = TypeVar("C", bound=Traced)


class Fast(Protocol[C]):
    """A shortcut past the SDK for the usual requests; `silence` is in seconds."""

    @property
    def silence(self) -> float: ...

    def tool(self, fields: Fields) -> bytes | None:
        """Return the tool that the header fields name if the request is eligible, else None."""
        ...

    def read(self, tool: bytes, body: bytes) -> C | None:
        """Return the call of `tool` in `body`; None, without a side effect, if the request must go through the SDK."""
        ...

    async def message(self, call: C, principal: Principal) -> tuple[str | list[bytes], int]:
        """Return the JSON-RPC message that answers, in pieces if it is long, and its HTTP status."""
        ...


async def answer_fast(
    fast: Fast[C], request: web.Request, principal: Principal, body: bytes
) -> web.StreamResponse | None:
    """Return the answer to a POST of `body`; None, without a side effect, if the request must go through the SDK."""
    tool = fast.tool(request.raw_headers)
    if tool is None:
        return None
    call = fast.read(tool, body)
    if call is None:
        return None
    silence = Silence(request, fast.silence)
    try:
        with continue_trace(call.trace or request.headers):
            text, status = await fast.message(call, principal)
    finally:
        stream = await silence.end()
    if stream is None:
        content = text.encode() if isinstance(text, str) else Pieces(text)
        return web.Response(body=content, headers=_JSON, status=status)
    return await close_stream(stream, text)


class FastPath:
    """The fast path of one mount. `stamp` is the server's self-description in `_meta`; `silence` is in seconds."""

    def __init__(
        self,
        catalog: Catalog,
        hosts: Collection[str],
        origins: Collection[str],
        stamp: Mapping[str, object],
        silence: float = SILENCE,
    ) -> None:
        self._catalog = catalog
        self.silence = silence
        self._heads = Heads(hosts, origins)
        self._calls = EnvelopeReader()
        self._end = f'"_meta":{compact_ascii({SERVER_INFO_META_KEY: stamp})}}}}}'

    def tool(self, fields: Fields) -> bytes | None:
        """Return the tool that the header fields name if the request is eligible, else None."""
        return self._heads.tool(fields)

    def read(self, tool: bytes, body: bytes) -> FastCall | None:
        """Return the call of `tool` in `body`; None if the request must go through the SDK."""
        return self._calls.read(body, tool)

    async def message(self, call: FastCall, principal: Principal) -> tuple[str | list[bytes], int]:
        """Return the JSON-RPC message that answers, and its status. As in the catalog, every failure has a result."""
        client = MountClient(principal, is_app=True)
        try:
            if call.tool != TOOL:
                values = await self._catalog.run_relay_tool(call.tool, call.arguments, client)
                return self._splice_result(call.id, text_of(values), compact_ascii(values)), 200
            response = await self._catalog.http_request(call.arguments, client)
            if len(response.body) > LONG:
                return await asyncio.to_thread(self._long_answer, call.id, response), 200
            return self._answer(call.id, response), 200
        except Refusal as refusal:
            failed = refusal
        except Exception:  # the contract has a result for this
            log.exception("the call of %s failed", call.tool)
            failed = Refusal(Reason.INTERNAL, "The gateway failed at this call; its log says why.")
        content = compact_ascii({"reason": failed.reason.value, "detail": failed.detail})
        return self._splice_result(call.id, f"{failed.reason}: {failed.detail}", content, is_error=True), 200

    def _answer(self, id: str, response: Response) -> str:
        text = text_of_json(response)
        if text is not None:
            return self._splice_result(id, text, text, is_error=is_failure(response))
        values, text, is_error = values_of(response, structured_arrives=False)
        # The text block is the same JSON unless it is the wording of a refusal; in ASCII it is the same text too.
        same = text.isascii() and DEL not in text and text.startswith("{")
        return self._splice_result(id, text, text if same else compact_ascii(values), is_error=is_error)

    def _long_answer(self, id: str, response: Response) -> list[bytes]:
        values, is_error = content_of(response)
        start, middle, end = self._around(id, is_error=is_error)
        text = escape_parts(write_pieces(values, lambda value: compact(value).decode()))
        return gather(chain((start,), text, (middle,), write_pieces(values), (end,)))

    def _splice_result(self, id: str, text: str, structured: str, *, is_error: bool = False) -> str:
        start, middle, end = self._around(id, is_error=is_error)
        return f"{start}{quote(text)}{middle}{structured}{end}"

    def _around(self, id: str, *, is_error: bool) -> tuple[str, str, str]:
        """Return the parts of the message before the text, between it and the structured content, and after that."""
        failed = "true" if is_error else "false"
        return (
            f'{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"text":',
            f',"type":"text"}}],"isError":{failed},"resultType":"complete","structuredContent":',
            f",{self._end}",
        )


class Silence:
    """Begins an event stream after `seconds` of silence, and pings on it; `stream` is None until then."""

    def __init__(self, request: web.Request, seconds: float) -> None:
        self.stream: web.StreamResponse | None = None
        self._request = request
        self._seconds = seconds
        self._ended: asyncio.Event | None = None
        self._pinging: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    async def end(self) -> web.StreamResponse | None:
        """Stop, as the answer is complete or the call was cancelled; return the stream if it began."""
        self._timer.cancel()
        if self._ended is not None and self._pinging is not None:
            self._ended.set()
            await asyncio.wait({self._pinging})
        return self.stream

    def _begin(self) -> None:
        self._ended = asyncio.Event()
        # Held here and awaited by `end`: a task group per request would cost more than the rest of this path.
        self._pinging = asyncio.get_running_loop().create_task(self._ping(self._ended))

    async def _ping(self, ended: asyncio.Event) -> None:
        self.stream = web.StreamResponse(headers=EVENTS)
        with suppress(ConnectionError):  # the client disconnected; aiohttp cancels its handler
            await self.stream.prepare(self._request)
            while not ended.is_set():
                await self.stream.write(PING)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds):
                        await ended.wait()


async def close_stream(stream: web.StreamResponse, text: str | list[bytes]) -> web.StreamResponse:
    """Send the answer as the last event of the stream, and end it."""
    with suppress(ConnectionError):
        for piece in last_event(text):
            await stream.write(piece)
        await stream.write_eof()
    return stream


def last_event(text: str | list[bytes]) -> list[bytes]:
    """Return the message as the last event of a stream, on one line, whatever JSON an upstream wrote."""
    if not isinstance(text, str):
        return [b"event: message\r\ndata: ", *(piece for piece in text if piece), b"\r\n\r\n"]
    if not text.isascii() or not text.isprintable():
        text = compact_ascii(parse_json(text))
    return [f"event: message\r\ndata: {text}\r\n\r\n".encode("ascii")]
