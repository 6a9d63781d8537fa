"""Translates requests and results between the eras of MCP; whatever both know stays as it is."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp_types.methods import CACHEABLE_METHODS

from gateway.mcp.upstreams.transport.conversation import Message

ENVELOPE = frozenset(
    (
        types.PROTOCOL_VERSION_META_KEY,
        types.CLIENT_INFO_META_KEY,
        types.CLIENT_CAPABILITIES_META_KEY,
        types.LOG_LEVEL_META_KEY,
    )
)
"""The `_meta` keys of each modern request, which the handshake declares once."""

ASKING = frozenset(("tools/call", "resources/read", "prompts/get"))
"""The modern requests that may be answered with a request for input, which the client's next request brings."""

INPUT_REQUIRED = "input_required"
_ROUNDS = ("inputResponses", "requestState")


def modern_params(params: Mapping[str, Any], envelope: Mapping[str, Any]) -> Message:
    """Return a request in the form for a modern upstream."""
    return {**params, "_meta": {**_meta(params), **envelope}}


def legacy_params(params: Mapping[str, Any]) -> Message:
    """Return a request in the form for a handshake upstream."""
    plain = {key: value for key, value in params.items() if key not in (*_ROUNDS, "_meta")}
    meta = {key: value for key, value in _meta(params).items() if key not in ENVELOPE}
    return {**plain, "_meta": meta} if meta else plain


def legacy_request(params: Message) -> Message:
    """Return a modern upstream's request in the form for a handshake client, which needs an id for each page."""
    if params.get("mode") != "url" or "elicitationId" in params:
        return params
    return {**params, "elicitationId": secrets.token_urlsafe(16)}


def modern_result(method: str, result: Message) -> Message:
    """Return an answer of the handshake era in the form for a modern client."""
    made: Message = {"resultType": "complete"}
    if method in CACHEABLE_METHODS:
        made |= {"ttlMs": 0, "cacheScope": "private"}
    return {**result, **made}


def cacheable(method: str, result: Message) -> Message:
    """Return a modern answer with its cache lifetime; without a valid one, it must not be cached."""
    if method not in CACHEABLE_METHODS or needs_input(result):
        return result
    made = result if isinstance(result.get("resultType"), str) else {**result, "resultType": "complete"}
    lasts, scope = result.get("ttlMs"), result.get("cacheScope")
    said = type(lasts) is int and lasts >= 0 and scope in ("private", "public")
    return made if said else {**made, "ttlMs": 0, "cacheScope": "private"}


def legacy_tool(tool: Message) -> Message:
    """Return a tool in the form for a handshake client, which accepts only objects as structured output."""
    output = tool.get("outputSchema")
    if not isinstance(output, dict) or output.get("type") == "object":
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def legacy_result(result: Message) -> Message:
    """Return a modern answer in the form for a handshake client."""
    plain = {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope")}
    if not isinstance(plain.get("structuredContent"), dict):
        plain.pop("structuredContent", None)
    meta = plain.get("_meta")
    if isinstance(meta, dict) and types.SERVER_INFO_META_KEY in meta:
        meta = {key: value for key, value in meta.items() if key != types.SERVER_INFO_META_KEY}
        plain = {**plain, "_meta": meta} if meta else {key: value for key, value in plain.items() if key != "_meta"}
    return plain


def needs_input(result: Mapping[str, Any]) -> bool:
    """Whether a modern upstream requires input before it continues."""
    return result.get("resultType") == INPUT_REQUIRED


def _meta(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}
