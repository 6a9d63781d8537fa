"""The fast path for a `tools/call` of `http_request` or of the relay: it bypasses the SDK and splices the answer.

Its reader is strict. It handles only requests that the SDK would answer with the very same bytes; all others, and every
error, are left to the SDK.
"""

from __future__ import annotations

import asyncio
import logging
import marshal
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast

import mcp_types as types
from aiohttp import web
from mcp.server.connection import Connection
from mcp_types import SERVER_INFO_META_KEY
from mcp_types import methods as surface
from msgspec import Struct
from pydantic import ValidationError

from gateway.contract import text_of_json
from gateway.errors import Reason, Refusal
from gateway.eventloop.fair_share import Pieces
from gateway.jsontext.reading import parse_json, parse_quickly
from gateway.jsontext.sizes import is_bulky
from gateway.jsontext.writing import DEL, compact, compact_ascii, escape_parts, gather, quote, write_pieces
from gateway.mcp import own_tools
from gateway.mcp.catalog import Catalog
from gateway.mcp.mount_interfaces import MountClient
from gateway.mcp.results import LONG, content_of, is_failure, text_of, values_of
from gateway.mcp.tools import shows_apps
from gateway.model import Json, Principal, Response
from gateway.traces import continue_trace

T = TypeVar("T")

VERSION: Final = "2026-07-28"
TOOL: Final = "http_request"
TOOLS: Final = frozenset({TOOL, own_tools.POLL, own_tools.RESULT})
"""The tools handled here: a view's requests, and its polling for a model's calls."""

_HTTP_REQUEST: Final = TOOL.encode()
_BODY: Final = b'"body"'
"""The name of a body, whose numbers are the app's; no other number in a request may be so large."""

LARGEST: Final = 1024 * 1024
"""Bytes of the largest body read here: for larger ones the SDK's share of the cost is negligible."""

CLIENTS: Final = 256
"""Client descriptions remembered as valid."""

LONGEST_CLIENT: Final = 4096
"""Bytes of the longest client description that is remembered."""

_LARGEST_ID = 2**53
_EXPECTED: Final = {
    b"content-type": frozenset({b"application/json", b"application/json; charset=utf-8"}),
    b"mcp-protocol-version": frozenset({VERSION.encode()}),
    b"mcp-method": frozenset({b"tools/call"}),
}
_ASIDE: Final = frozenset(
    {b"content-encoding", b"transfer-encoding", b"mcp-session-id", b"last-event-id", b"expect", b"upgrade"}
)
"""Fields that rule out the fast path."""

_ACCEPTED: Final = frozenset({b"application/json", b"text/event-stream"})
_MESSAGE: Final = frozenset({"jsonrpc", "id", "method", "params"})
_PARAMS: Final = frozenset({"name", "arguments", "_meta"})
TRACE: Final = ("traceparent", "tracestate", "baggage")


Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Header fields as received."""


class FastCall(Struct, frozen=True):
    """A call of `tool`. `id` is the JSON text of its id, `trace` the trace context in its `_meta`."""

    id: str
    tool: str
    arguments: Mapping[str, Json]
    trace: Mapping[str, Json]


class Heads:
    """The request heads eligible for the fast path: to one of `hosts`, and from no web pages but those of `origins`.
    They name one of `tools`, or any tool if `tools` is None.
    """

    def __init__(self, hosts: Collection[str], origins: Collection[str], tools: Collection[str] | None = TOOLS) -> None:
        self._values = {
            **_EXPECTED,
            **({b"mcp-name": frozenset(tool.encode() for tool in tools)} if tools is not None else {}),
            b"host": frozenset(host.encode() for host in hosts),
            b"origin": frozenset(origin.encode() for origin in origins),
        }

    def tool(self, fields: Fields) -> bytes | None:
        """Return the tool that eligible header fields name; None for others, or if a field is repeated."""
        seen: dict[bytes, bytes] = {}
        for raw, value in fields:
            name = raw.lower()
            if name in seen or name in _ASIDE or name.startswith(b"mcp-param-"):
                return None
            seen[name] = value
        for name, values in self._values.items():
            if seen.get(name) not in values and not (name == b"origin" and name not in seen):
                return None
        length = seen.get(b"content-length", b"")
        short = length.isdigit() and len(length) < 8 and int(length) <= LARGEST
        return seen.get(b"mcp-name") if short and _accepts(seen.get(b"accept", b"")) else None


def tool_call(body: bytes, *, rough: bool = False) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
    """Return the JSON text of the id of a `tools/call`, its `params` and their `_meta`; None leaves it to the SDK.
    With `rough`, integers of more than 64 bits lose precision, which is faster.
    """
    if is_bulky(body):
        return None
    try:
        message = parse_quickly(body, rough=rough)
    except ValueError:
        return None
    if type(message) is not dict or message.keys() != _MESSAGE:
        return None
    params, id = message["params"], id_text(message["id"])
    if message["jsonrpc"] != "2.0" or message["method"] != "tools/call" or type(params) is not dict or id is None:
        return None
    meta = params.get("_meta")
    if type(params.get("name")) is not str or type(meta) is not dict or type(params.get("arguments", {})) is not dict:
        return None
    return id, params, meta


class EnvelopeReader:
    """A reader of bodies with a cache of client descriptions that the SDK found valid."""

    def __init__(self) -> None:
        self._clients = ClientDescriptions(_describes_app)

    def read(self, body: bytes, name: bytes) -> FastCall | None:
        """Return the call of the tool `name` in `body`; None for anything that the SDK has to judge."""
        rough = name == _HTTP_REQUEST and _BODY not in body
        parsed = tool_call(body, rough=rough)
        if parsed is None:
            return None
        id, params, meta = parsed
        tool = params["name"]
        if params.keys() != _PARAMS or tool not in TOOLS or tool.encode() != name:
            return None
        arguments: dict[str, Json] = params["arguments"]
        if "_view" not in arguments:
            return None  # such a call may have to send the client's person to a page
        if rough and "body" in arguments:
            return None  # the name `body` was written with escapes
        if "progressToken" in meta and (type(meta.pop("progressToken")) not in (str, int) or "stream" in arguments):
            return None
        trace: dict[str, Json] = {name: meta[name] for name in TRACE[:2] if name in meta}
        return FastCall(id, tool, arguments, trace) if self._is_app(meta) else None

    def _is_app(self, meta: dict[str, Json]) -> bool:
        """Return whether the rest of `_meta` is valid and the client shows apps; remove what varies by request."""
        for name in TRACE:
            if name in meta and type(meta.pop(name)) is not str:
                return False
        return self._clients.read(meta) is True


class ClientDescriptions(Generic[T]):
    """A cache of what `describe` returns for clients' descriptions of themselves; None leaves a client to the SDK."""

    def __init__(self, describe: Callable[[dict[str, Any]], T | None]) -> None:
        self._describe = describe
        self._cache: dict[bytes, T | None] = {}

    def read(self, meta: dict[str, Any]) -> T | None:
        """Return the description in `meta`, which has no members that vary by request."""
        try:
            key = marshal.dumps(meta, 2)  # compact, differs where types do, and is never parsed
        except ValueError:  # some Pythons parse deeper JSON than they marshal here
            return None
        if key in self._cache:
            return self._cache[key]
        description = self._describe(meta)
        if len(key) <= LONGEST_CLIENT:
            if len(self._cache) >= CLIENTS:
                self._cache.clear()
            self._cache[key] = description
        return description


