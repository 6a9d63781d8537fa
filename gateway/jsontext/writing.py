"""Writes JSON: without white space, large values in pieces, and any value in a form that every transport can write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from json.encoder import encode_basestring_ascii
from typing import Any, Final

import orjson

_OURS: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_NULL: Final = b"null"

DEL: Final = "\x7f"
"""The one ASCII character that the standard library escapes in ASCII output and orjson does not."""

_DEL: Final = DEL.encode()

_exact: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
_ascii: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)


def compact(value: object) -> bytes:
    """Encode a value without cycles in UTF-8. Raises ValueError, TypeError or RecursionError if it is not JSON."""
    written = _quick(value)
    return _exact.encode(value).encode() if written is None else written


def compact_ascii(value: object) -> str:
    """Encode like `compact`, in ASCII."""
    written = _quick(value)
    if written is None or not written.isascii() or _DEL in written:
        return _ascii.encode(value)
    return written.decode("ascii")


def quoted(text: str) -> str:
    """Encode a string as JSON in ASCII."""
    return orjson.dumps(text).decode() if text.isascii() and DEL not in text else encode_basestring_ascii(text)


def _quick(value: object) -> bytes | None:
    """Encode with orjson; None if it cannot, or may have written NaN as `null`."""
    try:
        written = orjson.dumps(value, option=_OURS)
    except TypeError:  # integers of more than 64 bits, deep nesting, lone surrogates, keys that are not strings
        return None
    nulls = written.count(_NULL)
    return written if not nulls or (type(value) is dict and [*value.values()].count(None) == nulls) else None


PARTS: Final = 5000
"""Values above which JSON counts as large."""

SIZE: Final = 256 * 1024
"""Characters of strings above which JSON counts as large, and the length of a piece."""


def is_large(value: object) -> bool:
    """Return whether a value takes long to write."""
    parts, size = PARTS, SIZE
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            size -= len(one)
        elif isinstance(one, dict):
            parts -= len(one)
            size -= sum(map(len, one))
            waiting += one.values()
        elif isinstance(one, list):
            parts -= len(one)
            waiting += one
        if parts < 0 or size < 0:
            return True
    return False


def written(value: object, compact: Callable[[object], str] = compact_ascii) -> Iterator[str]:
    """Yield the JSON of a value, each small part as `compact` writes it. Raises as that does."""
    if not is_large(value):
        yield compact(value)
    elif isinstance(value, str):
        yield '"'
        for start in range(0, len(value), SIZE):
            yield compact(value[start : start + SIZE])[1:-1]
        yield '"'
    elif isinstance(value, dict):
        mark = "{"
        for key, one in value.items():
            yield f"{mark}{compact(key)}:"
            yield from written(one, compact)
            mark = ","
        yield "}"
    elif isinstance(value, list):
        mark = "["
        for one in value:
            yield mark
            yield from written(one, compact)
            mark = ","
        yield "]"


def escaped(texts: Iterable[str]) -> Iterator[str]:
    """Yield one long string, given in parts, as JSON in ASCII."""
    yield '"'
    for text in texts:
        yield quoted(text)[1:-1]
    yield '"'


def gathered(texts: Iterable[str]) -> list[bytes]:
    """Join ASCII strings into byte chunks of about `SIZE`."""
    found, waiting, size = [], list[str](), 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size >= SIZE:
            found.append("".join(waiting).encode("ascii"))
            waiting, size = [], 0
    return [*found, "".join(waiting).encode("ascii")]


def encodable(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` with `?` for lone surrogates and null for numbers that JSON cannot represent.
    A page can put both into its own JSON (as `"\\ud800"` and `1e400`); serialized, one would spoil the whole answer.
    """
    try:
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        text = json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")
        cleaned: dict[str, Any] = json.loads(text, parse_constant=lambda _: None)
        return cleaned
    return values
