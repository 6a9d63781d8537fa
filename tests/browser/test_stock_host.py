"""A third-party host, built on ext-apps' bridge and an MCP client: the packed cart works by plain tool calls."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.probing import outcome, outcomes
from tests.browser.stock_host import bundle_hosts, show_cart
from tests.world import World

NOTICE_BUTTON = (1280 - 60, 720 - 45)
"""The position of the button of the view's notice: no script outside, not even a test's, can look inside."""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script of the host."""
    return bundle_hosts(tmp_path_factory.mktemp("stock"))


async def test_the_cart_works_by_plain_tool_calls(page: Page, world: World, script: Path) -> None:
    """A click adds an item; the view is proven, the gesture is not attested: the initiator is the page."""
    async with show_cart(page, world, script) as frame:
        card = frame.locator("[data-item-id]").first
        item = str(await card.get_attribute("data-item-id"))
        await card.locator("[data-add]").click()
        await expect(frame.locator(f"[data-cart-item='{item}']")).to_be_visible()
        posted = await outcome(world, method="POST", url="/api/cart")
    assert (posted["door"], posted["initiator"], posted["status"]) == ("mcp", "page", 200)
    assert posted["view"] is not None
    assert all(line["has_token"] for line in world.arrived())


async def test_what_the_way_does_not_carry_is_answered_as_such(page: Page, world: World, script: Path) -> None:
    """The host's call fails for the size of its message; the page gets the 413 that a gateway would have sent."""
    async with show_cart(page, world, script) as frame:
        answer = await frame.locator("body").evaluate(
            """async () => {
              const sent = async (size) => {
                const body = new FormData();
                body.append("file", new Blob([new Uint8Array(size)]), "file.bin");
                const response = await fetch("/api/cart", { method: "POST", body });
                const { status, type } = await response.json();
                return [response.status, status, response.headers.get("gateway-reason"), type];
              };
              const large = await sent(17 * 1024 * 1024);
              return { large, then: (await fetch("/api/cart")).status };
            }"""
        )
    assert answer == {"large": [413, 413, "request-too-large", "about:blank"], "then": 200}


async def test_a_real_click_is_the_persons_where_the_app_is_trusted(page: Page, world: World, script: Path) -> None:
    """The view reports it, and the record contains that evidence; a click of a script is the page's."""
    await trust_gestures(world)
    async with show_cart(page, world, script) as frame:
        cards = frame.locator("[data-item-id]")
        items = [str(await cards.nth(place).get_attribute("data-item-id")) for place in (0, 1)]
        await cards.nth(0).locator("[data-add]").dispatch_event("click")
        await expect(frame.locator(f"[data-cart-item='{items[0]}']")).to_be_visible()
        await cards.nth(1).locator("[data-add]").click()
        await expect(frame.locator(f"[data-cart-item='{items[1]}']")).to_be_visible()
        posted = outcomes(world, method="POST", url="/api/cart")
    assert [(line["initiator"], line["evidence"]) for line in posted] == [
        ("page", "no-gesture"),
        ("person", "view-gesture"),
    ]


async def trust_gestures(world: World) -> None:
    """Trust the gestures of the cart's views from now on."""
    file = world.folder / "gateway.yaml"
    trusting = file.read_text("utf-8").replace(
        "    policy: policy.yaml\n", "    policy: policy.yaml\n    trust_view_gestures: true\n"
    )
    await world.gateway.stop()
    file.write_text(trusting, "utf-8")
    await world.start_gateway()
    assert world.config.apps["cart"].trust_view_gestures


