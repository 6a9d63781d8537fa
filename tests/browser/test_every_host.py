"""Pairwise combinations of hosts, tiers, frames and pages: one speaker, and each tool is listed and called once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import Browser, Page

from gateway.apps import with_snapshot
from gateway.model import Json, Resource
from scripts.hosts_doc import HOSTS as KNOWN_HOSTS
from scripts.hosts_doc import CallPath, FrameKind, Quirks
from tests.browser.runtime_host import CLOCK, CSP, advance_clock, pack_html
from tests.browser.stock_host import bundle_hosts
from tests.browser.test_own_client import page_with_app
from tests.browser.test_single_owner import WRAPPING, complaints, polyfill
from tests.world import serving

HOSTS = ("ours", "callback", "client", "envelope", "calls", "wrapping", "proxy")
TIERS = ("full", "context-synced", "static")
FRAMES = ("srcdoc", "write", "src", "blob")
PAGES = ("bare", "app-1", "mcp-b", "both-2")
CASES = [
    (HOSTS[host], TIERS[(page + 2 * host) % 3], FRAMES[(page + host) % 4], PAGES[page])
    for host, page in product(range(len(HOSTS)), range(len(PAGES)))
]
"""Each pair of values occurs; the sandbox proxy has its own kind of frame."""


def stand_in(host: Quirks) -> tuple[str, str, bool]:
    """The host of these tests that is like a known one: its kind, its frame, and whether it carries calls in turn."""
    kind = {CallPath.BRIDGE: "ours", CallPath.APP_TOOLS: "callback"}.get(host.path or CallPath.RELAY, "calls")
    return "wrapping" if host.wraps_parent else kind, host.frame or FrameKind.OPAQUE, host.serial_calls is True


KNOWN = {stand_in(host): host.title for host in KNOWN_HOSTS if host.shows is not False}
"""One of the hosts for each stand-in, with what nobody has stated at its worse."""

SERIAL = Quirks("a host with calls in turn", None, shows=True, serial_calls=True)

POLICY = CSP.replace("frame-src", "frame-src 'self' http://proxy.test https://dedicated.test")
WRITTEN = CSP.replace("'none'", "'self' 'unsafe-inline'", 1)

ADD = """<script>
  window.runs = [];
  document.modelContext.registerTool({ name: "add", description: "d", inputSchema: { type: "object" }, async execute() {
    runs.push("add");
    return "add " + await (await fetch("/one")).text();
  } });
</script>"""
OWN = """
  window.app = new App({ name: "own", version: "1" }, { tools: { listChanged: true } }, { autoResize: false });
  app.registerTool("own", { description: "d", inputSchema: undefined }, async () => {
    runs.push("own");
    return { content: [{ type: "text", text: "own" }] };
  });
  await app.connect();
  window.connected = true;
"""
KEPT: dict[str, Json] = {
    "status": 200,
    "statusText": "OK",
    "ok": True,
    "bodyType": "text",
    "headers": {},
    "body": "http_request /one",
}


@cache
def text(kind: str) -> str:
    """The page of this kind, as its author wrote it."""
    mcp_b = polyfill().partition("<script>document.")[0] if kind in ("mcp-b", "both-2") else ""
    packages = {"app-1": "ext-apps-1", "both-2": "@modelcontextprotocol/ext-apps"}
    own = page_with_app(OWN, packages[kind]).partition("</p>")[2] if kind in packages else ""
    return f"<!doctype html><body><p>page</p>{mcp_b}{ADD}{own}</body>"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The packed page of each kind, packed once."""

    @cache
    def page(kind: str) -> str:
        made = pack_html(tmp_path_factory.mktemp("page"), text(kind))
        resource = Resource("ui://cart/x", made, {}, head=made.index('<meta name="webmcp-gateway"'))
        return with_snapshot(resource, {"/one": {**KEPT, "url": "/one"}}, ["add", "own"])

    return page


