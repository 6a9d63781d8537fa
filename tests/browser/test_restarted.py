"""Open pages go on after a restart of the gateway, without a reload: the console's view, and a stock host's."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession
from playwright.async_api import FrameLocator, Page, expect

from tests.browser.probing import outcomes
from tests.browser.stock_host import SIZE, bundle_hosts, stock_host
from tests.browser.test_main_job import model, show_app, tool
from tests.browser.test_stock_clients import Forwarder, item_of
from tests.whole.restarts import Restartable
from tests.world import SECRET, World


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of the host."""
    return bundle_hosts(tmp_path_factory.mktemp("stock"))


Restart = Callable[[], Awaitable[None]]


@pytest.fixture(params=["stopped", "killed"])
async def restart(
    request: pytest.FixtureRequest, world: World, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Restart]:
    """Stop the gateway, or kill its process, and start it again."""
    if request.param == "stopped":

        async def again() -> None:
            await world.gateway.stop()
            await world.start_gateway()

        yield again
        return
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    await world.gateway.stop()
    async with AsyncExitStack() as stack:
        gateway = Restartable(world.folder, world.gateway.port, "127.0.0.1", stack)
        await gateway.start()
        yield partial(gateway.restart, signal.SIGKILL)


def count_changes(world: World) -> int:
    """How many changes of the cart have reached the shop."""
    return len([line for line in world.arrived() if line["method"] == "POST"])


async def mark_page(frame: FrameLocator) -> None:
    """Mark the page of the app, so that a reload would be seen."""
    await frame.locator("body").evaluate("(body) => (body.dataset.mark = 'before')")


async def add(frame: FrameLocator, number: int) -> str:
    """Put an item into the cart, as a person does; return its id."""
    item = str(await frame.locator("[data-item-id]").nth(number).get_attribute("data-item-id"))
    added = frame.locator(f"[data-cart-item='{item}']")
    while not await added.is_visible():
        await frame.locator(f"[data-item-id='{item}'] [data-add]").click()
        with suppress(AssertionError):  # a click is lost where the page draws its button anew meanwhile
            await expect(added).to_be_visible(timeout=15_000)
    return item


async def test_an_open_console_goes_on(page: Page, world: World, restart: Restart) -> None:
    """Its view keeps its page, whose requests are answered, and the model's next call reaches it; none runs twice."""
    frame = await show_app(page, world)
    await mark_page(frame)
    await add(frame, 0)
    await restart()
    item = str(await frame.locator("[data-item-id]").nth(2).get_attribute("data-item-id"))
    async with model(world) as client:
        await tool(client, "cart_add_to_cart")
        result = await client.call_tool("cart_add_to_cart", {"item_id": item})
        assert not result.is_error, result
    await expect(frame.locator(f"[data-cart-item='{item}']")).to_be_visible()
    await add(frame, 1)
    assert await frame.locator("body").get_attribute("data-mark") == "before"
    records = outcomes(world, method="POST", url="/api/cart")
    assert [(one["status"], one["door"]) for one in records] == [(200, "bridge")] * 3
    assert count_changes(world) == 3


async def test_a_view_in_a_stock_host_goes_on(page: Page, world: World, script: Path, restart: Restart) -> None:
    """It attaches again with its launch value, in the session of its host; the call that found it out runs once."""
    await page.set_viewport_size(SIZE)
    async with stock_host(script) as url, ClientSession() as http:
        forward = Forwarder(http, f"{world.url}/mcp/cart")

        async def patient(message: dict[str, Any]) -> list[dict[str, Any]]:
            try:
                return await forward(message)
            except ClientError:  # the gateway is down
                error = {"code": -32603, "message": "no connection"}
                return [{"jsonrpc": "2.0", "id": message["id"], "error": error}] if "id" in message else []

        await page.expose_function("forward", patient)
        await page.goto(url)
        await page.evaluate("window.showInClientMode()")
        frame = page.frame_locator("iframe")
        await item_of(frame)
        await mark_page(frame)
        await add(frame, 0)
        await restart()
        await add(frame, 1)
        assert await frame.locator("body").get_attribute("data-mark") == "before"
    records = outcomes(world, method="POST", url="/api/cart")
    assert [record["reason"] for record in records if record.get("status") == 200] == [None] * 2
    assert len({record["view"] for record in records if record.get("view")}) == 1
    assert count_changes(world) == 2
    assert forward.called.count("open_cart") == 1
    assert forward.called.count("webmcp_attach") == 2
