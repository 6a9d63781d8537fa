"""A third-party host, built on ext-apps' bridge and an MCP client, with the packed cart in an opaque frame."""

import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx2
from aiohttp import web
from anyio import BrokenResourceError
from mcp import Client
from mcp.client import advertise
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextResourceContents
from playwright.async_api import FrameLocator, Page, ViewportSize, expect

from tests.world import World, serving

ROOT = Path(__file__).parents[2]
UI = [advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})]
POLICY = (
    "default-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'none'"
)

SIZE = ViewportSize(width=1280, height=720)
PATIENCE = 30.0
"""Seconds that the host waits for an answer, as the SDK does: a poll of the view may take 20."""


def bundle_hosts(folder: Path, name: str = "host.ts") -> Path:
    """The hosts' script, bundled as their authors would."""
    source = (Path(__file__).parent / "stock" / name).read_text("utf-8")
    entry = ROOT / "browser" / "node_modules" / ".cache" / f"stock-{name}"
    entry.parent.mkdir(exist_ok=True)
    entry.write_text(source, "utf-8")
    command = [ROOT / "browser" / "node_modules" / ".bin" / "rolldown", entry, "--file", folder / "host.js"]
    subprocess.run([*map(str, command), "--format", "iife"], check=True, cwd=ROOT / "browser", capture_output=True)
    return folder / "host.js"


@asynccontextmanager
async def stock_host(script: Path) -> AsyncIterator[str]:
    """The host's page, on a separate site, under the content security policy that hosts give to views."""

    async def page(_: web.Request) -> web.Response:
        html = "<!doctype html><title>stock host</title><body></body><script src=/host.js></script>"
        return web.Response(text=html, content_type="text/html", headers={"content-security-policy": POLICY})

    async def code(_: web.Request) -> web.FileResponse:
        return web.FileResponse(script)

    app = web.Application()
    app.router.add_get("/", page)
    app.router.add_get("/host.js", code)
    async with serving(app) as port:
        yield f"http://host.localhost:{port}/"


@asynccontextmanager
async def late_answers_dropped() -> AsyncIterator[None]:
    """Around a client of the SDK that closes while a call is in flight: it raises if the answer comes just then."""
    try:
        yield
    except* BrokenResourceError:
        pass


@asynccontextmanager
async def show_cart(
    page: Page,
    world: World,
    script: Path,
    *,
    drop_meta: bool = False,
    turns: AbstractAsyncContextManager[object] | None = None,
    carried: list[str] | None = None,
    headers: dict[str, str] | None = None,
    landmark: str = "[data-item-id]",
    way: str = "show",
) -> AsyncIterator[FrameLocator]:
    """The cart in the stock host.

    `drop_meta`: the host drops `_meta` of results. `turns` wraps each call of the view, for instance a lock. `carried`
    collects the names of the tools that the view called. `headers` authenticate the client. `way` is the function of
    the host's page that shows the app.
    """
    async with (
        stock_host(script) as url,
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http,
        late_answers_dropped(),
        Client(
            streamable_http_client(f"{world.url}/mcp/cart", http_client=http), mode="2026-07-28", extensions=UI
        ) as client,
    ):

        async def call_server(params: dict[str, Any]) -> dict[str, Any]:
            if carried is not None:
                carried.append(params["name"])
            async with turns or nullcontext():
                result = await client.call_tool(params["name"], params.get("arguments") or {})
            return dump(result)

        await page.set_viewport_size(SIZE)
        await page.expose_function("callServer", call_server)
        await page.goto(url)
        opened = await client.call_tool("open_cart", {})
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        content = (await client.read_resource((tools["open_cart"].meta or {})["ui"]["resourceUri"])).contents[0]
        assert isinstance(content, TextResourceContents)
        result = dump(opened)
        if drop_meta:
            result.pop("_meta")
        await page.evaluate("([way, html, result]) => window[way](html, result)", [way, content.text, result])
        frame = page.frame_locator("iframe")
        await expect(frame.locator(landmark).first).to_be_visible()
        yield frame


def dump(result: CallToolResult) -> dict[str, Any]:
    """A result as it is on the wire."""
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)
