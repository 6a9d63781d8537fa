"""An MCP server with an app, and the host page with its own back end, which posts each call there."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web
from mcp import Client
from mcp.server.mcpserver import MCPServer

WEB = Path(__file__).parent / "web"
STATIC = Path(__file__).parents[2] / "gateway" / "static"
RESOURCE = "ui://host-page/app.html"


def build_server() -> MCPServer[Any]:
    """Return a server with one tool, `now`, and the app that calls it."""
    server: MCPServer[Any] = MCPServer("host-page", log_level="WARNING")

    @server.tool()
    async def now(number: int) -> dict[str, int]:
        """The number."""
        return {"number": number}

    @server.resource(RESOURCE, mime_type="text/html;profile=mcp-app")
    def app() -> str:
        """The app."""
        return (WEB / "app.html").read_text("utf-8")

    return server


class Page:
    """The host page, its back end with a client of the MCP server, and what the page has measured."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._results: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def application(self) -> web.Application:
        """Return the aiohttp application."""
        app = web.Application()
        app.router.add_get("/", self._page)
        app.router.add_post("/call", self._call)
        app.router.add_post("/result", self._take)
        app.router.add_get("/result", self._give)
        app.router.add_static("/host", STATIC / "host")
        app.router.add_static("/sandbox", STATIC / "sandbox")
        app.router.add_static("/web", WEB)
        app.cleanup_ctx.append(self._connect)
        return app

    async def _connect(self, _: web.Application) -> Any:
        async with Client(self._upstream) as self._client:
            yield

    async def _page(self, _: web.Request) -> web.FileResponse:
        return web.FileResponse(WEB / "index.html")

    async def _call(self, request: web.Request) -> web.Response:
        given = await request.json()
        result = await self._client.call_tool(given["name"], given["arguments"])
        return web.Response(text=result.model_dump_json(by_alias=True), content_type="application/json")

    async def _take(self, request: web.Request) -> web.Response:
        await self._results.put(await request.json())
        return web.Response()

    async def _give(self, _: web.Request) -> web.Response:
        return web.Response(text=json.dumps(await self._results.get()), content_type="application/json")


def main() -> None:
    """Serve until SIGTERM: the MCP server, or with `--upstream` the host page."""
    parser = argparse.ArgumentParser(description="The servers of the benchmark of host pages.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", help="The URL of the MCP server.")
    given = parser.parse_args()
    if given.upstream is None:
        asyncio.run(build_server().run_streamable_http_async(host="127.0.0.1", port=given.port))
    else:
        web.run_app(Page(given.upstream).application(), host="127.0.0.1", port=given.port, print=None)


if __name__ == "__main__":
    main()
