"""A host that knows only `tools/call`: a model's MCP client lists the page's tools at our server, and calls them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult, TextContent
from playwright.async_api import FrameLocator, Page, expect

from gateway.views import relay
from tests.browser import stock_host
from tests.browser.probing import outcomes
from tests.browser.stock_host import bundle_hosts
from tests.world import World

OTHERS_FIRST = 3000
"""Milliseconds within which a host can show that it calls the tools itself."""
SLEEPS = 3.0
"""Seconds, here, after which a view that does not poll counts as asleep."""
GIVEN_UP = 50_000
"""Milliseconds after which a view gives up a poll that may take 20 seconds."""
TOOLS = {"cart_add_to_cart", "cart_get_cart", "cart_remove_from_cart"}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of the host."""
    return bundle_hosts(tmp_path_factory.mktemp("stock"))


@asynccontextmanager
async def show_cart_relayed(page: Page, world: World, script: Path, **host: Any) -> AsyncIterator[FrameLocator]:
    """The cart in the stock host, after the time in which that could call tools itself."""
    await page.clock.install()
    async with stock_host.show_cart(page, world, script, **host) as frame:
        await page.clock.fast_forward(OTHERS_FIRST)
        yield frame


@asynccontextmanager
async def model(world: World) -> AsyncIterator[Client]:
    """The model's MCP client, which supports no apps and no views."""
    async with Client(f"{world.url}/mcp/cart", mode="2026-07-28") as client:
        yield client


async def wait_listed(client: Client, *, there: bool = True) -> None:
    """Wait until the page's tools are listed, or no longer are."""
    async with asyncio.timeout(60):
        while ({tool.name for tool in (await client.list_tools()).tools} >= TOOLS) is not there:
            await asyncio.sleep(0.1)


async def item_of(frame: FrameLocator) -> str:
    """The id of the first item in the shop."""
    return str(await frame.locator("[data-item-id]").first.get_attribute("data-item-id"))


def result_text(result: CallToolResult) -> str:
    """The text of a result."""
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


async def test_the_model_calls_the_pages_tools(page: Page, world: World, script: Path) -> None:
    """Requests of the page during the call are the model's, tied to the call, and the tool is listed once."""
    async with show_cart_relayed(page, world, script) as frame, model(world) as client:
        item = await item_of(frame)
        await wait_listed(client)
        names = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("cart_add_to_cart", {"item_id": item})
        assert not result.is_error, result_text(result)
        await expect(frame.locator(f"[data-cart-item='{item}']")).to_be_visible()
    assert len(names) == len(set(names))
    posted = outcomes(world, method="POST", url="/api/cart")[0]
    called = outcomes(world, tool="add_to_cart")[0]
    assert (posted["initiator"], posted["evidence"], posted["cause"]) == ("model", "model-call", called["id"])


async def test_where_calls_run_side_by_side_a_poll_waits(page: Page, world: World, script: Path) -> None:
    """The page receives a call at once, and polls no more often than it is called."""
    carried: list[str] = []
    async with show_cart_relayed(page, world, script, carried=carried), model(world) as client:
        await wait_listed(client)
        await client.call_tool("cart_get_cart", {})
        before = carried.count("webmcp_poll")
        for _ in range(10):
            assert not (await client.call_tool("cart_get_cart", {})).is_error
    assert carried.count("webmcp_poll") - before <= 11
    assert carried.count("webmcp_result") == 11


async def test_one_call_at_a_time_in_the_view(page: Page, world: World, script: Path) -> None:
    """The view detects this, and polls without waiting: its own requests are never queued behind a long poll."""
    turns = asyncio.Lock()
    carried: list[str] = []
    async with show_cart_relayed(page, world, script, turns=turns, carried=carried) as frame, model(world) as client:
        item = await item_of(frame)
        await wait_listed(client)
        before = carried.count("webmcp_poll")
        async with asyncio.timeout(60):
            while carried.count("webmcp_poll") < before + 10:
                await asyncio.sleep(0.05)
        result = await client.call_tool("cart_add_to_cart", {"item_id": item})
        assert not result.is_error, result_text(result)


async def test_a_page_that_asks_all_the_time_is_called_all_the_same(page: Page, world: World, script: Path) -> None:
    """One call at a time: each answer to the page announces waiting calls, and none of them is lost."""
    turns = asyncio.Lock()
    async with show_cart_relayed(page, world, script, turns=turns) as frame, model(world) as client:
        await wait_listed(client)
        asking = frame.locator("body").evaluate("async () => { while (!window.over) await fetch('/api/products'); }")
        working = asyncio.ensure_future(asking)
        for _ in range(5):
            result = await client.call_tool("cart_get_cart", {})
            assert not result.is_error, result_text(result)
        await frame.locator("body").evaluate("() => { window.over = true; }")
        await working


