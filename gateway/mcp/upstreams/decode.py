"""What an upstream wrote, as a JSON value that every transport can write again."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from gateway.bulk import AT_ONCE, is_bulky, why
from gateway.compact import compact_ascii
from gateway.mcp.upstreams.listing import KEYS

DEPTH = 128
"""Levels of nesting; the serialisers on the other side fail a little beyond."""

MOST = 1_000_000
"""Commas and opening brackets outside texts of a list, whose things are read one by one. All else has `AT_ONCE`."""

LONG: Final = 256 * 1024
"""Bytes of a message from which it is read in a thread."""

THINGS: Final = 5000
"""Things of a list that are kept where they are read one by one."""

_WINDOW: Final = 64 * 1024
"""Characters in which the next value is looked for; a longer one is looked for in more."""

_SPACES: Final = (" ", "\t", "\r", "\n")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_S, _NUMBER = r"[ \t\r\n]*", r"(0|[1-9][0-9]{0,14})"
_VERSION = rf'"jsonrpc"{_S}:{_S}"2\.0"'
_BEFORE: Final = re.compile(rf'{_S}\{{{_S}{_VERSION}{_S},{_S}"id"{_S}:{_S}{_NUMBER}{_S},{_S}"result"{_S}:{_S}(?=\{{)')
_END: Final = re.compile(rf"{_S}\}}{_S}")
_FIRST: Final = re.compile(rf'{_S}\{{{_S}"result"{_S}:{_S}(?=\{{)')
_AFTER: Final = re.compile(rf'{_S},{_S}{_VERSION}{_S},{_S}"id"{_S}:{_S}{_NUMBER}{_S}\}}{_S}')


class TooLarge(ValueError):
    """JSON of too many parts."""


class Written(dict[str, Any]):
    """A JSON object as it was read, with the `text` that it was read from; whoever changes it makes another one."""

    __slots__ = ("text",)

    def __init__(self, values: dict[str, Any], text: str) -> None:
        super().__init__(values)
        self.text = text


async def read(raw: bytes) -> object:
    """The JSON value in `raw`, read in a thread where that takes long. Raises ValueError as `decode` does."""
    return await asyncio.to_thread(_read_long, _text_of(raw)) if len(raw) > LONG else decode(raw)


async def read_text(text: str) -> object:
    """The same for a text."""
    return await asyncio.to_thread(_read_long, text) if len(text) > LONG else decode_text(text)


def decode(raw: bytes) -> object:
    """The JSON value in `raw`. Raises ValueError for what is none, is nested too deep, or is of too many parts."""
    return decode_text(_text_of(raw))


def _text_of(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode(json.detect_encoding(raw), "surrogatepass").encode("utf-8", "replace").decode()
    return text.removeprefix("\ufeff")


def decode_text(text: str) -> object:
    """The JSON value in `text`; the result of an answer is `Written`. Raises ValueError as `decode` does."""
    if is_bulky(text):
        raise TooLarge(why(AT_ONCE))
    return _decoded(text)


def _read_long(text: str) -> object:
    if not is_bulky(text):
        return _decoded(text)
    if is_bulky(text, MOST):
        raise TooLarge(why(MOST))
    return _Values(text).message()


def _decoded(text: str) -> object:
    try:
        answer = _answer(text)
        value = answer if answer is not None else _decoder.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if isinstance(value, dict | list) and text.count("{") + text.count("[") > DEPTH and _deep(value):
        raise ValueError(f"nested deeper than {DEPTH}")
    return _writable(value) if _SURROGATE.search(text) else value


def _writable(value: object) -> object:
    """With `?` for lone surrogates."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


class _Values:
    """Reads a message of many parts value by value, so that other threads run in between.

    Only the lists of an answer may have so many, and only the first `THINGS` of each are kept.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._window, self._start = "", 0
        self._surrogates = _SURROGATE.search(text) is not None

    def message(self) -> object:
        """The message. Raises ValueError."""
        lists = dict.fromkeys(KEYS.values(), self._things)
        message = self._object({"result": lambda: self._object(lists)})
        if self._next():
            raise ValueError("more than one value")
        return message

    def _object(self, members: Mapping[str, Callable[[], object]]) -> object:
        """An object of which `members` are read in these ways, or another value."""
        if self._next() != "{":
            return self._kept()
        self._at += 1
        found: dict[str, object] = {}
        while self._next() != "}" or found:
            key = self._kept()
            if not isinstance(key, str):
                raise ValueError("a key is no text")
            self._mark(":")
            found[key] = members.get(key, self._kept)()
            if self._mark(",}") == "}":
                return found
        self._at += 1
        return found

    def _things(self) -> object:
        """A list, or another value."""
        if self._next() != "[":
            return self._kept()
        self._at += 1
        found: list[object] = []
        while self._next() != "]" or found:
            if len(found) < THINGS:
                found.append(self._kept())
            else:
                self._value()
            if self._mark(",]") == "]":
                return found
        self._at += 1
        return found

    def _kept(self) -> object:
        value = self._value()
        if isinstance(value, dict | list) and _deep(value):
            raise ValueError(f"nested deeper than {DEPTH}")
        return _writable(value) if self._surrogates else value

    def _value(self) -> object:
        """The next value: of at most `AT_ONCE` parts, since it is read in one go."""
        self._next()
        size = _WINDOW
        while True:
            try:
                value, end = _decoder.raw_decode(self._window, self._at - self._start)
            except RecursionError as error:
                raise ValueError("nested too deep") from error
            except ValueError:
                end = -1
            rest = self._start + len(self._window) < len(self._text)
            if end >= 0 and not (rest and end > len(self._window) - 3):  # a number may go on, with `e+` for one
                self._at = self._start + end
                return value
            if self._start == self._at:
                if not rest:
                    raise ValueError("not JSON")
                size *= 4
            self._window, self._start = self._text[self._at : self._at + size], self._at
            if is_bulky(self._window):
                raise TooLarge(why(AT_ONCE))

    def _mark(self, marks: str) -> str:
        """The next character, which must be one of `marks`."""
        found = self._next()
        if not found or found not in marks:
            raise ValueError(f"none of {marks} where one must be")
        self._at += 1
        return found

    def _next(self) -> str:
        """The next character that is no space; "" at the end."""
        if self._text[self._at : self._at + 1] in _SPACES:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found is not None else self._at
        return self._text[self._at : self._at + 1]


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
    """`value` in one line of JSON, in ASCII."""
    return compact_ascii(value).encode("ascii")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


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
