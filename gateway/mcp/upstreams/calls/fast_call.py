"""The fast path of an upstream's mount: a plain `tools/call` of a modern client and its answer bypass the SDK.
It handles only requests that the SDK would read and answer in the same way; all others are left to the SDK.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Protocol

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from msgspec import Struct

from gateway.jsontext.messages import WrittenObject
from gateway.jsontext.writing import compact_json, gather, is_large, plain_json, sorted_json, write_pieces
from gateway.mcp.fast import SILENCE, TRACE, VERSION, ClientDescriptions, Fields, Heads, read_capabilities, tool_call
from gateway.mcp.tools import shows_apps
from gateway.mcp.upstreams.calls.client import LONGEST_CAPABILITIES, UpstreamClient
from gateway.mcp.upstreams.transport.conversation import Message
from gateway.mcp.upstreams.transport.handshake import Mirrors
from gateway.model import Principal


class UpstreamCalls(Protocol):
    """The tools of one upstream: `gateway.mcp.upstreams.mount.Proxy`."""

    def tool(self, name: str) -> Mapping[str, Any] | None:
        """Return a tool as listed; None for an unknown one."""
        ...

    def may_ask(self, name: str) -> bool:
        """Return whether a call of the tool may send the client's person to a page."""
        ...

    async def carry(self, client: UpstreamClient, params: Message) -> Message:
        """Return the answer to a call, in the form for `client`. Raises `MCPError`."""
        ...


log = logging.getLogger(__name__)

_PARAMS: Final = (frozenset({"name", "arguments", "_meta"}), frozenset({"name", "_meta"}))
_NAME: Final = re.compile(rb"[A-Za-z0-9_./-]{1,128}")
_ASIDE: Final = ("progressToken", types.LOG_LEVEL_META_KEY)
"""Members that make the answer a stream."""


@dataclass(frozen=True, slots=True)
class _Client:
    """A client's description of itself: `info_text` is its `info` as a text."""

    capabilities: Mapping[str, Any]
    info: Mapping[str, Any] | None
    info_text: str
    is_app: bool


class FastToolCall(Struct, frozen=True):
    """A parsed call; `id` is the JSON text of its id."""

    id: str
    params: Message
    client: _Client

    @property
    def trace(self) -> Mapping[str, Any]:
        """The trace context of the call."""
        meta: Mapping[str, Any] = self.params["_meta"]
        return meta if "traceparent" in meta else {}


class UpstreamFast:
    """The fast path to `calls`; `hosts` and `origins` as in its mount, `silence` in seconds."""

    def __init__(
        self, calls: UpstreamCalls, hosts: Collection[str], origins: Collection[str], silence: float = SILENCE
    ) -> None:
        self._calls = calls
        self._heads = Heads(hosts, origins, tools=None)
        self.silence = silence
        self._clients = ClientDescriptions(_describe_client)
        self._mirrors = Mirrors()

    def tool(self, fields: Fields) -> bytes | None:
        """Return the tool that the header fields name if the request is eligible, else None."""
        return self._heads.tool(fields)

    def read(self, tool: bytes, body: bytes) -> FastToolCall | None:
        """Return the call of `tool` in `body`; None, without a side effect, if the request must go through the SDK."""
        parsed = tool_call(body)
        if parsed is None:
            return None
        id, params, meta = parsed
        if params.keys() not in _PARAMS or any(key in meta for key in _ASIDE):
            return None
        if not _NAME.fullmatch(tool) or params["name"].encode("utf-8", "replace") != tool:
            return None
        known = self._client(meta)
        return FastToolCall(id, params, known) if known is not None and self._is_plain(params["name"]) else None

    async def message(self, call: FastToolCall, principal: Principal) -> tuple[str | list[bytes], int]:
        """Return the JSON-RPC message that answers, and its HTTP status."""
        known = call.client
        client = UpstreamClient(
            principal=principal,
            who=f"{principal.id}\n{known.info_text}",
            version=VERSION,
            capabilities=known.capabilities,
            info=known.info,
            is_app=known.is_app,
        )
        return await self._carry(client, call.params, call.id)

    async def _carry(self, client: UpstreamClient, params: Message, id: str) -> tuple[str | list[bytes], int]:
        """Return the JSON-RPC message that answers, and its HTTP status."""
        try:
            result = await self._calls.carry(client, params)
            if not isinstance(result, WrittenObject) and is_large(result):
                return await asyncio.to_thread(_pieces, id, result), 200
        except MCPError as error:
            error_data = error.error
        except Exception:  # as in the SDK: internal errors are only logged
            log.exception("a call of a tool of an upstream failed")
            error_data = types.ErrorData(code=types.INTERNAL_ERROR, message="Internal server error")
        else:
            text = result.text if isinstance(result, WrittenObject) else compact_json(result)
            return f'{{"jsonrpc":"2.0","id":{id},"result":{text}}}', 200
        members = error_data.model_dump(mode="json", by_alias=True, exclude_none=True)
        text = f'{{"jsonrpc":"2.0","id":{id},"error":{compact_json(members)}}}'
        return text, ERROR_CODE_HTTP_STATUS.get(error_data.code, 200)

    def _client(self, meta: Message) -> _Client | None:
        """Return the client that `meta` describes; None if the SDK has to judge that."""
        plain = meta
        if any(name in meta for name in TRACE):
            if any(type(meta.get(name, "")) is not str for name in TRACE):
                return None
            plain = {name: value for name, value in meta.items() if name not in TRACE}
        return self._clients.read(plain)

    def _is_plain(self, name: str) -> bool:
        """Return whether the tool is known, mirrors no arguments in header fields, and never asks a person."""
        tool = self._calls.tool(name)
        return tool is not None and not self._calls.may_ask(name) and self._mirrors.of(name, tool) == {}


def _pieces(id: str, result: Message) -> list[bytes]:
    return gather(chain((f'{{"jsonrpc":"2.0","id":{id},"result":',), write_pieces(result), ("}",)))


def _describe_client(meta: Message) -> _Client | None:
    declared = read_capabilities(meta)
    capabilities, info = meta.get(types.CLIENT_CAPABILITIES_META_KEY), meta.get(types.CLIENT_INFO_META_KEY)
    if declared is None or not isinstance(capabilities, dict) or len(plain_json(capabilities)) > LONGEST_CAPABILITIES:
        return None
    client_info = info if isinstance(info, dict) else None
    return _Client(capabilities, client_info, sorted_json(client_info), shows_apps(declared))
