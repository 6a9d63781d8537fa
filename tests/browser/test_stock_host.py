"""A host of others, built on ext-apps' bridge and an MCP client: the packed cart works there, by plain tool calls."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from mcp import Client
from mcp.client import advertise
from mcp_types import CallToolResult, TextResourceContents
from playwright.async_api import FrameLocator, Page, ViewportSize, expect

from tests.browser.probing import outcome, outcomes
from tests.world import Server, World, bound

ROOT = Path(__file__).parents[2]
UI = [advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})]
POLICY = (
    "default-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'none'"
)

SIZE = ViewportSize(width=1280, height=720)
NOTICE_BUTTON = (1280 - 60, 720 - 45)
"""Where the view's notice has its button: no script outside of it, not even a test's, can look inside."""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host's script, bundled as its makers would."""
    source = (Path(__file__).parent / "stock" / "host.ts").read_text("utf-8")
    folder = tmp_path_factory.mktemp("stock")
    entry = ROOT / "browser" / "node_modules" / ".cache" / "stock-host.ts"
    entry.parent.mkdir(exist_ok=True)
    entry.write_text(source, "utf-8")
    command = [ROOT / "browser" / "node_modules" / ".bin" / "rolldown", entry, "--file", folder / "host.js"]
    subprocess.run([*map(str, command), "--format", "iife"], check=True, cwd=ROOT / "browser", capture_output=True)
    return folder / "host.js"


@asynccontextmanager
async def stock_host(script: Path) -> AsyncIterator[str]:
    """The host's page, on a site of its own, under the content policy that hosts give to views."""

    async def page(_: web.Request) -> web.Response:
        html = "<!doctype html><title>stock host</title><body></body><script src=/host.js></script>"
        return web.Response(text=html, content_type="text/html", headers={"content-security-policy": POLICY})

    async def code(_: web.Request) -> web.FileResponse:
        return web.FileResponse(script)

    app = web.Application()
    app.router.add_get("/", page)
    app.router.add_get("/host.js", code)
    server = Server(bound())
    await server.start(app)
    try:
        yield f"http://host.localhost:{server.port}/"
    finally:
        await server.stop()


@asynccontextmanager
async def shown(page: Page, world: World, script: Path, *, drop_meta: bool = False) -> AsyncIterator[FrameLocator]:
    """The cart in the stock host; `drop_meta`: a host that loses `_meta` of results."""
    async with stock_host(script) as url, Client(f"{world.url}/mcp/cart", mode="2026-07-28", extensions=UI) as client:

        async def call_server(params: dict[str, Any]) -> dict[str, Any]:
            result = await client.call_tool(params["name"], params.get("arguments") or {})
            return dumped(result)

        await page.set_viewport_size(SIZE)
        await page.expose_function("callServer", call_server)
        await page.goto(url)
        opened = await client.call_tool("open_cart", {})
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        content = (await client.read_resource((tools["open_cart"].meta or {})["ui"]["resourceUri"])).contents[0]
        assert isinstance(content, TextResourceContents)
        result = dumped(opened)
        if drop_meta:
            result.pop("_meta")
        await page.evaluate("([html, result]) => window.show(html, result)", [content.text, result])
        frame = page.frame_locator("iframe")
        await expect(frame.locator("[data-item-id]").first).to_be_visible(timeout=15_000)
        yield frame


def dumped(result: CallToolResult) -> dict[str, Any]:
    """A result as it is on the wire."""
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


async def test_the_cart_works_by_plain_tool_calls(page: Page, world: World, script: Path) -> None:
    """A click adds; the view is proven, the gesture is not attested: the page's own request."""
    async with shown(page, world, script) as frame:
        card = frame.locator("[data-item-id]").first
        item = str(await card.get_attribute("data-item-id"))
        await card.locator("[data-add]").click()
        await expect(frame.locator(f"[data-cart-item='{item}']")).to_be_visible()
        posted = await outcome(world, method="POST", url="/api/cart")
    assert (posted["door"], posted["initiator"], posted["status"]) == ("mcp", "page", 200)
    assert posted["view"] is not None
    assert all(line["has_token"] for line in world.arrived())


