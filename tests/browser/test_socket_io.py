"""socket.io, with its published client and server: in a view of the console, on the app's site, and in a stock host."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, FrameLocator, Page, expect

from tests.browser.stock_host import bundle_hosts, show_cart
from tests.world import World, running

INTEROP = Path(__file__).parents[1] / "interop"
CLIENT = INTEROP / "node_modules" / "socket.io" / "client-dist" / "socket.io.min.js"
PAGE = """<!doctype html><meta charset=utf-8><title>chat</title>
<p id=ready>chat</p><p id=transport></p><ul id=said></ul>
<script src="socket.io.min.js"></script>
<script>
const socket = io();
socket.on("said", (text, bytes) => {
  const line = document.createElement("li");
  line.textContent = `${text} ${new Uint8Array(bytes).join(",")}`;
  document.querySelector("#said").append(line);
});
const show = () => {
  document.querySelector("#transport").textContent = socket.connected ? socket.io.engine.transport.name : "gone";
};
socket.on("connect", () => { show(); socket.io.engine.on("upgrade", show); });
socket.on("disconnect", show);
</script>"""
POLICY = """version: 1
backends: {chat: {url: "http://127.0.0.1:PORT", network: private}}
limits: {timeout: 60s}
routes:
  - {path: "/socket.io/**", methods: [GET, POST], websocket: true}
"""
SAY = "(text) => new Promise((taken) => socket.emit('say', text, new Uint8Array([1, 2, 255]), taken))"


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """The gateway, and the server of socket.io behind it."""
    folder = tmp_path_factory.mktemp("world")
    source = folder / "page"
    source.mkdir()
    (source / "index.html").write_text(PAGE, "utf-8")
    shutil.copy(CLIENT, source)
    server = await asyncio.create_subprocess_exec(
        "node", "socket_io_server.mjs", cwd=INTEROP, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        assert server.stdout is not None
        port = int(await server.stdout.readline())
        async with running(folder, policy=POLICY.replace("PORT", str(port)), source=source) as found:
            yield found
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # node may be started by a script
        await server.wait()


async def test_socket_io_in_every_place(
    browser: Browser, world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """It begins by polling, changes to a WebSocket, and carries texts, bytes and acknowledgements to all."""
    script = bundle_hosts(tmp_path_factory.mktemp("stock"))
    async with await browser.new_context() as context:
        site, console, stock = [await context.new_page() for _ in range(3)]
        await site.goto(world.site)
        await console.goto(world.url)
        view = console.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
        async with show_cart(stock, world, script, landmark="#ready") as hosted:
            places: dict[str, Page | FrameLocator] = {"site": site, "view": view, "hosted": hosted}
            for place in places.values():
                await expect(place.locator("#transport")).to_have_text("websocket", timeout=60_000)
            for name, place in places.items():
                assert await place.locator("body").evaluate(f"(_, text) => ({SAY})(text)", name) == 3
                for other in places.values():
                    await expect(other.locator("li").last).to_have_text(f"{name} 1,2,255", timeout=60_000)
            for place in places.values():
                await place.locator("body").evaluate("() => void socket.emit('leave')")
                await expect(place.locator("#transport")).to_have_text("gone", timeout=60_000)
    outcomes = [line["fields"] for line in world.records() if line["phase"] == "outcome"]
    doors = {one["door"]: one["websocket"]["received"] > 0 for one in outcomes if one.get("websocket")}
    assert doors == {"site": True, "bridge": True, "mcp": True}
