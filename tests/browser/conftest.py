"""One Chromium for all browser tests, and a fresh context for each."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from playwright._impl.locator import Locator
from playwright.async_api import Browser, BrowserContext, Page, Playwright, async_playwright, expect

from tests.browser.runtime_host import Host, host_server

DEBIAN = Path(__file__).with_name("chromium")
PATIENCE = 60_000
"""Milliseconds that anything may take to be visible; long, as machines are busy and failures fail anyway."""

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


EXPECT = Locator._expect


async def expect_in_replaced_frames(locator: Locator, *arguments: Any) -> Any:
    """Look again if the frame that Playwright looked into was replaced at that moment.

    A frame of another site is a target of its own. If it closes during the look, Playwright (1.64) gives up, as if
    the page had closed, though the next frame may show what is expected.
    """
    while True:
        result = await EXPECT(locator, *arguments)
        if locator.page.is_closed() or not any("has been closed" in line for line in result.get("log") or []):
            return result


@pytest.fixture(scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A headless Chromium: Playwright's own, or Debian's."""
    expect.set_options(timeout=PATIENCE)
    cast("Any", Locator)._expect = expect_in_replaced_frames
    async with async_playwright() as playwright:
        chromium = await launch(playwright)
        yield chromium
        await chromium.close()


@pytest.fixture
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A separate browser context: no cookies, storage or pages of other tests."""
    async with await browser.new_context() as fresh:
        yield fresh


@pytest.fixture
async def page(context: BrowserContext) -> Page:
    """A page in that context."""
    return await context.new_page()


@pytest.fixture
async def host(page: Page) -> AsyncIterator[Host]:
    """A plain host on a real server."""
    async with host_server() as url:
        await page.goto(url)
        yield Host(page)


async def launch(playwright: Playwright, *arguments: str, whole: bool = False) -> Browser:
    """Start Chromium's headless shell, or the `whole` browser without windows, with further arguments."""
    path = program(playwright)
    more = ["--whole"] if whole and path is not None else []
    return await playwright.chromium.launch(
        executable_path=path,
        channel="chromium" if whole and path is None else None,
        args=[*ARGUMENTS, *arguments, *more],
        headless=True,
    )


def program(playwright: Playwright) -> Path | None:
    """Debian's Chromium, or None for Playwright's own."""
    return None if Path(playwright.chromium.executable_path).exists() else DEBIAN
