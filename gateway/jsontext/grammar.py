"""Checks that a text is JSON (RFC 8259), of any depth and with numbers of any size, without keeping its value."""

from __future__ import annotations

import json
import re
from typing import Final, Never

_STRING: Final = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+"'
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_PIECE: Final = re.compile(rf"[ \t\n\r]*(?:({_STRING})|({_NUMBER}|true|false|null)|([\[\]{{}},:]))", re.ASCII)
_REST: Final = re.compile(r"[ \t\n\r]*")


def problem_of(text: str) -> str | None:
    """Return why `text` is not JSON, None if it is."""
    try:
        json.loads(text, parse_int=_any, parse_float=_any, parse_constant=_constant)
    except RecursionError:
        return None if _is_value(text) else "it is nested deep, and not JSON"
    except ValueError as error:
        return str(error)
    return None


def _is_value(text: str) -> bool:
    """Return whether `text` is JSON, without recursion."""
    closing: list[str] = []
    at, follows = 0, "value"
    while (found := _PIECE.match(text, at)) is not None:
        at = found.end()
        string, other, mark = found.groups()
        if string is not None or other is not None:
            if follows in ("key", "key or end"):
                follows = "colon" if string is not None else "nothing"
            else:
                follows = "end" if follows in ("value", "value or end") else "nothing"
        elif mark in "[{":
            closing.append("]" if mark == "[" else "}")
            follows = ("value or end" if mark == "[" else "key or end") if follows.startswith("value") else "nothing"
        elif mark in "]}":
            fits = closing and closing.pop() == mark
            at_end = follows == "end" or follows == ("value or end" if mark == "]" else "key or end")
            follows = "end" if fits and at_end else "nothing"
        elif mark == ",":
            inside = closing[-1:] if follows == "end" else []
            follows = {"]": "value", "}": "key"}[inside[0]] if inside else "nothing"
        else:
            follows = "value" if follows == "colon" else "nothing"
        if follows == "nothing":
            return False
    rest = _REST.match(text, at)
    return follows == "end" and not closing and rest is not None and rest.end() == len(text)


def _any(text: str) -> None:
    """Skip a number: Python refuses to parse thousands of digits."""


def _constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")
