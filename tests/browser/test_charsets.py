"""Scripts and style sheets of the backend are read in the charset in which a browser reads them."""

import codecs
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from tests.browser.three_places import Places, three_places, whole

SCRIPT = """async ([url, attributes]) => {
  const script = document.createElement("script");
  for (const [name, value] of Object.entries(attributes)) script.setAttribute(name, value);
  window.seen = undefined;
  const event = await new Promise((go) => {
    script.onload = script.onerror = go;
    script.src = url;
    document.head.append(script);
  });
  script.remove();
  return [event.type, window.seen];
}"""
STYLE = """async ([url, attributes]) => {
  const link = document.createElement("link"), shown = document.createElement("p");
  for (const [name, value] of Object.entries(attributes)) link.setAttribute(name, value);
  link.rel = "stylesheet";
  shown.id = "shown";
  document.body.append(shown);
  const event = await new Promise((go) => {
    link.onload = link.onerror = go;
    link.href = url;
    document.head.append(link);
  });
  const content = getComputedStyle(shown, "::before").content;
  link.remove();
  shown.remove();
  return [event.type, content];
}"""

UTF_8, LATIN = "é".encode(), "é".encode("latin-1")
LITTLE, BIG = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE

SCRIPTS: dict[str, tuple[str, bytes, dict[str, str]]] = {
    "utf-8": ("text/javascript", b'seen = "%b"' % UTF_8, {}),
    "latin-1": ("text/javascript", b'seen = "%b"' % LATIN, {}),
    "a label": ("text/javascript; charset=iso-8859-1", b'seen = "%b"' % LATIN, {}),
    "a wrong label": ("text/javascript; charset=iso-8859-1", b'seen = "%b"' % UTF_8, {}),
    "a label in quotes": ('text/javascript; charset="ISO-8859-1"', b'seen = "%b"' % LATIN, {}),
    "a label of no charset": ("text/javascript; charset=rot13", b'seen = "%b"' % UTF_8, {}),
    "a byte order mark": ("text/javascript; charset=iso-8859-1", codecs.BOM_UTF8 + b'seen = "%b"' % UTF_8, {}),
    "utf-16": ("text/javascript", LITTLE + 'seen = "é"'.encode("utf-16-le"), {}),
    "utf-16 of another label": ("text/javascript; charset=utf-8", BIG + 'seen = "é"'.encode("utf-16-be"), {}),
    "utf-16 without a mark": ("text/javascript; charset=utf-16le", 'seen = "é"'.encode("utf-16-le"), {}),
    "an attribute": ("text/javascript", b'seen = "%b"' % LATIN, {"charset": "windows-1252"}),
    "an attribute beside a label": ("text/javascript; charset=utf-8", b'seen = "%b"' % UTF_8, {"charset": "latin1"}),
    "a module": ("text/javascript; charset=iso-8859-1", b'window.seen = "%b"' % UTF_8, {"type": "module"}),
    "a module with a mark": ("text/javascript", codecs.BOM_UTF8 + b'window.seen = "%b"' % UTF_8, {"type": "module"}),
}
RULE = '#shown::before {{ content: "{}" }}'


def rule(text: str, encoding: str = "utf-8", before: str = "") -> bytes:
    """A style sheet that shows `text`."""
    return (before + RULE.format(text)).encode(encoding)


STYLES: dict[str, tuple[str, bytes, dict[str, str]]] = {
    "utf-8": ("text/css", rule("é"), {}),
    "latin-1": ("text/css", rule("é", "latin-1"), {}),
    "a label": ("text/css; charset=iso-8859-1", rule("é", "latin-1"), {}),
    "a byte order mark": ("text/css; charset=iso-8859-1", codecs.BOM_UTF8 + rule("é"), {}),
    "utf-16": ("text/css", LITTLE + rule("é", "utf-16-le"), {}),
    "@charset": ("text/css", rule("é", "latin-1", '@charset "iso-8859-1";'), {}),
    "@charset beside a label": ("text/css; charset=utf-8", rule("é", "utf-8", '@charset "iso-8859-1";'), {}),
    "@charset of utf-16": ("text/css", rule("é", "utf-8", '@charset "utf-16";'), {}),
    "@charset in other quotes": ("text/css", rule("é", "utf-8", "@charset 'iso-8859-1';"), {}),
    "@charset behind a space": ("text/css", rule("é", "utf-8", ' @charset "iso-8859-1";'), {}),
    "an attribute": ("text/css", rule("é", "latin-1"), {"charset": "latin1"}),
    "an attribute beside @charset": ("text/css", rule("é", "latin-1", '@charset "latin1";'), {"charset": "utf-8"}),
}


@pytest.fixture(scope="module")
async def places(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Places]:
    """The three places, loaded once."""
    async with three_places(browser, tmp_path_factory.mktemp("world")) as found:
        yield found


@pytest.mark.parametrize("name", SCRIPTS)
async def test_scripts(places: Places, name: str) -> None:
    """Precedence: byte order mark, label, the attribute `charset`, the page's; modules are UTF-8 (HTML, 8.1.4.2)."""
    media_type, body, attributes = SCRIPTS[name]
    places.backend.answers["/only/script"] = whole(body, media_type)
    await places.same(SCRIPT, [f"/only/script?{list(SCRIPTS).index(name)}", attributes])


@pytest.mark.parametrize("name", STYLES)
async def test_style_sheets(places: Places, name: str) -> None:
    """Precedence: byte order mark, label, `@charset`, the attribute, the page's (CSS Syntax, 3.2)."""
    media_type, body, attributes = STYLES[name]
    places.backend.answers["/only/style"] = whole(body, media_type)
    await places.same(STYLE, [f"/only/style?{list(STYLES).index(name)}", attributes])
