"""The demo chat in Chromium: what a person sees and does, with models of the real wire formats."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from playwright.async_api import BrowserContext, Page, expect

from tests.browser.test_accessibility import findings
from tests.examples.chat.endpoints import Call, Reply, sse
from tests.examples.chat.test_server import chatting

HOSTILE = (
    "# Title <img src=x onerror=alert(1)>\n\n<script>document.title='owned'</script> **bold** *soft* `a<b`\n\n"
    "- one\n- two [bad](javascript:alert(1)) [good](https://example.com/a?b=1) ![pic](https://example.com/p.png)\n"
    "  1. deep\n\n| a | b |\n|---|---|\n| 1 | <b>2</b> |\n\n> quoted\n\n```html\n<i>code</i>\n```\n"
    "2 * 3 * 4 snake_case_word\n" + ">" * 300 + " deep\n" + "**" * 2000
)
"""Markdown with every mark, with HTML and addresses that must not become live, and with marks without end."""


async def send(page: Page, text: str) -> None:
    """Write a message as a person does, with the keyboard."""
    box = page.get_by_label("Your message")
    await box.fill(text)
    await box.press("Enter")


def begun(text: str) -> bytes:
    """Return the beginning of an answer."""
    return sse({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


async def open_chat(page: Page, url: str) -> None:
    """Open the chat; it is ready when the gateway is connected."""
    await page.goto(url)
    await expect(page.locator("#dot")).to_have_attribute("data-state", "on")


async def test_text_is_drawn_safely_and_failures_are_told(page: Page, tmp_path: Path) -> None:
    """A streamed answer with hostile Markdown, a rate limit with its retry, a reload in an answer, and stopping it."""
    limited = Reply(status=429, headers={"retry-after": "1"})
    replies = [Reply([HOSTILE], size=97), limited, Reply(["Here it is."]), Reply(raw=begun("I begin"), holds=True)]
    async with chatting(tmp_path, "openai", *replies) as (chat, server, _):
        await page.emulate_media(reduced_motion="reduce")
        await open_chat(page, chat.settings.url)
        assert not await findings(page)
        await send(page, "<b>Hi</b>\n  there")
        answer = page.get_by_role("article", name="Assistant")
        await expect(answer.locator("pre code")).to_have_text("<i>code</i>")
        await expect(page.get_by_role("article", name="You")).to_have_text("<b>Hi</b>\n  there")
        await expect(answer.get_by_role("heading", level=2)).to_have_text("Title <img src=x onerror=alert(1)>")
        assert await answer.locator("img, script, i, b, a[href^=javascript]").count() == 0
        assert await answer.locator("a").evaluate_all("links => links.map((link) => [link.href, link.rel])") == [
            [address, "noopener noreferrer nofollow"]
            for address in ("https://example.com/a?b=1", "https://example.com/p.png")
        ]
        await expect(answer.locator("td")).to_have_text(["1", "<b>2</b>"])
        await expect(answer.locator("strong")).to_have_text("bold")
        await expect(answer.locator("em")).to_have_text("soft")
        await expect(answer.locator("li ol li")).to_have_text("deep")
        await expect(answer).to_contain_text("2 * 3 * 4 snake_case_word")
        assert await page.title() == "Parlour · a chat with apps"
        assert not await findings(page)

        await send(page, "Again")
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("Too many requests for now")
        assert not await findings(page)
        await alert.get_by_role("button", name="Try again", exact=True).click()  # enabled after the second
        await expect(answer.last).to_have_text("Here it is.")
        await expect(alert).to_have_count(0)

        await send(page, "Go on")
        await expect(answer.last).to_have_text("I begin")
        await page.reload()
        await expect(answer.last).to_have_text("I begin")  # in the middle of it
        await page.get_by_role("button", name="Stop").click()
        await asyncio.wait_for(server.left.wait(), 60)
        await expect(answer.last).to_contain_text("Stopped here.")
        await expect(page.get_by_label("Your message")).to_be_focused()
        await page.get_by_role("button", name="New chat").click()
        await expect(page.get_by_role("heading", name="What shall we do today?")).to_be_visible()


async def test_an_approval_is_announced_and_answered_on_the_gateways_page(
    page: Page, context: BrowserContext, tmp_path: Path
) -> None:
    """On a phone: the card links to the gateway's page, where a real click decides; the chat itself cannot answer."""
    replies = [Reply(["I try.", Call("up_ask", json.dumps({"what": "x" * 300}))]), Reply(["It is done."])]
    async with chatting(tmp_path, "anthropic", *replies) as (chat, _, probe):
        await page.set_viewport_size({"width": 375, "height": 740})
        await page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        await open_chat(page, chat.settings.url)
        await send(page, "Do it")
        card = page.get_by_role("region", name="This needs your approval")
        await expect(card).to_contain_text("Really?")
        await expect(page.locator("#status")).to_contain_text("waits for your approval: Really?")
        assert await card.get_by_role("button").count() == 0
        assert not await findings(page)
        await page.emulate_media(color_scheme="light")
        assert not await findings(page)
        assert await page.evaluate("document.documentElement.scrollWidth") == 375
        async with context.expect_page() as opening:
            await card.get_by_role("link", name="Look at it and answer").click()
        question = await opening.value
        assert question.url.startswith(f"{chat.settings.console}/#/approvals/")
        assert await question.evaluate("window.opener") is None
        await question.get_by_test_id("approve").click()
        await expect(question.get_by_text("Approved")).to_be_visible()
        await expect(page.get_by_role("article", name="Assistant").last).to_have_text("It is done.")
        await expect(card).to_have_count(0)
        assert len(probe.seen) == 1
        chip = page.locator("details.tool")
        await chip.locator("summary").click()
        await expect(chip.locator("pre").first).to_contain_text('"what"')
        assert not await findings(page)
