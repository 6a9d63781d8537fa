"""Apps of published MCP servers, shown in the console and used by a person in Chromium."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from mcp import Client
from mcp_types import TextResourceContents
from playwright.async_api import FrameLocator, Locator, Page, Playwright, async_playwright, expect

from gateway.app import build_app
from gateway.config import load_config
from tests.browser.conftest import launch
from tests.browser.test_main_job import app_of
from tests.certificates import self_signed
from tests.interop.test_published import MODULES, upstream
from tests.world import Server

APPS = {
    "budget-allocator": "tool: get-budget-data",
    "system-monitor": "tool: get-system-info",
    "debug": "",
    "basic-react": "tool: get-time",
    "basic-vanillajs": "tool: get-time",
    "basic-vue": "tool: get-time",
    "threejs": "",
    "pdf": "",
    "map": "tool: show-map",
}
"""The published servers, and the tool that opens each."""

RESOURCES = {
    "budget-allocator": "ui://budget-allocator/mcp-app.html",
    "system-monitor": "ui://system-monitor/mcp-app.html",
    "debug": "ui://debug-tool/mcp-app.html",
    "basic-react": "ui://get-time/mcp-app.html",
    "basic-vanillajs": "ui://get-time/mcp-app.html",
    "basic-vue": "ui://get-time/mcp-app.html",
    "threejs": "ui://threejs/mcp-app.html",
    "pdf": "ui://pdf-viewer/mcp-app.html",
    "map": "ui://cesium-map/mcp-app.html",
}

Shown = tuple[FrameLocator, Callable[[], list[dict[str, Any]]]]


@asynccontextmanager
async def show_app(
    page: Page,
    folder: Path,
    name: str,
    more: str = "",
    policy: str = "",
    arguments: tuple[str, ...] = (),
    sandbox: str = "opaque",
) -> AsyncIterator[Shown]:
    """The app of the server `name`, started with `arguments`, in the console; also yields the reader of the record."""
    door = Server()
    (folder / "app.yaml").write_text("version: 1\n", "utf-8")
    if policy:
        (folder / "tools.yaml").write_text(policy, "utf-8")
        more += ", policy: tools.yaml"
    source = f"upstream: {name}, resource: {json.dumps(RESOURCES[name])}"
    if APPS[name]:
        source += f", {APPS[name]}"
    (folder / "gateway.yaml").write_text(
        f"server: {{listen: 127.0.0.1:{door.port}}}\n"
        f"upstreams:\n  {upstream(name, more, *arguments)}\n"
        f"apps:\n  shown:\n    source: {{{source}}}\n    policy: app.yaml\n    sandbox: {sandbox}\n",
        "utf-8",
    )
    config = load_config(folder / "gateway.yaml", {})
    await door.start(build_app(config))
    try:
        await page.goto(f"http://localhost:{door.port}")
        yield app_of(page), lambda: [json.loads(line) for line in config.journal.read_text("utf-8").splitlines()]
    finally:
        await door.stop()


CLICKS = {
    "system-monitor": ("#poll-toggle-btn", "poll-system-stats"),
    "debug": ("#call-debug-refresh-btn", "debug-refresh"),
    "basic-react": ("button:has-text('Get Server Time')", "get-time"),
    "basic-vanillajs": ("#get-time-btn", "get-time"),
}
"""The element that a person clicks, and the tool that this calls."""


def calls(records: list[dict[str, Any]], tool: str) -> list[dict[str, Any]]:
    """The finished calls of a tool."""
    found: dict[str, dict[str, Any]] = {}
    for line in records:
        if line["phase"] in ("intent", "outcome"):
            found.setdefault(line["id"], {}).update(line["fields"])
    return [line for line in found.values() if line.get("tool") == tool and "status" in line]


async def test_a_budget_is_shown_and_clicked(page: Page, tmp_path: Path) -> None:
    """The app draws the result of its tool, and a slider changes the sum, by a click and by keys."""
    async with show_app(page, tmp_path, "budget-allocator") as (app, records):
        slider, page_text = app.locator("input[type=range]").first, app.locator("body")
        await expect(slider).to_be_visible()
        before = await page_text.inner_text()
        box = await slider.bounding_box()
        assert box is not None
        await slider.click(position={"x": box["width"] - 2, "y": box["height"] / 2})
        await expect(page_text).not_to_have_text(before, use_inner_text=True)
        clicked = await page_text.inner_text()
        for _ in range(8):
            await page.keyboard.press("ArrowLeft")
        await expect(page_text).not_to_have_text(clicked, use_inner_text=True)
        assert {line["app"] for line in calls(records(), "get-budget-data")} == {"shown"}


@pytest.mark.parametrize("name", list(CLICKS))
async def test_a_click_calls_the_tool_of_the_upstream(page: Page, tmp_path: Path, name: str) -> None:
    """The page changes with the tool's result, and the call is recorded as the view's."""
    where, tool = CLICKS[name]
    async with show_app(page, tmp_path, name) as (app, records):
        await expect(app.locator(where).first).to_be_visible()
        await expect(app.locator("body")).to_contain_text(re.compile(r"\d{2}"))
        if name == "system-monitor":  # it polls already: the first click stops that, the second restarts it
            await expect(app.locator(where)).to_have_text("Stop")
            await app.locator(where).click()
            await expect(app.locator(where)).to_have_text("Start")
        earlier, before = calls(records(), tool), await app.locator("body").inner_text()
        await app.locator(where).first.click()
        await expect(app.locator("body")).not_to_have_text(before, use_inner_text=True)
        await until(lambda: len(calls(records(), tool)) > len(earlier))
        last = calls(records(), tool)[-1]
        assert (last["app"], last["door"], last["upstream"], last["status"]) == ("shown", "bridge", name, 200)


async def test_a_published_app_runs_with_the_gateway_s_runtime(page: Page, tmp_path: Path) -> None:
    """`runtime: true`: its own calls still work, and its plain requests are subject to the policy of the app."""
    async with show_app(page, tmp_path, "basic-react", ", runtime: true") as (app, records):
        button = app.get_by_role("button", name="Get Server Time")
        await expect(app.locator("html")).to_have_attribute("data-tier", "full")
        await button.click()
        await until(lambda: len(calls(records(), "get-time")) > 1)
        status = await app.locator("body").evaluate("async () => (await fetch('/api/anything')).status")
        assert status == 403
        # Such a page may use any API, so it has all parts of the runtime.
        assert "native code" not in await app.locator("body").evaluate("() => String(EventSource)")
        last = [line["fields"] for line in records() if line["fields"].get("url", "").endswith("/api/anything")]
        assert (last[-1]["app"], last[-1]["door"], last[-1]["reason"]) == ("shown", "bridge", "policy-denied")


async def test_the_upstream_s_policy_holds_for_a_view(page: Page, tmp_path: Path) -> None:
    """A person's click does not override a denial."""
    policy = "version: 1\ntools:\n  get-time: {deny: no clocks here}\n"
    async with show_app(page, tmp_path, "basic-react", policy=policy) as (app, records):
        await app.get_by_role("button", name="Get Server Time").click()
        await until(lambda: any(line.get("reason") == "policy-denied" for line in calls(records(), "get-time")))


