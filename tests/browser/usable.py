"""The elements of a page that a person can use: those that ever exist, and those that a test used."""

from __future__ import annotations

from collections.abc import Mapping

from playwright.async_api import Frame, FrameLocator, Page

WATCH = """(_, kinds) => {
  const USABLE = "a[href],button,input,select,textarea,summary,[draggable=true],[contenteditable],[role=button]";
  const names = Object.keys(kinds);
  const kindOf = (one) => names.find((name) => one.matches(kinds[name])) ?? one.outerHTML.slice(0, 200);
  const [there, used] = [new Set(), new Set()];
  const look = () => document.querySelectorAll(USABLE).forEach((one) => there.add(kindOf(one)));
  new MutationObserver(look).observe(document, { subtree: true, childList: true, attributes: true });
  look();
  for (const type of ["click", "input", "change", "dragstart"]) {
    addEventListener(type, ({ target }) => {
      const one = target.closest(USABLE);
      if (one) used.add(kindOf(one));
    }, true);
  }
  window.usable = () => [[...there].sort(), [...used].sort()];
}"""


async def watch(place: Page | Frame | FrameLocator, kinds: Mapping[str, str]) -> None:
    """Start to observe; `kinds` are selectors by name, of which the first match counts.

    Other elements are reported as they are.
    """
    await place.locator("html").evaluate(WATCH, dict(kinds))


async def there_and_used(place: Page | Frame | FrameLocator) -> tuple[list[str], list[str]]:
    """The kinds of the elements that existed since then, and of those that were used."""
    there, used = await place.locator("html").evaluate("() => usable()")
    return there, used
