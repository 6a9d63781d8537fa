"""Host pages with `<mcp-app>`: on the gateway's own origin, or on one without any gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from playwright.async_api import FrameLocator, Page

from tests.browser.far_end import PAGES, STATIC
from tests.world import World, serving

LISTEN = """
  window.log = [];
  window.details = {};
  const EVENTS = [
    "initialize", "initialized", "size-changed", "request-display-mode", "display-mode-changed", "open-link",
    "download-file", "tools-call", "resources-read", "log", "error", "teardown", "tools-changed",
    "sandbox-proxy-ready", "sandbox-resource-ready", "notifications-message",
  ];
  for (const name of EVENTS) document.addEventListener("mcp-app-" + name, (event) => {
    log.push(name);
    details[name] = JSON.parse(JSON.stringify(event.detail));
  });
"""
"""Notes the events that arrive at the document."""

HEAD = f"""<!doctype html><html lang=en><meta charset=utf-8><title>host</title><script>{LISTEN}</script>
<script type=module src=/host/mcp-app.js></script>
"""


async def gateway_host(page: Page, world: World, body: str) -> None:
    """A page with `body` on the console's origin, without the console, under the console's content security policy."""
    await page.route(f"{world.console}/assets/*", lambda route: route.abort())
    await page.goto(world.console)
    await page.evaluate(
        f"""async (body) => {{
      {LISTEN}
      document.title = "host";
      document.body.innerHTML = body;
      await import("/host/mcp-app.js");
    }}""",
        body,
    )


@dataclass(frozen=True, slots=True)
class PlainHost:
    """A host page's server without a gateway, and a sandbox proxy as an integrator hosts it."""

    port: int
    pages: dict[str, str]

    @property
    def origin(self) -> str:
        """The host page's origin."""
        return f"http://host.localhost:{self.port}"

    @property
    def sandbox(self) -> str:
        """The proxy's address."""
        return f"http://sandbox.localhost:{self.port}/sandbox/proxy.html"

    def app(self, script: str) -> str:
        """A page that speaks MCP Apps by hand, with this script."""
        return (PAGES / "app.html").read_text("utf-8").replace("/* SCRIPT */", script)

    def html(self, script: str) -> dict[str, Any]:
        """The properties of an element that shows this page."""
        return {"title": "Clock", "sandboxUrl": self.sandbox, "resourceHtml": self.app(script)}

    async def open(self, page: Page, body: str = "") -> None:
        """Open the host's page with `body`."""
        self.pages["/"] = HEAD + body
        await page.goto(self.origin)


@asynccontextmanager
async def plain_host() -> AsyncIterator[PlainHost]:
    """Both sites on one free port."""
    pages: dict[str, str] = {}

    async def serve(request: web.Request) -> web.StreamResponse:
        if (html := pages.get(request.path)) is not None:
            return web.Response(text=html, content_type="text/html")
        return web.FileResponse(STATIC / request.match_info["file"])

    app = web.Application()
    app.router.add_get("/{file:.*}", serve)
    async with serving(app) as port:
        yield PlainHost(port, pages)


INSERT = """async ([properties, script]) => {
  await customElements.whenDefined("mcp-app");
  const app = Object.assign(document.createElement("mcp-app"), properties);
  new Function("app", script)(app);
  document.body.append(app);
}"""


async def insert(page: Page, properties: dict[str, Any], script: str = "") -> None:
    """Insert an element with these properties; the script may set further ones of `app`."""
    await page.evaluate(INSERT, [properties, script])


def app_in(page: Page, element: str = "mcp-app") -> FrameLocator:
    """The app's own page, inside the proxy inside the element."""
    return page.frame_locator(f"{element} iframe").frame_locator("iframe")


async def until(page: Page, condition: str, argument: Any = None) -> Any:
    """Wait until a JavaScript expression holds on the host page; returns its value."""
    handle = await page.wait_for_function(condition, arg=argument, timeout=60_000)
    return await handle.json_value()
