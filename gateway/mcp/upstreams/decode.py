"""What an upstream wrote, as a JSON value that every transport can write again."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from gateway.bulk import is_bulky

DEPTH = 128
"""Levels of nesting; the serialisers on the other side fail a little beyond."""

MOST = 1_000_000
"""Commas and opening brackets outside texts: to read a message with more would hold up all that runs beside it."""

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_S, _NUMBER = r"[ \t\r\n]*", r"(0|[1-9][0-9]{0,14})"
_VERSION = rf'"jsonrpc"{_S}:{_S}"2\.0"'
_BEFORE: Final = re.compile(rf'{_S}\{{{_S}{_VERSION}{_S},{_S}"id"{_S}:{_S}{_NUMBER}{_S},{_S}"result"{_S}:{_S}(?=\{{)')
_END: Final = re.compile(rf"{_S}\}}{_S}")
_FIRST: Final = re.compile(rf'{_S}\{{{_S}"result"{_S}:{_S}(?=\{{)')
_AFTER: Final = re.compile(rf'{_S},{_S}{_VERSION}{_S},{_S}"id"{_S}:{_S}{_NUMBER}{_S}\}}{_S}')


class Written(dict[str, Any]):
    """A JSON object as it was read, with the `text` that it was read from; whoever changes it makes another one."""

    __slots__ = ("text",)

    def __init__(self, values: dict[str, Any], text: str) -> None:
        super().__init__(values)
        self.text = text


def decode(raw: bytes) -> object:
    """The JSON value in `raw`. Raises ValueError for what is none, is nested too deep, or is of too many parts."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode(json.detect_encoding(raw), "surrogatepass").encode("utf-8", "replace").decode()
    return decode_text(text.removeprefix("\ufeff"))


def decode_text(text: str) -> object:
    """The JSON value in `text`; the result of an answer is `Written`. Raises ValueError as `decode` does."""
    if is_bulky(text, MOST):
        raise ValueError(f"more than {MOST} commas and brackets, or a number of hundreds of digits")
    try:
        answer = _answer(text)
        value = answer if answer is not None else _decoder.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if isinstance(value, dict | list) and text.count("{") + text.count("[") > DEPTH and _deep(value):
        raise ValueError(f"nested deeper than {DEPTH}")
    if _SURROGATE.search(text):
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value


def _answer(text: str) -> dict[str, Any] | None:
    """The answer that is a result, where it is written as servers write it; None for all else."""
    found = _BEFORE.match(text) or _FIRST.match(text)
    if found is None:
        return None
    try:
        value, end = _decoder.raw_decode(text, found.end())
    except ValueError:
        return None
    first = found.re is _FIRST
    after = (_AFTER if first else _END).fullmatch(text, end)
    if after is None:
        return None
    id = int(after[1] if first else found[1])
    return {"jsonrpc": "2.0", "id": id, "result": Written(value, text[found.end() : end])}


def encode(value: object) -> bytes:
    """`value` in one line of JSON."""
    return _encoded(value).encode("ascii")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_encoded: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_decoder: Final = json.JSONDecoder(parse_constant=_refuse)


def _deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(DEPTH):
        kinds = (dict, list)
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, kinds)
        ]
        if not level:
            return False
    return True
