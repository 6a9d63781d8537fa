"""The files of the cart app's web app."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from examples.cart_app.store import PRODUCTS
from tests.examples.house import FOLDER


class Page(HTMLParser):
    """The files, ids and pictures that a page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.files: list[str] = []
        self.ids: list[str] = []
        self.pictures: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the attributes that the tests read."""
        fields = dict(attrs)
        self.files += [value for name in ("src", "href") if (value := fields.get(name))]
        self.ids += [value for value in [fields.get("id")] if value]
        self.pictures += [value for value in [fields.get("data-picture")] if value]


def test_every_file_of_the_page_is_there() -> None:
    """The page refers only to files beside it, and each exists."""
    page = Page((FOLDER / "web/index.html").read_text(encoding="utf-8"))

    assert {"style.css", "app.js"} <= set(page.files)
    assert [name for name in page.files if not (FOLDER / "web" / name).is_file()] == []


def test_every_product_has_a_picture() -> None:
    """The pictures of the page are those of the products."""
    page = Page((FOLDER / "web/index.html").read_text(encoding="utf-8"))

    assert sorted(page.pictures) == sorted(item_id for item_id, *_ in PRODUCTS)


def test_script_finds_the_elements_that_it_names() -> None:
    """Every id that the script looks up is in the page."""
    page = Page((FOLDER / "web/index.html").read_text(encoding="utf-8"))
    named = re.findall(r'element\("([\w-]+)"\)', (FOLDER / "web/app.js").read_text(encoding="utf-8"))

    assert named
    assert set(named) <= set(page.ids)


def test_web_app_knows_of_no_gateway() -> None:
    """Neither the page nor the servers mention what may be in front of them."""
    programs = (name for name in FOLDER.glob("*.py") if name.name != "demo.py")
    files = [*(FOLDER / "web").rglob("*.*"), *programs]
    words = re.compile(r"gateway|sandbox|iframe|postmessage|mcp[-_ ]", re.IGNORECASE)

    assert [file.name for file in files if words.search(file.read_text(encoding="utf-8"))] == []
