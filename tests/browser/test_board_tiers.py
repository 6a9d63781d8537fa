"""The board's elements in every tier, and as a web site: each works, asks the assistant, or shows why it cannot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from playwright.async_api import FilePayload, Frame, FrameLocator, Page, expect

from examples.board_app import board
from gateway.apps import pack, with_snapshot
from gateway.doors.assets import read_built as built_browser
from tests.board import Run, build_board, running
from tests.browser.runtime_host import Host, notice_text
from tests.browser.test_main_job import app_of
from tests.browser.test_tiers import STATIC, SYNCED, answer, tier, wait_report
from tests.browser.usable import there_and_used, watch
from tests.world import serving

FILE = {"id": "f1", "name": "leaf.txt", "type": "text/plain", "size": 4}
PICTURE = {"id": "f2", "name": "leaf.png", "type": "image/png", "size": 4}
CARD = {"id": "card-1", "title": "Sencha", "note": "", "column": "doing", "files": [FILE, PICTURE]}
BOARD = {
    "revision": 1,
    "columns": [
        {"id": "ideas", "title": "Ideas", "cards": []},
        {"id": "doing", "title": "Doing", "cards": [CARD]},
        {"id": "done", "title": "Done", "cards": []},
    ],
}
MOVE = {"method": "PATCH", "path": "/api/cards/card-1"}
ELEMENTS: dict[str, dict[str, str]] = {
    "add": {"method": "POST", "path": "/api/cards"},
    "left": MOVE,
    "right": MOVE,
    "drag": MOVE,
    "attach": {"method": "POST", "path": "/api/cards/card-1/files"},
    "throw away": {"method": "DELETE", "path": "/api/cards/card-1"},
}
"""The elements in the order of their use, and the request of each."""

KINDS = {
    "title": "form input",
    "add": "form button",
    "left": ".actions button:nth-of-type(1)",
    "right": ".actions button:nth-of-type(2)",
    "throw away": ".actions button:nth-of-type(3)",
    "attach": ".actions input[type=file]",
    "drag": "li[data-card]",
    "file": ".files a[download]",
}
"""All usable elements: the page is checked for others."""

SHOTS = os.environ.get("WEBMCP_GATEWAY_SHOTS")
Place = Page | Frame | FrameLocator


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Run]:
    """The board behind a gateway."""
    async with running(tmp_path_factory.mktemp("board")) as run:
        yield run


@pytest.fixture(scope="module")
async def packed() -> str:
    """The board as one file, with a snapshot."""
    dist = await asyncio.to_thread(build_board)
    browser = built_browser()
    app = pack(dist, app="board", title="Board", runtime=browser.runtime, parts=browser.parts)
    return with_snapshot(app, {"/api/board": answer(BOARD)})


async def show_board(host: Host, packed: str, capabilities: dict[str, Any]) -> Frame:
    """The board in a host with these capabilities."""
    await host.run("given => { host.capabilities = given; }", capabilities)
    frame = await host.show(packed)
    await host.run("() => { host.frame.style.cssText = 'width: 900px; height: 500px'; }")
    await expect(frame.locator("[data-card=card-1]")).to_be_visible()
    return frame


async def use(place: Place, element: str, card: str = "card-1", title: str = "Sencha") -> None:
    """Use one of the elements as a person does; `card` is in the middle column."""
    at = place.locator(f"[data-card={card}]")
    if element == "add":
        await place.get_by_label("A new card in Ideas").fill("Oolong")
        await place.locator("[data-column=ideas]").get_by_role("button", name="Add", exact=True).click()
    elif element == "drag":
        await at.drag_to(place.locator("[data-column=done]"))
    elif element == "attach":
        file = FilePayload(name="leaf.txt", mimeType="text/plain", buffer=b"leaf")
        await at.locator("input[type=file]").set_input_files(file)
    else:
        label = {
            "left": f"Move {title} to Ideas",
            "right": f"Move {title} to Done",
            "throw away": f"Throw {title} away",
        }
        await at.get_by_label(label[element]).click()


async def shot(page: Page, name: str) -> None:
    """Take a screenshot of the page if `SHOTS` is set."""
    if SHOTS:
        await page.screenshot(path=f"{SHOTS}/board-{name}.png")


async def test_each_element_of_the_board_asks_the_assistant(host: Host, packed: str) -> None:
    """Context-synced: all of them become actions, and a file that is not in the snapshot is not saved."""
    frame = await show_board(host, packed, SYNCED)
    await tier(frame, "context-synced")
    await watch(frame, KINDS)
    for count, element in enumerate(ELEMENTS, 1):
        await use(frame, element)
        *_, action = await wait_report(host, count, "board")
        assert {key: action[key] for key in ("method", "path")} == ELEMENTS[element], element
    await expect(frame.locator("webmcp-gateway-notice").first).to_be_attached()
    await shot(host.page, "context-synced")
    await expect(frame.locator("[data-column=doing] [data-card=card-1]")).to_be_visible()
    await check_unavailable(host, frame)
    assert await there_and_used(frame) == (sorted(KINDS), sorted(KINDS))


async def test_each_element_of_the_board_says_why_it_cannot(host: Host, packed: str) -> None:
    """Static: the board stays unchanged, and nothing leaves the page."""
    tried: set[str] = set()
    for element in ELEMENTS:
        # A page for each: the message of one stays until something works.
        await host.page.reload()
        frame = await show_board(host, packed, STATIC)
        await tier(frame, "static")
        await watch(frame, KINDS)
        await use(frame, element)
        there, used = await there_and_used(frame)
        assert there == sorted(KINDS)
        tried |= {*used}
        await expect(frame.get_by_role("alert")).to_contain_text("cannot reach its server from here")
        await expect(frame.locator("[data-column=doing] [data-card=card-1]")).to_be_visible()
        if element == "add":
            await expect(frame.get_by_label("A new card in Ideas")).to_have_value("Oolong")
        assert await host.run("() => host.of('ui/update-model-context').length + host.of('tools/call').length") == 0
    await expect(frame.get_by_role("link", name="leaf.png")).to_have_text("leaf.png")
    await shot(host.page, "static")
    await check_unavailable(host, frame)
    assert tried | {"file"} == {*KINDS}


async def check_unavailable(host: Host, frame: Frame) -> None:
    """The link to an unavailable file shows a notice; nothing is sent to the host instead."""
    async with host.page.expect_console_message(lambda message: "leaf.txt: 503" in message.text):
        await frame.get_by_role("link", name="leaf.txt").click()
    assert "File not saved leaf.txt" in await notice_text(frame)
    assert await host.run("() => host.of('ui/download-file').length") == 0


@pytest.mark.parametrize("where", ["site", "full", "standalone"])
async def test_each_element_of_the_board_works(page: Page, gateway: Run, packed: str, where: str) -> None:
    """As a web site, in a view, and packed beside its backend, each action changes the board."""
    async with AsyncExitStack() as stack:
        place: Place = page
        api = gateway.api
        if where == "standalone":
            port = await stack.enter_async_context(serving(_site(packed)))
            await page.goto(f"http://127.0.0.1:{port}/")
            api = f"http://127.0.0.1:{port}/api"
        elif where == "site":
            await page.goto(gateway.site)
        else:
            await page.goto(gateway.url)
            place = app_of(page)
        await expect(place.locator("[data-card]").first).to_be_visible()
        if where != "site":
            await expect(place.locator("html")).to_have_attribute("data-tier", where)
        await watch(place, KINDS)
        await _worked_on(page, place, await stack.enter_async_context(aiohttp.ClientSession()), api)
        await shot(page, where)
        assert await there_and_used(place) == (sorted(KINDS), sorted(KINDS))


def _site(packed: str) -> web.Application:
    async def first(_: web.Request) -> web.Response:
        return web.Response(text=packed, content_type="text/html")

    app = board.build_app()
    app.router.add_get("/", first)
    return app


async def _worked_on(page: Page, place: Place, http: aiohttp.ClientSession, api: str) -> None:
    async with http.post(f"{api}/cards", json={"title": "Gyokuro", "column": "doing"}) as made:
        id = (await made.json())["id"]
    card = place.locator(f"[data-card={id}]")

    async def stands(column: str) -> None:
        await expect(place.locator(f"[data-column={column}] [data-card={id}]")).to_be_visible()

    async def back() -> None:
        async with http.patch(f"{api}/cards/{id}", json={"column": "doing"}) as moved:
            assert moved.ok
        await stands("doing")

    await stands("doing")
    before = await place.locator("[data-column=ideas] [data-card]").count()
    await use(place, "add")
    await expect(place.locator("[data-column=ideas] [data-card]")).to_have_count(before + 1)
    for element, column in (("left", "ideas"), ("right", "done"), ("drag", "done")):
        await use(place, element, id, "Gyokuro")
        await stands(column)
        await back()
    await use(place, "attach", id, "Gyokuro")
    link = card.get_by_role("link", name="leaf.txt")
    if place is page:
        async with page.expect_download() as saving:
            await link.click()
        assert (await saving.value).suggested_filename == "leaf.txt"
    else:
        await link.click()
        await expect(page.get_by_test_id("link-dialog")).to_contain_text("leaf.txt (4 B)")
        await page.get_by_test_id("link-cancel").click()
    await use(place, "throw away", id, "Gyokuro")
    await expect(card).to_have_count(0)
    await expect(place.get_by_role("alert")).to_have_count(0)
