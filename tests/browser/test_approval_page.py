"""The page of one approval, opened by its link: read first, then a real click, and nothing else, answers."""

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from mcp import Client
from mcp.client import advertise
from playwright.async_api import Page, ViewportSize, expect

from tests.world import World

UI = [advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})]
DELETE = {"url": "/api/cart/mug", "method": "DELETE", "_initiator": "model"}


@dataclass
class View:
    """A view of the cart as the gateway sees it: calls that carry its proof."""

    client: Client
    id: str
    key: bytes
    count: int = 0

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What the call of `tool` gives."""
        self.count += 1
        digest = hmac.digest(self.key, str(self.count).encode(), hashlib.sha256)
        proof = f"{self.id}.{self.count}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
        content: dict[str, Any] | None
        content = (await self.client.call_tool(tool, {**arguments, "_view": proof})).structured_content
        assert content is not None
        return content


@dataclass
class Asked:
    """A request that waits for a person: the link to its approval, and at last its answer."""

    link: str
    answer: asyncio.Future[dict[str, Any]] = field(default_factory=asyncio.Future)


@asynccontextmanager
async def asked(world: World) -> AsyncIterator[Asked]:
    """A model wants the mug out of the cart; the view asks on and on what became of it."""
    async with (
        Client(f"{world.url}/mcp/cart", mode="2026-07-28", extensions=UI) as client,
        asyncio.TaskGroup() as tasks,
    ):
        opened = await client.call_tool("open_cart", {})
        launch = (opened.meta or {})["webmcp-gateway/launch"]
        attached = (await client.call_tool("webmcp_attach", {"launch": launch})).structured_content
        assert attached is not None
        view = View(client, attached["view"], base64.urlsafe_b64decode(attached["key"] + "="))
        pending = await view.call("http_request", **DELETE)
        assert pending["status"] == 202
        question = Asked(pending["body"]["url"])

        async def wait() -> None:
            while (answer := await view.call("http_stream", id=pending["body"]["id"]))["status"] == 202:
                pass
            question.answer.set_result(answer)

        waiting = tasks.create_task(wait())
        yield question
        waiting.cancel()


def deleted(world: World) -> int:
    """How many requests to delete something have reached the shop."""
    return len([line for line in world.arrived() if line["method"] == "DELETE"])


async def test_the_buttons_work_after_800_ms(page: Page, world: World) -> None:
    """Opening the link answers nothing, and neither does a click that comes at once."""
    async with asked(world) as question:
        await page.clock.install(time=time.time())
        await page.clock.pause_at(time.time() + 1)
        await page.goto(question.link)
        approve = page.get_by_test_id("approve")
        await expect(approve).to_be_visible()
        assert page.url.startswith(f"{world.console}/#/approvals/")
        for _ in range(7):
            await approve.click(force=True)
            await page.clock.run_for(100)
        await expect(approve).to_be_disabled()
        await page.clock.run_for(1000)
        await expect(approve).to_be_enabled()
        assert not question.answer.done()
    assert deleted(world) == 0


async def test_keys_and_scripts_do_not_answer(page: Page, world: World) -> None:
    """Enter and Space, which a person may press for something else, and clicks of no person; then a real click does."""
    async with asked(world) as question:
        await page.goto(question.link)
        approve = page.get_by_test_id("approve")
        await expect(approve).to_be_enabled()
        await approve.focus()
        for key in ("Enter", "Space", "NumpadEnter"):
            await page.keyboard.press(key)
        await approve.evaluate("button => button.click()")
        await approve.dispatch_event("pointerdown", {"pointerType": "mouse"})
        await approve.dispatch_event("click", {"pointerType": "mouse", "detail": 1})
        await expect(page.get_by_text("Answer with the mouse or by touch")).to_be_visible()
        assert (question.answer.done(), deleted(world)) == (False, 0)
        await approve.click()
        await expect(page.get_by_text("Approved")).to_be_visible()
        async with asyncio.timeout(10):
            answer = await question.answer
        assert "gateway-reason" not in answer["headers"]
    assert deleted(world) == 1


@pytest.mark.parametrize("width", [320, 390, 1280])
async def test_the_page_fits_windows_of_any_width(page: Page, world: World, width: int) -> None:
    """The whole question and both buttons are in sight, so that it can be answered: here, with no."""
    await page.set_viewport_size(ViewportSize(width=width, height=640))
    async with asked(world) as question:
        await page.goto(question.link)
        decline = page.get_by_test_id("decline")
        await expect(decline).to_be_enabled()
        for part in (page.get_by_test_id("approval"), decline, page.get_by_test_id("approve")):
            box = await part.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
        await decline.click()
        await expect(page.get_by_text("Declined")).to_be_visible()
        async with asyncio.timeout(10):
            answer = await question.answer
        assert (answer["status"], answer["headers"]["gateway-reason"]) == (403, "approval-declined")
    assert deleted(world) == 0


async def test_a_link_that_leads_to_nothing_says_so(page: Page, world: World) -> None:
    """An approval that was answered, expired or never was."""
    await page.goto(f"{world.console}/approvals/no-such-one")
    await expect(page.get_by_text("No such approval")).to_be_visible()
