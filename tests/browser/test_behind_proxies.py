"""The main job in Chromium through nginx and Caddy: TLS, logins, console, a model, and the app's own site."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, BrowserContext, expect

from tests.browser.test_login import sign_in
from tests.browser.test_main_job import app_of
from tests.callers.people import ACCOUNTS, AUTH, clients
from tests.deploy.proxies import PROXIES, deployed
from tests.oidc.provider import oidc_provider


@pytest.fixture
async def secure(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A browser context that accepts the certificate of the tests."""
    async with await browser.new_context(ignore_https_errors=True) as context:
        yield context


@pytest.mark.parametrize("proxy", PROXIES)
async def test_the_main_job(secure: BrowserContext, tmp_path: Path, proxy: str) -> None:
    """A person logs in at an issuer, uses the app in the console, and then at its own site."""
    async with (
        deployed(tmp_path, proxy) as place,
        oidc_provider(clients(place.console), accounts=ACCOUNTS, resources={}) as provider,
    ):
        await place.restart(AUTH.format(issuer=provider.issuer))
        page = await secure.new_page()
        await page.goto(f"{place.console}/#/apps/cart")
        await sign_in(page, "alice")
        await expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "open")
        card = app_of(page).locator("[data-item-id]").first
        item = str(await card.get_attribute("data-item-id"))
        await card.locator("[data-add]").click()
        await expect(app_of(page).locator(f"[data-cart-item='{item}']")).to_be_visible()
        await page.goto(f"{place.site}/")
        await expect(page.locator(f"[data-cart-item='{item}']")).to_be_visible()
        sessions = [cookie for cookie in await secure.cookies() if cookie["name"].startswith("__Host-")]
        sites = {"console.gw.localhost", "cart.apps.localhost"}
        assert {(cookie["domain"], cookie["secure"]) for cookie in sessions} == {(site, True) for site in sites}
