"""Reads and writes JSON-RPC messages of other servers: short ones at once, long ones in slices of the event loop."""

from __future__ import annotations

import asyncio
import codecs
import json
import json.decoder
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from functools import partial
from time import perf_counter
from typing import Any, Final, Protocol

from gateway.eventloop.fair_share import MOMENT, TimeSlices
from gateway.jsontext.reading import STRICT, SURROGATE
from gateway.jsontext.sizes import AT_ONCE, Flaw, InvalidJson, Parts, is_bulky, nests_deeper, why
from gateway.jsontext.writing import compact_ascii, gather, is_large, without_surrogates, write_pieces

DEPTH: Final = 128
"""Levels of nesting; the serializers on the other side fail a little beyond."""

LONG: Final = 64 * 1024
"""Size of a message in bytes from which it is parsed in pieces."""

_S, _ID = r"[ \t\r\n]*", r"(0|[1-9][0-9]{0,14})"
_VERSION = rf'"jsonrpc"{_S}:{_S}"2\.0"'
_BEFORE: Final = re.compile(rf'{_S}\{{{_S}{_VERSION}{_S},{_S}"id"{_S}:{_S}{_ID}{_S},{_S}"result"{_S}:{_S}(?=\{{)')
_END: Final = re.compile(rf"{_S}\}}{_S}")
_FIRST: Final = re.compile(rf'{_S}\{{{_S}"result"{_S}:{_S}(?=\{{)')
_AFTER: Final = re.compile(rf'{_S},{_S}{_VERSION}{_S},{_S}"id"{_S}:{_S}{_ID}{_S}\}}{_S}')


class TooLarge(InvalidJson):
    """JSON of too many parts."""

    def __init__(self, message: str) -> None:
        super().__init__(Flaw.PARTS, message)


class WrittenObject(dict[str, Any]):
    """A parsed JSON object with its original `text`; code that changes it must make a new object."""

    __slots__ = ("text",)

    def __init__(self, values: dict[str, Any], text: str) -> None:
        super().__init__(values)
        self.text = text


class Mask(Protocol):
    """Masks secrets in a message, which may arrive in parts."""

    def text(self, text: str) -> str:
        """Return a whole text, masked."""
        ...

    def whole(self, data: bytes) -> bytes:
        """Return a whole message, masked."""
        ...

    def part(self, data: bytes) -> bytes:
        """Return what is certain of the message so far, masked."""
        ...

    def rest(self) -> bytes:
        """Return the rest of the message, masked."""
        ...


def decode(raw: bytes) -> object:
    """Return the JSON value in `raw`. Raises ValueError if it is invalid, nested too deeply, or of too many parts."""
    return decode_text(_text_of(raw))


def decode_text(text: str) -> object:
    """Return the JSON value in `text`; an answer's result is a `WrittenObject`. Raises ValueError as `decode` does."""
    if is_bulky(text):
        raise TooLarge(why(AT_ONCE))
    try:
        answer = _answer(text)
        value = answer if answer is not None else decoder.decode(text)
    except RecursionError as error:
        raise InvalidJson(Flaw.DEPTH, "nested too deep") from error
    if text.count("{") + text.count("[") > DEPTH and nests_deeper(value, DEPTH):
        raise InvalidJson(Flaw.DEPTH, f"nested deeper than {DEPTH}")
    return without_surrogates(value) if SURROGATE.search(text) else value


def encode(value: object) -> bytes:
    """Return `value` as one line of JSON, in ASCII."""
    return compact_ascii(value).encode("ascii")


async def encode_in_thread(value: object) -> bytes:
    """Return the same, serialized in a thread if it is large."""
    return await asyncio.to_thread(_in_pieces, value) if is_large(value) else encode(value)


def _in_pieces(value: object) -> bytes:
    return b"".join(gather(write_pieces(value)))


