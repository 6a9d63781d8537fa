"""The picture of docs/corpus.md: apps natively and in a view side by side, made from a run."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from playwright.async_api import Browser

from tests.corpus.catalog import PICTURED
from tests.corpus.running import Row

PICTURE: Final = Path(__file__).parents[2] / "docs" / "corpus.jpg"
LARGEST: Final = 300_000
"""Bytes that the picture may have, as it is kept with the source."""

STYLE: Final = """
body { margin: 0; width: 1560px; display: grid; grid-template-columns: repeat(3, 1fr); gap: 12px;
  padding: 12px; box-sizing: border-box; background: #eceff3; font: 14px/1.3 sans-serif; color: #223 }
figure { margin: 0; display: grid; grid-template-columns: 1fr 1fr; gap: 2px 6px }
figcaption { grid-column: 1 / 3; font-weight: bold }
img { width: 100%; border: 1px solid #aab; box-sizing: border-box; display: block }
"""


async def write_picture(browser: Browser, rows: Sequence[Row]) -> None:
    """Write the picture if all of its apps were run; else the one that is there stays."""
    chosen = {row.app.name: row for row in rows if row.native.picture and row.view.picture}
    if set(chosen) != set(PICTURED):
        return
    page = await browser.new_page(viewport={"width": 1560, "height": 400})
    await page.set_content(
        f"<!doctype html><style>{STYLE}</style>" + "".join(_figure(chosen[name]) for name in PICTURED)
    )
    await page.locator("img").last.evaluate("async () => { for (const img of document.images) await img.decode(); }")
    picture = await page.screenshot(full_page=True, type="jpeg", quality=72)
    await page.close()
    assert len(picture) <= LARGEST, f"the picture has {len(picture)} bytes"
    PICTURE.write_bytes(picture)


def _figure(row: Row) -> str:
    shown = [
        (where, base64.b64encode(one.picture).decode())
        for where, one in (("natively", row.native), ("in a view", row.view))
    ]
    images = "".join(f'<div>{where}<img src="data:image/png;base64,{png}"></div>' for where, png in shown)
    return f"<figure><figcaption>{escape(row.app.name)}</figcaption>{images}</figure>"
