"""Parses an HTML file into a list of elements with their positions, so that unchanged parts stay byte for byte."""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from html.entities import html5
from itertools import islice
from string import ascii_lowercase, ascii_uppercase
from typing import Final

from gateway.apps.files import Text

SPACE: Final = "\t\n\f\r "
"""White space of HTML, which is narrower than Python's."""

_NAME = re.compile(rf"[a-zA-Z][^{SPACE}/>]*")
_BETWEEN = re.compile(rf"[{SPACE}/]*")
_ATTRIBUTE_NAME = re.compile(rf"=?[^{SPACE}/>=]*")
_EQUALS = re.compile(rf"[{SPACE}]*=[{SPACE}]*")
_VALUE = re.compile(rf"""\"(?P<double>[^"]*)\"|'(?P<single>[^']*)'|(?P<bare>(?![\"'])[^{SPACE}>]*)""")
_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[a-zA-Z][a-zA-Z0-9]*(?:;|(?![a-zA-Z0-9=])))")
_COMMENT = re.compile(r"<!--(?:-?>|.*?--!?>)", re.DOTALL)
_BEHIND_NAME = rf"(?=[{SPACE}/>])"
_SCRIPT_END = f"</script{_BEHIND_NAME}"
_SCRIPT = {
    "data": re.compile(f"<!--|{_SCRIPT_END}", re.IGNORECASE | re.ASCII),
    "escaped": re.compile(f"-->|<script{_BEHIND_NAME}|{_SCRIPT_END}", re.IGNORECASE | re.ASCII),
    "double escaped": re.compile(f"-->|{_SCRIPT_END}", re.IGNORECASE | re.ASCII),
}
_PLAIN_TAG: Final = (
    r"<(?:/(?:{names})|(?:{names})(?:[\t\n\f\r ]+(?:class|title|lang|dir|role|align|valign|width|height|colspan|"
    r"rowspan|scope|data-[a-z-]+|aria-[a-z-]+)=\"[^\"]*\")*)[\t\n\f\r ]*>"
).format(
    names="(?:a|b|i|p|u|s|q|em|strong|small|sub|sup|span|div|br|hr|ul|ol|li|dl|dt|dd|h[1-6]|code|pre|kbd|samp|var|abbr|"
    "cite|time|mark|del|ins|label|table|caption|thead|tbody|tfoot|tr|td|th|section|article|header|footer|main|nav|"
    "aside|figure|figcaption|blockquote|address|details|summary|option|font|center|tt)"
)
"""A tag of HTML that neither refers to a file nor runs anything: of 2.6 million tags most are such."""
_PLAIN_SHAPE: Final = (
    r"<(?:/(?:{names})|(?:{names})(?:[\t\n\f\r ]+(?:(?:d|points|transform|viewbox|xmlns|class|version|data-[a-z-]+|"
    r"aria-[a-z-]+)=\"[^\"]*\"|(?:x|y|[xy][12]|[cfr][xy]?|width|height|fill|stroke|opacity|offset|overflow|"
    r"(?:fill|stroke|clip|stop|font|text|vector|gradient)-?[a-z-]+)=\"[^\"(&]*\"))*[\t\n\f\r ]*/?)[\t\n\f\r ]*>"
).format(names="(?:path|g|circle|rect|line|polyline|polygon|ellipse|defs|stop|lineargradient|radialgradient)")
"""The same of SVG, in which icons are written: a value with a parenthesis may be a `url()`."""


