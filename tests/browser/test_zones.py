"""Pages with zone.js, as in Angular: it wraps every listener and promise of a page."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser.runtime_host import ROOT
from tests.browser.test_twins import TWINS
from tests.browser.twins.backend import Backend
from tests.world import running, serving

ZONES = ROOT / "browser" / "node_modules" / "zone.js" / "bundles" / "zone.umd.min.js"
PAGE = """<!doctype html><p id=ready>page</p><script src="zone.js"></script><script>
  async function reads() {
    const blob = await (await fetch("/api/pixel.png")).blob();
    const text = await (await fetch("/api/text")).blob().then((one) => one.text());
    const { status } = await new Promise((done) => {
      const xhr = new XMLHttpRequest();
      xhr.addEventListener("load", () => done(xhr));
      xhr.open("GET", "/api/text");
      xhr.send();
    });
    const picture = Object.assign(new Image(), { src: "/api/pixel.png" });
    await picture.decode();
    return [blob.size, text, status, picture.naturalWidth, location.hash, Zone.current.name];
  }
</script>"""


async def test_a_page_with_zones_reads_whole_answers(page: Page, tmp_path: Path) -> None:
    """Streams end, whatever the zones do while the browser pulls."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "index.html").write_text(PAGE, "utf-8")
    shutil.copy(ZONES, folder / "zone.js")
    async with serving(Backend(folder).app()) as port:
        policy = (TWINS / "policy.yaml").read_text("utf-8").replace("127.0.0.1:1", f"127.0.0.1:{port}")
        await page.goto(f"http://localhost:{port}/index.html")
        native = await page.evaluate("reads()")
        async with running(tmp_path, policy=policy, source=folder) as world:
            await page.goto(world.url)
            view = page.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
            await expect(view.locator("#ready")).to_be_visible()
            async with asyncio.timeout(60):
                assert await page.frames[-1].evaluate("reads()") == native
    assert native[1] == "plain ü"
