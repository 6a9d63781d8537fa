"""The packer reads pages as Chromium reads them."""

from playwright.async_api import Page

from tests.apps.html_pages import PAGES

_READ = """page => {
  const frame = document.body.appendChild(document.createElement("iframe"));
  const into = frame.contentDocument;
  into.open(); into.write(`<!doctype html>${page}`); into.close();
  const prefixes = { "http://www.w3.org/2000/svg": "svg:", "http://www.w3.org/1998/Math/MathML": "math:" };
  const lower = (name) => name.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
  return [...into.querySelectorAll("[id]")].map((element) => {
    const name = `${prefixes[element.namespaceURI] ?? ""}${lower(element.localName)}`;
    return [element.id, name, name === "script" || name === "style" ? element.textContent : ""];
  });
}"""


async def test_pages_that_are_hard_to_read_are_read_alike(page: Page) -> None:
    """The pages of the packer's tests are compared."""
    assert {text: await page.evaluate(_READ, text) for text in PAGES} == PAGES
