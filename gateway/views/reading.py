"""Parses a page's tool definitions and call results into the SDK's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp import MCPError
from mcp import types as mcp
from mcp_types.methods import parse_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from gateway.jsontext.portable import is_deep

MOST_LISTED: Final = 200
"""Tools of one list that are parsed."""


ROOM: Final = 2 * 1024 * 1024
"""Bytes of the tools of one page: twice the size of the tools that a model may see."""

_VALUE: Final = 64
"""Approximate bytes of a value beside its characters."""


class Listing:
    """The tools that a page defines on one or more pages of a list; invalid definitions are skipped."""

    def __init__(self) -> None:
        self.tools: list[mcp.Tool] = []
        self._room = ROOM

    def add(self, definitions: Sequence[object]) -> None:
        """Add the first of them, as far as there is room for each."""
        for definition in definitions[:MOST_LISTED]:
            weight = _weight(definition, self._room)
            if weight <= self._room and (tool := _tool(definition)) is not None:
                self._room -= weight
                self.tools.append(tool)


def _weight(value: object, most: int) -> int:
    """Return the approximate size in bytes; counting stops beyond `most`."""
    weight, waiting = 0, [value]
    while waiting and weight <= most:
        one = waiting.pop()
        weight += _VALUE
        if isinstance(one, str):
            weight += len(one)
        elif isinstance(one, dict):
            weight += sum(map(len, one))
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return weight


def _tool(definition: object) -> mcp.Tool | None:
    try:
        listed = parse_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": [definition]})
    except ValidationError:
        return None
    return listed.tools[0] if isinstance(listed, mcp.ListToolsResult) else None


def result_of(said: Mapping[str, Any]) -> mcp.CallToolResult:
    """Parse the result of a call. Raises `MCPError` if it is not a valid result."""
    try:
        parsed = parse_server_result("tools/call", LATEST_HANDSHAKE_VERSION, {} if is_deep(dict(said)) else said)
    except (ValidationError, RecursionError):
        parsed = None
    if not isinstance(parsed, mcp.CallToolResult):
        raise MCPError(mcp.INTERNAL_ERROR, "its answer is no result of a tool")
    return parsed