async def test_one_call_at_a_time_in_all(page: Page, world: World, script: Path) -> None:
    """The model's own call blocks the page's polls: its first answer names where to collect the result."""
    turns = asyncio.Lock()

    async def call(client: Client, name: str, arguments: dict[str, Any]) -> CallToolResult:
        async with turns:
            return await client.call_tool(name, arguments)

    async with show_cart_relayed(page, world, script, turns=turns) as frame, model(world) as client:
        item = await item_of(frame)
        await wait_listed(client)
        result = await call(client, "cart_add_to_cart", {"item_id": item})
        assert (result.structured_content or {})["status"] == "running"
        await expect(frame.locator(f"[data-cart-item='{item}']")).to_be_visible()
        async with asyncio.timeout(60):
            while (result.structured_content or {}).get("status") == "running":
                handle = (result.structured_content or {})["call"]
                result = await call(client, "call_view_tool", {"call": handle})
    assert not result.is_error, result_text(result)
    assert len([line for line in world.arrived() if line["method"] == "POST"]) == 1


async def test_a_host_that_calls_the_tools_itself_is_left_alone(page: Page, world: World, script: Path) -> None:
    """Once it lists the page's tools, only those that the gateway must guard are listed here."""
    async with show_cart_relayed(page, world, script), model(world) as client:
        await wait_listed(client)
        await page.evaluate("() => window.bridge.listTools({})")
        await wait_listed(client, there=False)


async def test_a_closed_view_is_gone_at_once(page: Page, world: World, script: Path) -> None:
    """The host announces the end; the model reads that it must open the app."""
    async with show_cart_relayed(page, world, script), model(world) as client:
        await wait_listed(client)
        await page.evaluate("() => window.bridge.teardownResource({})")
        await wait_listed(client, there=False)
        result = await client.call_tool("cart_get_cart", {})
    assert result.is_error
    assert "Open its app" in result_text(result)


async def test_a_view_that_loads_again_is_reached_again(page: Page, world: World, script: Path) -> None:
    """Hosts re-render old results: the newest page is called, and no page until it has declared its tools."""
    carried: list[str] = []
    async with model(world) as client:
        attaching = Attaching(client, carried)
        async with show_cart_relayed(page, world, script, turns=attaching, carried=carried) as frame:
            await wait_listed(client)
            await page.evaluate("() => window.showAgain()")
            async with asyncio.timeout(60):
                while len(attaching.offered) < 2:
                    await asyncio.sleep(0.05)
            await expect(frame.locator("[data-item-id]").first).to_be_visible()
            await page.clock.fast_forward(OTHERS_FIRST)
            await wait_listed(client)
            assert not (await client.call_tool("cart_get_cart", {})).is_error
    assert attaching.offered == [False, False]


class Attaching:
    """Wraps the calls of a view: records whether its tools are offered before it gets the answer to its attach."""

    def __init__(self, client: Client, carried: list[str]) -> None:
        self._client = client
        self._carried = carried
        self._call: asyncio.Task[Any] | None = None
        self.offered: list[bool] = []

    async def __aenter__(self) -> None:
        if self._carried[-1] == "webmcp_attach":
            self._call = asyncio.current_task()

    async def __aexit__(self, *_: object) -> None:
        if self._call is asyncio.current_task():
            self.offered.append({tool.name for tool in (await self._client.list_tools()).tools} >= TOOLS)


