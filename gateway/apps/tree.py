"""Tracks the open elements of an HTML file, as far as its tokenization depends on them (HTML, 13.2.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gateway.apps.tags import Tag


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


_VOID: Final = _names(
    "area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr"
)
_PAGE: Final = frozenset({"html", "head", "body"})
"""These exist once, and their end tags close nothing."""
_LEAVING: Final = _names(
    "b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li listing menu "
    "meta nobr ol p pre ruby s small span strong strike sub sup table tt u ul var"
)
"""Tags that end SVG and MathML content (HTML, 13.2.6.5)."""
_HTML_WITHIN: Final = frozenset({"svg:foreignobject", "svg:desc", "svg:title"})
_TEXT_WITHIN: Final = frozenset({"math:mi", "math:mo", "math:mn", "math:ms", "math:mtext"})
_SCOPES: Final = frozenset(
    {"applet", "caption", "html", "marquee", "object", "select", "table", "td", "template", "th"}
    | {*_HTML_WITHIN, *_TEXT_WITHIN, "math:annotation-xml"}
)
"""End tags do not reach beyond these (HTML, 13.2.4.2)."""
_BLOCKS: Final = _names(
    "address applet article aside blockquote body button caption center col colgroup dd details dialog dir div dl "
    "dt fieldset figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup html li listing main "
    "marquee menu nav object ol p pre search section select summary table tbody td template tfoot th thead tr ul"
)
"""End tags of other elements do not reach beyond these; theirs reach beyond all but `_SCOPES`."""

_HTML, _SCOPE, _BLOCK = "is of HTML", "is in _SCOPES", "is in _BLOCKS or _SCOPES"
"""Kinds of elements; no element has such a name."""


@dataclass(frozen=True, slots=True)
class _Open:
    name: str
    html_within: bool
    inert: bool


class Tree:
    """The open elements; those of SVG and MathML are named `svg:…` and `math:…`.

    `_places` indexes them by name and kind, so that no end tag searches all of them.
    """

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        self._inert = 0

    @property
    def foreign(self) -> bool:
        """Whether the current node is an element of SVG or MathML."""
        return bool(self._open) and ":" in self._open[-1].name

    @property
    def inert(self) -> bool:
        """Whether the position is in a `<template>` that is not a shadow root's."""
        return self._inert > 0

    def start(self, tag: Tag) -> str:
        """Open the element of a start tag, and return its name."""
        if not self._as_html(tag.name):
            if not _leaves(tag):
                name = f"{self._open[-1].name.partition(':')[0]}:{tag.name}"
                if not tag.selfclosing:
                    self._push(name, tag)
                return name
            self._leave()
        if tag.name in ("svg", "math"):
            name = f"{tag.name}:{tag.name}"
            if not tag.selfclosing:
                self._push(name, tag)
            return name
        name = "img" if tag.name == "image" else tag.name
        if name not in _VOID | _PAGE:
            self._push(name, tag)
        return name

    def end(self, name: str) -> None:
        """Close the elements that an end tag closes."""
        if self.foreign and name in ("br", "p"):
            self._leave()
        own = max(self._last(f"svg:{name}"), self._last(f"math:{name}"))
        if own > self._last(_HTML):
            self._pop_to(own)
            return
        stop = -1 if name == "template" else self._last(_SCOPE if name in _BLOCKS else _BLOCK)
        if (at := self._last(name)) >= max(stop, 0):
            self._pop_to(at)

    def _last(self, name: str) -> int:
        """Return the index of the innermost open element of that name or kind; -1 if there is none."""
        places = self._places.get(name)
        return places[-1] if places else -1

    def _as_html(self, name: str) -> bool:
        """Whether a start tag is handled as HTML here."""
        if not self.foreign or self._open[-1].html_within:
            return True
        current = self._open[-1].name
        if current in _TEXT_WITHIN:
            return name not in ("mglyph", "malignmark")
        return current == "math:annotation-xml" and name == "svg"

    def _leave(self) -> None:
        while self.foreign and not self._open[-1].html_within and self._open[-1].name not in _TEXT_WITHIN:
            self._pop_to(len(self._open) - 1)

    def _push(self, name: str, tag: Tag) -> None:
        inert = name == "template" and _value(tag, "shadowrootmode") not in ("open", "closed")
        within = name in _HTML_WITHIN or (
            name == "math:annotation-xml" and _value(tag, "encoding") in ("text/html", "application/xhtml+xml")
        )
        for known in (name, *_kinds(name)):
            self._places[known].append(len(self._open))
        self._open.append(_Open(name, within, inert))
        self._inert += inert

    def _pop_to(self, at: int) -> None:
        while len(self._open) > at:
            gone = self._open.pop()
            for known in (gone.name, *_kinds(gone.name)):
                self._places[known].pop()
            self._inert -= gone.inert


def _kinds(name: str) -> Iterator[str]:
    if ":" not in name:
        yield _HTML
    if name in _SCOPES:
        yield _SCOPE
    if name in _BLOCKS or name in _SCOPES:
        yield _BLOCK


def _leaves(tag: Tag) -> bool:
    return tag.name in _LEAVING or (tag.name == "font" and not {"color", "face", "size"}.isdisjoint(tag.attributes))


def _value(tag: Tag, name: str) -> str | None:
    attribute = tag.attributes.get(name)
    return attribute.value.lower() if attribute is not None else None
