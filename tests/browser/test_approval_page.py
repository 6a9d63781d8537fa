"""The page of one approval, opened by its link: only a real click, after time to read, answers."""

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client import advertise
from playwright.async_api import Page, ViewportSize, expect

from tests.world import EXAMPLE, World, running

UI = [advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})]
DELETE = {"url": "/api/cart/mug", "method": "DELETE", "_initiator": "model"}


@dataclass
class View:
    """A view of the cart as the gateway sees it: calls with its proof."""

    client: Client
    id: str
    key: bytes
    count: int = 0

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured content of the result of `tool`."""
        self.count += 1
        digest = hmac.digest(self.key, str(self.count).encode(), hashlib.sha256)
        proof = f"{self.id}.{self.count}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
        content: dict[str, Any] | None
        content = (await self.client.call_tool(tool, {**arguments, "_view": proof})).structured_content
        assert content is not None
        return content


@dataclass
class Asked:
    """A request that requires approval: the link to its question, and at last its answer."""

    link: str
    answer: asyncio.Future[dict[str, Any]] = field(default_factory=asyncio.Future)


@asynccontextmanager
async def call_for_approval(world: World, call: dict[str, Any] = DELETE) -> AsyncIterator[Asked]:
    """Let a model send `call`, which removes the mug by default; the view polls for the outcome."""
    async with (
        Client(f"{world.url}/mcp/cart", mode="2026-07-28", extensions=UI) as client,
        asyncio.TaskGroup() as tasks,
    ):
        opened = await client.call_tool("open_cart", {})
        launch = (opened.meta or {})["webmcp-gateway/launch"]
        attached = (await client.call_tool("webmcp_attach", {"launch": launch})).structured_content
        assert attached is not None
        view = View(client, attached["view"], base64.urlsafe_b64decode(attached["key"] + "="))
        pending = await view.call("http_request", **call)
        assert pending["status"] == 202
        question = Asked(pending["body"]["url"])

        async def wait() -> None:
            while (answer := await view.call("http_stream", id=pending["body"]["id"]))["status"] == 202:
                pass
            question.answer.set_result(answer)

        waiting = tasks.create_task(wait())
        yield question
        waiting.cancel()


def count_deletes(world: World) -> int:
    """The number of DELETE requests that the shop received."""
    return len([line for line in world.arrived() if line["method"] == "DELETE"])


async def test_the_buttons_work_after_800_ms(page: Page, world: World) -> None:
    """Opening the link answers nothing, and neither does a click within 800 ms."""
    async with call_for_approval(world) as question:
        await page.clock.install(time=time.time())
        await page.clock.pause_at(time.time() + 30)  # no earlier than that
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
    assert count_deletes(world) == 0


async def test_keys_and_scripts_do_not_answer(page: Page, world: World) -> None:
    """Enter and Space, which may be meant for something else, and synthetic clicks do not answer; a real click does."""
    async with call_for_approval(world) as question:
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
        assert (question.answer.done(), count_deletes(world)) == (False, 0)
        await approve.click()
        await expect(page.get_by_text("Approved")).to_be_visible()
        async with asyncio.timeout(60):
            answer = await question.answer
        assert "gateway-reason" not in answer["headers"]
    assert count_deletes(world) == 1


COVERED = {
    "full screen": (
        "document.documentElement.requestFullscreen()",
        "document.fullscreenElement !== null",
        "document.exitFullscreen()",
    ),
    "picture in picture": (
        "documentPictureInPicture.requestWindow()",
        "documentPictureInPicture.window !== null",
        "documentPictureInPicture.window.close()",
    ),
}


@pytest.mark.parametrize("kind", COVERED)
async def test_nothing_covers_a_question(page: Page, world: World, kind: str) -> None:
    """A new question closes overlays; an overlay that is opened later disables its buttons until it is gone."""
    begin, there, end = COVERED[kind]
    await page.goto(world.console)
    await page.evaluate(f"{begin}.then(() => null)")
    assert await page.evaluate(there)
    async with call_for_approval(world) as question:
        async with asyncio.timeout(60):
            while await page.evaluate(there):
                await asyncio.sleep(0.05)
        await page.goto(question.link)
        approve = page.get_by_test_id("approve")
        await expect(approve).to_be_enabled()
        await page.evaluate(f"{begin}.then(() => null)")
        await expect(approve).to_be_disabled()
        await approve.click(force=True)
        await page.evaluate(f"{{ {end}; null }}")
        await expect(approve).to_be_enabled()
        assert (question.answer.done(), count_deletes(world)) == (False, 0)


@pytest.mark.parametrize("width", [320, 390, 1280])
async def test_the_page_fits_windows_of_any_width(page: Page, world: World, width: int) -> None:
    """The whole question and both buttons are visible, so that it can be answered; here it is declined."""
    await page.set_viewport_size(ViewportSize(width=width, height=640))
    async with call_for_approval(world) as question:
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
        async with asyncio.timeout(60):
            answer = await question.answer
        assert (answer["status"], answer["headers"]["gateway-reason"]) == (403, "approval-declined")
    assert count_deletes(world) == 0


async def test_the_whole_call_can_be_read(page: Page, tmp_path: Path) -> None:
    """Each header has a line, the size is shown, and a body of 64 KiB is shown to its end, as text with escapes."""
    rules = (EXAMPLE / "policy.yaml").read_text("utf-8").replace("request: 16KiB", "request: 128KiB")
    rules = rules.replace("methods: [PUT]}", "methods: [PUT], confirm: {when: always, message: Change it?}}")
    rules = rules.replace("PUT /api/cart/mug, expect: allow", "PUT /api/cart/mug, expect: confirm")
    start, end = "<img src=x onerror=alert(1)>\n\u202e", "the end"
    body = f"{start}{'x' * (65536 - len((start + end).encode()))}{end}"
    headers = {"content-type": "text/plain", "x-note": "<b>mug</b>"}
    put = {"url": "/api/cart/mug", "method": "PUT", "headers": headers, "body": body}
    async with running(tmp_path, policy=rules) as world, call_for_approval(world, put) as question:
        await page.set_viewport_size(ViewportSize(width=390, height=640))
        await page.goto(question.link)
        await page.get_by_text("Raw request").click()
        raw = page.get_by_test_id("raw")
        assert set(await raw.get_by_test_id("header").all_text_contents()) == {f"{k}: {v}" for k, v in headers.items()}
        await expect(raw.get_by_test_id("body-size")).to_have_text("Body, 64.0 KiB")
        shown = body.replace("\u202e", "⟨U+202E⟩")
        assert await raw.get_by_test_id("body").text_content() == shown
        box = await raw.bounding_box()
        assert box is not None
        assert box["height"] < 320
        await raw.focus()
        await page.keyboard.press("End")
        below = "raw => raw.scrollTop > 0 && raw.scrollTop + raw.clientHeight >= raw.scrollHeight - 1"
        await page.wait_for_function(below, arg=await raw.element_handle())
        await expect(page.get_by_test_id("approve")).to_be_enabled()


async def test_a_request_of_the_apps_own_site_is_called_so(page: Page, world: World) -> None:
    """The question and the timeline name it."""
    site = await page.context.new_page()
    await site.goto(world.site)
    await page.goto(world.console)
    await site.evaluate("void fetch('/api/checkout', {method: 'POST'})")
    card = page.get_by_test_id("approval")
    await expect(card).to_contain_text("Site")
    await expect(card).to_contain_text("Why you are asked: sent on the app's own site.")
    await expect(page.get_by_text("on the app's own site", exact=True).first).to_be_visible()
    group = page.locator("li.group").filter(has_text="/api/checkout")
    await expect(group.first).to_contain_text("on the app's own site")
    await expect(group.filter(has_text="by itself")).to_have_count(0)


async def test_a_policy_that_is_not_taken_is_told(page: Page, world: World) -> None:
    """The problem is shown with its place until it is fixed."""
    policy = world.folder / "policy.yaml"
    rules = policy.read_text("utf-8")
    await page.goto(world.console)
    banner = page.get_by_test_id("problems")
    await expect(page.get_by_test_id("connection")).to_have_attribute("data-state", "open")
    await expect(banner).to_have_count(0)
    policy.write_text(f"{rules}\nroutez: []\n", "utf-8")
    await expect(banner).to_contain_text(f"policy.yaml:{len(rules.splitlines()) + 2}:1")
    await expect(banner).to_contain_text("Not taken: 1 problem.")
    policy.write_text(rules, "utf-8")
    await expect(banner).to_have_count(0)


async def test_a_link_that_leads_to_nothing_says_so(page: Page, world: World) -> None:
    """The approval may be answered, expired, unknown, or another person's."""
    await page.goto(f"{world.console}/approvals/no-such-one")
    await expect(page.get_by_text("No such approval")).to_be_visible()
    await expect(page.get_by_text("is for somebody else to answer")).to_be_visible()