def _text_of(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode(json.detect_encoding(raw), "surrogatepass").encode("utf-8", "replace").decode()
    return text.removeprefix("\ufeff")


def _answer(text: str) -> dict[str, Any] | None:
    """Return an answer with a result in the member order that servers use; None for anything else."""
    match = _BEFORE.match(text) or _FIRST.match(text)
    if match is None:
        return None
    try:
        value, end = decoder.raw_decode(text, match.end())
    except ValueError:
        return None
    first = match.re is _FIRST
    after = (_AFTER if first else _END).fullmatch(text, end)
    if after is None:
        return None
    id = int(after[1] if first else match[1])
    return {"jsonrpc": "2.0", "id": id, "result": WrittenObject(value, text[match.end() : end])}


decoder: Final = STRICT.decoder

# ── Long messages ──

MOST: Final = 1_000_000
"""Limit of commas and opening brackets outside strings for a list whose entries are parsed one by one.
For anything else it is `AT_ONCE`.
"""

EACH: Final = 25_000
"""The limit for each of these entries, since one entry is parsed without a pause."""

THINGS: Final = 5000
"""Entries of a list that are kept."""

PIECE: Final = 32 * 1024
"""Bytes parsed without a pause; a longer value is parsed in parts."""

VAIN: Final = 1000
"""Failed attempts to parse an object or list without a pause, after which there are no more attempts."""

_scan: Final[Callable[[str, int, bool], tuple[str, int]]] = vars(json.decoder)["scanstring"]  # typeshed lacks it

_SPACES: Final = " \t\r\n"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_BROKEN: Final = re.compile(r"\\(u[0-9a-fA-F]{0,3})?")
_HIGH: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")

Ways = Mapping[str, Callable[[], Awaitable[object]]]


async def read(
    data: bytes | bytearray | str, moments: TimeSlices, lists: Collection[str], mask: Mask | None = None
) -> object:
    """Return the JSON value in `data`, masked. Raises ValueError as `decode` does.

    Only the members `lists` of an answer's result may have very many parts: their entries are read one by one.
    """
    if len(data) <= LONG:
        if isinstance(data, str):
            return decode_text(mask.text(data) if mask is not None else data)
        return decode(mask.whole(bytes(data)) if mask is not None else bytes(data))
    try:
        return await ValueReader(_pieces(data, mask), moments, lists).message()
    except UnicodeDecodeError:
        if mask is not None:
            mask.rest()
        encoding = "utf-8" if isinstance(data, str) else json.detect_encoding(bytes(data[:4]))
        return await ValueReader(_pieces(data, mask, encoding, "surrogatepass"), moments, lists).message()


def _pieces(
    data: bytes | bytearray | str, mask: Mask | None, encoding: str = "utf-8", errors: str = "strict"
) -> Iterator[str]:
    text = codecs.getincrementaldecoder(encoding)(errors)
    for start in range(0, len(data), PIECE):
        piece = data[start : start + PIECE]
        raw = piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else bytes(piece)
        yield _writable(text.decode(mask.part(raw) if mask is not None else raw), errors)
    yield _writable(text.decode(mask.rest() if mask is not None else b"", True), errors)


def _writable(text: str, errors: str) -> str:
    return text if errors == "strict" else text.encode("utf-8", "replace").decode()


class ValueReader:
    """Parses the JSON value in `pieces` value by value, small ones together.
    Only the `lists` of an answer may have very many parts, and only the first `THINGS` of each are kept.
    """

    def __init__(self, pieces: Iterator[str], moments: TimeSlices, lists: Collection[str] = ()) -> None:
        self._pieces = pieces
        self._lists = lists
        self._moments = moments
        self._began = perf_counter()
        self._text = ""
        self._at = 0
        self._last = ""
        self._more = True
        self._depth = 0
        self._vain = 0
        self._parts = Parts()
        self._each = self._most = AT_ONCE

    async def message(self) -> object:
        """Return the value. Raises ValueError."""
        self._fill()
        self._text = self._text.removeprefix("\ufeff")
        lists = dict.fromkeys(self._lists, self._things)
        message = await self._one({"result": partial(self._one, lists)})
        if await self._next():
            raise InvalidJson(Flaw.SYNTAX, "more than one value")
        self._drop()
        return message

    async def _one(self, ways: Ways) -> object:
        """Return an object whose members in `ways` are parsed by those functions, or another value."""
        return await self._object(ways) if await self._next() == "{" else await self._value()

    async def _things(self) -> object:
        """Return a list, each entry of which may have `EACH` parts, or another value."""
        return await self._list(things=True) if await self._next() == "[" else await self._value()

    async def _value(self) -> object:
        first = await self._next()
        compound = first in ("{", "[")
        if not (compound and self._vain > VAIN):
            while True:
                try:
                    value, end = decoder.raw_decode(self._text, self._at)
                except RecursionError as error:
                    raise InvalidJson(Flaw.DEPTH, "nested too deep") from error
                except ValueError:
                    end = -1
                if end >= 0 and not (self._more and end > len(self._text) - 3):  # a number may continue, with `e+`
                    start, self._at = self._at, end
                    return self._check_value(value, start, self._depth)
                if not self._more:
                    raise InvalidJson(Flaw.SYNTAX, "not JSON")
                if end < 0 and len(self._text) - self._at >= PIECE:
                    break
                self._fill()
            self._vain += compound
        match first:
            case "{":
                return await self._object({})
            case "[":
                return await self._list()
            case '"':
                return await self._string()
            case _:
                raise InvalidJson(Flaw.SYNTAX, "not JSON")

    async def _object(self, ways: Ways) -> dict[str, object]:
        members: dict[str, object] = {}
        self._in()
        while await self._next() != "}" or members:
            together = self._together("{", "}") if members and not ways else None
            if isinstance(together, dict):
                members |= together
                continue
            key = await self._value()
            if not isinstance(key, str):
                raise InvalidJson(Flaw.SYNTAX, "a key is not a string")
            await self._mark(":")
            members[key] = await ways.get(key, self._value)()
            if await self._mark(",}") == "}":
                self._depth -= 1
                return members
        self._out()
        return members

    async def _list(self, things: bool = False) -> list[object]:
        items: list[object] = []
        self._in()
        self._each = EACH if things else self._each
        while await self._next() != "]" or items:
            together = self._together("[", "]") if items else None
            if things:
                self._most = self._parts.count + EACH
                del items[THINGS:]
            if isinstance(together, list):
                items += together
                continue
            if things:
                self._drop()
                self._most = self._parts.count + EACH
            items.append(await self._value())
            if await self._mark(",]") == "]":
                self._depth -= 1
                return items[:THINGS] if things else items
        self._out()
        return items

    def _together(self, opening: str, closing: str) -> object:
        """Return the next small values of a list or an object, as far as they are loaded; None if their end is not
        found.
        Values are mostly alike, so the search is for the end of the previous one.
        """
        mark = f"{self._last}," if self._last in ('"', "]", "}") else ","
        end = len(self._text)
        for _ in range(3):
            end = self._text.rfind(mark, self._at + 1, end)
            if end < 0:
                return None
            stop = end + len(mark) - 1
            try:
                value = decoder.decode(f"{opening}{self._text[self._at : stop]}{closing}")
            except (ValueError, RecursionError):
                continue
            start, self._at = self._at, stop + 1
            return self._check_value(value, start, self._depth - 1)
        return None

    async def _string(self) -> str:
        """Return a long string."""
        parts: list[str] = []
        self._at += 1
        while True:
            self._drop()
            try:
                text, self._at = _scan(self._text, 0, True)
            except ValueError:
                if not self._more:
                    raise
            else:
                return "".join((*parts, _clean(text)))
            self._at = _cut(self._text)
            parts.append(_clean(_scan(f'{self._text[: self._at]}"', 0, True)[0]))
            self._fill()
            await self._pause()

    def _check_value(self, value: object, start: int, depth: int) -> object:
        if nests_deeper(value, DEPTH - depth):
            raise InvalidJson(Flaw.DEPTH, f"nested deeper than {DEPTH}")
        return without_surrogates(value) if SURROGATE.search(self._text, start, self._at) else value

    def _in(self) -> None:
        self._at += 1
        self._depth += 1
        if self._depth > DEPTH:
            raise InvalidJson(Flaw.DEPTH, f"nested deeper than {DEPTH}")

    def _out(self) -> None:
        self._at += 1
        self._depth -= 1

    async def _mark(self, marks: str) -> str:
        """Consume and return the next character, which must be one of `marks`."""
        self._last = self._text[self._at - 1 : self._at]
        value = await self._next()
        if not value or value not in marks:
            raise InvalidJson(Flaw.SYNTAX, f"none of {marks} where one must be")
        self._at += 1
        return value

    async def _next(self) -> str:
        """Return the next character that is no whitespace; "" at the end."""
        await self._pause()
        while True:
            char = self._text[self._at : self._at + 1]
            if char and char not in _SPACES:
                return char
            if (spaces := _SPACE.match(self._text, self._at)) is not None:
                self._at = spaces.end()
            if self._at == len(self._text):
                if not self._more:
                    return ""
                self._fill()
                await self._pause()

    def _fill(self) -> None:
        """Load the next piece."""
        self._drop()
        piece = next(self._pieces, None)
        self._more = piece is not None
        self._text += piece or ""

    def _drop(self) -> None:
        """Discard the text that was parsed, and count its parts. Raises `TooLarge`."""
        self._parts.add(self._text[: self._at])
        self._text, self._at = self._text[self._at :], 0
        if self._parts.over(min(self._most, MOST)):
            raise TooLarge(why(MOST if self._parts.over(MOST) else self._each))

    async def _pause(self) -> None:
        now = perf_counter()
        if now - self._began > MOMENT:
            await self._moments.spend(now - self._began)
            self._began = perf_counter()


def _cut(text: str) -> int:
    """Return where a string may be cut: not within an escape at its end, nor within a surrogate pair."""
    end = len(text)
    for escape in (_BROKEN, _HIGH):
        start = text.rfind("\\", max(0, end - 6), end)
        backslashes = start + 1 - len(text[: start + 1].rstrip("\\"))
        if backslashes % 2 and escape.fullmatch(text, start, end):
            end = start
    return end


def _clean(text: str) -> str:
    """Return `text` with `?` for lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
