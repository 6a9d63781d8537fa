"""Servers with an app each, alike except for names and texts, as upstreams in the gateway's process."""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext

APP_MIME_TYPE = "text/html;profile=mcp-app"
"""The MIME type of an app (MCP Apps 2026-01-26); importing it from the gateway would load all of it in each process."""

Context = ServerRequestContext[Any, Any]


def clock(name: str, *, scheme: str = "ui", flat: bool = False) -> Server[Any]:
    """Return a server with an app: one tool without visibility, one for the app, one for both."""
    uri = f"{scheme}://{name}/app.html"
    ui = {"resourceUri": uri}
    tools = [
        _tool("show", {"ui/resourceUri": uri} if flat else {"ui": ui, "ui/resourceUri": uri}),
        _tool("tick", {"ui/visibility": ["app"]} if flat else {"ui": {**ui, "visibility": ["app"]}}),
        _tool("both", {"ui": {**ui, "visibility": ["model", "app"]}}),
    ]

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=f"{name} {params.name}")])

    async def list_resources(_: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri=uri, name=name, mime_type=APP_MIME_TYPE)])

    async def read_resource(_: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        text = types.TextResourceContents(uri=params.uri, mime_type=APP_MIME_TYPE, text=f"<p>{name}</p>")
        return types.ReadResourceResult(contents=[text])

    return Server[Any](
        name,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def one() -> Server[Any]:
    """The server that the others resemble."""
    return clock("clock")


def older() -> Server[Any]:
    """A server in the terms of earlier drafts."""
    return clock("older", scheme="mcp-app", flat=True)


def odd() -> Server[Any]:
    """A server with a tool whose name no client accepts unchanged."""

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool("show the time", {})])

    return Server[Any]("odd", on_list_tools=list_tools)


def _tool(name: str, meta: dict[str, Any]) -> types.Tool:
    return types.Tool(name=name, input_schema={"type": "object"}, _meta=meta)


def inside(name: str, more: str = "") -> str:
    """Return a server of this module as an upstream in gateway.yaml."""
    return f'{name}: {{server: "tests.interop.clocks:one"{more}}}'