@pytest.fixture(scope="module")
async def place(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Page, str]]:
    """A browser page, and the URL of the hosts for it."""
    script = bundle_hosts(tmp_path_factory.mktemp("every"), "every.ts")
    proxy = (Path(__file__).parent / "runtime" / "proxy.html").read_text("utf-8")

    async def host(_: web.Request) -> web.Response:
        html = "<!doctype html><title>host</title><body></body><script src=/host.js></script>"
        return web.Response(text=html, content_type="text/html", headers={"content-security-policy": POLICY})

    async def code(_: web.Request) -> web.FileResponse:
        return web.FileResponse(script)

    app = web.Application()
    app.router.add_get("/", host)
    app.router.add_get("/host.js", code)
    headers = {"content-security-policy": WRITTEN}
    async with serving(app) as port, await browser.new_context() as context:
        page = await context.new_page()
        await page.route(
            "http://proxy.test/", lambda route: route.fulfill(body=proxy, content_type="text/html", headers=headers)
        )
        yield page, f"http://127.0.0.1:{port}/"


@pytest.mark.parametrize(("host", "tier", "frame", "kind"), CASES)
async def test_a_page_in_a_host(
    place: tuple[Page, str], pages: Callable[[str], str], host: str, tier: str, frame: str, kind: str
) -> None:
    """One `ui/initialize`, no console error, answered requests, and tools by that host's mechanism only."""
    await use_page(place, pages, host, tier, frame, kind)


@pytest.mark.parametrize("known", [*KNOWN, stand_in(SERIAL)], ids=[*KNOWN.values(), SERIAL.title])
async def test_a_page_in_a_known_host(
    place: tuple[Page, str], pages: Callable[[str], str], known: tuple[str, str, bool]
) -> None:
    """The same in a host like each of those in the docs, as far as is known."""
    host, frame, serial = known
    await use_page(place, pages, host, "full", "srcdoc" if frame == "opaque" else frame, "app-1", serial=serial)


async def use_page(
    place: tuple[Page, str],
    pages: Callable[[str], str],
    host: str,
    tier: str,
    frame: str,
    kind: str,
    *,
    serial: bool = False,
) -> None:
    """Show the page in the host, and check what it does, and what the host sees of it."""
    page, url = place
    errors = complaints(page)
    before = {"calls": CLOCK, "wrapping": WRAPPING}.get(host, "")
    html = before + pages(kind)
    await page.unroute("**/app.html")
    await page.route("**/app.html", lambda route: route.fulfill(body=html, content_type="text/html"))
    await page.goto(url)
    way = {"wrapping": "callback", "proxy": "callback"}.get(host, host)
    shown = [way, tier, "proxy" if host == "proxy" else frame, html, serial]
    await page.evaluate("(given) => show(...given)", shown)
    view = page.frames[-1]
    with_client = kind[-1] in "12"
    if with_client:
        await view.wait_for_function("() => window.connected")
    assert await view.evaluate("() => fetch('/one').then((answer) => answer.text())") == "http_request /one"
    if with_client and tier == "full":
        asked = "app.callServerTool({ name: 'other', arguments: { url: '/two' } })"
        assert await view.evaluate(f"() => {asked}.then((result) => result.structuredContent.body)") == "other /two"
    if host == "calls":
        await advance_clock(view, 4)
    reached = host != "calls" or tier == "full"  # this host reaches the page's tools only through the gateway
    tools = ["add", "own"][: 1 + with_client] if reached else []
    names = "async () => (await way.list()).map(({ name }) => name).sort().join()"
    await page.wait_for_function(f"async (wanted) => await ({names})() === wanted", arg=",".join(tools))
    said = [(await page.evaluate("(name) => way.call(name)", name))["content"][0]["text"] for name in tools]
    assert said == ["add http_request /one", "own"][: len(tools)]
    assert await view.evaluate("() => runs") == tools
    assert await page.evaluate(names) == ",".join(tools)
    assert await page.evaluate("() => sent.filter((message) => message?.method === 'ui/initialize').length") == 1
    assert await view.evaluate("() => webmcpGateway.tier") == tier
    called = await page.evaluate("() => called.map(({ name }) => name)")
    assert called.count("webmcp_attach") == (tier == "full" and host != "ours")
    assert ("webmcp_poll" in called) is (host == "calls" and reached)
    await page.evaluate("() => close()")
    assert errors == []
