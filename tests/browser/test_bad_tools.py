"""Tools of pages that throw, hang, unregister themselves or navigate away, called by a model through the gateway."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client
from mcp_types import CallToolResult, TextContent
from playwright.async_api import Page, expect

from gateway.views import forward
from tests.browser import stock_host, test_main_job
from tests.browser.stock_host import bundle_hosts
from tests.browser.test_main_job import tool, wait_unlisted
from tests.world import World, running_page

PAGE = """<!doctype html><title>Bad tools</title><p id="page">page</p><script>
  const end = new AbortController();
  const frame = Reflect.get(window, "location"); // as code that no packer sees reads it
  const tools = {
    throws() { throw new Error("sold out"); },
    wordless() { throw Object.create(null); },
    deep() { let nested = {}; for (let at = 0; at < 5000; at++) nested = { nested }; return nested; },
    async removes() { end.abort(); await null; return "removed itself, and answers"; },
    hangs: () => new Promise(() => 0),
    reloads() { location.reload(); return new Promise(() => 0); },
    leaves() { frame.href = "about:blank"; return new Promise(() => 0); },
    goes() { frame.href = "/elsewhere"; return new Promise(() => 0); },
    goes_later() { setTimeout(() => (frame.href = "/elsewhere"), 50); return "gone"; },
    large: () => "x".repeat(17 * 1024 * 1024),
    bulky: () => ({ many: Array(200_000).fill(1) }),
    well: () => "well",
  };
  for (const [name, execute] of Object.entries(tools)) {
    const options = name === "removes" ? { signal: end.signal } : {};
    document.modelContext.registerTool({ name, description: "d", execute }, options);
  }
</script>"""
POLICY = """version: 1
backends: {shop: {url: "http://127.0.0.1:9401", network: [127.0.0.0/8]}}
tools: {throws: {}, wordless: {}, deep: {}, removes: {}, hangs: {}, reloads: {}, leaves: {}, goes: {}, goes_later: {},
        well: {}, large: {}, bulky: {}}
"""


SOON = 1.0
"""Seconds for a tool that never answers; shorter than the time after which a quiet view counts as gone."""

PATIENT = 120.0
"""Seconds for one whose answer takes a busy machine long to write, four times."""

DEEP = '{"nested":' * 5000 + "{}" + "}" * 5000
"""The result of `deep`, which is nested too deeply for structured content: its text."""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of a third-party host."""
    return bundle_hosts(tmp_path_factory.mktemp("stock"))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A gateway for that page."""
    async with running_page(tmp_path, PAGE, POLICY) as started:
        yield started


def outcome_of(result: CallToolResult) -> tuple[bool, str]:
    """Whether the result is an error, and its text."""
    assert isinstance(result.content[0], TextContent)
    return bool(result.is_error), result.content[0].text


async def final_answer(client: Client, name: str) -> tuple[bool, str]:
    """The same for a call of that tool, with polls if its first answer reports that it is running."""
    result = await client.call_tool(name, {})
    while (waits := re.search(r'\{"call": "[^"]+"\}', outcome_of(result)[1])) is not None:
        result = await client.call_tool("call_view_tool", json.loads(waits[0]))
    return outcome_of(result)


@asynccontextmanager
async def model_of(page: Page, world: World, script: Path, way: str) -> AsyncIterator[Client]:
    """A model's client, once the page is shown by our host, or by a stock one with a relay."""
    async with AsyncExitStack() as stack:
        if way == "bridge":
            await test_main_job.show_app(page, world, "#page")
        else:
            await stack.enter_async_context(stock_host.show_cart(page, world, script, landmark="#page"))
        client = await stack.enter_async_context(Client(f"{world.url}/mcp/cart", mode="2026-07-28"))
        await tool(client, "cart_well")
        yield client


@pytest.mark.parametrize("away", ["reloads", "leaves"])
@pytest.mark.parametrize("way", ["bridge", "relay"])
async def test_each_call_has_a_clear_answer(
    page: Page, world: World, script: Path, monkeypatch: pytest.MonkeyPatch, way: str, away: str
) -> None:
    """A call ends with a message, whatever its tool does; the next one works, and a page that left is not called."""
    async with model_of(page, world, script, way) as client:
        assert outcome_of(await client.call_tool("cart_throws", {})) == (True, "sold out")
        assert outcome_of(await client.call_tool("cart_wordless", {})) == (True, "Error")
        assert outcome_of(await client.call_tool("cart_deep", {})) == (False, DEEP)
        assert outcome_of(await client.call_tool("cart_removes", {})) == (False, "removed itself, and answers")
        await wait_unlisted(client, "cart_removes")
        with monkeypatch.context() as hasty:
            hasty.setattr(forward, "DEADLINE", SOON)
            failed, words = outcome_of(await client.call_tool("cart_hangs", {}))
        assert failed
        assert "not within 1 seconds" in words
        assert outcome_of(await client.call_tool("cart_well", {})) == (False, "well")
        failed, words = outcome_of(await client.call_tool(f"cart_{away}", {}))
        assert failed
        assert "loaded again" in words
        if away == "reloads":
            await tool(client, "cart_removes")
            assert outcome_of(await client.call_tool("cart_well", {})) == (False, "well")


