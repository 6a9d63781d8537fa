"""A slow connection to the gateway: a page's messages are queued in the host page, and do not delay a model."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from playwright.async_api import Page, async_playwright, expect

from benchmarks.page.backend import POLICY, SOURCE
from tests.browser.conftest import launch
from tests.browser.test_main_job import app_of, model, tool
from tests.world import running, serving

CALLS = 48
"""The runtime's limit of concurrent calls."""

PIECE = 16 * 1024
PAUSE = 0.002
"""Seconds between two pieces: eight megabytes a second together."""

COUNT = """
window.calls = 0, window.answers = 0;
addEventListener("message", ({ data }) => {
  if (data?.params?.name === "http_request") window.calls += 1;
}, true);
window.MessageChannel = class extends MessageChannel {
  constructor() {
    super();
    this.port1.addEventListener("message", ({ data }) => {
      if (data?.channel === "mcp-iframe" && data.payload?.result?.content) window.answers += 1;
    });
  }
};
"""
"""A script for the host page that counts messages of the page there."""


@dataclass
class Narrow:
    """A proxy on which WebSockets send nothing while it is shut, and slowly afterwards."""

    server: int
    open: asyncio.Event = field(default_factory=asyncio.Event)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[int]:
        """Yield the port to connect to."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        sock.bind(("127.0.0.1", 0))
        async with await asyncio.start_server(self._carry, sock=sock):
            yield sock.getsockname()[1]
            for writer in self.writers:
                writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.server)
        self.writers += [writer, far_writer]
        await asyncio.gather(self._pass(reader, far_writer, narrow=True), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, narrow: bool = False) -> None:
        is_socket = False
        with suppress(ConnectionError):
            while data := await reader.read(PIECE):
                is_socket = narrow and (is_socket or data.startswith(b"GET /bridge HTTP"))
                writer.write(data)
                await writer.drain()
                if is_socket:
                    await asyncio.sleep(PAUSE)
                    await self.open.wait()
        writer.close()


async def reaches(page: Page, name: str, count: int) -> None:
    """Wait until the host page's counter has this value."""
    async with asyncio.timeout(60):
        while await page.evaluate(name) != count:
            await asyncio.sleep(0.02)


async def test_a_model_hears_from_a_page_that_sends_much_on_a_slow_network(tmp_path: Path) -> None:
    """The model's answer arrives before most of the messages that the page had sent earlier."""
    arrived: list[None] = []

    async def small(request: web.Request) -> web.Response:
        await request.read()
        arrived.append(None)
        return web.json_response({})

    backend = web.Application()
    backend.router.add_post("/api/small", small)
    async with (
        serving(backend) as port,
        running(tmp_path, policy=POLICY.format(port=port), source=SOURCE) as world,
        model(world) as client,
        async_playwright() as playwright,
    ):
        narrow = Narrow(world.gateway.port)
        narrow.open.set()
        async with (
            narrow.serve() as beginning,
            await launch(
                playwright, f"--host-resolver-rules=MAP *:{world.gateway.port} 127.0.0.1:{beginning}"
            ) as browser,
        ):
            page = await browser.new_page()
            await page.add_init_script(COUNT)
            await page.goto(world.url)
            await expect(app_of(page).locator("#ready")).to_be_visible()
            await tool(client, "cart_ping")
            narrow.open.clear()
            await page.frames[-1].evaluate(
                """count => {
                  const request = { url: "/api/small", method: "POST", bodyType: "text", body: "x".repeat(200_000) };
                  for (let sent = 0; sent < count; sent++) byHand(request);
                }""",
                CALLS,
            )
            await reaches(page, "calls", CALLS)
            calling = asyncio.create_task(client.call_tool("cart_ping", {}))
            await reaches(page, "answers", 1)
            narrow.open.set()
            assert not (await calling).is_error
            assert len(arrived) < CALLS // 2
