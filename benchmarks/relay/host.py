"""A third-party host with a page in an opaque frame, which forwards the page's calls concurrently or one at a time."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client import advertise
from mcp_types import CallToolResult, TextResourceContents
from playwright.async_api import Frame, Page

from benchmarks.processes import ROOT

UI = [advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})]
SCRIPT = ROOT / "tests" / "browser" / "stock" / "host.ts"


def bundle(folder: Path) -> str:
    """Bundle the script of such a host, based on ext-apps' bridge."""
    entry = ROOT / "browser" / "node_modules" / ".cache" / "benchmark-host.ts"
    entry.parent.mkdir(exist_ok=True)
    entry.write_text(SCRIPT.read_text("utf-8"), "utf-8")
    command = [ROOT / "browser/node_modules/.bin/rolldown", entry, "--file", folder / "host.js", "--format", "iife"]
    subprocess.run([*map(str, command)], check=True, cwd=ROOT / "browser", capture_output=True)
    return (folder / "host.js").read_text("utf-8")


@asynccontextmanager
async def show_page(page: Page, url: str, script: str, *, one_at_a_time: bool) -> AsyncIterator[Frame]:
    """Show the page of the app whose server is at `url`."""
    turns: AbstractAsyncContextManager[Any] = asyncio.Lock() if one_at_a_time else nullcontext()
    async with Client(url, mode="2026-07-28", extensions=UI) as client:

        async def call_server(params: dict[str, Any]) -> dict[str, Any]:
            async with turns:
                return _dump(await client.call_tool(params["name"], params.get("arguments") or {}))

        await page.expose_function("callServer", call_server)
        # A secure context: without one a view cannot sign.
        html = f"<!doctype html><title>host</title><body></body><script>{script}</script>"
        await page.route("http://host.localhost/", lambda route: route.fulfill(body=html, content_type="text/html"))
        await page.goto("http://host.localhost/")
        opened = await client.call_tool("open_bulk", {})
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        content = (await client.read_resource((tools["open_bulk"].meta or {})["ui"]["resourceUri"])).contents[0]
        assert isinstance(content, TextResourceContents)
        await page.evaluate("([html, result]) => window.show(html, result)", [content.text, _dump(opened)])
        await page.frame_locator("iframe").locator("#ready").wait_for()
        yield page.frames[-1]


def _dump(result: CallToolResult) -> dict[str, Any]:
    return dict(json.loads(result.model_dump_json(by_alias=True, exclude_none=True)))
