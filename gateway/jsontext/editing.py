"""Sets one member of a JSON text with comments (JSONC), and keeps everything else as it is written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import indented_json
from gateway.model import Json

_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""A string, or a comment."""

_COMMA: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{\[,]\s*,|,(?=\s*[}\]])', re.DOTALL)
"""A string, a comma that follows no value, or one before a closing bracket, in a text without comments."""

_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_SPACE: Final = re.compile(r"\s*")
_SCALAR: Final = re.compile(r"[^\s,}\]]+")

INDENT: Final = "  "


def read_jsonc(text: str) -> Json:
    """Return the value of a JSON text with comments and trailing commas. Raises ValueError with line and column."""
    value: Json = parse_json(_plain(text))
    return value


def set_member(text: str, path: Sequence[str], value: Json) -> str:
    """Return the text with `value` at a path of names; objects on the way are created, all else stays.

    Raises ValueError for an invalid text, or if what is on the way is no object.
    """
    if not text.strip():
        text = "{}\n"
    plain = _plain(text)
    if not isinstance(parse_json(plain), dict):
        raise ValueError("it is no JSON object")
    at = _skip(plain, 0)
    for depth, name in enumerate(path):
        members = _members(plain, at)
        member = members.get(name)
        rest = path[depth + 1 :]
        if member is None:
            for inner in reversed(rest):
                value = {inner: value}
            return _insert(text, plain, at, list(members.values()), name, value, depth + 1)
        start, end = member
        if not rest:
            if parse_json(plain[start:end]) == value:
                return text
            return text[:start] + _text_of(value, _indent_at(text, start), _newline(text)) + text[end:]
        if plain[start] != "{":
            raise ValueError(f"{'.'.join(path[: depth + 1])} is no object")
        at = start
    return text


def _plain(text: str) -> str:
    """Return the text with spaces in place of comments and trailing commas, so that offsets stay."""
    return _COMMA.sub(_without_comma, _COMMENT.sub(_without_comment, text))


def _without_comment(part: re.Match[str]) -> str:
    return part[0] if part[0][0] == '"' else re.sub(r"[^\r\n]", " ", part[0])


def _without_comma(part: re.Match[str]) -> str:
    return " " if part[0] == "," else part[0]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _skip(plain: str, at: int) -> int:
    match = _SPACE.match(plain, at)
    return match.end() if match is not None else at


def _members(plain: str, at: int) -> dict[str, tuple[int, int]]:
    """Return where the values of the object that begins at `at` begin and end, by name."""
    spans: dict[str, tuple[int, int]] = {}
    at = _skip(plain, at + 1)
    while plain[at] != "}":
        key = _end(plain, at)
        name = str(parse_json(plain[at:key]))
        start = _skip(plain, _skip(plain, key) + 1)
        end = _end(plain, start)
        spans.pop(name, None)  # of equal names the last counts, and its place
        spans[name] = (start, end)
        at = _skip(plain, end)
        if plain[at] == ",":
            at = _skip(plain, at + 1)
    return spans


def _end(plain: str, at: int) -> int:
    """Return the end of the valid value that begins at `at`."""
    if plain[at] not in '{["':
        match = _SCALAR.match(plain, at)
        return match.end() if match is not None else at
    depth = 0
    while True:
        string = _STRING.match(plain, at)
        if string is not None:
            at = string.end()
        else:
            depth += (plain[at] in "{[") - (plain[at] in "}]")
            at += 1
        if not depth:
            return at


def _insert(text: str, plain: str, at: int, values: list[tuple[int, int]], name: str, value: Json, depth: int) -> str:
    """Return the text with a member at the end of the object that begins at `at`."""
    outer = _indent_at(text, at)
    inner = _indent_at(text, values[0][0]) if values and "\n" in text[at : values[0][0]] else f"{outer}{INDENT}"
    newline = _newline(text)
    key = indented_json(name).strip()
    member = f"{newline}{inner}{key}: {_text_of(value, inner, newline)}"
    if not values:
        close = plain.index("}", at)
        before = text[:close].rstrip(" \t\r\n") if "\n" in text[at:close] else text[:close].rstrip(" \t")
        return f"{before}{member}{newline}{outer}{text[close:]}"
    last = values[-1][1]
    close = _skip(plain, last)
    gap = text[last:close]
    comma = re.search(r",", _without_comments(gap))
    stripped = gap.rstrip(" \t\r\n")
    head = text[:last] + ("" if comma else ",") + stripped
    return f"{head}{member}{newline}{outer}{text[close:]}"


def _without_comments(text: str) -> str:
    return _COMMENT.sub(_without_comment, text)


def _indent_at(text: str, at: int) -> str:
    """Return the indentation of the line of an offset."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _text_of(value: Json, indent: str, newline: str = "\n") -> str:
    lines = indented_json(value).strip().split("\n")
    return newline.join([lines[0], *(f"{indent}{line}" for line in lines[1:])])