def read_capabilities(meta: Mapping[str, Any]) -> types.ClientCapabilities | None:
    """Return the capabilities of the client that `meta` describes; None if the SDK has to judge that."""
    if meta.get(types.PROTOCOL_VERSION_META_KEY) != VERSION or types.CLIENT_CAPABILITIES_META_KEY not in meta:
        return None
    capabilities, info = meta[types.CLIENT_CAPABILITIES_META_KEY], meta.get(types.CLIENT_INFO_META_KEY)
    try:
        surface.validate_client_request("tools/call", VERSION, {"name": TOOL, "arguments": {}, "_meta": meta})
        return Connection.from_envelope(VERSION, cast(Any, info), capabilities).client_capabilities
    except (KeyError, ValidationError):
        return None


def _describes_app(meta: Mapping[str, Any]) -> bool:
    return shows_apps(read_capabilities(meta))


def id_text(id: object) -> str | None:
    """Return the JSON text of an id that every parser accepts; None for others."""
    if type(id) is int:
        return str(id) if -_LARGEST_ID <= id <= _LARGEST_ID else None
    if type(id) is str and (id.isascii() or _is_text(id)):
        return quote(id)
    return None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@lru_cache(maxsize=64)
def _accepts(accept: bytes) -> bool:
    return {part.split(b";")[0].strip().lower() for part in accept.split(b",")} >= _ACCEPTED


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


class TracedCall(Protocol):
    """A parsed call; `trace` is the trace context that it carries."""

    @property
    def trace(self) -> Mapping[str, Json]: ...


C = TypeVar("C", bound=TracedCall)


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
            error = refusal
        except Exception:  # the contract has a result for this
            log.exception("the call of %s failed", call.tool)
            error = Refusal(Reason.INTERNAL, "The gateway failed at this call; its log says why.")
        content = compact_ascii({"reason": error.reason.value, "detail": error.detail})
        return self._splice_result(call.id, f"{error.reason}: {error.detail}", content, is_error=True), 200

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

    def _splice_result(self, id: str, text: str, structured_text: str, *, is_error: bool = False) -> str:
        start, middle, end = self._around(id, is_error=is_error)
        return f"{start}{quote(text)}{middle}{structured_text}{end}"

    def _around(self, id: str, *, is_error: bool) -> tuple[str, str, str]:
        """Return the parts of the message before the text, between it and the structured content, and after that."""
        flag = "true" if is_error else "false"
        return (
            f'{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"text":',
            f',"type":"text"}}],"isError":{flag},"resultType":"complete","structuredContent":',
            f",{self._end}",
        )


class Silence:
    """Begins an event stream after `seconds` of silence, and pings on it; `stream` is None until then."""

    def __init__(self, request: web.Request, seconds: float) -> None:
        self.stream: web.StreamResponse | None = None
        self._request = request
        self._seconds = seconds
        self._end: asyncio.Event | None = None
        self._pinging: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    async def end(self) -> web.StreamResponse | None:
        """Stop, as the answer is complete or the call was cancelled; return the stream if it began."""
        self._timer.cancel()
        if self._end is not None and self._pinging is not None:
            self._end.set()
            await asyncio.wait({self._pinging})
        return self.stream

    def _begin(self) -> None:
        self._end = asyncio.Event()
        # Held here and awaited by `end`: a task group per request would cost more than the rest of this path.
        self._pinging = asyncio.get_running_loop().create_task(self._ping(self._end))

    async def _ping(self, end: asyncio.Event) -> None:
        self.stream = web.StreamResponse(headers=EVENTS)
        with suppress(ConnectionError):  # the client disconnected; aiohttp cancels its handler
            await self.stream.prepare(self._request)
            while not end.is_set():
                await self.stream.write(PING)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds):
                        await end.wait()


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
