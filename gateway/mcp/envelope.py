"""A strict reader for the frequent `tools/call` requests of views (protocol 2026-07-28); others are left to the SDK."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import mcp_types as types
from mcp.server.connection import Connection
from mcp_types import methods as surface
from msgspec import Struct
from pydantic import ValidationError

from gateway.jsontext.reading import parse_quickly
from gateway.jsontext.sizes import is_bulky
from gateway.jsontext.writing import quote
from gateway.mcp import own_tools
from gateway.mcp.tools import shows_apps
from gateway.model import Json

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
        self._known: dict[bytes, T | None] = {}

    def read(self, meta: dict[str, Any]) -> T | None:
        """Return the description in `meta`, which has no members that vary by request."""
        try:
            key = marshal.dumps(meta, 2)  # compact, differs where types do, and is never parsed
        except ValueError:  # some Pythons parse deeper JSON than they marshal here
            return None
        if key in self._known:
            return self._known[key]
        described = self._describe(meta)
        if len(key) <= LONGEST_CLIENT:
            if len(self._known) >= CLIENTS:
                self._known.clear()
            self._known[key] = described
        return described


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
