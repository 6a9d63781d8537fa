"""Pairwise combinations of hosts, tiers, frames and pages: one speaker, and each tool is listed and called once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import fields, replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import Browser, Frame, Page

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


KNOWN = [host for host in KNOWN_HOSTS if host.shows is not False]

PLAIN = Quirks("a host without peculiarities", None, shows=True, app_tools=True, display_modes=("inline",))
PECULIAR = (
    PLAIN,
    replace(PLAIN, title="no app tools", app_tools=False),
    replace(PLAIN, title="serial calls", app_tools=False, serial_calls=True),
    replace(PLAIN, title="late answers", late_answers=True),
    replace(PLAIN, title="late answers, no app tools", late_answers=True, app_tools=False),
    replace(PLAIN, title="wrapped parent", wraps_parent=True),
    replace(PLAIN, title="wrapped parent, no app tools", wraps_parent=True, app_tools=False),
    replace(PLAIN, title="opaque origin", frame=FrameKind.OPAQUE),
    replace(PLAIN, title="dedicated origin", frame=FrameKind.DEDICATED),
    replace(PLAIN, title="three display modes", display_modes=("inline", "fullscreen", "pip")),
)
"""A host for each peculiarity of the data."""


def way_of(host: Quirks) -> str:
    """The kind of host of these tests that reaches a page's tools as this host does."""
    return {CallPath.BRIDGE: "ours", CallPath.APP_TOOLS: "callback"}.get(host.path or CallPath.RELAY, "calls")


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
    quirks = replace(PLAIN, wraps_parent=host == "wrapping")
    await use_page(place, pages, "callback" if host == "wrapping" else host, tier, frame, kind, quirks)


@pytest.mark.parametrize("known", [*KNOWN, *PECULIAR], ids=lambda host: host.title)
async def test_a_page_in_a_known_host(place: tuple[Page, str], pages: Callable[[str], str], known: Quirks) -> None:
    """The same in a host like each of those in the docs, as far as is known, and in one with each peculiarity."""
    frame = "dedicated" if known.frame is FrameKind.DEDICATED else "srcdoc"
    await use_page(place, pages, way_of(known), "full", frame, "app-1", known)


def test_each_peculiarity_of_the_data_has_a_host() -> None:
    """Another fact about hosts is tried here, too, or does not concern a page."""
    elsewhere = {"title", "connect", "shows", "elicitation", "bridge", "sources", "drops_meta"}
    facts = {fact.name for fact in fields(Quirks)} - elsewhere
    tried = {name for name in facts if len({getattr(host, name) for host in PECULIAR}) > 1}
    assert tried == facts


async def use_page(
    place: tuple[Page, str],
    pages: Callable[[str], str],
    host: str,
    tier: str,
    frame: str,
    kind: str,
    quirks: Quirks = PLAIN,
) -> None:
    """Show the page in the host, and check what it does, and what the host sees of it."""
    page, url = place
    errors = complaints(page)
    before = CLOCK if host == "calls" or quirks.late_answers else ""
    if quirks.wraps_parent:
        before += WRAPPING + "<script>window.wrappedBy = 'the host'</script>"
    html = before + pages(kind)
    await page.unroute("**/app.html")
    await page.route("**/app.html", lambda route: route.fulfill(body=html, content_type="text/html"))
    await page.goto(url)
    way = "callback" if host == "proxy" else host
    facts = {name: getattr(quirks, name) is True for name in ("serial_calls", "late_answers", "drops_meta")}
    modes = list(quirks.display_modes or ("inline",))
    shown = [way, tier, "proxy" if host == "proxy" else frame, html, {**facts, "display_modes": modes}]
    if quirks.late_answers:
        await page.evaluate("(given) => void (window.showing = show(...given))", shown)
        await page.wait_for_function("() => sent.some((message) => message?.method === 'ui/initialize')")
        view = page.frames[-1]
        await advance_clock(view, 6)
        await view.wait_for_function("() => webmcpGateway.tier === 'static'")  # and an answer upgrades it
        await page.evaluate("async () => { answerNow(); await showing; }")
    else:
        await page.evaluate("(given) => show(...given)", shown)
    view = page.frames[-1]
    with_client = kind[-1] in "12"
    if with_client:
        await view.wait_for_function("() => window.connected")
    assert await view.evaluate("() => fetch('/one').then((answer) => answer.text())") == "http_request /one"
    if with_client and tier == "full":
        asked = "app.callServerTool({ name: 'other', arguments: { url: '/two' } })"
        assert await view.evaluate(f"() => {asked}.then((result) => result.structuredContent.body)") == "other /two"
    if host == "calls" and not quirks.late_answers:
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
    if with_client and tier == "full":
        await check_facts(page, view, quirks)
    await page.evaluate("() => close()")
    assert errors == []


async def check_facts(page: Page, view: Frame, quirks: Quirks) -> None:
    """Check the peculiarities of the host as its page sees them, and what the runtime makes of them."""
    asked = "app.callServerTool({ name: 'other', arguments: { url: '/three' } })"
    await view.evaluate(f"() => Promise.all([{asked}, {asked}, {asked}])")
    assert (await page.evaluate("() => carried.most") > 1) is not (quirks.serial_calls is True)
    launched = await page.evaluate(
        "() => called.filter(({ name }) => name === 'webmcp_attach').map(({ launch }) => launch ?? null)"
    )
    secure = await view.evaluate("() => isSecureContext")  # elsewhere a page cannot sign
    assert launched in ([], [None if quirks.drops_meta or not secure else "launch"])
    answered = "app.requestDisplayMode({ mode: 'fullscreen' }).then(({ mode }) => mode)"
    modes = quirks.display_modes or ("inline",)
    assert await view.evaluate(f"() => {answered}") == ("fullscreen" if "fullscreen" in modes else "inline")
    if quirks.frame is not None:
        own = {FrameKind.OPAQUE: "null", FrameKind.DEDICATED: "https://dedicated.test"}[quirks.frame]
        assert own in await page.evaluate("() => originsOf()")
    assert await view.evaluate("() => Object.hasOwn(window, 'wrappedBy')") is (quirks.wraps_parent is True)
