"""A person logs in to the console at a real authorization server in Chromium, uses an app's site, and logs out."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import BrowserContext, Page, expect

from tests.callers.people import Town, town
from tests.callers.tokens import link
from tests.world import World, running


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Town]:
    """The gateway and its people."""
    async with town(tmp_path) as started:
        yield started


async def sign_in(page: Page, account: str) -> None:
    """Fill in the pages of the authorization server."""
    await page.locator("input[name=login]").fill(account)
    await page.locator("input[name=password]").fill("x")
    await page.locator("button[type=submit]").click()
    await page.locator("button[type=submit]").click()


async def test_a_login_at_the_issuer_opens_console_and_site(place: Town, page: Page, context: BrowserContext) -> None:
    """The console redirects by itself; an app's site needs no further login; scripts can read neither cookie."""
    world = place.world
    await page.goto(f"{world.console}/#/apps/cart")
    await sign_in(page, "alice")
    await expect(page.get_by_text("Signed in as alice")).to_be_visible()
    await page.wait_for_url(f"{world.console}/#/apps/cart")
    await page.goto(f"{world.site}/")
    await page.wait_for_url(f"{world.site}/")
    await expect(page).to_have_title(re.compile("."))
    assert (await page.evaluate("fetch('/api/cart').then((answer) => answer.status)")) == 200
    assert await page.evaluate("document.cookie") == ""
    kept = [cookie for cookie in await context.cookies() if "session" in cookie["name"]]
    kept = [cookie for cookie in kept if cookie["domain"] in ("gateway.localhost", "cart.localhost")]
    assert {(cookie["domain"], cookie["sameSite"], cookie["httpOnly"]) for cookie in kept} == {
        ("gateway.localhost", "Strict", True),
        ("cart.localhost", "Strict", True),
    }
    assert len({cookie["value"] for cookie in kept}) == 2


async def test_a_logout_ends_console_and_site(place: Town, page: Page) -> None:
    """The page confirms it; the site's session and the issuer's have ended, so the issuer asks for a login again."""
    world = place.world
    await page.goto(world.console)
    await sign_in(page, "alice")
    await expect(page.get_by_text("Signed in as alice")).to_be_visible()
    site = await page.context.new_page()
    await site.goto(f"{world.site}/")
    await site.wait_for_url(f"{world.site}/")
    await page.get_by_test_id("logout").click()
    await page.get_by_role("button", name="Yes, sign me out").click()
    await expect(page.get_by_role("heading", name="Logged out")).to_be_visible()
    assert (await site.evaluate("fetch('/api/cart').then((answer) => answer.status)")) == 401
    await page.goto(world.console)
    await expect(page.locator("input[name=login]")).to_be_visible()


async def test_another_site_cannot_use_a_login(place: Town, page: Page) -> None:
    """Its requests carry no cookie, and its posts are refused."""
    world = place.world
    await page.goto(world.console)
    await sign_in(page, "alice")
    await expect(page.get_by_text("Signed in as alice")).to_be_visible()
    await page.goto(f"{place.provider.issuer}/none")
    tried = await page.evaluate(
        """(console) => fetch(`${console}/api/logout`, {method: "POST", credentials: "include", mode: "no-cors"})
            .then((answer) => answer.type, () => "blocked")""",
        world.console,
    )
    assert tried in ("opaque", "blocked")
    await page.goto(world.console)
    await expect(page.get_by_text("Signed in as alice")).to_be_visible()


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[World]:
    """A gateway without an issuer."""
    async with running(tmp_path, extra="auth: [token]\n") as world:
        yield world


async def test_a_link_logs_in(alone: World, page: Page) -> None:
    """Without a link the console explains how to get one; with it the app's frame works over the bridge."""
    await page.goto(alone.console)
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    await page.goto(await link(alone))
    await expect(page.get_by_text("Signed in as local")).to_be_visible()
    await page.goto(f"{alone.console}/#/apps/cart")
    await expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "open")
    await page.goto(f"{alone.site}/")
    await page.wait_for_url(f"{alone.site}/")
    assert (await page.evaluate("fetch('/api/cart').then((answer) => answer.status)")) == 200


async def test_the_pages_of_a_login_are_dark_where_the_person_wants_that(place: Town, page: Page) -> None:
    """Their content security policy admits the style."""
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    await page.emulate_media(color_scheme="dark")
    await page.goto(f"{place.world.console}/login/out")
    await expect(page.get_by_role("heading", name="Logged out")).to_be_visible()
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 16, 20)"
    assert faults == []
