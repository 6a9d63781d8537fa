r"""Regular expressions of bounded cost: a subset of the common syntax, matched in linear time by the CEL engine.

No look-around, no back-references; `\d`, `\w`, `\s` and `\b` mean ASCII; with its repetitions expanded, an expression
may have the size `MAX_SIZE`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_LENGTH: Final = 256
MAX_SIZE: Final = 8000
"""The size that the engine compiles in about 5 ms, anew for each match."""

_WIDE: Final = 16
"""The size of a unit that matches Unicode, where an ASCII one has 1."""

_TOKEN = re.compile(
    r"""(?P<open>\((?:\?:)?)
      | (?P<close>\))
      | (?P<count>(?:[*+?]|\{(?P<low>\d{1,4})(?P<comma>,)?(?P<high>\d{1,4})?\})\??)
      | (?P<class>\[\^?(?:[^\]\\]|\\.)+\])
      | (?P<escape>\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.))
      | (?P<anchor>[\^$|])
      | (?P<plain>[^\[\]{}()*+?\\])""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)
_IN_CLASS = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)|--|.", re.ASCII | re.DOTALL)
_CLASSES: Final = {
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\w": "[0-9A-Za-z_]",
    r"\W": "[^0-9A-Za-z_]",
    r"\s": "[ \\t\\n\\r\\f\\v]",
    r"\S": "[^ \\t\\n\\r\\f\\v]",
}
_BOUNDARIES: Final = {r"\b": r"(?-u:\b)", r"\B": r"(?-u:\B)"}
_CONTROLS: Final = frozenset("tnrfv")


class Regex(NamedTuple):
    """A pattern in the engine's syntax; `size` is the approximate cost of a match, with all repetitions expanded."""

    text: str
    size: int


def bounded_regex(pattern: str) -> Regex:
    """Translate the regular expression `pattern`. Raises ValueError for unsupported syntax and excessive size."""
    if len(pattern) > MAX_LENGTH:
        raise ValueError(f"a regular expression may have {MAX_LENGTH} characters at most")
    out: list[str] = []
    sizes = [0]
    unit: int | None = None
    place = 0
    while place < len(pattern):
        match = _TOKEN.match(pattern, place)
        if match is None or (match["open"] == "(" and pattern.startswith("(?", place)):
            raise _wrong(pattern, f"{pattern[place : place + 4]!r} is not supported there")
        place = match.end()
        match match.lastgroup:
            case "open":
                out.append("(?:")
                sizes.append(0)
                unit = None
            case "close":
                if len(sizes) == 1:
                    raise _wrong(pattern, "a group is closed that was not opened")
                out.append(")")
                unit = sizes.pop()
                sizes[-1] += unit
            case "anchor":
                out.append(match[0])
                unit = None
            case "escape" if match[0] in _BOUNDARIES:
                out.append(_BOUNDARIES[match[0]])
                unit = None
            case "escape" | "class" | "plain":
                out.append(_unit(pattern, match))
                unit = _WIDE if _is_wide(match[0]) else 1
                sizes[-1] += unit
            case _:
                if unit is None:
                    raise _wrong(pattern, f"{match[0]} repeats nothing, or a repetition")
                out.append(match[0])
                sizes[-1] += unit * (_times(pattern, match) - 1)
                unit = None
        if sizes[-1] > MAX_SIZE or len(sizes) > 16:
            raise _wrong(pattern, "its repetitions multiply to too much; for a text's length there is size(…)")
    if len(sizes) > 1:
        raise _wrong(pattern, "a group is not closed")
    return Regex("".join(out), sizes[0])


def _is_wide(text: str) -> bool:
    return text in (".", r"\D", r"\W", r"\S") or text.startswith("[^") or not text.isascii() or "\\u" in text


def _unit(pattern: str, match: re.Match[str]) -> str:
    if match["plain"]:
        return match[0]
    if match["escape"]:
        return _escape(pattern, match[0])
    inner = match[0][1:-1]
    negated = "^" if inner.startswith("^") else ""
    return f"[{negated}{''.join(_in_class(pattern, one[0]) for one in _IN_CLASS.finditer(inner[len(negated) :]))}]"


def _in_class(pattern: str, text: str) -> str:
    if text == "--":
        raise _wrong(pattern, r"-- in a class is not supported; write \- for the character itself")
    if text[0] == "\\":
        return _escape(pattern, text)
    return "\\" + text if text in "[&~^" else text


def _escape(pattern: str, text: str) -> str:
    if re.fullmatch(r"\\u[dD][89a-fA-F]..", text):
        raise _wrong(pattern, f"{text} is half a character")
    if text in _CLASSES:
        return _CLASSES[text]
    char = text[1]
    if char in "xu" and len(text) > 2:
        return f"\\x{{{text[2:]}}}"
    if char in _CONTROLS:
        return text
    if char.isascii() and char.isprintable() and not char.isalnum() and char != " ":
        return text if re.escape(char) != char else char
    raise _wrong(pattern, f"{text} is not taken")


def _times(pattern: str, match: re.Match[str]) -> int:
    if match["low"] is None:
        return 1
    low = int(match["low"])
    high = int(match["high"]) if match["high"] else low
    if high < low or (match["high"] and not match["comma"]):
        raise _wrong(pattern, f"{match[0]} is no repetition")
    return max(low, high, 1)


def _wrong(pattern: str, why: str) -> ValueError:
    return ValueError(f'the regular expression "{pattern[:60]}" is refused: {why}')
