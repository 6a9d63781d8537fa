"""The demo chat with its apps in Chromium: in the conversation, in a panel, beside it, and after a reload."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
from playwright.async_api import BrowserContext, FrameLocator, Locator, Page, expect

from tests.browser.test_accessibility import findings
from tests.browser.test_demo_chat import open_chat, send
from tests.examples.chat.endpoints import Call, Reply, endpoint
from tests.examples.chat.world import chat_world


def app_of(element: Locator) -> FrameLocator:
    """The app's own page, inside the proxy inside the element."""
    return element.locator("iframe").content_frame.frame_locator("iframe")


def item(page: Page, title: str) -> Locator:
    """The item of the conversation with the call of this title."""
    return page.get_by_role("listitem").filter(has=page.locator("summary", has_text=title))


async def expect_tools(page: Page, count: int) -> None:
    """Wait until the chat has so many: a page registers its tools some time after it has loaded."""
    await expect(page.locator("#dot")).to_have_attribute("title", f"Connected to the gateway: {count} tools")


async def test_a_person_and_a_model_share_apps_in_one_conversation(
    page: Page, context: BrowserContext, tmp_path: Path
) -> None:
    """The scripted story: shop, honey, a click, checkout and its approval, board in a panel, shop in the workspace."""
    async with chat_world(tmp_path) as world:
        await page.emulate_media(reduced_motion="reduce")
        await open_chat(page, world.chat.settings.url)
        answer = page.get_by_role("article", name="Assistant")
        await expect_tools(page, own := 5)  # without those of pages

        await page.get_by_role("button", name="Show me the shop").click()
        shop = app_of(item(page, "Open Fennel & Oak").locator("mcp-app"))
        await expect(shop.locator("[data-item-id]")).to_have_count(8)
        await expect(answer.last).to_contain_text("end up in the same cart")
        await expect_tools(page, own + 4)
        assert not await findings(page)

        await send(page, "Please add two jars of honey")
        await expect(shop.locator("[data-cart-item=honey] [data-quantity]")).to_have_text("2")
        await expect(answer.last).to_contain_text("Added 2 × Wildflower honey")
        assert await page.locator("mcp-app").count() == 1  # the tool of the open page, and no second page
        await shop.locator("[data-item-id=mug] [data-add]").click()
        await expect(shop.locator("[data-cart-item=mug]")).to_be_visible()

        await send(page, "Check out")
        question_card = page.get_by_role("region", name="This needs your approval")
        await expect(question_card).to_contain_text("Order what is in the cart, and pay for it?")
        assert world.posts().count("/api/checkout") == 0
        async with context.expect_page() as opening:
            await question_card.get_by_role("link").click()
        question = await opening.value
        await question.get_by_test_id("approve").click()
        await expect(shop.locator("#order-text")).to_contain_text("is placed")
        await expect(answer.last).to_contain_text("is placed")
        await question.close()

        await send(page, "Open the board")
        panel = page.get_by_role("dialog", name="Tea board")
        await expect(panel).to_be_visible()
        board = app_of(item(page, "Open Tea board").locator("mcp-app"))
        await expect(board.get_by_text("Repair the scales")).to_be_visible()
        assert not await findings(page)
        tile = item(page, "Open Tea board").locator("[part=tile]")
        await expect(tile).to_contain_text("Viewing")
        await page.keyboard.press("Escape")
        await expect(panel).to_be_hidden()
        await expect(tile).to_contain_text("Open")
        await expect(answer.last).to_contain_text("Drag its cards")
        await expect_tools(page, own + 7)
        await send(page, "Add a card “Order paper bags”")
        await expect(answer.last).to_contain_text('Added "Order paper bags"')
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{world.board}/api/board") as response:
            assert "Order paper bags" in await response.text()

        await send(page, "Show me the budget")
        budget = app_of(item(page, "Get Budget Data").locator("mcp-app"))
        await expect(budget.locator("input[type=range]").first).to_be_visible()
        await expect(answer.last).to_contain_text("Move its sliders")

        card = item(page, "Open Fennel & Oak")
        await card.get_by_role("button", name="Open beside the conversation").click()
        workspace = page.get_by_role("region", name="Fennel & Oak")
        await expect(workspace).to_be_visible()
        await expect(shop.locator("#order-text")).to_contain_text("is placed")  # the same page
        await expect(page.get_by_label("Your message")).to_be_visible()  # beside it
        await page.get_by_role("button", name="Dark", exact=True).click()
        assert not await findings(page)

        posts = world.posts()
        await page.reload()
        await expect(answer.last).to_contain_text("Move its sliders")
        await expect(page.get_by_role("dialog")).to_have_count(0)  # nothing opens by itself
        assert await page.locator("html").get_attribute("data-theme") == "dark"
        await card.scroll_into_view_if_needed()
        await expect(shop.locator("[data-item-id]")).to_have_count(8)
        assert world.posts() == posts  # no call is repeated

        await send(page, "Show me the shop again")
        again = card.first.get_by_role("button", name="Show Fennel & Oak here")
        await expect(card).to_have_count(2)
        await expect(card.last.locator("mcp-app")).to_have_count(1)  # one page, where it was asked for last
        await again.click()
        await expect(card.first.locator("mcp-app")).to_have_count(1)
        await expect(card.last.get_by_role("button", name="Show Fennel & Oak here")).to_be_visible()


