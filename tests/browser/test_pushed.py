"""Parts of a streamed body are pushed over our own bridge as the backend sends them, without polls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, WebSocket, expect

from gateway.exchange.streams import PER_VIEW
from gateway.mcp.view_server import PART
from tests.browser.test_main_job import app_of
from tests.browser.twins.backend import Backend
from tests.world import Server, World, running

POLICY = (Path(__file__).parent / "twins" / "policy.yaml").read_text("utf-8")
LINES = 12


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A gateway in front of a backend that sends lines on demand."""
    source = tmp_path / "page"
    source.mkdir()
    (source / "index.html").write_text(
        "<!doctype html><title>Lines</title><p id=ready>ready</p><script>EventSource</script>", "utf-8"
    )
    server = Server()
    await server.start(Backend(source).app())
    try:
        policy = POLICY.replace("127.0.0.1:1", f"127.0.0.1:{server.port}")
        async with running(tmp_path, policy=policy, source=source) as world:
            yield world
    finally:
        await server.stop()


class Frames:
    """The frames of one direction of a bridge."""

    def __init__(self) -> None:
        self._all: list[dict[str, Any]] = []

    def take(self, frame: str | bytes) -> None:
        """Add a frame."""
        self._all.append(json.loads(frame))

    def messages(self, method: str) -> list[dict[str, Any]]:
        """The JSON-RPC messages with this method."""
        found = [frame["message"] for frame in self._all if "message" in frame]
        return [message for message in found if message.get("method") == method]


async def test_parts_of_a_stream_are_pushed(page: Page, world: World) -> None:
    """The page reads all lines as they come, and requests the further parts once."""
    sent, received = Frames(), Frames()

    def listen(socket: WebSocket) -> None:
        socket.on("framesent", sent.take)
        socket.on("framereceived", received.take)

    page.on("websocket", listen)
    await page.goto(world.url)
    await expect(app_of(page).locator("#ready")).to_be_visible()
    read = await page.frames[-1].evaluate(
        """async (count) => {
          const { body } = await fetch(`/api/lines?n=${count}`);
          const reader = body.pipeThrough(new TextDecoderStream()).getReader();
          const read = [(await reader.read()).value];
          while (read.length < count) {
            await fetch("/api/lines/next", { method: "POST" });
            read.push((await reader.read()).value);
          }
          return [...read, (await reader.read()).done];
        }""",
        LINES,
    )
    assert len(read) == LINES + 1
    assert read[-1] is True
    calls = sent.messages("tools/call")
    assert [call["params"]["name"] for call in calls].count("http_stream") == 1
    pushed = [part["params"]["_meta"][PART]["body"] for part in received.messages("notifications/progress")]
    # The last of all may be the answer itself.
    assert pushed in (read[:-1], read[:-2])


async def test_plain_answers_come_while_all_streams_are_open(page: Page, world: World) -> None:
    """Short and long answers arrive; an excess stream starts when another ends."""
    await page.goto(world.url)
    await expect(app_of(page).locator("#ready")).to_be_visible()
    open_now = "sources.filter(({ readyState }) => readyState === 1).length"
    frame = page.frames[-1]
    await frame.evaluate(
        "count => { window.sources = Array.from({ length: count }, () => new EventSource('/api/events')); }",
        PER_VIEW + 2,
    )
    await frame.wait_for_function(f"count => {open_now} === count", arg=PER_VIEW)
    sizes = await frame.evaluate(
        """() => Promise.all(Array.from({ length: 30 }, async (_, at) => {
          const answer = await fetch(at % 2 ? "/api/echo" : "/api/large?size=1000003");
          return at % 2 ? answer.ok : (await answer.blob()).size;
        }))"""
    )
    assert sizes == [1_000_003, True] * 15
    await frame.evaluate("() => sources.splice(0, 2).forEach((source) => source.close())")
    await frame.wait_for_function(f"count => {open_now} === count", arg=PER_VIEW)


EVENTS = """async () => {
  const source = new EventSource("/api/events");
  const said = [];
  await new Promise((done, failed) => {
    source.onmessage = ({ data }) => said.push(data) === 3 && done();
    source.onerror = () => failed(new Error("ended"));
  });
  source.close();
  return said;
}"""


@pytest.mark.parametrize("blocked", [False, True])
async def test_an_event_source_reads_past_the_bridge_where_it_can(page: Page, world: World, blocked: bool) -> None:
    """Its events come from an address that works once; where three in a row are blocked, it asks no more."""
    received, asked = Frames(), list[str]()
    page.on("websocket", lambda socket: socket.on("framereceived", received.take))
    page.on("request", lambda request: asked.append(request.url) if "/streams/" in request.url else None)
    if blocked:
        await page.route("**/streams/*", lambda route: route.abort())
    await page.goto(world.url)
    await expect(app_of(page).locator("#ready")).to_be_visible()
    for _ in range(4):
        assert len(await page.frames[-1].evaluate(EVENTS)) == 3
    assert len(set(asked)) == (3 if blocked else 4)
    assert bool(received.messages("notifications/progress")) is blocked