async def test_a_real_click_is_the_persons_where_the_app_is_trusted(page: Page, world: World, script: Path) -> None:
    """The view tells of it, and the record says whose word that is; a click that a script makes is the page's."""
    await trust_gestures(world)
    async with shown(page, world, script) as frame:
        cards = frame.locator("[data-item-id]")
        items = [str(await cards.nth(place).get_attribute("data-item-id")) for place in (0, 1)]
        await cards.nth(0).locator("[data-add]").dispatch_event("click")
        await expect(frame.locator(f"[data-cart-item='{items[0]}']")).to_be_visible()
        await cards.nth(1).locator("[data-add]").click()
        await expect(frame.locator(f"[data-cart-item='{items[1]}']")).to_be_visible()
        posted = outcomes(world, method="POST", url="/api/cart")
    assert [(line["initiator"], line["evidence"]) for line in posted] == [
        ("page", "no-gesture"),
        ("person", "view-gesture"),
    ]


async def trust_gestures(world: World) -> None:
    """Take the word of the cart's views on gestures, from now on."""
    file = world.folder / "gateway.yaml"
    trusting = file.read_text("utf-8").replace(
        "    policy: policy.yaml\n", "    policy: policy.yaml\n    trust_view_gestures: true\n"
    )
    await world.gateway.stop()
    file.write_text(trusting, "utf-8")
    await world.start_gateway()
    assert world.config.apps["cart"].trust_view_gestures


async def test_the_tools_of_the_page_are_app_tools(page: Page, world: World, script: Path) -> None:
    """The host lists and calls them; what they do counts as the model's."""
    async with shown(page, world, script) as frame:
        item = str(await frame.locator("[data-item-id]").first.get_attribute("data-item-id"))
        async with asyncio.timeout(15):
            while True:
                listed = await page.evaluate("() => window.bridge.listTools({})")
                if {"add_to_cart", "get_cart"} <= {tool["name"] for tool in listed["tools"]}:
                    break
                await asyncio.sleep(0.1)
        call = {"name": "add_to_cart", "arguments": {"item_id": item}}
        result = await page.evaluate("(call) => window.bridge.callTool(call)", call)
        assert not result.get("isError"), result
        await expect(frame.locator(f"[data-cart-item='{item}']")).to_be_visible()
    posted = outcomes(world, method="POST", url="/api/cart")[0]
    assert (posted["initiator"], posted["evidence"]) == ("model", "model-call-reported")


async def test_a_models_delete_waits_and_the_view_says_so(page: Page, world: World, script: Path) -> None:
    """The fetch of the page stays open, a notice leads to the approval, and a person's yes ends it."""
    async with shown(page, world, script) as frame:
        card = frame.locator("[data-item-id]").first
        item = str(await card.get_attribute("data-item-id"))
        await card.locator("[data-add]").click()
        await expect(frame.locator(f"[data-cart-item='{item}']")).to_be_visible()
        call = {"name": "remove_from_cart", "arguments": {"item_id": item}}
        removing = asyncio.ensure_future(page.evaluate("(call) => window.bridge.callTool(call)", call))
        async with asyncio.timeout(15):
            while not (opened := await page.evaluate("() => window.opened")):
                await page.mouse.click(*NOTICE_BUTTON)
                await asyncio.sleep(0.1)
        assert opened[0].startswith(f"{world.console}/approvals/")
        console = await page.context.new_page()
        await console.goto(opened[0])
        approve = console.get_by_test_id("approve").first
        await expect(approve).to_be_enabled(timeout=15_000)
        assert [line for line in world.arrived() if line["method"] == "DELETE"] == []
        await approve.click()
        await page.bring_to_front()
        await expect(frame.locator(f"[data-cart-item='{item}']")).to_have_count(0, timeout=15_000)
        assert not (await removing).get("isError")
    assert len([line for line in world.arrived() if line["method"] == "DELETE"]) == 1


async def test_a_host_that_drops_meta_leaves_the_view_unproven(page: Page, world: World, script: Path) -> None:
    """It reads; what it changes counts as the model's, and asks a person first."""
    async with shown(page, world, script, drop_meta=True) as frame:
        await frame.locator("[data-item-id]").first.locator("[data-add]").click()
        console = await page.context.new_page()
        await console.goto(world.console)
        approve = console.get_by_test_id("approve").first
        await expect(approve).to_be_enabled(timeout=15_000)
        assert [line for line in world.arrived() if line["method"] == "POST"] == []
        await approve.click()
        await page.bring_to_front()
        await expect(frame.locator("[data-cart-item]").first).to_be_visible(timeout=15_000)
