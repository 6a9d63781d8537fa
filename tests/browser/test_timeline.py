"""The console's timeline under the keyboard: new entries do not move the reader."""

from playwright.async_api import Page, expect

from tests.browser.test_main_job import model, show_app, tool
from tests.world import World


async def test_an_entry_that_is_read_stays_in_focus(page: Page, world: World) -> None:
    """A key opens it, it stays open and focused while entries are added above it, and a key closes it."""
    await show_app(page, world)
    records = page.get_by_test_id("record")
    await expect(records.first).to_be_visible()
    id = await records.first.get_attribute("data-id")
    read = page.locator(f"[data-testid=record][data-id='{id}']")
    await read.locator("summary").focus()
    await page.keyboard.press("Enter")
    await expect(read).to_have_attribute("open", "")
    async with model(world) as client:
        await tool(client, "cart_get_cart")
        for _ in range(3):
            assert not (await client.call_tool("cart_get_cart", {})).is_error
    await expect(page.locator("[data-testid=record][data-initiator=model]")).to_have_count(6)
    assert await records.first.get_attribute("data-id") != id
    await expect(read.locator("summary")).to_be_focused()
    await expect(read).to_have_attribute("open", "")
    await page.keyboard.press("Enter")
    await expect(read).not_to_have_attribute("open", "")


async def test_what_came_of_a_long_address_is_read_in_full(page: Page, world: World) -> None:
    """The address is truncated; its status and the reason are not, even by a few pixels."""
    await page.set_viewport_size({"width": 1400, "height": 900})
    frame = await show_app(page, world)
    for path, letters, came in (("products", "x" * 22, "200"), ("nothing", "y" * 60, "403 policy-denied")):
        await frame.locator("body").evaluate(f"() => fetch('/api/{path}?of={letters}')")
        words = page.get_by_test_id("record").filter(has_text=letters[:3]).locator(".chip .words")
        await expect(words).to_have_text(came)
        assert await words.evaluate("({ scrollWidth, clientWidth }) => scrollWidth - clientWidth") == 0
