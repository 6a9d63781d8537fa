"""A server with endless lists, each page with one item of two mebibytes."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server import Server

SIZE = 2 * 1024 * 1024
PAGES: list[int] = []
"""The pages that were requested."""


def _number(params: types.PaginatedRequestParams | None) -> int:
    PAGES.append(int(params.cursor) if params is not None and params.cursor else 0)
    return PAGES[-1]


async def tools(_: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """Return the next tool; all are for apps only."""
    number = _number(params)
    tool = types.Tool(
        name=f"tool_{number}",
        description="x" * SIZE,
        input_schema={"type": "object"},
        _meta={"ui": {"visibility": ["app"]}} if number else None,
    )
    return types.ListToolsResult(tools=[tool], next_cursor=str(number + 1))


async def resources(_: Any, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    """Return the next resource."""
    number = _number(params)
    resource = types.Resource(name="x", uri=f"test://{number}", description="x" * SIZE)
    return types.ListResourcesResult(resources=[resource], next_cursor=str(number + 1))


async def call(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Answer that the tool ran."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=f"{params.name} ran")])


def server() -> Server[Any]:
    """Return a new server."""
    return Server[Any]("large", on_list_tools=tools, on_list_resources=resources, on_call_tool=call)


if __name__ == "__main__":
    import anyio

    from tests.interop.standard_streams import on_standard_streams

    anyio.run(on_standard_streams, server())
