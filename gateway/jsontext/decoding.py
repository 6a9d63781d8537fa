"""Decodes an upstream's JSON into values that every transport can write again."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final, NoReturn

from gateway.jsontext.sizes import AT_ONCE, is_bulky, why
from gateway.jsontext.writing import compact_ascii, gathered, is_large, written

DEPTH = 128
"""Levels of nesting; the serializers on the other side fail a little beyond."""

LONG: Final = 64 * 1024
"""Size of a message in bytes from which it is parsed in pieces."""

SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_S, _NUMBER = r"[ \t\r\n]*", r"(0|[1-9][0-9]{0,14})"
_VERSION = rf'"jsonrpc"{_S}:{_S}"2\.0"'
_BEFORE: Final = re.compile(rf'{_S}\{{{_S}{_VERSION}{_S},{_S}"id"{_S}:{_S}{_NUMBER}{_S},{_S}"result"{_S}:{_S}(?=\{{)')
_END: Final = re.compile(rf"{_S}\}}{_S}")
_FIRST: Final = re.compile(rf'{_S}\{{{_S}"result"{_S}:{_S}(?=\{{)')
_AFTER: Final = re.compile(rf'{_S},{_S}{_VERSION}{_S},{_S}"id"{_S}:{_S}{_NUMBER}{_S}\}}{_S}')


class TooLarge(ValueError):
    """JSON of too many parts."""


class Written(dict[str, Any]):
    """A parsed JSON object with its original `text`; code that changes it must make a new object."""

    __slots__ = ("text",)

    def __init__(self, values: dict[str, Any], text: str) -> None:
        super().__init__(values)
        self.text = text


def decode(raw: bytes) -> object:
    """Return the JSON value in `raw`. Raises ValueError if it is invalid, nested too deeply, or of too many parts."""
    return decode_text(_text_of(raw))


def _text_of(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode(json.detect_encoding(raw), "surrogatepass").encode("utf-8", "replace").decode()
    return text.removeprefix("\ufeff")


def decode_text(text: str) -> object:
    """Return the JSON value in `text`; the result of an answer is `Written`. Raises ValueError as `decode` does."""
    if is_bulky(text):
        raise TooLarge(why(AT_ONCE))
    return _decoded(text)


def _decoded(text: str) -> object:
    try:
        answer = _answer(text)
        value = answer if answer is not None else decoder.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if isinstance(value, dict | list) and text.count("{") + text.count("[") > DEPTH and deep(value):
        raise ValueError(f"nested deeper than {DEPTH}")
    return writable(value) if SURROGATE.search(text) else value


def writable(value: object) -> object:
    """Return `value` with `?` for lone surrogates."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _answer(text: str) -> dict[str, Any] | None:
    """Return an answer with a result in the member order that servers use; None for anything else."""
    found = _BEFORE.match(text) or _FIRST.match(text)
    if found is None:
        return None
    try:
        value, end = decoder.raw_decode(text, found.end())
    except ValueError:
        return None
    first = found.re is _FIRST
    after = (_AFTER if first else _END).fullmatch(text, end)
    if after is None:
        return None
    id = int(after[1] if first else found[1])
    return {"jsonrpc": "2.0", "id": id, "result": Written(value, text[found.end() : end])}


def encode(value: object) -> bytes:
    """Return `value` as one line of JSON, in ASCII."""
    return compact_ascii(value).encode("ascii")


async def encoded(value: object) -> bytes:
    """Return the same, serialized in a thread if it is large."""
    return await asyncio.to_thread(_in_pieces, value) if is_large(value) else encode(value)


def _in_pieces(value: object) -> bytes:
    return b"".join(gathered(written(value)))


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


decoder: Final = json.JSONDecoder(parse_constant=_refuse)


def deep(value: object, levels: int = DEPTH) -> bool:
    """Whether `value` is nested deeper than `levels`."""
    level: list[Any] = [value]
    for _ in range(levels):
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
