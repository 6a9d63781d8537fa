"""The demo chat with its sign-in in Chromium: two people in two browsers, each with their own conversation."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser, Page, expect

from tests.browser.test_accessibility import findings
from tests.browser.test_demo_chat import send
from tests.browser.test_demo_chat_apps import app_of, item
from tests.examples.chat.world import chat_world


async def sign_in(page: Page, url: str, name: str) -> None:
    """Sign in at the chat as one of the issuer's people."""
    await page.goto(url)
    await page.get_by_role("link", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Who are you?")).to_be_visible()
    await page.get_by_role("button", name=name).click()
    await expect(page.get_by_role("button", name=f"Sign out {name}")).to_be_visible()
    await expect(page.locator("#dot")).to_have_attribute("data-state", "on")


async def test_two_people_have_conversations_and_approvals_of_their_own(browser: Browser, tmp_path: Path) -> None:
    """Alice's app, with a token of hers; her question waits for her at the gateway, where Bob sees none; she leaves."""
    async with (
        chat_world(tmp_path, login=True) as world,
        await browser.new_context(reduced_motion="reduce") as hers,
        await browser.new_context(reduced_motion="reduce") as his,
    ):
        url, console = world.chat.settings.url, world.chat.settings.console
        alice, bob = await hers.new_page(), await his.new_page()
        await alice.goto(url)
        await expect(alice.get_by_role("link", name="Sign in")).to_be_visible()
        assert not await findings(alice)
        await sign_in(alice, url, "Alice Ferreira")
        await sign_in(bob, url, "Bob Okafor")

        await alice.get_by_role("button", name="Show me the shop").click()
        shop = app_of(item(alice, "Open Fennel & Oak").locator("mcp-app"))
        await expect(shop.locator("[data-item-id]")).to_have_count(8)
        await expect(alice.get_by_role("article", name="Assistant").last).to_contain_text("the same cart")
        assert not await findings(alice)
        await send(alice, "Please add two jars of honey")
        await expect(shop.locator("[data-cart-item=honey] [data-quantity]")).to_have_text("2")
        await send(alice, "Check out")
        question = alice.get_by_role("region", name="This needs your approval")
        address = str(await question.get_by_role("link").get_attribute("href"))
        assert address.startswith(f"{console}/approvals/")

        theirs = await his.new_page()  # the address of her question does not help him
        await theirs.goto(address)
        await theirs.get_by_role("button", name="Bob Okafor").click()
        await theirs.wait_for_url(f"{console}/**")
        await expect(theirs.get_by_test_id("approve")).to_have_count(0)
        await expect(bob.get_by_role("heading", name="What shall we do today?")).to_be_visible()
        assert world.posts().count("/api/checkout") == 0

        async with hers.expect_page() as opening:
            await question.get_by_role("link").click()
        answering = await opening.value
        await answering.get_by_role("button", name="Alice Ferreira").click()
        await answering.get_by_test_id("approve").click()
        await expect(shop.locator("#order-text")).to_contain_text("is placed")
        await expect(alice.get_by_role("article", name="Assistant").last).to_contain_text("is placed")

        id = await alice.evaluate("localStorage.getItem('chat-host:conversation')")
        assert (
            await bob.evaluate("(id) => fetch(`/api/conversations/${id}/events`).then(({status}) => status)", id) == 404
        )
        await alice.get_by_role("button", name="Sign out").click()
        await expect(alice.get_by_role("link", name="Sign in")).to_be_visible()
        await expect(alice.locator("mcp-app")).to_have_count(0)
        await alice.reload()
        await expect(alice.get_by_role("link", name="Sign in")).to_be_visible()
        await expect(bob.get_by_role("button", name="Sign out Bob Okafor")).to_be_visible()
