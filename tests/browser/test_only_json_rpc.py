"""Peers that speak MCP Apps alone: a published app in the console, and a host of ext-apps around a packed page."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Frame, Page, expect

from tests.browser.probing import outcome
from tests.browser.stock_host import bundle_hosts
from tests.browser.stock_host import show_cart as in_stock_host
from tests.browser.test_single_owner import complaints
from tests.browser.test_upstream_apps import show_app as in_console
from tests.world import World

RECORDER = "window.told = []; addEventListener('message', ({ data }) => told.push(data))"
"""A script that runs before any script of a page, in each frame."""

FIRST = {"ui/notifications/tool-input", "ui/notifications/tool-result"}
"""The host's first messages to a page."""

UNKNOWN = ("Ignoring", "Failed to parse", "Unknown message")
"""Parts of ext-apps' log messages about invalid messages."""


def strangers(messages: list[Any]) -> list[Any]:
    """The messages that are not JSON-RPC."""
    return [one for one in messages if not (isinstance(one, dict) and one.get("jsonrpc") == "2.0")]


def log_lines(page: Page) -> list[str]:
    """The log lines of the page and its frames about unknown messages."""
    lines: list[str] = []
    page.on("console", lambda line: lines.append(line.text) if any(word in line.text for word in UNKNOWN) else None)
    return lines


async def received_messages(frame: Page | Frame) -> list[Any]:
    """The messages that a window has received."""
    messages: list[Any] = await frame.evaluate("told")
    return messages


async def test_a_published_app_is_told_json_rpc_alone(page: Page, tmp_path: Path) -> None:
    """From the start, through calls, and for longer than the interval of a poll."""
    unknown, errors = log_lines(page), complaints(page)
    await page.add_init_script(RECORDER)
    async with in_console(page, tmp_path, "basic-react") as (app, _):
        button = app.get_by_role("button", name="Get Server Time")
        await expect(button).to_be_visible()
        # A frame of another process may get the recorder after the host's first messages.
        while not {one.get("method") for one in await received_messages(page.frames[-1])} >= FIRST:
            await page.get_by_role("button", name="Reload the view").click()
            await asyncio.sleep(1)
            await expect(button).to_be_visible()
        for _ in range(3):
            before = await app.locator("body").inner_text()
            await button.click()
            await expect(app.locator("body")).not_to_have_text(before, use_inner_text=True)
            await asyncio.sleep(0.6)
        messages = await received_messages(page.frames[-1])
        assert {one.get("method") for one in messages} >= FIRST
        assert len([one for one in messages if "result" in one]) >= 3
        assert strangers(messages) == []
        assert unknown == errors == []


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of the host."""
    return bundle_hosts(tmp_path_factory.mktemp("stock"))


async def test_a_stock_host_hears_of_the_other_channel_once(page: Page, world: World, script: Path) -> None:
    """Its log has one announcement, after the page's initialization; the page receives JSON-RPC alone."""
    unknown, errors = log_lines(page), complaints(page)
    await page.add_init_script(RECORDER)
    async with in_stock_host(page, world, script) as frame:
        await frame.locator("[data-add]").first.click()
        await outcome(world, method="POST", url="/api/cart")
        await asyncio.sleep(1.5)  # polls every third of a second would be repeated
        heard = await received_messages(page)
        initialized = [one.get("method") for one in heard].index("ui/notifications/initialized")
        ready = {"channel": "mcp-iframe", "type": "mcp", "direction": "server-to-client", "payload": "mcp-server-ready"}
        assert strangers(heard) == [ready]
        assert heard.index(ready) > initialized
        assert strangers(await received_messages(page.frames[-1])) == []
        assert (len(unknown), errors) == (1, [])