MOUNT = """async (resourceUri) => {
  await import("/host/mcp-app.js");
  window.app = document.createElement("mcp-app");
  Object.assign(app, { gateway: "", upstream: "debug", resourceUri, title: "Debug", toolCallId: "call-1" });
  document.body.replaceChildren(app);
  await new Promise((go) => app.addEventListener("mcp-app-initialized", go));
}"""
"""A host page with the element, for an app of an upstream without an entry."""


def log_entries(app: FrameLocator, event: str) -> Locator:
    """The log entries of the published debug app for an event."""
    return app.locator(f".log-entry:has(.log-type.{event}) .log-payload-full")


async def test_a_published_app_hears_of_the_call_that_opens_it(page: Page, tmp_path: Path) -> None:
    """It receives input and result; for a call that the model cancels, the cancellation with the reason."""
    async with show_app(page, tmp_path, "debug") as (app, _):
        await expect(log_entries(app, "ontoolinput")).to_have_count(1)
        await expect(log_entries(app, "ontoolresult")).to_have_count(0)  # no call was made
        port = page.url.rpartition(":")[2].rstrip("/")
        async with Client(f"http://localhost:{port}/mcp", mode="2026-07-28") as model:
            await model.list_tools()
            result = await model.call_tool("debug_debug-tool", {"contentType": "image"})
            assert not result.is_error
            await expect(log_entries(app, "ontoolinput")).to_contain_text('"contentType": "image"')
            await expect(log_entries(app, "ontoolresult")).to_contain_text("image/png")
            calling = asyncio.ensure_future(model.call_tool("debug_debug-tool", {"delayMs": 60_000}))
            await expect(log_entries(app, "ontoolinput")).to_contain_text('"delayMs": 60000')
            calling.cancel()
            await expect(log_entries(app, "ontoolcancelled")).to_contain_text("reason")
            await expect(log_entries(app, "ontoolresult")).to_have_count(0)


