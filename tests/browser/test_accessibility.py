"""axe, the accessibility checker, finds nothing on any page of the gateway, in light and in dark."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.async_api import Page, expect

from gateway.cli import main
from tests.browser.test_approval_page import call_for_approval
from tests.browser.test_main_job import model, show_app, tool
from tests.callers.tokens import link
from tests.credentials.house import house
from tests.world import World, running

AXE = Path(__file__).parent.parent / "interop" / "node_modules" / "axe-core" / "axe.min.js"
RUN = """() => axe.run(document, {
  iframes: false,
  resultTypes: ["violations"],
  runOnly: axe.getRules().map((rule) => rule.ruleId).filter((id) => id !== "color-contrast-enhanced"),
})"""
"""All rules, also experimental ones, except the contrast of WCAG AAA. Apps in frames are their authors' pages."""


@pytest.fixture(params=["light", "dark"])
async def seen(page: Page, request: pytest.FixtureRequest) -> Page:
    """A page with this color scheme and reduced motion."""
    await page.emulate_media(color_scheme=request.param, reduced_motion="reduce")
    return page


FADED = """() => Promise.allSettled(document.getAnimations()
  .filter((one) => one.effect?.getComputedTiming().endTime !== Infinity && one.playState === "running")
  .map((one) => one.finished)).then(() => null)"""
"""Waits until everything has faded in: what is half there has too little contrast."""


async def findings(page: Page) -> str:
    """Every violated rule, a line for each element."""
    await page.evaluate(AXE.read_text("utf-8"))
    await page.evaluate(FADED)
    result: dict[str, Any] = await page.evaluate(RUN)
    return "\n".join(
        f"{rule['id']}: {node['target']} {node['html'][:200]}"
        for rule in result["violations"]
        for node in rule["nodes"]
    )


async def test_axe_finds_what_is_wrong(page: Page) -> None:
    """An image without alternative text is found: the checker works."""
    await page.set_content("<html lang=en><title>t</title><main><h1>t</h1><img src='data:,'></main></html>")
    assert [found.partition(":")[0] for found in (await findings(page)).splitlines()] == ["image-alt"]


async def test_the_console_before_an_app_is_open(seen: Page, world: World) -> None:
    """The first page has no findings."""
    await seen.goto(world.console)
    await expect(seen.get_by_role("heading", level=1)).to_be_attached()
    assert not await findings(seen)


async def test_the_console_at_work(seen: Page, world: World) -> None:
    """The page has an app, its tools, a model's calls, an open record, and a refusal."""
    frame = await show_app(seen, world)
    async with model(world) as client:
        await tool(client, "cart_get_cart")
        await client.call_tool("cart_get_cart", {})
    await frame.locator("body").evaluate("() => fetch('/api/nothing')")
    await expect(seen.get_by_test_id("record").filter(has_text="policy-denied").first).to_be_visible()
    await seen.get_by_test_id("record").first.locator("summary").click()
    row = seen.locator(".details div").filter(has=seen.locator("dt", has_text="Client"))
    await expect(row.locator("dd")).to_have_text("127.0.0.1")
    assert not await findings(seen)


async def test_the_story_of_the_example(seen: Page, tmp_path: Path) -> None:
    """The page is checked during the story, and after its stop."""
    async with running(tmp_path, story=True) as world:
        await show_app(seen, world)
        await seen.get_by_test_id("story").click()
        await expect(seen.get_by_role("img", name="Step 2 of")).to_be_visible()
        assert not await findings(seen)
        await seen.get_by_test_id("story-stop").click()
        await expect(seen.get_by_text("Stopped.")).to_be_visible()
        assert not await findings(seen)


async def test_a_question_in_the_console_and_on_its_own_page(seen: Page, world: World) -> None:
    """A model's deletion requires an approval."""
    async with call_for_approval(world) as question:
        await seen.goto(world.console)
        await expect(seen.get_by_test_id("approve")).to_be_visible()
        assert not await findings(seen)
        await seen.goto(question.link)
        await expect(seen.get_by_test_id("approve")).to_be_visible()
        assert not await findings(seen)


async def test_the_pages_of_accounts(seen: Page, tmp_path: Path) -> None:
    """The page of one account to connect, and of all accounts."""
    async with house(tmp_path) as home:
        _, told = await home.get("person")
        for address in (told["connect_url"], f"{home.console}/#/connections"):
            await seen.goto(address)
            await expect(seen.get_by_role("button", name="Connect").first).to_be_visible()
            assert not await findings(seen)


async def test_the_pages_around_a_login(seen: Page, tmp_path: Path) -> None:
    """A used link, the console that requires a login, and the page after the logout."""
    async with running(tmp_path, extra="auth: [{type: token}]\n") as world:
        address = await link(world)
        await seen.goto(address)
        await expect(seen.get_by_role("heading", level=1)).to_be_attached()
        assert not await findings(seen)
        await seen.goto(address)
        await expect(seen.locator("code")).to_have_text(["webmcp-gateway token link", "webmcp-gateway serve"])
        assert not await findings(seen)


async def test_the_report_of_the_record(seen: Page, tmp_path: Path) -> None:
    """The HTML page of `audit report`, also on a phone: a wide table scrolls, and breaks no word."""
    async with running(tmp_path) as world, world.client() as client:
        for path in ("/api/products", "/api/nothing"):
            async with client.get(f"{world.site}{path}", headers={"webmcp-gateway-client": "1"}):
                pass
        words = [
            "audit",
            "report",
            "--config",
            str(tmp_path / "gateway.yaml"),
            "--output",
            str(tmp_path / "report.html"),
        ]
        done = await asyncio.to_thread(CliRunner().invoke, main, words)
        assert done.exit_code == 0, done.output
    await seen.goto((tmp_path / "report.html").as_uri())
    for width in (1280, 400):
        await seen.set_viewport_size({"width": width, "height": 800})
        assert not await findings(seen)
        assert await seen.evaluate("document.documentElement.scrollWidth") <= width
        heights = await seen.locator("th").evaluate_all("(all) => all.map((one) => one.clientHeight)")
        assert len(set(heights)) == 1


async def test_the_pages_of_errors(seen: Page, world: World) -> None:
    """Each door answers a person with a page, not with JSON, which also fits a phone."""
    await world.shop.stop()
    await seen.set_viewport_size({"width": 400, "height": 800})
    port = world.gateway.port
    for address, status, title in (
        (f"{world.console}/nothing", 404, "Nothing here"),
        (f"{world.console}/api/nothing", 404, "Nothing here"),
        (f"{world.url}/nothing", 404, "Nothing here"),
        (f"{world.url}/mcp", 403, "Not allowed"),
        (f"{world.console}/mcp/cart", 403, "Not allowed"),
        (f"{world.console}/login/back", 403, "Not logged in"),
        (f"{world.console}/login/out", 200, "Logged out"),
        (f"http://other.localhost:{port}/", 421, "Not an address of this gateway"),
        (f"http://sandbox.localhost:{port}/nothing", 404, "Nothing here"),
        (f"{world.site}/api/nothing", 403, "Not allowed"),
        (f"{world.site}/api/products", 502, "The app's server did not answer"),
    ):
        answer = await seen.goto(address)
        assert answer is not None
        assert (address, answer.status, await seen.locator("h1").inner_text()) == (address, status, title)
        assert not await findings(seen)
        assert await seen.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize("path", ["/", "/nothing-here"])
async def test_the_site_of_the_example(seen: Page, world: World, path: str) -> None:
    """The cart as a web site, also at a URL that does not exist."""
    await seen.goto(f"{world.site}{path}")
    assert not await findings(seen)