async def test_the_tools_of_the_page_are_app_tools(page: Page, world: World, script: Path) -> None:
    """The host lists and calls them; their requests count as the model's."""
    async with show_cart(page, world, script) as frame:
        item = str(await frame.locator("[data-item-id]").first.get_attribute("data-item-id"))
        async with asyncio.timeout(60):
            while True:
                listed = await page.evaluate("() => window.bridge.listTools({})")
                if {"add_to_cart", "get_cart"} <= {tool["name"] for tool in listed["tools"]}:
                    break
                await asyncio.sleep(0.1)
        call = {"name": "add_to_cart", "arguments": {"item_id": item}}
        result = await page.evaluate("(call) => window.bridge.callTool(call)", call)
        assert not result.get("isError"), result
        await expect(frame.locator(f"[data-cart-item='{item}']")).to_be_visible()
    posted = outcomes(world, method="POST", url="/api/cart")[0]
    assert (posted["initiator"], posted["evidence"]) == ("model", "model-call-reported")


async def test_a_host_that_leads_nowhere_offers_the_free_tools(page: Page, world: World, script: Path) -> None:
    """Its model calls them in the page; a tool with a rule is refused, with the place where it can be called."""
    file = world.folder / "policy.yaml"
    await world.gateway.stop()
    file.write_text(file.read_text("utf-8").replace("  get_cart: {}", "  get_cart: {rate: 5/minute per principal}"))
    await world.start_gateway()
    carried: list[str] = []
    async with show_cart(page, world, script, carried=carried, landmark="body", way="showWithoutServer"):
        async with asyncio.timeout(60):
            while not (listed := await page.evaluate("() => window.bridge.listTools({})"))["tools"]:
                await asyncio.sleep(0.1)
        call = {"name": "add_to_cart", "arguments": {"item_id": "mug"}}
        result = await page.evaluate("(call) => window.bridge.callTool(call)", call)
        refused = await page.evaluate("window.bridge.callTool({ name: 'get_cart', arguments: {} }).catch(String)")
    assert sorted(tool["name"] for tool in listed["tools"]) == ["add_to_cart", "checkout", "remove_from_cart"]
    assert "cannot reach its server" in result["content"][0]["text"]  # the page ran it, without an approver
    assert "get_cart is called through the gateway" in refused
    assert carried == []


async def test_a_models_delete_waits_and_the_view_says_so(page: Page, world: World, script: Path) -> None:
    """The page's fetch stays open, a notice links to the approval, and a person's approval completes it."""
    async with show_cart(page, world, script) as frame:
        card = frame.locator("[data-item-id]").first
        item = str(await card.get_attribute("data-item-id"))
        await card.locator("[data-add]").click()
        await expect(frame.locator(f"[data-cart-item='{item}']")).to_be_visible()
        call = {"name": "remove_from_cart", "arguments": {"item_id": item}}
        removing = asyncio.ensure_future(page.evaluate("(call) => window.bridge.callTool(call)", call))
        async with asyncio.timeout(60):
            while not (opened := await page.evaluate("() => window.opened")):
                await page.mouse.click(*NOTICE_BUTTON)
                await asyncio.sleep(0.1)
        assert opened[0].startswith(f"{world.console}/approvals/")
        console = await page.context.new_page()
        await console.goto(opened[0])
        approve = console.get_by_test_id("approve").first
        await expect(approve).to_be_enabled()
        assert [line for line in world.arrived() if line["method"] == "DELETE"] == []
        await approve.click()
        await page.bring_to_front()
        await expect(frame.locator(f"[data-cart-item='{item}']")).to_have_count(0)
        assert not (await removing).get("isError")
    assert len([line for line in world.arrived() if line["method"] == "DELETE"]) == 1


async def test_a_host_that_drops_meta_leaves_the_view_unproven(page: Page, world: World, script: Path) -> None:
    """It can read; a change counts as the model's, and requires approval."""
    async with show_cart(page, world, script, drop_meta=True) as frame:
        await frame.locator("[data-item-id]").first.locator("[data-add]").click()
        console = await page.context.new_page()
        await console.goto(world.console)
        approve = console.get_by_test_id("approve").first
        await expect(approve).to_be_enabled()
        assert [line for line in world.arrived() if line["method"] == "POST"] == []
        await approve.click()
        await page.bring_to_front()
        await expect(frame.locator("[data-cart-item]").first).to_be_visible()
