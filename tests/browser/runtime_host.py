"""A page under test inside a plain host, with the frame and the content policy that hosts of MCP Apps give it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from playwright.async_api import Frame, Page

from gateway.apps import PARTS, STORAGE_PART, pack, with_snapshot
from gateway.model import Json

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "gateway" / "static" / "view" / "runtime.js"
CSP = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; media-src 'self' data:; connect-src 'none'; frame-src blob:"
)
"""The policy of hosts for a view without requests of its own (hosts add `blob:` frames for themselves)."""

KEY = bytes(range(32))


CLOCK = """<script>{
  const { setTimeout: own, clearTimeout: clear } = window;
  const waiting = [];
  window.setTimeout = (run, after = 0, ...given) =>
    after < 1000 ? own(run, after, ...given) : -waiting.push({ after, run: () => run(...given) });
  window.clearTimeout = (id) => (id < 0 ? delete waiting[-id - 1] : clear(id));
  window.pass = (time) => {
    Object.assign(window, { setTimeout: own, clearTimeout: clear });
    waiting.forEach(({ after, run }) => own(run, Math.max(0, after - time)));
  };
}</script>"""
"""A script before a page: its timers of a second or more need `advance_clock`, as Playwright's clock starts late."""


async def advance_clock(frame: Frame, seconds: int) -> None:
    """Advance the time of a page with `CLOCK` at once; from then on it runs as usual."""
    await frame.evaluate("(time) => pass(time)", seconds * 1000)


def pack_html(
    folder: Path, html: str, *, keeps: bool = False, tools: Sequence[str] = (), secret: Sequence[Json] = ()
) -> str:
    """The packed app of `html`, with a backend at `/api`.

    With `keeps` its storage is on the gateway; `tools` lists those that hosts may offer by themselves, `secret` the
    routes whose bodies are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(html, "utf-8")
    static = ROOT / "gateway" / "static"
    parts = {word: [(static / name).read_text("utf-8") for name in names] for word, names in PARTS.items()}
    storage = (ROOT / "gateway" / "static" / STORAGE_PART).read_text("utf-8") if keeps else None
    runtime = RUNTIME.read_text("utf-8")
    resource = pack(
        folder,
        app="cart",
        title="Cart",
        runtime=runtime,
        parts=parts,
        storage=storage,
        routed=lambda path: path.startswith(("/api/", "https://files.example/")),
        secret=bool(secret),
    )
    return with_snapshot(resource, {}, tools, secret)


@asynccontextmanager
async def host_server(policy: str = CSP) -> AsyncIterator[str]:
    """The URL of the host's page, on a real server, under this content policy."""

    async def page(_: web.Request) -> web.Response:
        html = (Path(__file__).parent / "runtime" / "host.html").read_text("utf-8")
        return web.Response(text=html, content_type="text/html", headers={"content-security-policy": policy})

    async def icon(_: web.Request) -> web.Response:
        return web.Response(status=204)  # browsers request an icon at any moment, and log an error if there is none

    app = web.Application()
    app.router.add_get("/sub/host.html", page)
    app.router.add_get("/favicon.ico", icon)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}/sub/host.html"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def echoing_host(page: Page) -> AsyncIterator[Host]:
    """A plain host on a real server, whose answers repeat the requested URL."""
    async with host_server() as url:
        await page.goto(url)
        host = Host(page)
        await host.answers("return { bodyType: 'text', body: args.url };")
        yield host


@dataclass(frozen=True, slots=True)
class Host:
    """The host's page; `run` is JavaScript in it, `view` the frame of the app."""

    page: Page

    async def run(self, expression: str, argument: Any = None) -> Any:
        """The value of a JavaScript function or expression in the host's page."""
        return await self.page.evaluate(expression, argument)

    async def show(self, html: str) -> Frame:
        """Show the app, and return its frame once its scripts have run: before that, messages to it are lost."""
        async with self.page.expect_event("framenavigated", lambda frame: frame.url == "about:srcdoc") as navigated:
            await self.run("html => host.show(html)", html)
        frame: Frame = await navigated.value
        await frame.wait_for_load_state("domcontentloaded")
        return frame

    async def until(self, expression: str) -> Any:
        """Wait until `expression` holds in the host's page, and give its value."""
        async with asyncio.timeout(60):
            while not (value := await self.run(f"() => {expression}")):
                await asyncio.sleep(0.02)
        return value

    async def settled(self) -> None:
        """Wait until the view has received all messages sent to it, and the host those of the view until then."""
        await self.run("() => host.ask(`settled-${(host.pings = (host.pings ?? 0) + 1)}`, 'ping')")

    async def answers(self, body: str) -> None:
        """Answer `http_request` with the result of the JavaScript `body` for `args`."""
        await self.run(
            "body => { const answer = new Function('args', 'id', `return (async () => { ${body} })()`);"
            " host.tools.http_request = async (args, id) => ({ content: [], structuredContent:"
            " { status: 200, statusText: 'OK', url: args.url, ok: true, redirected: false, bodyType: 'none',"
            " headers: {}, ...await answer(args, id) } }); }",
            body,
        )

    async def in_our_host(self) -> None:
        """Act as our own host, where the socket is the proof."""
        await self.run("() => { host.context = { 'webmcp-gateway': { bridge: true } }; }")

    async def attaches(self, *free: str) -> None:
        """Answer `webmcp_attach` with these free tools, and send a launch value as soon as the view is initialized."""
        values = {"view": "view1", "key": base64url(KEY), "proven": True, "free": free}
        await self.run(
            "values => { host.tools.webmcp_attach = async () => ({ content: [], structuredContent: values });"
            " addEventListener('message', ({ data }) => data?.method === 'ui/notifications/initialized' &&"
            " host.notify('ui/notifications/tool-result', { content: [{ type: 'text', text: 'open' }],"
            " _meta: { 'webmcp-gateway/launch': 'LAUNCH-SECRET', other: 1 } })); }",
            values,
        )


async def notice_text(frame: Frame) -> str:
    """The text of the view's notice, once there is one: no script can look inside of it."""
    session = await frame.page.context.new_cdp_session(frame)
    async with asyncio.timeout(60):
        while True:
            document = await session.send("DOM.getDocument", {"depth": -1, "pierce": True})
            if words := " ".join(_words(document["root"], inside=False)):
                await session.detach()
                return words
            await asyncio.sleep(0.02)


def _words(node: dict[str, Any], *, inside: bool) -> Iterator[str]:
    inside = inside or node["localName"] == "webmcp-gateway-notice"
    if inside and node["nodeName"] == "#text":
        yield node["nodeValue"]
    for part in (*node.get("shadowRoots", ()), *node.get("children", ())):
        yield from _words(part, inside=inside)


def base64url(value: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def proof(number: int) -> str:
    """The value of `_view` for the call with this number."""
    return f"view1.{number}.{base64url(hmac.digest(KEY, str(number).encode(), hashlib.sha256))}"


async def show_page(host: Host, folder: Path, html: str = "<!doctype html><p>page</p>") -> Frame:
    """The frame of a page in our own host, where no proof is required."""
    await host.in_our_host()
    return await host.show(pack_html(folder, html))
