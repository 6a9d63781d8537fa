"""Tokenizes the tags of an HTML file with their positions, as the standard defines it (HTML, 13.2.5)."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html.entities import html5
from string import ascii_lowercase, ascii_uppercase
from typing import Final

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


def read(whole: str, at: int, *, cdata: bool) -> Tag | int | None:
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
    found = whole.find(ends, at)
    return found + len(ends) if found >= 0 else None


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
        written = _VALUE.match(whole, equals.end())
        if written is None:
            return None
        end, value = written.end(), unescape(written[written.lastgroup or 0])
    return Attribute(name[0].translate(_LOWER), value, start, end, whole[start:end])


def unescape(value: str) -> str:
    """Decode the value of an attribute, in which, unlike in text, `&copy=1` is no reference (HTML, 13.2.5.73)."""
    return _REFERENCE.sub(lambda found: _character(found[0]), value)


def _character(reference: str) -> str:
    return html.unescape(reference) if reference[1] == "#" or reference[1:] in html5 else reference


def text_end(whole: str, start: int, name: str) -> int | None:
    """Return the end of the raw text from `start`, at the end tag of the element `name`; None if there is none."""
    if name == "script":
        return _script_end(whole, start)
    found = re.compile(f"</{name}{_BEHIND_NAME}", re.IGNORECASE | re.ASCII).search(whole, start)
    return found.start() if found is not None else None


def _script_end(whole: str, start: int) -> int | None:
    # HTML, 13.2.5.4 and 13.2.5.15 to 31: behind `<!--`, a `<script>` takes one end tag for itself.
    state = "data"
    while found := _SCRIPT[state].search(whole, start):
        start = found.end()
        match (state, found[0].lower()):
            case (_, "<!--"):
                state, start = "escaped", found.start() + len("<!")  # its dashes may be those of the `-->`
            case (_, "-->"):
                state = "data"
            case (_, "<script"):
                state = "double escaped"
            case ("double escaped", _):
                state = "escaped"
            case _:
                return found.start()
    return None
