"""The console's page about how an app fares in a view, in Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.world import running_page

PAGE = """\
<!doctype html><title>Shop</title><link rel=stylesheet href="https://fonts.googleapis.com/css2?family=Inter">
<script>
if (false) {
  fetch("/api/open"); fetch("/api/closed"); localStorage.theme = "dark"; new Worker("worker.js");
  new WebSocket(`wss://${location.host}/live`);
}
</script>
"""
POLICY = """\
version: 1
backends: {shop: {url: "http://127.0.0.1:9401", network: private}}
routes: [{path: /api/open, methods: [GET]}]
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_console_tells_how_an_app_fares(tmp_path: Path, page: Page, scheme: str) -> None:
    """Each group of findings, with lines and hosts; the link is beside the person's name."""
    async with running_page(tmp_path, PAGE, POLICY) as world:
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        await page.goto(world.console)
        await page.get_by_test_id("check").click()
        needs = page.get_by_test_id("advice-needs")
        await expect(needs).to_contain_text('- {path: "/api/closed", methods: [GET]}', timeout=60_000)
        await expect(needs).to_contain_text('- {path: "/live", methods: [GET], websocket: true}')
        await expect(needs).to_contain_text("pack --vendor")
        await expect(page.get_by_test_id("advice-works")).to_contain_text("/api/open")
        await expect(page.get_by_test_id("advice-works")).to_contain_text("new Worker")
        await expect(page.get_by_test_id("advice-hosts")).to_contain_text("resourceDomains")
        await page.screenshot(path=tmp_path / "advice.png", full_page=True)
        await page.get_by_text("Back to the app").click()
        await expect(page.get_by_test_id("app-frame")).to_be_visible(timeout=60_000)


async def test_another_app_is_an_error_in_words(tmp_path: Path, page: Page) -> None:
    """The address may be of an app that is gone."""
    async with running_page(tmp_path, PAGE, POLICY) as world:
        await page.goto(f"{world.console}/#/check/gone")
        await expect(page.get_by_role("alert").filter(has_text="There is no such app.")).to_be_visible(timeout=60_000)