def _plain_tags(tag: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of one plain tag, of as many as follow each other, and of the name in each."""
    name = rf"(?=<(/?[a-z0-9]+)){tag}(?<=(.)>)"
    return tuple(re.compile(one, re.IGNORECASE | re.ASCII) for one in (tag, rf"{tag}(?:[^<]*{tag})*+", name))


_PLAIN: Final = _plain_tags(_PLAIN_TAG)
_PLAIN_SVG: Final = _plain_tags(_PLAIN_SHAPE)
_NESTING = re.compile(r"<(?:svg|math|template)", re.IGNORECASE | re.ASCII)
"""Begins the elements on whose nesting it depends what other tags are."""
_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
"""Names are case-insensitive in ASCII only."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute with its decoded value; `start` and `end` are those of its whole text in the file."""

    name: str
    value: str
    start: int
    end: int
    written: str


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag from `start` to `end`; `closes` for an end tag, `selfclosing` if it ends in `/>`."""

    name: str
    start: int
    end: int
    attributes: Mapping[str, Attribute]
    closes: bool
    selfclosing: bool


def read_tag(whole: str, at: int, *, cdata: bool) -> Tag | int | None:
    """Return the tag that begins with the `<` at `at`, or the end of another construct; None at the end of the file.

    `cdata`: a CDATA section is text, as in SVG and MathML; elsewhere it is a comment up to the next `>`.
    """
    closes = whole.startswith("</", at)
    if (name := _NAME.match(whole, at + 1 + closes)) is not None:
        return _tag(whole, at, name, closes=closes)
    if whole.startswith("<!--", at):
        comment = _COMMENT.match(whole, at)
        return comment.end() if comment is not None else None
    if not closes and not whole.startswith(("<!", "<?"), at):
        return at + 1
    ends = "]]>" if cdata and whole.startswith("<![CDATA[", at) else ">"
    end = whole.find(ends, at)
    return end + len(ends) if end >= 0 else None


def _tag(whole: str, at: int, name: re.Match[str], *, closes: bool) -> Tag | None:
    attributes: dict[str, Attribute] = {}
    place = name.end()
    while between := _BETWEEN.match(whole, place):
        place = between.end()
        if place == len(whole):
            return None
        if whole[place] == ">":
            return Tag(name[0].translate(_LOWER), at, place + 1, attributes, closes, between[0].endswith("/"))
        if (attribute := _attribute(whole, place)) is None:
            return None
        attributes.setdefault(attribute.name, attribute)
        place = attribute.end
    return None


def _attribute(whole: str, start: int) -> Attribute | None:
    name = _ATTRIBUTE_NAME.match(whole, start)
    if name is None:
        return None
    end, value = name.end(), ""
    if equals := _EQUALS.match(whole, end):
        match = _VALUE.match(whole, equals.end())
        if match is None:
            return None
        end, value = match.end(), unescape(match[match.lastgroup or 0])
    return Attribute(name[0].translate(_LOWER), value, start, end, whole[start:end])


def unescape(value: str) -> str:
    """Decode the value of an attribute, in which, unlike in text, `&copy=1` is no reference (HTML, 13.2.5.73)."""
    return _REFERENCE.sub(lambda match: _character(match[0]), value)


def _character(reference: str) -> str:
    return html.unescape(reference) if reference[1] == "#" or reference[1:] in html5 else reference


def text_end(whole: str, start: int, name: str) -> int | None:
    """Return the end of the raw text from `start`, at the end tag of the element `name`; None if there is none."""
    if name == "script":
        return _script_end(whole, start)
    match = re.compile(f"</{name}{_BEHIND_NAME}", re.IGNORECASE | re.ASCII).search(whole, start)
    return match.start() if match is not None else None


def _script_end(whole: str, start: int) -> int | None:
    # HTML, 13.2.5.4 and 13.2.5.15 to 31: behind `<!--`, a `<script>` takes one end tag for itself.
    state = "data"
    while match := _SCRIPT[state].search(whole, start):
        start = match.end()
        match (state, match[0].lower()):
            case (_, "<!--"):
                state, start = "escaped", match.start() + len("<!")  # its dashes may be those of the `-->`
            case (_, "-->"):
                state = "data"
            case (_, "<script"):
                state = "double escaped"
            case ("double escaped", _):
                state = "escaped"
            case _:
                return match.start()
    return None


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
class _OpenElement:
    name: str
    html_within: bool
    inert: bool


class Tree:
    """The open elements; those of SVG and MathML are named `svg:…` and `math:…`.

    `_places` indexes them by name and kind, so that no end tag searches all of them.
    """

    def __init__(self) -> None:
        self._open: list[_OpenElement] = []
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        self._inert = 0
        self._foreign = 0

    @property
    def foreign(self) -> bool:
        """True if the current node is an element of SVG or MathML."""
        return bool(self._open) and ":" in self._open[-1].name

    @property
    def svg(self) -> bool:
        """True if a plain tag of SVG is one of SVG here."""
        return bool(self._open) and self._open[-1].name.startswith("svg:") and not self._open[-1].html_within

    @property
    def all_html(self) -> bool:
        """True if no element of SVG or MathML is open."""
        return not self._foreign

    @property
    def inert(self) -> bool:
        """True if the position is in a `<template>` that is not a shadow root's."""
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

    def take_plain(self, tags: Sequence[tuple[str, str]], prefix: str) -> int:
        """Open and close what plain tags do, of HTML or with the prefix `svg:`; return how many: one may end the SVG.

        A tag is the name, behind a `/` if it closes, and the character before its `>`.
        """
        opened: list[str] = []
        for number, (written, last) in enumerate(tags, 1):
            name = written.lower()
            if name[0] != "/":
                if not (last == "/" if prefix else name in _VOID):
                    opened.append(name)
            elif opened and opened[-1] == name[1:]:
                opened.pop()  # it closes what was opened here, and nothing else
            else:
                self._open_plain(opened, prefix)
                opened.clear()
                self.end(name[1:])
                if prefix and not self.svg:
                    return number
        self._open_plain(opened, prefix)
        return len(tags)

    def _open_plain(self, names: Sequence[str], prefix: str) -> None:
        for name in names:
            self._add(_OpenElement(f"{prefix}{name}", html_within=False, inert=False))

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
        """Return whether a start tag is handled as HTML here."""
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
        self._add(_OpenElement(name, within, inert))

    def _add(self, element: _OpenElement) -> None:
        for known in _kinds(element.name):
            self._places[known].append(len(self._open))
        self._open.append(element)
        self._inert += element.inert
        self._foreign += ":" in element.name

    def _pop_to(self, at: int) -> None:
        while len(self._open) > at:
            element = self._open.pop()
            for known in _kinds(element.name):
                self._places[known].pop()
            self._inert -= element.inert
            self._foreign -= ":" in element.name


@lru_cache(maxsize=1024)
def _kinds(name: str) -> tuple[str, ...]:
    """Return the name and the kinds of an element."""
    blocks = (_BLOCK,) if name in _BLOCKS or name in _SCOPES else ()
    return (name, *(() if ":" in name else (_HTML,)), *((_SCOPE,) if name in _SCOPES else ()), *blocks)


def _leaves(tag: Tag) -> bool:
    return tag.name in _LEAVING or (tag.name == "font" and not {"color", "face", "size"}.isdisjoint(tag.attributes))


def _value(tag: Tag, name: str) -> str | None:
    attribute = tag.attributes.get(name)
    return attribute.value.lower() if attribute is not None else None


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

    def source_text(self, *, without: frozenset[str]) -> str:
        """Return the attributes as the author wrote them, except some."""
        return "".join(f" {each.written}" for each in self.attributes.values() if each.name not in without)


@dataclass(frozen=True, slots=True)
class Page:
    """The elements of an HTML file in order, except plain ones. `head` is the offset of the beginning of the head."""

    text: Text
    elements: list[Element] = field(default_factory=list)
    head: int = 0

    def part(self, start: int) -> Text:
        """Return its text from `start` on."""
        return Text(self.text.file, self.text.whole, start)


def parse(text: Text) -> Page:
    """Parse the elements of `text`."""
    reader = _MarkupReader(text.whole)
    reader.run()
    return Page(text, reader.elements, reader.head)


class _MarkupReader:
    def __init__(self, whole: str) -> None:
        self._whole = whole
        self._tree = Tree()
        self._nests = _NESTING.search(whole) is not None
        self._style: Element | None = None
        self._rank = 0
        self._in_head = False
        self.elements: list[Element] = []
        self.head = 0

    def run(self) -> None:
        at: int | None = 0
        while at is not None and (start := self._whole.find("<", at)) >= 0:
            self._in_head = self._in_head or bool(self._whole[at:start].strip(SPACE))
            if (end := self._plain(start)) is not None:
                self._in_head, at = True, end
                continue
            tag = read_tag(self._whole, start, cdata=self._tree.foreign)
            if isinstance(tag, Tag):
                at = self._end(tag) if tag.closes else self._start(tag)
            else:
                self._before_head(self._whole[start : start + len("<!doctype")].lower(), tag)
                at = tag
        self._end_style(len(self._whole))

    def _plain(self, start: int) -> int | None:
        """Return the end of plain tags of HTML that begin at `start`; None if there are none."""
        one, several, name = _PLAIN_SVG if self._tree.svg else _PLAIN
        if not self._nests:
            plain = several.match(self._whole, start)
            return plain.end() if plain is not None else None
        tree, prefix = self._tree, "svg:" if self._tree.svg else ""
        if tree.foreign and not prefix:
            return None
        # Inside of SVG, an end tag of HTML may change what the next one is.
        if (plain := (several if prefix or tree.all_html else one).match(self._whole, start)) is None:
            return None
        self._end_style(start)
        names = name.findall(self._whole, start, plain.end())
        if (count := tree.take_plain(names, prefix)) == len(names):
            return plain.end()
        return next(islice(name.finditer(self._whole, start), count - 1, None)).end()

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
        end = text_end(self._whole, element.end, element.name)
        closing = read_tag(self._whole, end, cdata=False) if end is not None else None
        element.closed = isinstance(closing, Tag)
        element.text_end = end if end is not None else len(self._whole)
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