async def test_a_published_app_hears_what_a_model_of_our_host_page_writes(page: Page, tmp_path: Path) -> None:
    """The parts arrive as the page's model streams them, before the complete input."""
    async with show_app(page, tmp_path, "debug"):
        await page.evaluate(MOUNT, RESOURCES["debug"])
        app = page.frame_locator("mcp-app iframe").frame_locator("iframe")
        parts: list[tuple[str, dict[str, Any]]] = [
            ("tool-input-partial", {"arguments": {"contentType": "te"}}),
            ("tool-input-partial", {"arguments": {"contentType": "text"}}),
            ("tool-input", {"arguments": {"contentType": "text", "delayMs": 1}}),
            ("tool-cancelled", {"reason": "enough"}),
        ]
        tell = """([first, second, whole, { reason }]) => {
          app.sendToolInputPartial(first.arguments);
          app.sendToolInputPartial(second.arguments);
          app.toolInput = whole.arguments;
          app.cancelTool(reason);
        }"""
        await page.evaluate(tell, [params for _, params in parts])
        await expect(log_entries(app, "ontoolcancelled")).to_have_count(1)
        heard = [
            json.loads(text) for text in await app.locator(".log-entry:has([class*=' ontool']) pre").all_text_contents()
        ]
        names = await app.locator("[class*=' ontool']").all_inner_texts()
        assert [*zip(names, heard, strict=True)] == [(f"on{name.replace('-', '')}:", said) for name, said in parts]


SHOW = """async (properties) => {
  await import("/host/mcp-app.js");
  window.app = Object.assign(document.createElement("mcp-app"), { gateway: "", title: "App", ...properties });
  window.failures = [];
  app.addEventListener("mcp-app-error", ({ detail }) => failures.push(detail.message));
  document.body.replaceChildren(app);
}"""
"""A host page with an element of these properties."""


