"""What a page says of a tool and of a call, read as the SDK's nouns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp import MCPError
from mcp import types as mcp
from mcp_types.methods import parse_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from gateway.mux.text import is_deep

MOST_LISTED: Final = 200
"""Tools of one list that are looked at."""


def tools_of(definitions: Sequence[object]) -> list[mcp.Tool]:
    """The tools that a page defines so, without definitions that are none."""
    return [tool for definition in definitions[:MOST_LISTED] if (tool := _tool(definition)) is not None]


def _tool(definition: object) -> mcp.Tool | None:
    try:
        listed = parse_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": [definition]})
    except ValidationError:
        return None
    return listed.tools[0] if isinstance(listed, mcp.ListToolsResult) else None


def result_of(said: Mapping[str, Any]) -> mcp.CallToolResult:
    """The result of a call. Raises `MCPError` where it is none."""
    try:
        parsed = parse_server_result("tools/call", LATEST_HANDSHAKE_VERSION, {} if is_deep(dict(said)) else said)
    except (ValidationError, RecursionError):
        parsed = None
    if not isinstance(parsed, mcp.CallToolResult):
        raise MCPError(mcp.INTERNAL_ERROR, "its answer is no result of a tool")
    return parsed
