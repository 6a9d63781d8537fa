"""The board in Chromium: one build, as a web site and in a view."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from mcp import Client
from playwright.async_api import FilePayload, FrameLocator, Page, expect

from tests.board import Run, running
from tests.browser.test_main_job import app_of, tool

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

OUTSIDE = """() => [...document.querySelectorAll("section *")].filter((one) => {
  const [{ right }, column] = [one, one.closest("section")].map((each) => each.getBoundingClientRect());
  return right > Math.min(column.right, innerWidth);
}).map((one) => one.outerHTML.slice(0, 80))"""


@pytest.fixture
async def board(tmp_path: Path) -> AsyncIterator[Run]:
    """The board behind a gateway."""
    async with running(tmp_path) as run:
        yield run


@pytest.fixture(params=["site", "view"])
async def shown(request: pytest.FixtureRequest, page: Page, board: Run) -> Page | FrameLocator:
    """The board on its own site, and in a sandboxed frame of the console."""
    place: Page | FrameLocator = page
    await page.goto(board.site if request.param == "site" else board.url)
    if request.param == "view":
        place = app_of(page)
    await expect(place.locator("[data-card]").first).to_be_visible()
    return place


async def test_a_person_works_on_the_board(shown: Page | FrameLocator) -> None:
    """A card is added by a form, moved by a button, dragged, and deleted."""
    ideas, done = shown.locator("[data-column=ideas]"), shown.locator("[data-column=done]")
    await ideas.get_by_label("A new card in Ideas").fill("Oolong night")
    await ideas.get_by_role("button", name="Add", exact=True).click()
    card = ideas.locator("li", has_text="Oolong night")
    await expect(card).to_be_visible()
    await card.get_by_label("Move Oolong night to Doing").click()
    moved = shown.locator("[data-column=doing] li", has_text="Oolong night")
    await moved.drag_to(done)
    await expect(done.locator("li", has_text="Oolong night")).to_be_visible()
    await done.get_by_label("Throw Oolong night away").click()
    await expect(shown.locator("li", has_text="Oolong night")).to_have_count(0)


async def test_the_focus_goes_with_a_card_that_is_moved_by_its_button(shown: Page | FrameLocator) -> None:
    """With the keyboard a card moves from column to column; at the end the focus is on the button back."""
    await shown.get_by_label("Move Open house in December to Doing").press("Enter")
    forth = shown.get_by_label("Move Open house in December to Done")
    await expect(forth).to_be_focused()
    await forth.press("Enter")
    await expect(shown.get_by_label("Move Open house in December to Doing")).to_be_focused()


async def test_the_focus_stays_beside_a_card_that_is_thrown_away(shown: Page | FrameLocator) -> None:
    """It moves to the next card, else to the previous one, else to the input for a new card."""
    ideas = shown.locator("[data-column=ideas]")
    line = ideas.get_by_label("A new card in Ideas")
    await line.fill("Oolong night")
    await line.press("Enter")
    first, second, third = (
        ideas.get_by_label(f"Throw {title} away")
        for title in ("Open house in December", "A jar you can send back", "Oolong night")
    )
    await expect(third).to_be_visible()
    for thrown, focused in ((first, second), (third, second), (second, line)):
        await thrown.press("Enter")
        await expect(thrown).to_have_count(0)
        await expect(focused).to_be_focused()


async def test_what_is_too_large_or_too_long_is_said_with_its_limit(page: Page, shown: Page | FrameLocator) -> None:
    """The message names the file and is visible on a phone, too; a title is not truncated, and cannot be added."""
    await page.set_viewport_size({"width": 420, "height": 900})
    await shown.get_by_label("Throw Repair the scales away").scroll_into_view_if_needed()
    large = FilePayload(name="scan.pdf", mimeType="application/pdf", buffer=bytes(2_000_001))
    await shown.get_by_label("Attach a file to Repair the scales").set_input_files(large)
    said = "scan.pdf was not sent. It has 2.01 MB; a file may have 2 MB."
    await expect(shown.get_by_role("alert")).to_have_text(said)
    await expect(shown.get_by_role("alert")).to_be_in_viewport()
    await shown.get_by_label("Attach a file to Repair the scales").set_input_files(
        {**large, "name": "fits.pdf", "buffer": bytes(2_000_000)}
    )
    await expect(shown.get_by_role("link", name="fits.pdf")).to_be_visible()
    ideas = shown.locator("[data-column=ideas]")
    await ideas.get_by_label("A new card in Ideas").fill("x" * 123)
    await expect(ideas.get_by_role("alert")).to_have_text("A title may have 120 characters; this one has 3 more.")
    await expect(ideas.get_by_role("button", name="Add", exact=True)).to_be_disabled()


async def test_a_phone_has_targets_for_fingers_and_nothing_is_missing(page: Page, board: Run) -> None:
    """At 420 px every control measures 44 px each way; every file of the site is found, the icon included."""
    missing: list[str] = []
    page.on("response", lambda answer: missing.append(answer.url) if answer.status >= 400 else None)
    await page.set_viewport_size({"width": 420, "height": 900})
    await page.goto(board.site)
    await expect(page.locator("[data-card]").first).to_be_visible()
    icon = page.locator("link[rel=icon]")
    assert await icon.evaluate("async ({ href }) => (await (await fetch(href)).blob()).type") == "image/svg+xml"
    sizes = await page.locator("button, .attach, form input").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect()).flatMap(({ width, height }) => [width, height])"
    )
    assert (min(sizes) >= 44, missing) == (True, [])


async def test_nothing_stands_out_of_its_column_at_any_width(page: Page, board: Run) -> None:
    """Long words and file names fit, from a small phone to a wide window."""
    async with aiohttp.ClientSession() as http:
        card = {"title": "x" * 120, "note": "y" * 300, "column": "doing"}
        async with http.post(f"{board.api}/cards", json=card) as made:
            id = (await made.json())["id"]
        file = aiohttp.FormData()
        file.add_field("file", b"notes", filename=f"{'notes-' * 20}.txt", content_type="text/plain")
        await (await http.post(f"{board.api}/cards/{id}/files", data=file)).read()
    await page.goto(board.site)
    await expect(page.get_by_role("link", name="notes-")).to_be_visible()
    outside = {}
    for width in (320, 420, 768, 1280):
        await page.set_viewport_size({"width": width, "height": 800})
        outside[width] = await page.evaluate(OUTSIDE)
    assert {width: found for width, found in outside.items() if found} == {}


async def test_a_picture_is_sent_and_shown(shown: Page | FrameLocator) -> None:
    """A form with a file is sent, and an image of the backend is shown."""
    card = shown.locator("[data-card=card-1]")
    await card.get_by_label("Attach a file").set_input_files(
        {"name": "leaf.png", "mimeType": "image/png", "buffer": PICTURE}
    )
    image = card.get_by_role("img", name="leaf.png")
    await expect(image).to_be_visible()
    await expect(image).to_have_js_property("naturalWidth", 1)


async def test_an_attachment_is_saved_when_the_person_says_so(page: Page, board: Run, tmp_path: Path) -> None:
    """In a view the console shows name and size; Cancel saves nothing, and Save writes the exact bytes."""
    await page.goto(board.url)
    card = app_of(page).locator("[data-card=card-1]")
    await expect(card).to_be_visible()
    notes = b"oolong\n" * 100
    await card.get_by_label("Attach a file").set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": notes}
    )
    link = card.locator("a", has_text="notes.txt")
    await link.click()
    dialog = page.get_by_test_id("link-dialog")
    await expect(dialog).to_contain_text("notes.txt (700 B)")
    await page.get_by_test_id("link-cancel").click()
    await link.click()
    await expect(page.get_by_test_id("link-open")).to_be_enabled()
    async with page.expect_download() as saving:
        await page.get_by_test_id("link-open").click()
    download = await saving.value
    assert download.suggested_filename == "notes.txt"
    assert Path(await download.path()).read_bytes() == notes
    journal = [json.loads(line) for line in (tmp_path / "gateway.journal").read_text("utf-8").splitlines()]
    lines = [line for line in journal if line["fields"]["kind"] == "download" and line["phase"] == "outcome"]
    assert [line["fields"]["decision"] for line in lines] == ["declined", "approved"]
    assert lines[1]["fields"]["files"] == [{"name": "notes.txt", "size": 700}]


async def test_what_others_change_is_shown_at_once(shown: Page | FrameLocator, board: Run) -> None:
    """The backend pushes changes by an event stream."""
    async with aiohttp.ClientSession() as other, other.post(f"{board.api}/cards", json={"title": "From elsewhere"}):
        await expect(shown.locator("li", has_text="From elsewhere")).to_be_visible()


async def test_a_model_works_on_the_board_that_the_person_sees(page: Page, board: Run) -> None:
    """All of the page's tools are called in the live view: it adds a card, moves one, and reads the result."""
    await page.goto(board.url)
    frame = app_of(page)
    await expect(frame.locator("[data-card=card-1]")).to_be_visible()
    async with Client(f"{board.url}/mcp", mode="2026-07-28") as client:
        for name in ("add_card", "move_card", "get_board"):
            await tool(client, f"board_{name}")
        added = await client.call_tool("board_add_card", {"title": "Matcha", "column": "doing"})
        assert not added.is_error, added
        await expect(frame.locator("[data-column=doing] li").last).to_contain_text("Matcha")
        moved = await client.call_tool("board_move_card", {"card": "card-1", "column": "done", "position": 0})
        assert not moved.is_error, moved
        await expect(frame.locator("[data-column=done] li").first).to_have_attribute("data-card", "card-1")
        read = await client.call_tool("board_get_board", {})
        nobody = await client.call_tool("board_move_card", {"card": "nobody", "column": "done"})
    columns = (read.structured_content or {})["columns"]
    cards = {column["id"]: [card["title"] for card in column["cards"]] for column in columns}
    assert cards["doing"][-1] == "Matcha"
    assert columns[2]["cards"][0]["id"] == "card-1"
    assert nobody.is_error
