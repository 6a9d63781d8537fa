"""A use of an app, natively or in a view: what a script does, and what it observes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from playwright.async_api import Frame, FrameLocator, Locator, Page, expect


@dataclass(slots=True)
class Visit:
    """The page of an app, in a tab or inside the console, and what the script read."""

    page: Page
    app: Page | FrameLocator
    texts: list[str] = field(default_factory=list)
    rendered: bool = False
    """Whether the app is a page in a shell."""

    def find(self, selector: str, text: str | re.Pattern[str] | None = None) -> Locator:
        """Return the elements of the app."""
        return self.app.locator(selector, has_text=text)

    async def click(self, selector: str, text: str | re.Pattern[str] | None = None) -> None:
        """Click the first of these elements."""
        await self.find(selector, text).first.click()

    async def fill(self, selector: str, text: str) -> None:
        """Replace the text of a field."""
        await self.find(selector).first.fill(text)

    async def press(self, selector: str, key: str) -> None:
        """Press a key in an element."""
        await self.find(selector).first.press(key)

    async def keys(self, *keys: str) -> None:
        """Press keys in the page, with no element in particular."""
        await self.frame.evaluate("focus()")
        for key in keys:
            await self.page.keyboard.press(key)

    async def read(self, selector: str, text: str | re.Pattern[str] | None = None) -> None:
        """Note the text of the first of these elements, once it is visible."""
        element = self.find(selector, text).first
        await expect(element).to_be_visible()
        self.texts.append(spaceless(await element.inner_text()))

    async def read_all(self, selector: str, count: int) -> None:
        """Note the texts of these elements, once there are as many."""
        elements = self.find(selector)
        await expect(elements).to_have_count(count)
        self.texts += [spaceless(text) for text in await elements.all_inner_texts()]

    async def value(self, selector: str) -> None:
        """Note the value of a field."""
        self.texts.append(await self.find(selector).first.input_value())

    @property
    def frame(self) -> Frame:
        """The frame of the app, for what locators do not tell."""
        if isinstance(self.app, Page):
            return self.page.main_frame
        proxy = next(one for one in self.page.main_frame.child_frames if one.child_frames)
        frame = proxy.child_frames[0]
        return frame.child_frames[-1] if self.rendered else frame

    async def picture(self) -> bytes:
        """Return what is visible of the app, as PNG."""
        if isinstance(self.app, Page):
            return await self.page.screenshot(animations="disabled")
        return await (await self.frame.frame_element()).screenshot(animations="disabled")

    async def text(self) -> str:
        """Return all text that the app shows."""
        return spaceless(await self.find("body").first.inner_text())

    async def evaluate(self, script: str) -> None:
        """Note the result of a script in the page."""
        self.texts.append(str(await self.frame.evaluate(script)))


def spaceless(text: str) -> str:
    """Return the text with single spaces, and without the origin of the page, which is another one in each place."""
    return " ".join(re.sub(r"https?://(localhost:\d+|127\.0\.0\.1:\d+|app\.invalid)", "https://own", text).split())


def blank(text: str, patterns: Sequence[str]) -> str:
    """Return the text without what matches."""
    for pattern in patterns:
        text = re.sub(pattern, "", text)
    return " ".join(text.split())


async def settle(visit: Visit, patterns: Sequence[str], expected: str | None = None) -> str:
    """Return the text of the page once it is as expected, or else does not change for a while."""
    last, same = "", 0
    for _ in range(100):
        text = blank(await visit.text(), patterns)
        same = same + 1 if text == last else 0
        last = text
        if text == expected or (same >= 5 and expected is None) or same >= 50:
            break
        await asyncio.sleep(0.1)
    return last
