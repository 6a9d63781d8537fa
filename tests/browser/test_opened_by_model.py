"""A model's call that opens an app reaches the view that shows it in our own host page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mcp import Client
from playwright.async_api import FrameLocator, Page, expect

from tests.browser.probing import outcome
from tests.browser.stock_host import UI
from tests.browser.test_main_job import model, show_app
from tests.world import running

PAGE = """<!doctype html><title>Told</title><ol id="told"></ol><script>
window.addEventListener("message", ({ data }) => {
  const name = /^ui\\/notifications\\/(tool-.*)$/.exec(data?.method ?? "")?.[1];
  if (!name) return;
  const line = document.createElement("li");
  line.dataset.told = name;
  line.textContent = JSON.stringify(data.params);
  document.querySelector("#told").append(line);
  if (data.params?.arguments?.input) fetch("/api/cart", { method: "POST", body: "{}" }).catch(() => {});
});
</script>"""


async def last_notice(frame: FrameLocator, what: str, count: int) -> dict[str, object]:
    """The last notice of this kind, once there are `count`."""
    lines = frame.locator(f"[data-told='{what}']")
    await expect(lines).to_have_count(count)
    value: dict[str, object] = json.loads(await lines.last.inner_text())
    return value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A page that lists the notices that it receives."""
    source = tmp_path / "page"
    source.mkdir()
    (source / "index.html").write_text(PAGE, "utf-8")
    return source


async def test_a_models_call_reaches_the_view_that_is_open(page: Page, tmp_path: Path, folder: Path) -> None:
    """A new view takes its place, with the result without secrets, and the call is the cause of its requests."""
    async with running(tmp_path, source=folder) as world:
        frame = await show_app(page, world, "[data-told='tool-input']")
        assert await last_notice(frame, "tool-input", 1) == {"arguments": {}}
        view = await page.get_by_test_id("view").text_content()
        async with model(world) as client:
            result = await client.call_tool("open_cart", {"input": {"look": "at apples"}})
        answer = await last_notice(frame, "tool-result", 1)
        assert await last_notice(frame, "tool-input", 1) == {"arguments": {"input": {"look": "at apples"}}}
        assert (
            answer["structuredContent"]
            == result.structured_content
            == {"view": await page.get_by_test_id("view").text_content()}
        )
        assert answer["structuredContent"] != {"view": view}
        assert "_meta" not in answer
        caused = await outcome(world, method="POST", url="/api/cart")
        assert caused["initiator"] == "model"


async def test_a_call_without_arguments_leaves_the_page_as_it_is(page: Page, tmp_path: Path, folder: Path) -> None:
    """There is no input to send, and the person's work in the page stays."""
    async with running(tmp_path, source=folder) as world:
        frame = await show_app(page, world, "[data-told='tool-input']")
        view = await page.get_by_test_id("view").text_content()
        await frame.locator("#told").evaluate("list => { list.dataset.mine = 'kept'; }")
        async with model(world) as client:
            assert (await client.call_tool("open_cart", {})).structured_content == {"view": view}
            assert (await client.call_tool("open_cart", {"input": {"look": 1}})).structured_content != {"view": view}
        await last_notice(frame, "tool-result", 1)
        assert await frame.locator("#told").get_attribute("data-mine") is None


async def test_each_of_several_calls_has_its_own_view(page: Page, tmp_path: Path, folder: Path) -> None:
    """Each page receives one input, and then its own result; the last call's page remains."""
    async with running(tmp_path, source=folder) as world:
        frame = await show_app(page, world, "[data-told='tool-input']")
        async with model(world) as client:
            for number in range(3):
                result = await client.call_tool("open_cart", {"input": {"number": number}})
                await expect(frame.locator("[data-told='tool-input']")).to_have_text(
                    json.dumps({"arguments": {"input": {"number": number}}}, separators=(",", ":"))
                )
                assert (await last_notice(frame, "tool-result", 1))["structuredContent"] == result.structured_content
        assert await frame.locator("[data-told]").count() == 2


async def test_of_two_views_none_is_told(page: Page, tmp_path: Path, folder: Path) -> None:
    """A view of another conversation is never picked."""
    async with running(tmp_path, source=folder) as world:
        frame = await show_app(page, world, "[data-told='tool-input']")
        view = await page.get_by_test_id("view").text_content()
        second = await page.context.new_page()
        await show_app(second, world, "[data-told='tool-input']")
        async with model(world) as client:
            content = (await client.call_tool("open_cart", {})).structured_content
            assert content is not None
            assert content["view"] != view
        assert await last_notice(frame, "tool-input", 1) == {"arguments": {}}


async def test_a_client_that_shows_apps_shows_its_own(page: Page, tmp_path: Path, folder: Path) -> None:
    """Its host notifies the view itself."""
    async with running(tmp_path, source=folder) as world:
        frame = await show_app(page, world, "[data-told='tool-input']")
        view = await page.get_by_test_id("view").text_content()
        async with Client(f"{world.url}/mcp", mode="2026-07-28", extensions=UI) as client:
            content = (await client.call_tool("open_cart", {"input": {"look": 1}})).structured_content
            assert content is not None
            assert content["view"] != view
        assert await last_notice(frame, "tool-input", 1) == {"arguments": {}}
