"""The element `<mcp-app>` in Chromium: over a gateway, and with the host's own handlers."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser.element_host import app_in, gateway_host, insert, plain_host, until
from tests.world import running

SHOW_TOLD = """begin().then(async ({ hostCapabilities, hostContext }) => {
  show(Object.keys(hostCapabilities).sort().join());
  show(Object.keys(hostContext).sort().join());
  show(JSON.stringify((await call("now", { a: 1 })).result));
  show(JSON.stringify((await ask("resources/list")).error.code));
});"""
OPENING = ["sandbox-proxy-ready", "sandbox-resource-ready", "initialize", "initialized"]


async def test_an_app_of_the_gateway_is_one_tag(page: Page, tmp_path: Path) -> None:
    """The cart is shown, its requests are answered, and the host hears of each step."""
    async with running(tmp_path) as world:
        await gateway_host(page, world, '<mcp-app gateway="/" app=cart title="Fennel"></mcp-app>')
        await expect(app_in(page).locator("[data-item-id]").first).to_be_visible()
        log = await until(page, "log.includes('initialized') && log")
        assert [name for name in log if name in OPENING] == OPENING


async def test_a_host_without_a_gateway_answers_by_handlers(page: Page) -> None:
    """Page and answers are the host's; a missing handler is a missing capability."""
    async with plain_host() as host:
        await host.open(page)
        answer = "app.onCallTool = async (call) => ({ content: [], structuredContent: { name: call.name } })"
        await insert(page, host.html(SHOW_TOLD), answer)
        out = app_in(page).locator("#out")
        await expect(out).to_contain_text("-32601")
        shown = str(await out.text_content())
        assert shown.startswith("downloadFile,logging,openLinks,sandbox,serverTools;")
        assert "containerDimensions,deviceCapabilities,displayMode,locale,platform,safeAreaInsets,styles,theme" in shown
        assert '"structuredContent":{"name":"now"}' in shown
