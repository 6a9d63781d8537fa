"""A cache of the tool arguments that are mirrored in header fields (`x-mcp-header` in a schema)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map

KNOWN = 5000
"""Tools whose fields are cached; beyond, the cache is cleared."""

Mirrored = Mapping[tuple[str, ...], str]
"""Header field names by the paths of the arguments that they mirror."""


class Mirrors:
    """The mirrored arguments of the tools of one upstream."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mapping[str, Any], Mirrored | None]] = {}

    def of(self, name: str, tool: Mapping[str, Any]) -> Mirrored | None:
        """Return the fields of `tool` as it is listed now; None if its schema declares them wrongly."""
        known = self._known.get(name)
        if known is None or known[0] is not tool:
            schema = tool.get("inputSchema")
            found = x_mcp_header_map(schema) if find_invalid_x_mcp_header(schema) is None else None
            if len(self._known) >= KNOWN:
                self._known.clear()
            known = self._known[name] = (tool, found)
        return known[1]
