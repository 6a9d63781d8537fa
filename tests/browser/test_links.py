"""Links in Chromium: the console opens those that the app's policy allows, after a confirmation if it requires one."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from mcp import Client
from playwright.async_api import BrowserContext, FrameLocator, Page, Route, expect

from tests.browser.probing import outcome, outcomes
from tests.world import World, running, running_page, serving

LINKS = Path(__file__).parent / "links"
DOCS = "http://docs.example/tea"
ACTIVATION = 5.5
"""Seconds after which Chromium's transient activation is over."""


@pytest.fixture
async def links(tmp_path: Path, context: BrowserContext) -> AsyncIterator[World]:
    """A gateway for a page that requests links; their targets are served within the browser."""

    async def elsewhere(route: Route) -> None:
        await route.fulfill(body="elsewhere")

    for place in ("http://docs.example/**", "http://evil.example/**"):
        await context.route(place, elsewhere)
    policy = (LINKS / "policy.yaml").read_text("utf-8")
    async with running(tmp_path, policy=policy, source=LINKS) as world:
        yield world


async def show_app(page: Page, world: World) -> FrameLocator:
    """The app: the page inside the proxy inside the console."""
    await page.goto(world.url)
    app = page.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
    await expect(app.locator("#docs")).to_be_visible()
    await expect(page.get_by_test_id("tool-leave")).to_be_visible()
    return app


async def test_a_person_is_asked_and_opens_a_link(page: Page, context: BrowserContext, links: World) -> None:
    """Cancel and a key on Open open nothing; a click does, in a tab without access to the console."""
    app = await show_app(page, links)
    dialog = page.get_by_test_id("link-dialog")
    await app.locator("#docs").click()
    await expect(dialog).to_contain_text(f"Read {DOCS}?")
    await expect(page.get_by_test_id("link-cancel")).to_be_focused()
    await page.get_by_test_id("link-cancel").click()
    await expect(app.locator("#said")).to_have_text("not opened")
    declined = await outcome(links, kind="link", decision="declined")
    assert (declined["initiator"], declined["url"]) == ("person", DOCS)
    await app.locator("#docs").click()
    await expect(page.get_by_test_id("link-open")).to_be_enabled()
    await page.get_by_test_id("link-open").press("Enter")
    await expect(dialog).to_contain_text("a key pressed in passing")
    assert len(context.pages) == 1
    async with context.expect_page() as opening:
        await page.get_by_test_id("link-open").click()
    opened = await opening.value
    await opened.wait_for_url(DOCS)
    assert await opened.evaluate("[window.opener, document.referrer]") == [None, ""]
    await expect(app.locator("#said")).to_have_text("opened")
    await outcome(links, kind="link", decision="approved")
    assert len(outcomes(links, kind="link", decision="approved")) == 1
    await expect(page.locator("[data-testid=record][data-kind=link]")).to_have_count(2)


async def test_escape_is_a_no(page: Page, links: World) -> None:
    """Escape declines, as in every dialog."""
    app = await show_app(page, links)
    await app.locator("#docs").click()
    await expect(page.get_by_test_id("link-cancel")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(app.locator("#said")).to_have_text("not opened")
    await outcome(links, kind="link", decision="declined")


async def test_other_links_do_not_open(page: Page, context: BrowserContext, links: World) -> None:
    """The person reads that the policy does not open it; the app learns only that nothing was opened."""
    app = await show_app(page, links)
    await app.locator("#evil").click()
    refused = page.get_by_test_id("link-refused")
    await expect(refused).to_contain_text("The policy of cart does not open this link")
    place, window = await refused.bounding_box(), page.viewport_size
    assert place
    assert window
    assert place["y"] + place["height"] < window["height"] / 2, "an app's own notices are below"
    await expect(app.locator("#said")).to_have_text("not opened")
    await outcome(links, kind="link", decision="deny", url="http://evil.example/")
    assert len(context.pages) == 1


async def test_without_a_gesture_nothing_opens(page: Page, context: BrowserContext, links: World) -> None:
    """A model's call can neither open a window, nor bring up a question."""
    app = await show_app(page, links)
    await asyncio.sleep(ACTIVATION)  # Playwright's own evaluations count as gestures
    async with Client(f"{links.url}/mcp", mode="2026-07-28") as client:
        assert not (await client.call_tool("cart_leave", {})).is_error
    await expect(app.locator("#said")).to_have_text("not opened")
    assert len(context.pages) == 1
    assert outcomes(links, kind="link") == []


async def test_a_question_goes_with_its_app(page: Page, links: World) -> None:
    """A closed app's question is withdrawn, and no answer is recorded."""
    app = await show_app(page, links)
    await app.locator("#docs").click()
    await expect(page.get_by_test_id("link-cancel")).to_be_focused()
    await page.evaluate("location.hash = '#/connections'")
    await expect(page.get_by_test_id("link-cancel")).to_have_count(0)
    await expect(page.get_by_test_id("link-refused")).to_have_text("The app was closed.")
    await page.evaluate("location.hash = ''")
    await app.locator("#docs").click()
    await page.get_by_test_id("link-cancel").click()
    await outcome(links, kind="link")
    assert len(outcomes(links, kind="link")) == 1


async def test_a_form_of_an_apps_own_site_is_posted(page: Page, tmp_path: Path) -> None:
    """The browser names the site as its origin, and the backend's answer is shown."""

    async def greet(request: web.Request) -> web.Response:
        return web.Response(
            text=f"<p id=said>Hello {(await request.text()).partition('=')[2]}</p>", content_type="text/html"
        )

    backend = web.Application()
    backend.router.add_post("/api/form", greet)
    form = "<!doctype html><title>t</title><form method=post action=/api/form><input name=name value=Ann><button>"
    async with serving(backend) as port:
        policy = (
            f"version: 1\nbackends: {{shop: {{url: 'http://127.0.0.1:{port}', network: private}}}}\n"
            "routes: [{path: /api/form, methods: [POST]}]\n"
        )
        async with running_page(tmp_path, form, policy) as world:
            await page.goto(world.site)
            await page.get_by_role("button").click()
            await expect(page.locator("#said")).to_have_text("Hello Ann")
