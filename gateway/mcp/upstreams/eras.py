"""Requests and results of one era of MCP in the words of the other; whatever both know goes through untouched."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp_types.methods import CACHEABLE_METHODS

from gateway.mcp.upstreams.conversation import Message

ENVELOPE = frozenset(
    (
        types.PROTOCOL_VERSION_META_KEY,
        types.CLIENT_INFO_META_KEY,
        types.CLIENT_CAPABILITIES_META_KEY,
        types.LOG_LEVEL_META_KEY,
    )
)
"""What each modern request carries in `_meta`, and the handshake said once."""

ASKING = frozenset(("tools/call", "resources/read", "prompts/get"))
"""The modern requests that may be answered with a question, which the client answers with a further request."""

INPUT_REQUIRED = "input_required"
_ROUNDS = ("inputResponses", "requestState")


def modern_params(params: Mapping[str, Any], envelope: Mapping[str, Any]) -> Message:
    """A request as a modern upstream wants it."""
    return {**params, "_meta": {**_meta(params), **envelope}}


def legacy_params(params: Mapping[str, Any]) -> Message:
    """A request as an upstream of the handshake wants it."""
    plain = {key: value for key, value in params.items() if key not in (*_ROUNDS, "_meta")}
    meta = {key: value for key, value in _meta(params).items() if key not in ENVELOPE}
    return {**plain, "_meta": meta} if meta else plain


def legacy_request(params: Message) -> Message:
    """What a modern upstream asks, for a client of the handshake, which knows each page that it is sent to by an id."""
    if params.get("mode") != "url" or "elicitationId" in params:
        return params
    return {**params, "elicitationId": secrets.token_urlsafe(16)}


def modern_result(method: str, result: Message) -> Message:
    """An answer of the handshake era for a modern client."""
    made: Message = {"resultType": "complete"}
    if method in CACHEABLE_METHODS:
        made |= {"ttlMs": 0, "cacheScope": "private"}
    return {**result, **made}


def cacheable(method: str, result: Message) -> Message:
    """A modern answer of a list, or a resource, that says for how long it may be kept: not at all, where it did not."""
    if method not in CACHEABLE_METHODS or needs_input(result):
        return result
    made = result if isinstance(result.get("resultType"), str) else {**result, "resultType": "complete"}
    lasts, scope = result.get("ttlMs"), result.get("cacheScope")
    said = type(lasts) is int and lasts >= 0 and scope in ("private", "public")
    return made if said else {**made, "ttlMs": 0, "cacheScope": "private"}


def legacy_tool(tool: Message) -> Message:
    """A tool for a client of the handshake, to which only objects can be structured."""
    output = tool.get("outputSchema")
    if not isinstance(output, dict) or output.get("type") == "object":
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def legacy_result(result: Message) -> Message:
    """A modern answer for a client of the handshake era."""
    plain = {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope")}
    if not isinstance(plain.get("structuredContent"), dict):
        plain.pop("structuredContent", None)
    meta = plain.get("_meta")
    if isinstance(meta, dict) and types.SERVER_INFO_META_KEY in meta:
        meta = {key: value for key, value in meta.items() if key != types.SERVER_INFO_META_KEY}
        plain = {**plain, "_meta": meta} if meta else {key: value for key, value in plain.items() if key != "_meta"}
    return plain


def needs_input(result: Mapping[str, Any]) -> bool:
    """Whether a modern upstream asks for something before it goes on."""
    return result.get("resultType") == INPUT_REQUIRED


def _meta(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}
