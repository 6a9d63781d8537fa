"""An HTML file as a list of elements, each with its place, so that what is not changed keeps its bytes."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser

from gateway.apps.places import Text

_ATTRIBUTE = re.compile(r"""[\s/]*([^\s/>=][^\s/>=]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+)))?""")
_RAW = ("script", "style")
_FOREIGN = ("svg", "math")
_COMMENT = re.compile(r"<!--(?:-?>|.*?(?:--!?>|\Z))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute with its decoded value; `start` and `end` are those of the whole of it in the file."""

    name: str
    value: str
    start: int
    end: int
    written: str


@dataclass(slots=True)
class Element:
    """A start tag from `start` to `end`; for script and style also their text and where their end tag ends.

    `inert` is what stands in a `<template>`: it does nothing before the page puts a copy of it elsewhere.
    """

    name: str
    start: int
    end: int
    attributes: Mapping[str, Attribute]
    text_end: int = 0
    close_end: int = 0
    inert: bool = False

    def get(self, name: str) -> str | None:
        """The value of the attribute `name`; None where it is not written."""
        attribute = self.attributes.get(name)
        return attribute.value if attribute else None

    def tokens(self, name: str) -> frozenset[str]:
        """The space-separated words of an attribute, in lower case."""
        return frozenset((self.get(name) or "").lower().split())

    def written(self, *, without: frozenset[str]) -> str:
        """The attributes as the author wrote them, but for some."""
        return "".join(f" {each.written}" for each in self.attributes.values() if each.name not in without)


@dataclass(frozen=True, slots=True)
class Page:
    """The elements of an HTML file in order. `head` is where the head begins, `tail` where the body ends."""

    text: Text
    elements: list[Element] = field(default_factory=list)
    head: int = 0
    tail: int = 0

    def part(self, start: int) -> Text:
        """What stands in it from `start` on."""
        return Text(self.text.file, self.text.whole, start)


def parse(text: Text) -> Page:
    """The elements of `text`."""
    reader = _Reader(text)
    reader.feed(text.whole)
    reader.close()
    return Page(text, reader.elements, reader.head, len(text.whole) if reader.tail is None else reader.tail)


class _Reader(HTMLParser):
    # HTML 13.2.6.4: in these is text alone; in <noscript> where scripts run, as they do in every view.
    CDATA_CONTENT_ELEMENTS = (  # type: ignore[misc]  # final in its stub alone: it is looked up in the class
        *_RAW, "iframe", "noembed", "noframes", "noscript", "textarea", "title", "xmp",
    )  # fmt: skip

    def __init__(self, text: Text) -> None:
        super().__init__(convert_charrefs=False)
        self._whole = text.whole
        self._lines = [0, *(match.end() for match in re.finditer("\n", text.whole))]
        self.elements: list[Element] = []
        self.head = 0
        self.tail: int | None = None
        self._rank = 0
        self._open: Element | None = None
        self._templates: list[bool] = []
        self._foreign = 0

    @property
    def _at(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def _before_head(self, rank: int, end: int) -> None:
        # The further in, the better: <head>, else <html>, else the doctype, else the beginning.
        if rank > self._rank:
            self._rank, self.head = rank, end

    def parse_comment(self, i: int, report: bool = True) -> int:
        found = _COMMENT.match(self.rawdata, i)
        return found.end() if found is not None else len(self.rawdata)

    def parse_html_declaration(self, i: int) -> int:
        # HTML 13.2.5.42: `<![CDATA[` begins a text in SVG and MathML alone; elsewhere `<![` is a comment as far as `>`.
        if not self.rawdata.startswith("<![", i):
            return super().parse_html_declaration(i)
        end = "]]>" if self._foreign and self.rawdata.startswith("<![CDATA[", i) else ">"
        found = self.rawdata.find(end, i)
        return found + len(end) if found >= 0 else len(self.rawdata)

    def handle_decl(self, decl: str) -> None:
        self._before_head(1, self._at + len(decl) + len("<!>"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        written = self.get_starttag_text() or ""
        start = self._at
        attributes = _attributes(written, start, len(tag) + 1)
        element = Element(tag, start, start + len(written), attributes, text_end=start + len(written))
        element.close_end = element.end
        element.inert = any(self._templates)
        self.elements.append(element)
        self._before_head({"html": 2, "head": 3}.get(tag, 0), element.end)
        self._foreign += tag in _FOREIGN
        if tag == "template":
            self._templates.append("shadowrootmode" not in attributes)  # else the parser makes a shadow root of it
        if tag in _RAW and not written.endswith("/>"):
            self._open = element

    def handle_endtag(self, tag: str) -> None:
        if tag == "body":
            self.tail = self._at
        if tag == "template" and self._templates:
            self._templates.pop()
        self._foreign -= tag in _FOREIGN and self._foreign > 0
        if self._open is not None and tag == self._open.name:
            self._open.text_end = self._at
            self._open.close_end = self._whole.index(">", self._at) + 1
            self._open = None


def _attributes(written: str, start: int, after_name: int) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {}
    for match in _ATTRIBUTE.finditer(written, after_name, len(written) - 1):
        name = match[1].lower()
        value = html.unescape(next((group for group in match.group(2, 3, 4) if group is not None), ""))
        begin = match.start(1)
        found.setdefault(name, Attribute(name, value, start + begin, start + match.end(), written[begin : match.end()]))
    return found
