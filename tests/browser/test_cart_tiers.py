"""The cart in every tier: each usable element works as far as possible, and shows what it cannot do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import FrameLocator, Page, Route, expect

from gateway.apps import pack
from tests.browser.runtime_host import RUNTIME, Host
from tests.browser.test_main_job import app_of
from tests.browser.test_tiers import FULL, PRODUCTS, STATIC, SYNCED, answer, app, show_html, wait_report
from tests.browser.usable import there_and_used, watch
from tests.whole.test_main_job import answer_next, person
from tests.world import EXAMPLE, World

CLICKS = {
    "add": ("[data-item-id='honey'] [data-add]", {"method": "POST", "path": "/api/cart"}),
    "more": ("[data-cart-item='bowl'] [data-increase]", {"method": "PUT", "path": "/api/cart/bowl"}),
    "less": ("[data-cart-item='bowl'] [data-decrease]", {"method": "PUT", "path": "/api/cart/bowl"}),
    "remove": ("[data-cart-item='bowl'] [data-remove]", {"method": "DELETE", "path": "/api/cart/bowl"}),
    "checkout": ("#checkout", {"method": "POST", "path": "/api/checkout"}),
}
OTHERS = {"to cart": "#to-cart", "dismiss": "#dismiss", "retry": "#retry"}
KINDS = {name: selector.split()[-1] for name, (selector, _) in CLICKS.items()} | OTHERS
"""All usable elements: the page is checked for others."""


@pytest.mark.parametrize("click", CLICKS)
async def test_the_cart_asks_the_assistant(host: Host, click: str) -> None:
    """Context-synced: shelf and cart are shown, a click becomes a report, and a message says so."""
    selector, wanted = CLICKS[click]
    frame = await show_html(host, app(EXAMPLE / "web"), SYNCED)
    await frame.locator(selector).click()
    (action,) = await wait_report(host)
    assert {key: action[key] for key in wanted} == wanted
    await expect(frame.locator("#message")).to_contain_text("assistant was asked")
    await expect(frame.locator("#cart-count")).to_have_text("2")


@pytest.mark.parametrize("click", CLICKS)
async def test_the_cart_alone_shows_and_says_why(host: Host, click: str) -> None:
    """Static: the page is the same, and each click shows that it is impossible here."""
    frame = await show_html(host, app(EXAMPLE / "web"), STATIC)
    await frame.locator(CLICKS[click][0]).click()
    await expect(frame.locator("#message")).to_contain_text("cannot reach its server from here")
    await expect(frame.locator("#cart-count")).to_have_text("2")


@pytest.mark.parametrize("capabilities", [SYNCED, STATIC])
async def test_the_carts_other_buttons_work_everywhere(host: Host, capabilities: dict[str, Any]) -> None:
    """The link to the cart and closing a message need no server."""
    frame = await show_html(host, app(EXAMPLE / "web"), capabilities)
    await watch(frame, KINDS)
    await frame.locator("#to-cart").click()
    await expect(frame.locator("#cart-title")).to_be_focused()
    await frame.locator(CLICKS["add"][0]).click()
    await frame.locator("#dismiss").click()
    await expect(frame.locator("#message")).to_have_text("")
    there, _ = await there_and_used(frame)
    assert there == sorted(KINDS)


@pytest.mark.parametrize("capabilities", [SYNCED, STATIC])
async def test_the_cart_without_a_snapshot_says_that_it_is_closed(host: Host, capabilities: dict[str, Any]) -> None:
    """Its button tries again."""
    packed = pack(EXAMPLE / "web", app="cart", title="Cart", runtime=RUNTIME.read_text("utf-8"))
    frame = await show_html(host, packed.html, capabilities)
    await expect(frame.locator("#closed")).to_be_visible()
    await frame.locator("#retry").click()
    await expect(frame.locator("#closed-reason")).to_contain_text("cannot reach its server from here")


async def test_the_cart_opens_when_its_shop_is_there_again(host: Host) -> None:
    """Full: its button tries again, successfully."""
    await host.in_our_host()
    await host.answers("return { status: 503 };")
    packed = pack(EXAMPLE / "web", app="cart", title="Cart", runtime=RUNTIME.read_text("utf-8"))
    frame = await show_html(host, packed.html, FULL)
    await expect(frame.locator("#closed")).to_be_visible()
    await host.answers(f"return {json.dumps(answer(PRODUCTS | {'items': [], 'total': 0}))};")
    await frame.locator("#retry").click()
    await expect(frame.locator("[data-item-id=honey]")).to_be_visible()


@pytest.mark.parametrize("where", ["full", "site", "standalone"])
async def test_each_element_of_the_cart_works(page: Page, world: World, where: str) -> None:
    """In a view, as a web site, and packed without a host, the same clicks reach the shop, each once."""
    place: Page | FrameLocator = page
    packed = pack(EXAMPLE / "web", app="cart", title="Cart", runtime=RUNTIME.read_text("utf-8"))

    async def instead(route: Route) -> None:
        await route.fulfill(body=packed.html, content_type="text/html")

    if where == "standalone":
        await page.route(f"{world.site}/", instead)
    await page.route(f"{world.site}/api/**", lambda route: route.abort())
    await page.goto(f"{world.url if where == 'full' else world.site}/")
    if where == "full":
        place = app_of(page)
        await expect(place.locator("[data-item-id]").first).to_be_visible(timeout=60_000)
    await watch(place, KINDS)
    if where != "full":
        await expect(place.locator("#closed")).to_be_visible(timeout=60_000)
        await page.unroute(f"{world.site}/api/**")
        await place.locator("#retry").click()
    await expect(place.locator("[data-item-id]").first).to_be_visible()
    if where != "site":
        await expect(place.locator("html")).to_have_attribute("data-tier", where)
    await place.locator("[data-add]").first.click()
    line = place.locator("[data-cart-item]").first
    for button, left in (("[data-increase]", "2"), ("[data-decrease]", "1")):
        await line.locator(button).click()
        await expect(place.locator("#cart-count")).to_have_text(left)
    await line.locator("[data-remove]").click()
    await expect(place.locator("[data-cart-item]")).to_have_count(0)
    await place.locator("[data-add]").nth(1).click()
    await expect(place.locator("#cart-count")).to_have_text("1")
    await place.locator("#to-cart").click()
    await expect(place.locator("#cart-title")).to_be_focused()
    async with person(world) as ann:
        await place.locator("#checkout").click()
        await answer_next(ann, world, "approve")
        await expect(place.locator("#order-text")).to_contain_text("is placed")
    await place.locator("#dismiss").click()
    await expect(place.locator("#message")).to_have_text("")
    there, used = await there_and_used(place)
    assert (there, {*used} | ({"retry"} if where == "full" else set())) == (sorted(KINDS), {*KINDS})
    changes = [one["method"] for one in world.arrived() if one["method"] != "GET"]
    assert changes == ["POST", "PUT", "PUT", "DELETE", "POST", "POST"]
