"""The console's page of connected accounts, with the login pages of a real authorization server, in Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Page, expect

from tests.credentials.house import House, house
from tests.oidc.sign_in import sign_in


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as running:
        yield running


async def log_in(page: Page, account: str) -> None:
    """Log in on the server's pages."""
    await page.get_by_placeholder("Enter any login").fill(account)
    await page.get_by_placeholder("and password").fill("x")
    await page.get_by_role("button", name="Sign-in").click()
    await page.get_by_role("button", name="Continue").click()


async def test_a_person_connects_and_disconnects(home: House, page: Page) -> None:
    """A person follows the address in the refusal, logs in, sees the account on the page, and disconnects it."""
    _, told = await home.get("person")
    await page.goto(told["connect_url"])
    await expect(page.get_by_role("heading", name="Connect The shop for local")).to_be_visible()
    assert await home.provider.events() == []
    await page.get_by_role("button", name="Connect").click()
    await log_in(page, "alice")
    await expect(page.get_by_test_id("connections-news")).to_have_text(
        "The shop is connected as alice@example.com. You can close this page."
    )
    await expect(page.get_by_test_id("connection-person")).to_contain_text("Connected as alice@example.com")
    assert page.url == f"{home.console}/#/connections"
    assert (await home.get("person"))[0] == 200
    await page.get_by_role("button", name="Disconnect").click()
    await expect(page.get_by_test_id("connections-news")).to_have_text("The shop is disconnected.")
    assert (await home.get("person"))[0] == 401


async def test_a_login_that_began_elsewhere_is_not_ended_here(home: House, page: Page) -> None:
    """A person who is led to the end of another's login does not get their account (RFC 6749 10.12)."""
    _, begun = await home.api("connections/person", {})
    async with aiohttp.ClientSession() as mallory:
        end = await sign_in(mallory, begun["location"], "mallory", f"{home.console}/oauth/callback")
    await page.goto(end)
    await expect(page.locator("gateway-connections").get_by_role("alert")).to_contain_text("started by another person")
    assert (await home.get("person"))[0] == 401


async def test_a_link_of_somebody_else_offers_nothing(home: House, page: Page) -> None:
    """The page says that the link is another person's, and has no button."""
    await page.goto(f"{home.console}/connect/person?for=0123456789abcdef")
    await expect(page.get_by_text("This link belongs to another person")).to_be_visible()
    await expect(page.get_by_role("button", name="Connect")).to_have_count(0)
