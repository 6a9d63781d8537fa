"""Large bodies of a page over our own bridge, in Chromium."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Frame, Page, expect

from benchmarks.page.backend import POLICY, SOURCE, build_app
from tests.browser.test_main_job import app_of, model, tool
from tests.world import World, running, serving

SIZE = 50 * 1024 * 1024


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A gateway for a page that sends and takes large bodies."""
    async with (
        serving(build_app()) as port,
        running(tmp_path, policy=POLICY.format(port=port), source=SOURCE) as world,
    ):
        yield world


async def show_page(page: Page, world: World) -> Frame:
    """The page in its view."""
    await page.goto(world.url)
    await expect(app_of(page).locator("#ready")).to_be_visible()
    return page.frames[-1]


@pytest.mark.parametrize("way", ["up", "upXhr"])
async def test_fifty_megabytes_go_up_and_a_model_is_answered_meanwhile(page: Page, world: World, way: str) -> None:
    """The backend receives every byte; the page's tools answer before the upload is done."""
    frame = await show_page(page, world)
    async with model(world) as client:
        await tool(client, "cart_ping")
        sending = asyncio.create_task(frame.evaluate(f"size => {way}(size)", SIZE))
        assert not (await client.call_tool("cart_ping", {})).is_error
        answer = await sending
    assert (answer["status"], answer["size"]) == (200, SIZE)
    assert answer["sha256"] == hashlib.sha256(bytes(range(256)) * (SIZE // 256)).hexdigest()


async def test_a_page_hears_how_far_its_upload_is(page: Page, world: World) -> None:
    """Progress events follow the bytes that leave the host's page."""
    frame = await show_page(page, world)
    session = await page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 8 * 1024 * 1024}
    await session.send("Network.enable")
    await session.send("Network.emulateNetworkConditions", slow)
    kinds, loaded = await frame.evaluate(
        """(size) => new Promise((done) => {
          const xhr = new XMLHttpRequest();
          const kinds = [], loaded = [];
          for (const type of ["loadstart", "progress", "load", "loadend"]) {
            xhr.upload.addEventListener(type, (event) => {
              if (type === "progress") loaded.push(event.loaded);
              if (type !== kinds.at(-1)) kinds.push(type);
            });
          }
          xhr.onload = () => done([[...kinds, xhr.status], loaded]);
          xhr.open("POST", "/api/up");
          xhr.send(bytes(size));
        })""",
        SIZE // 10,
    )
    assert kinds == ["loadstart", "progress", "load", "loadend", 200]
    assert len(loaded) > 3
    assert loaded == sorted(set(loaded))
    assert loaded[-1] == SIZE // 10


async def test_fifty_megabytes_come_down_and_a_model_is_answered_meanwhile(page: Page, world: World) -> None:
    """Every byte arrives, in its place."""
    frame = await show_page(page, world)
    async with model(world) as client:
        await tool(client, "cart_ping")
        taking = asyncio.create_task(frame.evaluate("chunks => down(chunks)", SIZE // 65536))
        assert not (await client.call_tool("cart_ping", {})).is_error
        assert await taking == {"status": 200, "size": SIZE, "wrong": 0}


async def test_a_long_body_is_put_together_piece_by_piece(page: Page, world: World) -> None:
    """Other tasks of the page run between the pieces."""
    frame = await show_page(page, world)
    turns = await frame.evaluate(
        """async (chunks) => {
          const { port1, port2 } = new MessageChannel(), found = [], { set } = Uint8Array.prototype;
          let turn = 0;
          port1.onmessage = () => port2.postMessage(++turn);
          port2.postMessage(turn);
          Uint8Array.prototype.set = function (bytes, ...at) {
            if (this.length === chunks * 65536) found.push([turn, bytes.length]);
            return set.call(this, bytes, ...at);
          };
          await downOnly(chunks);
          port1.close();
          return found;
        }""",
        SIZE // 65536,
    )
    pieces: dict[int, int] = {}
    for turn, size in turns:
        pieces[turn] = pieces.get(turn, 0) + size
    assert sum(pieces.values()) == SIZE
    assert max(pieces.values()) <= SIZE / 20


async def test_what_is_larger_than_anything_takes_is_refused_as_such(page: Page, world: World) -> None:
    """The answer is 413 with the reason, and is recorded; the view keeps working."""
    frame = await show_page(page, world)
    answer = await frame.evaluate("size => up(size)", 64 * 1024 * 1024 + 1)
    assert (answer["status"], answer["reason"]) == (413, "request-too-large")
    assert "request-too-large" in {line["fields"].get("reason") for line in world.records()}
    assert (await frame.evaluate("size => up(size)", 1000))["size"] == 1000


async def test_a_thousand_fetches_at_once_are_no_flood(page: Page, world: World) -> None:
    """A thousand requests, also repeatedly, do not count as a flood."""
    frame = await show_page(page, world)
    for _ in range(3):
        assert await frame.evaluate("count => many(count)", 1000) == {"status": 200}


async def test_the_site_takes_as_much_as_its_policy_says(world: World) -> None:
    """50 MB arrive; a body over the route's limit gets 413."""
    async with world.client(headers={"webmcp-gateway-client": "1"}) as client:
        for path, size, status in (
            ("up", SIZE, 200),
            ("up", 64 * 1024 * 1024 + 1, 413),
            ("small", 2 * 1024 * 1024, 413),
        ):
            async with client.post(f"{world.site}/api/{path}", data=io.BytesIO(bytes(size))) as answer:
                assert answer.status == status, await answer.text()


async def test_several_large_bodies_wait_for_each_other(page: Page, world: World) -> None:
    """All of them arrive, although they exceed the gateway's buffer together."""
    frame = await show_page(page, world)
    answers = await frame.evaluate("size => Promise.all([1, 2, 3].map((more) => up(size + more)))", 30 * 1024 * 1024)
    assert [answer["size"] for answer in answers] == [30 * 1024 * 1024 + more for more in (1, 2, 3)]


async def test_an_upload_that_is_given_up_makes_room(page: Page, world: World) -> None:
    """Its bytes do not delay the next one."""
    frame = await show_page(page, world)
    name = await frame.evaluate(
        """async (size) => {
          const control = new AbortController();
          const sent = fetch("/api/up", { method: "POST", body: bytes(size), signal: control.signal });
          setTimeout(() => control.abort(), 0);
          return sent.then(() => "sent", (error) => error.name);
        }""",
        SIZE,
    )
    assert name == "AbortError"
    assert (await frame.evaluate("size => up(size)", SIZE))["size"] == SIZE
