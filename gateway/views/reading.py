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


ROOM: Final = 2 * 1024 * 1024
"""Bytes that the tools of one page may take: twice what so many take as a model may see."""

_VALUE: Final = 64
"""Bytes that a value takes beside its characters, about."""


class Listing:
    """The tools that a page defines on one or more pages of a list, without definitions that are none."""

    def __init__(self) -> None:
        self.tools: list[mcp.Tool] = []
        self._room = ROOM

    def add(self, definitions: Sequence[object]) -> None:
        """The first of them, as far as there is room for each."""
        for definition in definitions[:MOST_LISTED]:
            weight = _weight(definition, self._room)
            if weight <= self._room and (tool := _tool(definition)) is not None:
                self._room -= weight
                self.tools.append(tool)


def _weight(value: object, most: int) -> int:
    """Bytes that it takes, about; of more than `most` it is not said how many more."""
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
    """The result of a call. Raises `MCPError` where it is none."""
    try:
        parsed = parse_server_result("tools/call", LATEST_HANDSHAKE_VERSION, {} if is_deep(dict(said)) else said)
    except (ValidationError, RecursionError):
        parsed = None
    if not isinstance(parsed, mcp.CallToolResult):
        raise MCPError(mcp.INTERNAL_ERROR, "its answer is no result of a tool")
    return parsed
