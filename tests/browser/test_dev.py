"""The command `dev` with an author's browser: a change is visible as soon as the file is saved."""

from __future__ import annotations

from pathlib import Path

from mcp import Client
from playwright.async_api import Page, expect

from tests.assembly.files import replace_file
from tests.browser.test_main_job import app_of, tool, wait_unlisted
from tests.cli.test_serve import process, ready, write
from tests.world import free_port


def page_of(word: str, more: str = "") -> str:
    """A page that shows `word`, with a tool of that name."""
    return (
        f"<!doctype html><html><body><h1>{word}</h1>{more}<script>document.modelContext.registerTool("
        f"{{ name: '{word}', description: 'Says it.', inputSchema: {{ type: 'object' }}, execute: () => '{word}' }});"
        "</script></body></html>"
    )


async def test_a_saved_file_is_shown_at_once(page: Page, tmp_path: Path) -> None:
    """The view reopens with the new page and its tools, also if one of its files is missing."""
    port = free_port()
    write(tmp_path, port)
    rules = (tmp_path / "policy.yaml").read_text("utf-8")
    replace_file(tmp_path / "policy.yaml", f"{rules}tools: {{one: {{}}, two: {{}}, three: {{}}}}\n")
    replace_file(tmp_path / "index.html", page_of("one"))
    async with process(tmp_path, command="dev") as running:
        await ready(running, 5)
        await page.goto(f"http://gateway.localhost:{port}")
        heading = app_of(page).locator("h1")
        await expect(heading).to_have_text("one")
        async with Client(f"http://localhost:{port}/mcp", mode="2026-07-28", cache=None) as model:
            await tool(model, "page_one")
            replace_file(tmp_path / "index.html", page_of("two"))
            await expect(heading).to_have_text("two")
            await tool(model, "page_two")
            await wait_unlisted(model, "page_one")
            replace_file(tmp_path / "index.html", page_of("three", "\n<img src=gone.png>"))
            await expect(heading).to_have_text("three")
            await tool(model, "page_three")
