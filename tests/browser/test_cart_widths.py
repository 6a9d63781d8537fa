"""The cart on narrow and wide screens: nothing is cut off or overflows the window."""

from playwright.async_api import Page, ViewportSize, expect

from tests.world import World

CUT_OFF = """() => [...document.querySelectorAll("main *, header *")].filter((element) => {
  const { right, width } = element.getBoundingClientRect();
  const clips = getComputedStyle(element).overflowX !== "visible" && element.scrollWidth > element.clientWidth + 1;
  return width > 0 && (right > innerWidth + 1 || clips);
}).map((element) => `${element.tagName}.${element.className}`)"""


async def test_nothing_is_cut_off_at_any_width(page: Page, world: World) -> None:
    """The widths range from the smallest phone to a wide window, with an item in the cart."""
    await page.goto(world.site)
    await page.locator("[data-add]").first.click()
    await expect(page.locator("[data-cart-item]").first).to_be_visible()
    cut = {}
    for width in (320, 360, 379, 380, 390, 420, 479, 480, 600, 768, 860, 1280):
        await page.set_viewport_size(ViewportSize(width=width, height=800))
        cut[width] = await page.evaluate(CUT_OFF)
    assert {width: elements for width, elements in cut.items() if elements} == {}
