"""Host pages with `<mcp-app>`: on the gateway's own origin, or on one without any gateway."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler
from playwright.async_api import FrameLocator, Page

from tests.browser.far_end import PAGES, STATIC
from tests.browser.stock_host import ROOT
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
    handlers: dict[str, Handler]

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
    handlers: dict[str, Handler] = {}

    async def serve(request: web.Request) -> web.StreamResponse:
        if request.path in handlers:
            return await handlers[request.path](request)
        if (text := pages.get(request.path)) is not None:
            return web.Response(text=text, content_type=f"text/{'javascript' if '.js' in request.path else 'html'}")
        return web.FileResponse(STATIC / request.match_info["file"])

    app = web.Application()
    app.router.add_route("*", "/{file:.*}", serve)
    async with serving(app) as port:
        yield PlainHost(port, pages, handlers)


SPEAK = """
const appCapabilities = { availableDisplayModes: ["inline", "fullscreen"], ...window.declares };
window.heard = [];
window.methods = () => heard.map(({ method }) => method).filter((method) => method);
addEventListener("message", ({ data }) => heard.push(data));
ask("ui/initialize", { appInfo: { name: "app", version: "1" }, appCapabilities, protocolVersion: "2026-01-26" })
  .then(({ result }) => {
    window.told = result;
    tell({ method: "ui/notifications/initialized", params: {} });
    show("ready");
  });
Object.assign(window, { ask, tell, call });
"""
"""The script of an app that does what a test says, and keeps every message that it hears."""

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


async def in_app(page: Page, expression: str, argument: Any = None, element: str = "mcp-app") -> Any:
    """The value of a JavaScript expression in the app's own page, where `arg` is the argument."""
    return await app_in(page, element).locator("body").evaluate(f"async (_, arg) => {expression}", argument)


async def until(page: Page, condition: str, argument: Any = None) -> Any:
    """Wait until a JavaScript expression holds on the host page; returns its value. Its policy may forbid `eval`."""
    async with asyncio.timeout(60):
        while not (value := await page.evaluate(condition, argument)):
            await asyncio.sleep(0.05)
    return value


async def until_app(page: Page, expression: str, argument: Any = None, element: str = "mcp-app") -> Any:
    """Wait until a JavaScript expression holds in the app's own page; returns its value."""
    async with asyncio.timeout(60):
        while not (value := await in_app(page, expression, argument, element)):
            await asyncio.sleep(0.05)
    return value


CLIENT = """import { config } from "zod/v4";
import { Client } from "@modelcontextprotocol/client";
config({ jitless: true });
Object.assign(window, { Client });
"""
"""A script that sets `window.Client`, the MCP SDK's own client."""

HOST = """export * from "@modelcontextprotocol/client";
export * from "../../src/host/index.ts";
"""
"""What a host page bundles: that client, and the host parts."""


@cache
def bundled(source: str, form: str = "iife") -> str:
    """The bundle of a module."""
    folder = ROOT / "browser" / "node_modules" / ".cache"
    folder.mkdir(exist_ok=True)
    entry = folder / f"element-{form}.ts"
    entry.write_text(source, "utf-8")
    command = [ROOT / "browser/node_modules/.bin/rolldown", entry, "--file", folder / f"element-{form}.js"]
    subprocess.run(
        [*map(str, command), "--format", form, "--no-code-splitting"],
        check=True,
        cwd=ROOT / "browser",
        capture_output=True,
    )
    return (folder / f"element-{form}.js").read_text("utf-8")
