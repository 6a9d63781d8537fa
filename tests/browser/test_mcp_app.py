"""The element `<mcp-app>` in Chromium: over a gateway, and with the host's own handlers."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser.element_host import app_in, gateway_host, plain_host, until
from tests.world import running


async def test_an_app_of_the_gateway_is_one_tag(page: Page, tmp_path: Path) -> None:
    """The cart is shown, works, and the host calls the page's own tools, by itself and by a standard client."""
    async with running(tmp_path) as world:
        await gateway_host(page, world, '<mcp-app gateway="/" app=cart title="Fennel"></mcp-app>')
        await expect(app_in(page).locator("[data-item-id]").first).to_be_visible()
        assert await until(page, "log.includes('initialized') && log")
        names = await page.evaluate("async () => (await document.querySelector('mcp-app').listTools()).tools.map(t => t.name)")
        print(names, await page.evaluate("log"), await page.evaluate("details"))


async def test_a_host_without_a_gateway_answers_by_handlers(page: Page) -> None:
    """Html and answers are the host's; missing handlers are missing capabilities."""
    script = """begin().then(async ({ hostCapabilities, hostContext, hostInfo }) => {
      window.told = { hostCapabilities, hostContext, hostInfo };
      show(Object.keys(hostCapabilities).sort().join());
      show(JSON.stringify((await call("now", { a: 1 })).result));
      show(JSON.stringify((await ask("resources/list")).error));
    });"""
    async with plain_host() as host:
        await host.open(page, f"""<script type=module>
          const app = document.createElement("mcp-app");
          app.title = "Clock";
          app.sandboxUrl = {json.dumps(host.sandbox)};
          app.resourceHtml = {json.dumps(host.app(script))};
          app.onCallTool = async ({{ name, arguments: given }}) => ({{ content: [], structuredContent: {{ name, given }} }});
          document.body.append(app);
        </script>""")
        await expect(app_in(page).locator("#out")).to_contain_text("downloadFile,logging,openLinks,sandbox,serverTools")
        await expect(app_in(page).locator("#out")).to_contain_text('"structuredContent":{"name":"now","given":{"a":1}}')
        print(await app_in(page).locator("#out").text_content())
        print(await page.evaluate("log"), await page.evaluate("details"))