@pytest.mark.parametrize("way", ["bridge", "relay"])
async def test_an_answer_that_is_too_large_is_told_as_such(
    page: Page, world: World, script: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """In bytes or in parts, the error states that the tool ran, and the limit; the next call works."""
    monkeypatch.setattr(forward, "DEADLINE", PATIENT)
    async with model_of(page, world, script, way) as client:
        for name, size, most in (("large", "17825", "16777216"), ("bulky", "800082", "100000 commas")):
            failed, words = await final_answer(client, f"cart_{name}")
            assert failed
            assert "The tool has run, but its answer" in words
            assert (size if way == "relay" else most) in words
        assert outcome_of(await client.call_tool("cart_well", {})) == (False, "well")


async def views_with_tools(client: Client) -> AsyncIterator[str]:
    """The views that offer tools, oldest first."""
    listed = (await client.call_tool("list_view_tools", {})).structured_content
    assert listed is not None
    for view in listed["views"]:
        if view["tools"]:
            yield view["view"]


@pytest.mark.parametrize("tool_name", ["goes", "goes_later", "leaves"])
async def test_a_page_that_goes_elsewhere_is_closed_and_can_be_opened_again(
    page: Page, world: World, tool_name: str
) -> None:
    """Its call is answered long before its timeout, its tools are removed, and the person reads the reason."""
    await test_main_job.show_app(page, world, "#page")
    async with Client(f"{world.url}/mcp/cart", mode="2026-07-28") as client:
        await tool(client, f"cart_{tool_name}")
        (first,) = [view async for view in views_with_tools(client)]
        failed, words = outcome_of(await client.call_tool(f"cart_{tool_name}", {}))
        if tool_name != "goes_later":
            assert failed
            assert "went to another page" in words
        await wait_unlisted(client, "cart_well")
        cover = page.get_by_role("alert").filter(has_text="The view is closed")
        await expect(cover).to_contain_text("cart went to another page")
        await expect(page.get_by_test_id("app-frame").locator("iframe")).to_have_count(0)
        failed, words = outcome_of(await client.call_tool("call_view_tool", {"view": first, "tool": "well"}))
        assert failed
        assert "Call list_view_tools" in words
        await cover.get_by_role("button", name="Open again").click()
        await tool(client, "cart_well")
        assert outcome_of(await client.call_tool("cart_well", {})) == (False, "well")


CLIENTS = {"show": "bridge", "showWithEnvelope": "page"}
"""The window property that calls the page's tools in third-party hosts, by the function that shows the page."""


@pytest.mark.parametrize("way", CLIENTS)
async def test_each_call_of_other_hosts_has_a_clear_answer(page: Page, world: World, script: Path, way: str) -> None:
    """The same holds if the host calls the page past the gateway; an answer before the page leaves counts."""

    async with AsyncExitStack() as stack:

        async def shown() -> Page:
            own = await stack.enter_async_context(await page.context.new_page())
            await stack.enter_async_context(stock_host.show_cart(own, world, script, landmark="#page", way=way))
            return own

        async def called(own: Page, name: str) -> tuple[bool, str]:
            result = await own.evaluate(
                "([client, name]) => window[client].callTool({ name, arguments: {} })", [CLIENTS[way], name]
            )
            return bool(result.get("isError")), result["content"][0]["text"]

        first = await shown()
        assert await called(first, "throws") == (True, "sold out")
        assert await called(first, "wordless") == (True, "Error")
        assert await called(first, "deep") == (False, DEEP)
        assert await called(first, "removes") == (False, "removed itself, and answers")
        assert await called(first, "well") == (False, "well")
        for name in ("reloads", "leaves", "goes"):
            failed, words = await called(await shown(), name)
            assert failed
            assert "went to another page, or was loaded again" in words
        assert await called(await shown(), "goes_later") == (False, "gone")