async def test_a_tab_that_sleeps(page: Page, world: World, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its timers do not run: the model is notified, and its call is not run when the tab wakes; the next one is."""
    monkeypatch.setattr(relay, "LOST", SLEEPS)
    async with show_cart_relayed(page, world, script, turns=asyncio.Lock()) as frame, model(world) as client:
        item = await item_of(frame)
        await wait_listed(client)
        await page.clock.pause_at(datetime.fromtimestamp(await page.evaluate("Date.now() / 1000 + 1"), UTC))
        # One call at a time: this request answers the view's earlier poll.
        await frame.locator("body").evaluate("() => fetch('/api/products')")
        result = await client.call_tool("cart_add_to_cart", {"item_id": item})
        while (result.structured_content or {}).get("status") == "running":
            result = await client.call_tool("call_view_tool", {"call": (result.structured_content or {})["call"]})
        await wait_listed(client, there=False)
        await page.clock.resume()
        await wait_listed(client)
        woken = await client.call_tool("cart_get_cart", {})
    assert result.is_error
    assert "has not run: its view has not polled for calls: its tab is suspended" in result_text(result)
    assert not woken.is_error, result_text(woken)
    assert [line for line in world.arrived() if line["method"] == "POST"] == []


async def test_a_launch_value_that_comes_late_makes_no_second_view(page: Page, world: World, script: Path) -> None:
    """Until then the page is an unproven view, which is replaced; a call without a handle reaches the page."""
    carried: list[str] = []
    async with show_cart_relayed(page, world, script, drop_meta=True, carried=carried), model(world) as client:
        await wait_listed(client)
        (unproven,) = await listed_views(client)
        async with Client(f"{world.url}/mcp/cart", mode="2026-07-28", extensions=stock_host.UI) as host:
            opened = stock_host.dump(await host.call_tool("open_cart", {}))
        await page.evaluate("(result) => window.bridge.sendToolResult(result)", opened)
        async with asyncio.timeout(60):
            while not (views := await listed_views(client)) or unproven in views:
                await asyncio.sleep(0.05)
        result = await client.call_tool("cart_get_cart", {})
    assert len(views) == 1
    assert not result.is_error, result_text(result)
    assert carried.count("webmcp_attach") == 2


async def test_another_result_for_the_same_page_makes_no_second_view(page: Page, world: World, script: Path) -> None:
    """A model opens the app again, and its host reuses the page: once, and twice in quick succession."""
    carried: list[str] = []
    async with show_cart_relayed(page, world, script, carried=carried), model(world) as client:
        await wait_listed(client)
        views = await listed_views(client)
        async with Client(f"{world.url}/mcp/cart", mode="2026-07-28", extensions=stock_host.UI) as host:
            results = [stock_host.dump(await host.call_tool("open_cart", {})) for _ in range(3)]
        for together, attached in ((results[:1], 2), (results[1:], 4)):
            await page.evaluate("(all) => { all.forEach((one) => window.bridge.sendToolResult(one)); }", together)
            async with asyncio.timeout(60):
                while carried.count("webmcp_attach") < attached:
                    await asyncio.sleep(0.05)
                while not (now := await listed_views(client)) or now == views:
                    await asyncio.sleep(0.05)
            views = now
        result = await client.call_tool("cart_get_cart", {})
        listed = (await client.call_tool("list_view_tools", {})).structured_content
    assert not result.is_error, result_text(result)
    assert [view["view"] for view in (listed or {})["views"]] == views


async def test_a_page_that_was_to_go_and_stays_is_called_again(page: Page, world: World, script: Path) -> None:
    """Its tools are removed at `beforeunload`, maybe its last event; a download, for one, leaves the page open."""
    async with show_cart_relayed(page, world, script) as frame, model(world) as client:
        await wait_listed(client)
        await page.clock.pause_at(datetime.fromtimestamp(await page.evaluate("Date.now() / 1000 + 1"), UTC))
        await frame.locator("body").evaluate("() => { dispatchEvent(new Event('beforeunload')); }")
        await wait_listed(client, there=False)
        await page.clock.resume()
        await wait_listed(client)
        result = await client.call_tool("cart_get_cart", {})
    assert not result.is_error, result_text(result)


async def test_a_poll_that_is_never_answered_is_made_again(page: Page, world: World, script: Path) -> None:
    """The host lost the answer with a call in it: the page receives the call again, and runs it once."""
    carried: list[str] = []
    losing = Losing(carried)
    async with show_cart_relayed(page, world, script, turns=losing, carried=carried) as frame, model(world) as client:
        item = await item_of(frame)
        await wait_listed(client)
        losing.begun = True
        result = await client.call_tool("cart_add_to_cart", {"item_id": item})
        assert (result.structured_content or {}).get("status") == "running", result_text(result)
        async with asyncio.timeout(60):
            await losing.lost.wait()
        losing.begun = False
        await page.clock.fast_forward(GIVEN_UP)
        async with asyncio.timeout(60):
            while (result.structured_content or {}).get("status") == "running":
                call = (result.structured_content or {})["call"]
                result = await client.call_tool("call_view_tool", {"call": call})
        losing.over.set()
    assert not result.is_error, result_text(result)
    assert len([line for line in world.arrived() if line["method"] == "POST"]) == 1


class Losing:
    """Wraps the calls of a view: from `begun` on, the answers to polls are held back until `over`."""

    def __init__(self, carried: list[str]) -> None:
        self._carried = carried
        self._polls: set[asyncio.Task[Any] | None] = set()
        self.begun = False
        self.over = asyncio.Event()
        self.lost = asyncio.Event()

    async def __aenter__(self) -> None:
        if self._carried[-1] == "webmcp_poll":
            self._polls.add(asyncio.current_task())

    async def __aexit__(self, *_: object) -> None:
        if self.begun and asyncio.current_task() in self._polls:
            self.lost.set()
            await self.over.wait()


async def test_two_views_must_be_told_apart(page: Page, world: World, script: Path) -> None:
    """A call without a handle picks none of them; with it each is reached."""
    second = await page.context.new_page()
    async with show_cart_relayed(page, world, script), show_cart_relayed(second, world, script), model(world) as client:
        await wait_listed(client)
        async with asyncio.timeout(60):
            while len(views := await listed_views(client)) < 2:
                await asyncio.sleep(0.1)
        refused = await client.call_tool("cart_get_cart", {})
        answers = [await client.call_tool("call_view_tool", {"view": view, "tool": "get_cart"}) for view in views]
    assert "Pass view" in result_text(refused)
    assert [answer.is_error for answer in answers] == [False, False]


async def listed_views(client: Client) -> list[str]:
    """The handles of the views that offer tools."""
    listed = await client.call_tool("list_view_tools", {})
    assert listed.structured_content is not None
    return [view["view"] for view in listed.structured_content["views"] if view["tools"]]
