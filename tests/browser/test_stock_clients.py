"""The cart in two more stock hosts: ext-apps' bridge in client mode, and a host with mcp-b's iframe transport."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from mcp import Client
from mcp_types import TextResourceContents
from playwright.async_api import FrameLocator, Page, expect

from tests.browser.probing import outcome, outcomes
from tests.browser.runtime_host import pack_html
from tests.browser.stock_host import SIZE, UI, bundle_hosts, dump, stock_host
from tests.browser.test_relay import OTHERS_FIRST
from tests.world import World

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
TOOLS = ["add_to_cart", "checkout", "get_cart", "remove_from_cart"]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of the hosts."""
    return bundle_hosts(tmp_path_factory.mktemp("stock"))


class Forwarder:
    """Streamable HTTP of the handshake protocols, as used by a host's back end. `called` are the tools so far."""

    def __init__(self, http: ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._headers = dict(ACCEPT)
        self.called: list[str] = []

    async def __call__(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """The answers of the server to a message."""
        if message.get("method") == "tools/call":
            self.called.append(message["params"]["name"])
        async with self._http.post(self._url, json=message, headers=self._headers) as answer:
            if session := answer.headers.get("mcp-session-id"):
                self._headers["mcp-session-id"] = session
            text = await answer.text()
            if answer.content_type != "text/event-stream":
                return [json.loads(text)] if text else []
        return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:") and line[5:].strip()]


async def item_of(frame: FrameLocator) -> str:
    """The id of the first item in the shop, once it is visible."""
    first = frame.locator("[data-item-id]").first
    await expect(first).to_be_visible()
    return str(await first.get_attribute("data-item-id"))


def quiet(page: Page) -> list[str]:
    """The errors of the page and its frames, as they occur."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    return errors


async def test_a_bridge_that_proxies_by_itself(page: Page, world: World, script: Path) -> None:
    """A click and a model's call through app tools reach the shop with the right initiator, and nothing is repeated."""
    errors = quiet(page)
    await page.set_viewport_size(SIZE)
    async with stock_host(script) as url, ClientSession() as http:
        forward = Forwarder(http, f"{world.url}/mcp/cart")
        await page.expose_function("forward", forward)
        await page.goto(url)
        await page.evaluate("window.showInClientMode()")
        frame = page.frame_locator("iframe")
        item = await item_of(frame)
        await frame.locator(f"[data-item-id='{item}'] [data-add]").click()
        await expect(frame.locator(f"[data-cart-item='{item}']")).to_be_visible()
        clicked = await outcome(world, method="POST", url="/api/cart")
        listed = await page.evaluate("bridge.listTools().then(({ tools }) => tools.map(({ name }) => name))")
        result = await page.evaluate("bridge.callTool({ name: 'get_cart', arguments: {} })")
    assert clicked["initiator"] != "model"
    assert sorted(listed) == TOOLS
    assert not result.get("isError")
    assert (forward.called.count("open_cart"), forward.called.count("webmcp_attach")) == (1, 1)
    assert errors == []


async def test_a_host_with_the_iframe_transport(page: Page, world: World, script: Path) -> None:
    """Its own MCP client lists the page's tools, only there, and calls one; the page's requests are the model's."""
    errors = quiet(page)
    await page.clock.install()
    await page.set_viewport_size(SIZE)
    async with stock_host(script) as url, Client(f"{world.url}/mcp/cart", mode="2026-07-28", extensions=UI) as client:
        carried: list[str] = []

        async def call_server(params: dict[str, Any]) -> dict[str, Any]:
            carried.append(params["name"])
            return dump(await client.call_tool(params["name"], params.get("arguments") or {}))

        await page.expose_function("callServer", call_server)
        await page.goto(url)
        opened = await client.call_tool("open_cart", {})
        (resource,) = (await client.list_resources()).resources
        content = (await client.read_resource(resource.uri)).contents[0]
        assert isinstance(content, TextResourceContents)
        await page.evaluate("([html, result]) => window.showWithEnvelope(html, result)", [content.text, dump(opened)])
        frame = page.frame_locator("iframe")
        item = await item_of(frame)
        listed = await page.evaluate("window.page.listTools().then(({ tools }) => tools.map(({ name }) => name))")
        given = {"name": "add_to_cart", "arguments": {"item_id": item}}
        result = await page.evaluate("(given) => window.page.callTool(given)", given)
        await expect(frame.locator(f"[data-cart-item='{item}']")).to_be_visible()
        await page.clock.fast_forward(OTHERS_FIRST)
        await frame.locator("body").evaluate("() => fetch('/api/products')")
        offered = {tool.name for tool in (await client.list_tools()).tools}
    assert sorted(listed) == TOOLS
    assert not offered & {f"cart_{name}" for name in TOOLS}
    assert "webmcp_poll" not in carried
    assert not result.get("isError")
    posted = outcomes(world, method="POST", url="/api/cart")
    assert [record["initiator"] for record in posted] == ["model"]
    assert carried.count("webmcp_attach") == 1
    assert errors == []


@pytest.mark.parametrize("early", [True, False], ids=["early", "late"])
async def test_a_host_with_the_iframe_transport_and_no_apps(
    page: Page, script: Path, tmp_path: Path, early: bool
) -> None:
    """`ui/initialize` has no answer: the page announces its tools once, whenever the host began to ask."""
    html = """<!doctype html><p>alone</p><script>
      document.modelContext.registerTool({ name: "add", description: "d", execute: () => "added" });
    </script>"""
    async with stock_host(script) as url:
        await page.goto(url)
        given = [pack_html(tmp_path / "app", html, tools=["add"]), early]
        await page.evaluate("([html, early]) => window.showWithoutApps(html, early)", given)
        listed = await page.evaluate("window.page.listTools().then(({ tools }) => tools.map(({ name }) => name))")
        result = await page.evaluate("window.page.callTool({ name: 'add', arguments: {} })")
        assert await page.evaluate("heard.length") == 1
    assert listed == ["add"]
    assert result["content"] == [{"type": "text", "text": "added"}]
