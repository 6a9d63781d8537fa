"""A hostile page in the console reaches no address of its choice, by means that no content security policy covers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import BrowserContext, expect

from tests.browser.test_main_job import app_of
from tests.world import running, serving

CALL = (
    "(self.calls ??= []).push(new RTCPeerConnection({iceServers: [{urls: `stun:${to}`},"
    " {urls: `turn:${to}?transport=tcp`, username: 'what the page knows', credential: 'x'}]}));"
    " calls[0].createDataChannel('x'); calls[0].setLocalDescription();"
)
FRAME = "const frame = document.createElement('iframe'); document.body.append(frame);"
WAYS = {
    "webrtc": CALL,
    "webrtc-of-a-frame": f"{FRAME} frame.srcdoc = `<script>{CALL.replace('`', chr(39))}</script>`;",
    "a-frame": f"{FRAME} frame.src = `http://${{to}}/`;",
    "navigation": "setTimeout(() => { Reflect.get(self, 'location').href = `http://${to}/`; });",
    "refresh": "document.head.append(Object.assign(document.createElement('meta'),"
    " {httpEquiv: 'refresh', content: `0;url=http://${to}/`}));",
}


class Contacted(asyncio.DatagramProtocol):
    """Notes connections or datagrams to a port, by TCP or UDP."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def datagram_received(self, *_: object) -> None:
        self.event.set()


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """An address, and an event for contact there."""
    contacted = Contacted()

    async def came(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        contacted.event.set()
        writer.close()

    server = await asyncio.start_server(came, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: contacted, local_addr=address)
    async with server:
        try:
            yield f"127.0.0.1:{address[1]}", contacted.event
        finally:
            transport.close()


@pytest.mark.parametrize("sandbox", ["opaque", "dedicated"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_page_connects_to_nothing(context: BrowserContext, tmp_path: Path, way: str, sandbox: str) -> None:
    """The same attempt reaches a listener from an ordinary web site, tried later, but not from an app."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html><html><body><p>app</body></html>", "utf-8")

    async def plain(_: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><p>site", content_type="text/html")

    site = web.Application()
    site.router.add_get("/", plain)
    attempt = f"(_, to) => {{ {WAYS[way]} }}"
    async with (
        serving(site) as port,
        listening() as (forbidden, leaked),
        listening() as (free, reached),
        running(tmp_path, source=folder, policy="version: 1\n", sandbox=sandbox) as world,
    ):
        page = await context.new_page()
        await page.goto(world.console)
        await expect(app_of(page).locator("p")).to_have_text("app")
        await app_of(page).locator("body").evaluate(attempt, forbidden)
        other = await context.new_page()
        await other.goto(f"http://localhost:{port}/")
        await other.locator("body").evaluate(attempt, free)
        async with asyncio.timeout(60):
            await reached.wait()
        assert not leaked.is_set()
