"""Apps whose pages a backend renders, in a view: each page in a realm of its own, as in a browser."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import FrameLocator, Page, expect

from tests.browser.page_server import POLICY, SOURCE, Pages, page_server
from tests.world import World, running


@asynccontextmanager
async def running_pages(folder: Path, start: str = "/") -> AsyncIterator[tuple[World, Pages]]:
    """The gateway in front of the server."""
    async with page_server() as pages:
        policy = POLICY.replace("PORT", str(pages.port))
        async with running(folder, policy=policy, source=SOURCE.replace("start: /", f"start: {start}")) as world:
            yield world, pages


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[World, Pages]]:
    """The gateway in front of the server, for the tests of this module."""
    async with running_pages(tmp_path_factory.mktemp("pages")) as both:
        yield both


def shell_of(page: Page) -> FrameLocator:
    """The shell in the console."""
    return page.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")


def page_of(page: Page) -> FrameLocator:
    """The current page of the backend in the console."""
    return shell_of(page).frame_locator("iframe")


async def test_each_page_is_a_fresh_realm(page: Page, served: tuple[World, Pages]) -> None:
    """Scripts, styles and pictures of the backend load; nothing of page 1 is left on page 2."""
    world, pages = served
    await page.goto(world.url)
    shown = page_of(page)
    await expect(shown.locator("h1")).to_have_text("Start")
    await expect(shown.locator("x-mark")).to_have_text("marked")
    place = f"http://127.0.0.1:{pages.port}"
    seen = await shown.locator("body").evaluate("() => window.seen")
    assert seen == {"href": f"{place}/", "origin": place, "path": "/", "url": f"{place}/", "base": f"{place}/"} | {
        "cookie": "csrftoken=token-for-scripts"
    }
    await expect(shown.locator("h1")).to_have_css("color", "rgb(1, 2, 3)")
    await expect(shown.locator("#picture")).to_have_js_property("naturalWidth", 7)
    await shown.locator("#two").click()
    await expect(shown.locator("h1")).to_have_text("Two")
    await expect(shown.locator("x-mark")).to_have_text("marked")
    assert await shown.locator("body").evaluate("() => window.facts") == {
        "kept": 2,
        "ticks": "undefined",
        "loads": 1,
        "href": f"{place}/two?from=start#there",
        "referrer": f"{place}/",
        "cookie": "csrftoken=token-for-scripts; theme=dark",
        "visits": "1",
    }
    arrived = pages.last("/two")
    assert arrived["cookies"] == {"session": "secret-session-value", "csrftoken": "token-for-scripts", "theme": "dark"}
    told = {name: arrived["headers"].get(name) for name in ("Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode")}
    assert told == {"Referer": f"{place}/", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}