PAGE = """<!doctype html><html lang=en><meta charset=utf-8><title>Notes</title>
<p id=partial></p><p id=whole></p><p id=result></p>
<button onclick="ask('ui/message', {role: 'user', content: text('Buy <b>ten</b> teapots')})">Say</button>
<button onclick="ask('ui/update-model-context', {content: text('Line 7 is selected')})">Know</button>
<p id=answer></p>
<script>
  let id = 7000;
  const show = (place, what) => (document.getElementById(place).textContent = JSON.stringify(what));
  const text = (words) => [{ type: "text", text: words }];
  function ask(method, params) { parent.postMessage({ jsonrpc: "2.0", id: (id += 1), method, params }, "*"); }
  addEventListener("message", ({ data }) => {
    if (data.method === "ui/notifications/tool-input-partial") show("partial", data.params.arguments);
    if (data.method === "ui/notifications/tool-input") show("whole", data.params.arguments);
    if (data.method === "ui/notifications/tool-result") show("result", data.params);
    if (data.id > 7000) show("answer", data.error ?? data.result);
  });
</script>
"""


async def test_an_app_follows_the_model_and_speaks_only_with_consent(page: Page, tmp_path: Path) -> None:
    """It receives the arguments while they are written; its message needs the person, and its context is labelled."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "index.html").write_text(PAGE, "utf-8")
    (tmp_path / "notes.yaml").write_text("version: 1\n", "utf-8")
    notes = {"source": str(tmp_path / "notes"), "policy": str(tmp_path / "notes.yaml"), "title": "Notes"}
    call = Call("open_notes", json.dumps({"input": {"title": "Shopping list", "lines": ["milk", "bread"]}}), pieces=12)
    replies = [Reply(["See:", call], pause=b"Shopping"), Reply(["Written."]), Reply(["Ten?"]), Reply(["I see."])]
    async with endpoint("anthropic", *replies) as server, chat_world(tmp_path, server, {"notes": notes}) as world:
        await open_chat(page, world.chat.settings.url)
        await send(page, "Write a list")
        shown = item(page, "Open Notes")
        app = app_of(shown.locator("mcp-app"))
        await expect(app.locator("#partial")).to_contain_text('"title":"Shop')
        await expect(app.locator("#whole")).to_be_empty()
        server.go.set()
        await expect(app.locator("#whole")).to_have_text(json.dumps(json.loads(call.json), separators=(",", ":")))
        await expect(app.locator("#result")).to_contain_text("Notes is open as view")
        answer = page.get_by_role("article", name="Assistant")
        await expect(answer.last).to_have_text("Written.")
        assert "webmcp-gateway/launch" not in json.dumps(server.requests[-1])

        dialog = page.get_by_role("dialog", name="Notes wants to send a message")
        for choice in ("Do not send", "Send"):
            await app.get_by_role("button", name="Say").click()
            await expect(dialog).to_contain_text("Buy <b>ten</b> teapots")
            assert not await findings(page)
            assert len(server.requests) == 2
            await dialog.get_by_role("button", name=choice, exact=True).click()
            await expect(app.locator("#answer")).not_to_be_empty()
        await expect(answer.last).to_have_text("Ten?")
        await expect(page.get_by_role("article", name="You").last).to_contain_text(
            "From the app Notes, sent with your consent"
        )
        assert "the person agreed to send it" in json.dumps(server.requests[2])

        await app.get_by_role("button", name="Know").click()
        note = page.locator(".context")
        await expect(note).to_contain_text("Notes told the assistant something")
        assert len(server.requests) == 3  # the model hears it with the person's next message
        await send(page, "What is selected?")
        await expect(answer.last).to_have_text("I see.")
        assert "Line 7 is selected" in json.dumps(server.requests[3])
        assert not await findings(page)