@pytest.mark.parametrize(
    ("name", "tool", "control"),
    [("budget-allocator", "get-budget-data", "input[type=range]"), ("system-monitor", "get-system-info", "canvas")],
)
async def test_a_published_app_is_shown_from_html_that_its_host_has_read(
    page: Page, tmp_path: Path, name: str, tool: str, control: str
) -> None:
    """With the result of its call; other HTML than the gateway's own is refused in the element's place."""
    async with show_app(page, tmp_path, name):
        async with Client(f"{page.url.rpartition('/')[0]}/mcp/{name}".replace("gateway.", "")) as client:
            read = (await client.read_resource(RESOURCES[name])).contents[0]
            result = await client.call_tool(tool, {})
        assert isinstance(read, TextResourceContents)
        properties = {
            "upstream": name,
            "resourceUri": RESOURCES[name],
            "resourceHtml": read.text,
            "toolCallId": "call-1",
            "toolName": tool,
            "toolInput": {},
            "toolResult": result.model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        await page.evaluate(SHOW, properties)
        shown = page.frame_locator("mcp-app iframe").frame_locator("iframe").locator(control).first
        await expect(shown).to_be_visible()
        assert await page.evaluate("failures") == []
        await page.evaluate(SHOW, {**properties, "resourceHtml": read.text + " "})
        await expect(page.locator("mcp-app")).to_contain_text("App cannot be shown.")
        assert "not the HTML that the gateway has" in (await page.evaluate("failures"))[0]


MAPS = ("cesium.com", "tile.openstreetmap.org")
"""The sites that the published map declares by `connectDomains` and `resourceDomains`, one of them by a wildcard."""


@asynccontextmanager
async def maps(playwright: Playwright, folder: Path) -> AsyncIterator[tuple[Page, set[str]]]:
    """A page in a Chromium for which the sites of `MAPS` are on this machine, and the paths that it requests there.

    They serve CesiumJS as its makers do, and one picture for each tile.
    """
    requested: set[str] = set()
    headers, files = {"access-control-allow-origin": "*"}, MODULES / "cesium/Build/Cesium"

    async def answer(request: web.Request) -> web.StreamResponse:
        requested.add(request.host + request.path)
        if request.host == MAPS[1]:
            return web.FileResponse(files / "Assets/Textures/NaturalEarthII/0/0/0.jpg", headers=headers)
        return web.FileResponse(files / request.match_info["file"], headers=headers)

    app = web.Application()
    app.router.add_get("/{before:(.*Build/Cesium/)?}{file:.*}", answer)
    pem, context = folder / "maps.pem", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pem.write_bytes(b"".join(self_signed(*MAPS)))
    context.load_cert_chain(pem)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=context)
    rules = ", ".join(f"MAP {site} 127.0.0.1:{server.port}" for site in MAPS)
    browser = await launch(playwright, f"--host-resolver-rules={rules}")
    try:
        yield await browser.new_page(ignore_https_errors=True), requested
    finally:
        await browser.close()
        await server.close()


@pytest.mark.corpus
async def test_a_published_map_loads_its_tiles_from_the_sites_that_it_declares(tmp_path: Path) -> None:
    """Its library and its tiles come by `https://*.openstreetmap.org`; the input of a call moves it.

    On an origin of its own: in opaque frames, Chromium starts no module workers of blobs.
    """
    async with (
        async_playwright() as playwright,
        maps(playwright, tmp_path) as (page, requested),
        show_app(page, tmp_path, "map", ", allow: [eval]", sandbox="dedicated") as (_, records),
    ):
        await until(lambda: "tile.openstreetmap.org/1/0/0.png" in requested)
        assert {line["status"] for line in calls(records(), "show-map")} == {200}
        async with Client(f"http://localhost:{urlsplit(page.url).port}/mcp") as model:
            await model.list_tools()
            alps = {"west": 6, "south": 45, "east": 11, "north": 48}
            assert not (await model.call_tool("map_show-map", alps)).is_error
        await until(lambda: any(re.match(r"tile\.openstreetmap\.org/[4-9]/", one) for one in requested))


async def test_a_published_map_without_its_library_stays_in_sight(page: Page, tmp_path: Path) -> None:
    """The element shows the page with its own words, and the fallback text above it."""
    await page.route("https://cesium.com/**", lambda route: route.abort())
    async with show_app(page, tmp_path, "map"):
        call = {"toolCallId": "call-1", "toolName": "show-map", "toolInput": {"west": 6}, "timeout": 3}
        source = {"upstream": "map", "resourceUri": RESOURCES["map"], "fallbackText": "The Alps, on a map"}
        await page.evaluate(SHOW, {**source, **call})
        await expect(page.get_by_role("alert")).to_contain_text("The Alps, on a map")
        shown = page.frame_locator("mcp-app iframe").frame_locator("iframe")
        await expect(shown.locator("#loading")).to_have_text("Error: Failed to load CesiumJS from CDN")
        assert await page.evaluate("failures") == ["the app was not initialized within 3 s"]


async def until(true: Callable[[], bool]) -> None:
    """Wait for an effect of the page elsewhere."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.02)
