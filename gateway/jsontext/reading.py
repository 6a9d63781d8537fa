"""Reads JSON: one reader with named options, and a fast path for exact text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Never

import orjson

from gateway.jsontext.sizes import AT_ONCE, MAX_DEPTH, Flaw, InvalidJson, is_bulky, nests_deeper, why
from gateway.jsontext.writing import compact_exact
from gateway.model import Json

MAX_INTEGER: Final = 2**53
"""Beyond this, parsers that read numbers as doubles lose digits."""

SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""The escape of a surrogate, which may be a lone one."""

_DOUBLE_DIGITS: Final = 308
"""Digits of an integer that a double can certainly hold."""

_TOO_LONG: Final = 17
"""Characters of an integer within ±2^53, at most."""

_SHOWN: Final = 40
"""Characters of a refused number in a message."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The conversion of the texts of numbers to values; None is Python's own."""

    integer: Callable[[str], object] | None = None
    real: Callable[[str], object] | None = None


def _exact_integer(text: str) -> int:
    if len(text) > _TOO_LONG or abs(int(text)) > MAX_INTEGER:
        raise InvalidJson(Flaw.NUMBER, f"the number {text[:_SHOWN]} is beyond ±2^53", text[:_SHOWN])
    return int(text)


def _exact_real(text: str) -> float:
    number = float(text)
    if abs(number) > MAX_INTEGER:
        raise InvalidJson(Flaw.NUMBER, f"the number {text[:_SHOWN]} is beyond ±2^53", text[:_SHOWN])
    return number


