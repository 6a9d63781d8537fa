"""Permissions of upstream apps beyond the policy of MCP Apps, and the notices about missing ones."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.server import Server as McpServer
from playwright.async_api import FrameLocator, Page, expect

from gateway.app import build_app
from gateway.config import load_config
from gateway.mcp.tools import APP_MIME_TYPE
from tests.browser.test_main_job import app_of
from tests.interop.serving import over_http
from tests.world import Server

URI = "ui://maker/app.html"

PAGE = """<!doctype html>
<html lang=en><head><title>maker</title></head><body><ul id=done></ul><script>
const mode = document.compatMode, scripts = document.scripts.length;
const show = (text) => document.querySelector("#done").insertAdjacentHTML("beforeend", `<li>${text}</li>`);
const tell = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const blob = (code) => URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
const attempts = {
  eval: () => new Function("return 'made of text'")(),
  worker: async () => {
    const worker = new Worker(blob("postMessage('at work')"));
    const said = await new Promise((go, fail) => Object.assign(worker, { onmessage: go, onerror: fail }));
    await Promise.all([import(blob("")), import("data:text/javascript,")]);
    return said.data;
  },
  wasm: async () => {
    await WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]));
    return "compiled";
  },
};
addEventListener("message", async ({ data }) => {
  if (data.id !== 0) return;
  tell({ method: "ui/notifications/initialized", params: {} });
  show(`${mode} ${scripts}`);
  for (const name of WANTED) {
    try { show(`${name}: ${await attempts[name]()}`); } catch { show(`${name}: blocked`); }
  }
});
const appInfo = { name: "app", version: "1" };
tell({ id: 0, method: "ui/initialize", params: { appInfo, appCapabilities: {}, protocolVersion: "2026-01-26" } });
</script></body></html>"""


def maker(wanted: str) -> McpServer[Any]:
    """A server with an app that does `wanted`, and a tool that opens it."""
    tool = types.Tool(name="make", input_schema={"type": "object"}, _meta={"ui": {"resourceUri": URI}})
    other = types.Tool(name="count", input_schema={"type": "object"})

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool, other])

    async def call_tool(_: Any, __: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text="made")])

    async def list_resources(_: Any, __: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri=URI, name="app")])

    async def read_resource(_: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        text = PAGE.replace("WANTED", wanted)
        content = types.TextResourceContents(uri=params.uri, mime_type=APP_MIME_TYPE, text=text)
        return types.ReadResourceResult(contents=[content])

    return McpServer[Any](
        "maker",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


@asynccontextmanager
async def show_app(page: Page, folder: Path, wanted: str, allow: str) -> AsyncIterator[tuple[FrameLocator, str]]:
    """The app in the console, and the address of the upstream's mount."""
    door = Server()
    (folder / "app.yaml").write_text("version: 1\n", "utf-8")
    async with over_http(maker(wanted)) as url:
        (folder / "gateway.yaml").write_text(
            f"server: {{listen: 127.0.0.1:{door.port}}}\n"
            f'upstreams: {{up: {{url: "{url}", network: private, allow: {allow}}}}}\n'
            f'apps: {{shown: {{source: {{upstream: up, resource: "{URI}"}}, policy: app.yaml}}}}\n',
            "utf-8",
        )
        await door.start(build_app(load_config(folder / "gateway.yaml", {})))
        try:
            await page.goto(f"http://localhost:{door.port}")
            yield app_of(page), f"http://localhost:{door.port}/mcp/up"
        finally:
            await door.stop()


WANTED = {"eval": ("eval", "made of text"), "worker": ("blob-workers", "at work"), "wasm": ("wasm", "compiled")}
"""An action of an app, the keyword that allows it, and the text that the app then shows."""


@pytest.mark.parametrize("does", list(WANTED))
async def test_an_app_does_what_its_upstream_is_allowed(page: Page, tmp_path: Path, does: str) -> None:
    """The app works, and there is no notice."""
    word, comes = WANTED[does]
    async with show_app(page, tmp_path, f"['{does}']", f"[{word}]") as (app, _):
        await expect(app.locator("li").last).to_have_text(f"{does}: {comes}")
        await expect(page.get_by_test_id("blocked")).to_have_count(0)
        await expect(app.locator("li").first).to_have_text("CSS1Compat 1")  # the page as its server sent it


@pytest.mark.parametrize("does", list(WANTED))
async def test_a_person_reads_what_an_app_was_kept_from(page: Page, tmp_path: Path, does: str) -> None:
    """The notice names the keywords that allow it, also if others are allowed."""
    word, _ = WANTED[does]
    others = ", ".join(other for other, _ in WANTED.values() if other not in (word, "eval"))
    async with show_app(page, tmp_path, f"['{does}']", f"[{others if does != 'wasm' else 'blob-workers'}]") as (app, _):
        await expect(app.locator("li").last).to_have_text(f"{does}: blocked")
        notice = page.get_by_test_id("blocked")
        await expect(notice).to_contain_text(f"write allow: [{word}] at upstreams.up in gateway.yaml")


async def test_a_model_s_own_call_stands_in_the_timeline(page: Page, tmp_path: Path) -> None:
    """Calls at the mount of the shown app's upstream are listed, whether their tool opens an app or not."""
    async with show_app(page, tmp_path, "[]", "[]") as (app, mcp):
        await expect(app.locator("li")).to_have_count(1)
        async with Client(mcp, mode="2026-07-28") as model:
            await model.list_tools()
            for tool in ("make", "count"):
                assert not (await model.call_tool(tool, {})).is_error
        timeline = page.locator("gateway-timeline")
        for tool in ("make", "count"):
            await expect(timeline).to_contain_text(re.compile(rf"\b{tool}\b"))
