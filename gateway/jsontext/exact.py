"""Unambiguous JSON: bounded depth, exact numbers, no duplicate keys, no lone surrogates."""

from __future__ import annotations

import json
import re
from typing import Final, Never, TypeAlias

import orjson

from gateway.jsontext.sizes import AT_ONCE, is_bulky, why
from gateway.jsontext.writing import compact
from gateway.model import Json

Container: TypeAlias = dict[str, object] | list[object] | tuple[object, ...]

_CONTAINERS: Final = (dict, list, tuple)

MAX_DEPTH: Final = 64
MAX_INTEGER: Final = 2**53

# Without 16 digits in a row and without exponents no number can be beyond 2^53.
_LARGE_NUMBER = re.compile(r"[0-9](?:[0-9]{15}|[eE])")
_SLICE: Final = 1024 * 1024
"""Characters searched for large numbers at a time: other threads run in between."""

_SHORT: Final = 4096
"""Characters below which checking each number costs less than searching for large ones."""

_LIKE_NUMBERS: Final = bytes.maketrans(b"123456789E", b"000000000e")
"""Maps all digits to one, so that a plain search finds 16 of them in a row."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class NotExact(ValueError):
    """JSON that parsers may read differently; the message gives the reason."""


def exact_json(text: str, depth: int = MAX_DEPTH) -> Json:
    """Parse `text` if every JSON parser reads it alike. Raises `NotExact`."""
    if is_bulky(text):
        raise NotExact(why(AT_ONCE))
    found = plainly_exact(text)
    value = found[0] if found is not None else _closely_read(text)
    if text.count("[") + text.count("{") > depth:
        check_depth(value, depth)
    if "\\u" in text and _SURROGATE.search(text):
        dump(value)
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
        if b"0000000000000000" in numbers or b"0e" in numbers:
            return None
        value: Json = orjson.loads(raw)
        written = orjson.dumps(value)
        return (value, written) if written.count(b'"') == raw.count(b'"') else None
    except (ValueError, TypeError):
        return None


def _closely_read(text: str) -> Json:
    careful = len(text) < _SHORT or any(
        _LARGE_NUMBER.search(text, start, start + _SLICE + 15) for start in range(0, len(text), _SLICE)
    )
    try:
        return read_json(_careful if careful else _plain, text)
    except RecursionError:
        raise NotExact(f"nested deeper than {MAX_DEPTH} levels") from None
    except NotExact:
        raise
    except ValueError as error:
        raise NotExact(f"not JSON: {error}") from error


def read_json(decoder: json.JSONDecoder, text: str) -> Json:
    """Return `decoder.decode(text)`, without its searches for surrounding white space, which is rare."""
    value: Json
    try:
        value, end = decoder.raw_decode(text)
    except json.JSONDecodeError:
        end = -1
    if end < 0 or text[end:].strip(" \t\n\r"):
        value = decoder.decode(text)
    return value


def dump(value: object) -> bytes:
    """Encode a value of checked depth. Raises `NotExact` for NaN, infinities and lone surrogates."""
    try:
        return compact(value)
    except UnicodeEncodeError:
        raise NotExact("a string has a lone surrogate") from None
    except (ValueError, TypeError) as error:
        raise NotExact(f"not a JSON value: {error}") from error


def check_depth(value: object, depth: int = MAX_DEPTH) -> None:
    """Check, without recursion, that nesting is at most `depth`. Raises `NotExact`."""
    level: list[Container] = [(value,)]
    for _ in range(depth + 1):
        level = [
            child
            for one in level
            for child in (one.values() if isinstance(one, dict) else one)
            if isinstance(child, _CONTAINERS)
        ]
        if not level:
            return
    raise NotExact(f"nested deeper than {depth} levels")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotExact("an object has a key twice")
    return found


def _constant(name: str) -> Never:
    raise NotExact(f"{name} is not JSON")


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_INTEGER:
        raise NotExact(f"the number {text[:40]} is beyond ±2^53")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if abs(number) > MAX_INTEGER:
        raise NotExact(f"the number {text[:40]} is beyond ±2^53")
    return number


_plain: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant)
_careful: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer, parse_float=_float
)
