"""Copying in a frame to which the host gives no permission for the clipboard."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser.runtime_host import Host, host_server, show_page

PAGE = """<!doctype html><button id=modern>Modern</button><button id=older>Older</button><p id=out></p>
<script>
  modern.onclick = () => navigator.clipboard.writeText("modern").then(() => "copied", ({ name }) => name)
    .then((what) => { out.textContent = what; });
  older.onclick = () => {
    const copy = (event) => {
      event.clipboardData.setData("text/plain", "older");
      event.preventDefault();
    };
    addEventListener("copy", copy, { once: true });
    out.textContent = document.execCommand("copy");
  };
</script>"""


async def test_a_page_hears_that_it_may_not_copy_and_what_is_left(page: Page, tmp_path: Path) -> None:
    """The browser's own error is thrown; `execCommand` copies in a click, as the browser allows."""
    async with host_server() as url:
        await page.goto(url)
        frame = await show_page(Host(page), tmp_path, PAGE)
        out = frame.locator("#out")
        await frame.locator("#modern").click()
        await expect(out).to_have_text("NotAllowedError")
        await frame.locator("#older").click()
        await expect(out).to_have_text("true")
        await page.evaluate("document.body.append(document.createElement('textarea'))")
        await page.locator("textarea").press("ControlOrMeta+v")
        await expect(page.locator("textarea")).to_have_value("older")
