"""Parts of a streamed body over our own bridge: they come when the backend has them, without being asked for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, WebSocket, expect

from gateway.mcp.answers import PART
from tests.browser.test_main_job import app_of
from tests.browser.twins.backend import Backend
from tests.world import Server, World, bound, running

POLICY = (Path(__file__).parent / "twins" / "policy.yaml").read_text("utf-8")
LINES = 12


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A gateway in front of a backend whose lines come when somebody says so."""
    source = tmp_path / "page"
    source.mkdir()
    (source / "index.html").write_text("<!doctype html><title>Lines</title><p id=ready>ready</p>", "utf-8")
    server = Server(bound())
    await server.start(Backend(source).app())
    try:
        policy = POLICY.replace("127.0.0.1:1", f"127.0.0.1:{server.port}")
        async with running(tmp_path, policy=policy, source=source) as world:
            yield world
    finally:
        await server.stop()


class Frames:
    """What went over a bridge in one direction."""

    def __init__(self) -> None:
        self._all: list[dict[str, Any]] = []

    def take(self, frame: str | bytes) -> None:
        """One more frame."""
        self._all.append(json.loads(frame))

    def messages(self, method: str) -> list[dict[str, Any]]:
        """The JSON-RPC messages with this method."""
        found = [frame["message"] for frame in self._all if "message" in frame]
        return [message for message in found if message.get("method") == method]


async def test_parts_of_a_stream_are_pushed(page: Page, world: World) -> None:
    """The page reads all lines as they come, and asks for the next parts once."""
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
