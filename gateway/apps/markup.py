"""Parses an HTML file into a list of elements with their positions, so that unchanged parts keep their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.apps.places import Text
from gateway.apps.tags import SPACE, Attribute, Tag, read, text_end
from gateway.apps.tree import Tree

_TEXTS: Final = frozenset({"iframe", "noembed", "noframes", "noscript", "script", "style", "textarea", "title", "xmp"})
"""Elements with raw text (HTML, 13.2.6.4); <noscript> if scripts run, as in every view."""


@dataclass(slots=True)
class Element:
    """A start tag from `start` to `end`; for raw text elements also the ends of their text and end tag.

    `name` is `svg:use` for a `<use>` of SVG. `inert`: it is in a `<template>`, and has no effect until the page copies
    it elsewhere. `closed`: the file contains the end tag of a raw text element.
    """

    name: str
    start: int
    end: int
    attributes: Mapping[str, Attribute]
    text_end: int
    close_end: int
    inert: bool
    closed: bool = True

    def get(self, name: str) -> str | None:
        """Return the value of the attribute `name`; None if it is missing."""
        attribute = self.attributes.get(name)
        return attribute.value if attribute else None

    def tokens(self, name: str) -> frozenset[str]:
        """Return the space-separated words of an attribute, in lower case."""
        return frozenset((self.get(name) or "").lower().split())

    def written(self, *, without: frozenset[str]) -> str:
        """Return the attributes as the author wrote them, except some."""
        return "".join(f" {each.written}" for each in self.attributes.values() if each.name not in without)


@dataclass(frozen=True, slots=True)
class Page:
    """The elements of an HTML file in order. `head` is the offset of the beginning of the head."""

    text: Text
    elements: list[Element] = field(default_factory=list)
    head: int = 0

    def part(self, start: int) -> Text:
        """Return its text from `start` on."""
        return Text(self.text.file, self.text.whole, start)


def parse(text: Text) -> Page:
    """Parse the elements of `text`."""
    reader = _Reader(text.whole)
    reader.run()
    return Page(text, reader.elements, reader.head)


class _Reader:
    def __init__(self, whole: str) -> None:
        self._whole = whole
        self._tree = Tree()
        self._style: Element | None = None
        self._rank = 0
        self._in_head = False
        self.elements: list[Element] = []
        self.head = 0

    def run(self) -> None:
        at: int | None = 0
        while at is not None and (start := self._whole.find("<", at)) >= 0:
            self._in_head = self._in_head or bool(self._whole[at:start].strip(SPACE))
            found = read(self._whole, start, cdata=self._tree.foreign)
            if isinstance(found, Tag):
                at = self._end(found) if found.closes else self._start(found)
            else:
                self._before_head(self._whole[start : start + len("<!doctype")].lower(), found)
                at = found
        self._end_style(len(self._whole))

    def _before_head(self, name: str, end: int | None) -> None:
        # The innermost is best: <head>, else <html>, else the doctype, else the beginning.
        rank = {"<!doctype": 1, "html": 2, "head": 3}.get(name, 0)
        if rank > self._rank and end is not None and not self._in_head:
            self._rank, self.head = rank, end

    def _start(self, tag: Tag) -> int | None:
        """Return the offset behind the element; None if the rest of the file belongs to it."""
        inert = self._tree.inert
        self._end_style(tag.start)
        name = self._tree.start(tag)
        self._before_head(name, tag.end)
        self._in_head = self._in_head or name != "html"
        element = Element(
            "img" if name == "image" else name, tag.start, tag.end, tag.attributes, tag.end, tag.end, inert
        )
        self.elements.append(element)
        if name == "svg:style" and not tag.selfclosing:
            self._style = element
        if name == "plaintext":
            return None
        return self._text(element) if name in _TEXTS else tag.end

    def _text(self, element: Element) -> int | None:
        self._tree.end(element.name)
        found = text_end(self._whole, element.end, element.name)
        closing = read(self._whole, found, cdata=False) if found is not None else None
        element.closed = isinstance(closing, Tag)
        element.text_end = found if found is not None else len(self._whole)
        element.close_end = closing.end if isinstance(closing, Tag) else len(self._whole)
        return element.close_end if element.closed else None

    def _end(self, tag: Tag) -> int:
        self._end_style(tag.start)
        self._in_head = True
        self._tree.end(tag.name)
        return tag.end

    def _end_style(self, at: int) -> None:
        if self._style is not None:
            self._style.text_end = at
            self._style = None
