"""`toolactivated` and `toolcancel` of a page, for every way of a model's call and of its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client
from playwright.async_api import FrameLocator, Page, expect

from tests.browser import stock_host, test_main_job
from tests.browser.stock_host import bundle_hosts
from tests.browser.test_main_job import tool
from tests.browser.test_own_client import page_with_app
from tests.world import World, running_page

FORM = '<form toolname="book" tooldescription="Books." id="page"><input name="seats" type="number"></form>'
SCRIPT = """
  window.seen = [];
  const context = document.modelContext;
  for (const type of ["toolactivated", "toolcancel"])
    context.addEventListener(type, (event) => seen.push(`${event.type} ${event.toolName} ${event.constructor.name}`));
  context.ontoolcancel = () => seen.push("handler");
  document.forms[0].addEventListener("submit", (event) => {
    event.preventDefault();
    if (event.agentInvoked) event.respondWith(new Promise(() => 0));
  });
  context.registerTool({ name: "well", description: "d", execute: () => "well" });
  context.registerTool({ name: "waits", description: "d", execute: (_, { signal }) => new Promise((_, fail) =>
    signal.addEventListener("abort", () => { seen.push("aborted"); fail(signal.reason); })) });
  const app = new App({ name: "own", version: "1" }, { tools: { listChanged: true } }, { autoResize: false });
  app.registerTool("own", { description: "d" }, (extra) => new Promise((_, fail) =>
    extra.mcpReq.signal.addEventListener("abort", () => { seen.push("own aborted"); fail(new Error("no")); })));
  await app.connect();
"""
PAGE = page_with_app(SCRIPT).replace("<p>page</p>", FORM)
POLICY = """version: 1
backends: {shop: {url: "http://127.0.0.1:9401", network: [127.0.0.0/8]}}
tools: {well: {}, waits: {}, book: {}, own: {}}
"""
CLIENTS = {"show": "bridge", "showWithEnvelope": "page"}
"""The window property that calls tools in third-party hosts, by the function that shows the page."""

Call = Callable[[str], Awaitable[object]]
"""Calls a tool of the page. Cancelling it is giving the call up, as a model or a person does."""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of third-party hosts."""
    return bundle_hosts(tmp_path_factory.mktemp("stock"))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A gateway for that page."""
    async with running_page(tmp_path, PAGE, POLICY) as started:
        yield started


@asynccontextmanager
async def calling(page: Page, world: World, script: Path, way: str) -> AsyncIterator[tuple[FrameLocator, Call]]:
    """The page, shown so that calls arrive in this way, and the caller."""
    async with AsyncExitStack() as stack:
        if way in CLIENTS:
            frame = await stack.enter_async_context(
                stock_host.show_cart(page, world, script, landmark="#page", way=way)
            )
            yield frame, lambda name: by_host(page, CLIENTS[way], name)
            return
        if way == "relay":
            frame = await stack.enter_async_context(stock_host.show_cart(page, world, script, landmark="#page"))
        else:
            frame = await test_main_job.show_app(page, world, "#page")
        if way == "console":
            yield frame, lambda name: by_person(page, name)
            return
        client = await stack.enter_async_context(Client(f"{world.url}/mcp/cart", mode="2026-07-28"))
        await tool(client, "cart_own")
        yield frame, lambda name: client.call_tool(f"cart_{name}", {})


async def by_host(page: Page, client: str, name: str) -> None:
    """Call as the host itself does, and cancel as clients of MCP do."""
    call = """([client, name]) => {
      window.end = new AbortController();
      return window[client].callTool({ name, arguments: {} }, { signal: end.signal }).then(() => 0, () => 0);
    }"""
    try:
        await asyncio.shield(running_call := asyncio.ensure_future(page.evaluate(call, [client, name])))
    except asyncio.CancelledError:
        await page.evaluate("end.abort()")
        await running_call
        raise


async def by_person(page: Page, name: str) -> None:
    """Call from the console's card of the tool."""
    card = page.get_by_test_id(f"tool-{name}")
    if not await card.get_by_test_id("call").is_visible():
        await card.get_by_test_id("toggle").click()
    await card.get_by_test_id("call").click()
    try:
        await expect(card.get_by_test_id("cancel")).to_have_count(0, timeout=60_000)
    except asyncio.CancelledError:
        await card.get_by_test_id("cancel").click()
        raise


async def wait_seen(frame: FrameLocator, *lines: str) -> None:
    """Wait until the page has observed exactly these lines."""
    async with asyncio.timeout(60):
        while (seen := await frame.locator("body").evaluate("() => seen")) != [*lines]:
            assert seen == [*lines][: len(seen)]
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("way", ["bridge", "console", "relay", *CLIENTS])
async def test_a_page_hears_of_each_call_and_of_its_end(page: Page, world: World, script: Path, way: str) -> None:
    """The events of WebMCP fire once for each call, for every kind of tool; an answered call is not cancelled."""
    lines: list[str] = []
    async with calling(page, world, script, way) as (frame, call):
        for name in ("waits", "well", "book", "own", "well"):
            lines.append(f"toolactivated {name} ToolActivatedEvent")
            begun = asyncio.ensure_future(call(name))
            await wait_seen(frame, *lines)
            if name != "well":
                begun.cancel()
                cancelled = [f"toolcancel {name} ToolCancelEvent", "handler"]
                # The page's own client is notified by a message.
                lines += {"waits": ["aborted", *cancelled], "own": [*cancelled, "own aborted"]}.get(name, cancelled)
                await wait_seen(frame, *lines)
            await asyncio.wait([begun])
        await wait_seen(frame, *lines)