def _double(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise InvalidJson(Flaw.NUMBER, "a number that no double can hold", text[:_SHOWN])
    return number


def _double_integer(text: str) -> int:
    if len(text) > _DOUBLE_DIGITS:
        _double(text)
    return int(text)


def _long_integer(text: str) -> float:
    return int(text) if len(text) <= _DOUBLE_DIGITS else float(text)


def _skip_number(text: str) -> None:
    """Skip a number: Python refuses to parse thousands of digits, which servers accept."""


ANY_NUMBERS: Final = Numbers()
"""As Python reads them: integers of up to 4300 digits, and infinity beyond the doubles."""

DOUBLES: Final = Numbers(_double_integer, _double)
"""Only numbers that a double can hold, as a browser reads them."""

EXACT_NUMBERS: Final = Numbers(_exact_integer, _exact_real)
"""Only numbers within ±2^53."""

LONG_NUMBERS: Final = Numbers(_long_integer)
"""Integers of any length; the longest are infinite."""

NO_NUMBERS: Final = Numbers(_skip_number, _skip_number)
"""Numbers are null."""

PairsHook = Callable[[list[tuple[str, Any]]], dict[str, Any]]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise InvalidJson(Flaw.DUPLICATE, "an object has a key twice")
    return members


def _unique_in_any_case(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = _unique(pairs)
    if len({key.casefold() for key in members}) != len(pairs):
        raise InvalidJson(Flaw.ALIKE, "an object has a key in two forms that differ only in case")
    return members


class Keys(Enum):
    """The keys that an object may repeat."""

    LAST_COUNTS = None
    UNIQUE = (_unique,)
    UNIQUE_IN_ANY_CASE = (_unique_in_any_case,)


def _refuse(name: str) -> Never:
    raise InvalidJson(Flaw.CONSTANT, f"{name} is not JSON", name)


class Reader:
    """Reads JSON texts with fixed options.

    `keys` are the rule for duplicate keys, or a function that makes an object of its pairs. NaN and Infinity are
    accepted only with `constants`. `depth` limits the levels of nesting. `decoder` has the other options, for a value
    within a text.
    """

    __slots__ = ("_depth", "decoder")

    def __init__(
        self,
        numbers: Numbers = ANY_NUMBERS,
        keys: Keys | PairsHook = Keys.LAST_COUNTS,
        *,
        constants: bool = False,
        depth: int | None = None,
    ) -> None:
        hook = (keys.value[0] if keys.value else None) if isinstance(keys, Keys) else keys
        self.decoder = json.JSONDecoder(
            object_pairs_hook=hook,
            parse_int=numbers.integer,
            parse_float=numbers.real,
            parse_constant=None if constants else _refuse,
        )
        self._depth = depth

    def read(self, text: str | bytes) -> Any:
        """Return the value of `text`. Raises `InvalidJson`, and UnicodeDecodeError for bytes in no encoding."""
        if not isinstance(text, str):
            text = text_of(text)
        try:
            value, end = self.decoder.raw_decode(text)
        except InvalidJson:
            raise
        except ValueError:
            end = -1
        except RecursionError as error:
            raise InvalidJson(Flaw.DEPTH, str(error)) from error
        # The library searches for surrounding white space, which is rare.
        if end != len(text) and (end < 0 or text[end:].strip(" \t\n\r")):
            value = self._decode_slowly(text)
        depth = self._depth
        # Fewer brackets than the limit cannot nest deeper, so most texts need no walk.
        if depth is not None and text.count("[") + text.count("{") > depth and nests_deeper(value, depth):
            raise InvalidJson(Flaw.DEPTH, f"nested deeper than {depth}")
        return value

    def _decode_slowly(self, text: str) -> Any:
        try:
            return self.decoder.decode(text)
        except InvalidJson:
            raise
        except json.JSONDecodeError as error:
            place = f"{error.msg}, line {error.lineno}, column {error.colno}"
            raise InvalidJson(Flaw.SYNTAX, str(error), place) from error
        except RecursionError as error:
            raise InvalidJson(Flaw.DEPTH, str(error)) from error
        except ValueError as error:
            raise InvalidJson(Flaw.NUMBER, str(error)) from error


parse_json: Final = Reader(constants=True).read
"""Reads as Python does, for text whose shape the caller checks."""

STRICT: Final = Reader()
"""Reads RFC 8259: neither NaN nor Infinity."""

parse_portable: Final = Reader(DOUBLES, depth=MAX_DEPTH).read
"""Reads what a browser reads alike, for the frames of the bridge."""


def text_of(raw: bytes) -> str:
    """Return JSON as text, in the encoding that its first bytes show (RFC 4627, 3)."""
    return raw.decode(json.detect_encoding(raw), "surrogatepass")


# ── Exact text: bounded depth, exact numbers, no duplicate keys, no lone surrogates ──

_LARGE_NUMBER: Final = re.compile(r"[0-9](?:[0-9]{15}|[eE])")
"""Without 16 digits in a row and without exponents no number can be beyond 2^53."""

_SLICE: Final = 1024 * 1024
"""Characters searched for large numbers at a time: other threads run in between."""

_SHORT: Final = 4096
"""Characters below which checking each number costs less than searching for large ones."""

_LIKE_NUMBERS: Final = bytes.maketrans(b"123456789E", b"000000000e")
"""Maps all digits to one, so that a plain search finds 16 of them in a row."""

_ZEROS: Final = b"0" * 16

_careful: Final = Reader(EXACT_NUMBERS, Keys.UNIQUE)
_plain: Final = Reader(keys=Keys.UNIQUE)


def exact_json(text: str, depth: int = MAX_DEPTH) -> Json:
    """Parse `text` if every JSON parser reads it alike. Raises `InvalidJson`."""
    if is_bulky(text):
        raise InvalidJson(Flaw.PARTS, why(AT_ONCE))
    exact = plainly_exact(text)
    value: Json = exact[0] if exact is not None else (_careful if _is_careful(text) else _plain).read(text)
    if text.count("[") + text.count("{") > depth:
        check_depth(value, depth)
    if "\\u" in text and SURROGATE.search(text):
        compact_exact(value)
    return value


def plainly_exact(text: str) -> tuple[Json, bytes] | None:
    """Return the value of `text` and its compact form if a quick check shows that it is exact; else None. Any depth.

    Without backslashes each quotation mark begins or ends a string: a duplicate key leaves fewer of them.
    """
    if len(text) > _SLICE or "\\" in text:
        return None
    try:
        raw = text.encode()
        numbers = raw.translate(_LIKE_NUMBERS)
        if _ZEROS in numbers or b"0e" in numbers:
            return None
        value: Json = orjson.loads(raw)
        data = orjson.dumps(value)
        return (value, data) if data.count(b'"') == raw.count(b'"') else None
    except (ValueError, TypeError):
        return None


def check_depth(value: object, depth: int = MAX_DEPTH) -> None:
    """Check that nesting is at most `depth`. Raises `InvalidJson`."""
    if nests_deeper(value, depth):
        raise InvalidJson(Flaw.DEPTH, f"nested deeper than {depth} levels")


def _is_careful(text: str) -> bool:
    """Return whether each number must be checked."""
    return len(text) < _SHORT or any(
        _LARGE_NUMBER.search(text, start, start + _SLICE + 15) for start in range(0, len(text), _SLICE)
    )


# ── Small messages, read by the faster library where both read them alike ──

_FLAT: Final = 200
"""Number of brackets up to which nothing can be nested too deeply for either library."""


def parse_quickly(body: bytes, *, rough: bool = False) -> Any:
    """Parse UTF-8 as `STRICT` does, faster. Raises ValueError.

    With `rough`, integers of more than 64 bits lose precision, which is faster still.
    """
    if rough:
        return orjson.loads(body)
    # Numbers with fewer digits in a row mean the same to both libraries.
    if _ZEROS not in body.translate(_LIKE_NUMBERS) and body.count(b"[") + body.count(b"{") < _FLAT:
        with suppress(ValueError):
            return orjson.loads(body)
    return STRICT.read(body.decode())


# ── Validation at any depth, without keeping the value ──

_STRING: Final = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+"'
_NUMBER: Final = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
_PIECE: Final = re.compile(rf"[ \t\n\r]*(?:({_STRING})|({_NUMBER}|true|false|null)|([\[\]{{}},:]))", re.ASCII)
_REST: Final = re.compile(r"[ \t\n\r]*")
_checked: Final = Reader(NO_NUMBERS)


def problem_of(text: str) -> str | None:
    """Return why `text` is not JSON (RFC 8259), of any depth and with numbers of any size; None if it is."""
    try:
        _checked.read(text)
    except InvalidJson as error:
        if error.flaw is not Flaw.DEPTH:
            return str(error)
        return None if _is_value(text) else "it is nested deep, and not JSON"
    return None


def _is_value(text: str) -> bool:
    """Return whether `text` is JSON, without recursion."""
    closing: list[str] = []
    at, follows = 0, "value"
    while (match := _PIECE.match(text, at)) is not None:
        at = match.end()
        string, other, mark = match.groups()
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
