"""Writes JSON: without white space, large values in pieces, and any value in a form that every transport can write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from json.encoder import encode_basestring_ascii
from typing import Any, Final

import orjson

from gateway.jsontext.sizes import MAX_DEPTH, Flaw, InvalidJson, nests_deeper

_OURS: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_NULL: Final = b"null"

DEL: Final = "\x7f"
"""The one ASCII character that the standard library escapes in ASCII output and orjson does not."""

_DEL: Final = DEL.encode()

plain_json: Final = json.JSONEncoder().encode
"""Writes in ASCII with white space, as Python does by default."""

plain_json_utf8: Final = json.JSONEncoder(ensure_ascii=False).encode
"""Writes like `plain_json`, without escapes of letters; a lone surrogate stays in it."""

compact_json: Final = json.JSONEncoder(separators=(",", ":")).encode
"""Writes like `plain_json`, without white space."""

compact_json_utf8: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""Writes like `compact_json`, without escapes of letters."""

indented_json: Final = json.JSONEncoder(indent=2).encode
"""Writes for a reader at a terminal."""

indented_json_utf8: Final = json.JSONEncoder(indent=2, ensure_ascii=False).encode
"""Writes files that people edit."""

sorted_json: Final = json.JSONEncoder(sort_keys=True).encode
"""Writes equal values as equal text: for digests and keys."""

sorted_compact_json: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""Writes like `sorted_json`, without white space."""

sorted_json_utf8: Final = json.JSONEncoder(sort_keys=True, ensure_ascii=False, allow_nan=False).encode
"""Writes like `sorted_json`, without escapes of letters, for questions that people read; refuses NaN."""

lenient_json: Final = json.JSONEncoder(ensure_ascii=False, default=str).encode
"""Writes any value into a message: what JSON lacks as its text."""

_checked: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_exact: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)
_ascii: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)

signed_json: Final = _ascii.encode
"""Writes like `compact_ascii`, with one spelling of each number at all times: for signatures."""


def compact(value: object) -> bytes:
    """Encode a value without cycles in UTF-8. Raises ValueError, TypeError or RecursionError if it is not JSON."""
    text = _quick(value)
    return _exact.encode(value).encode() if text is None else text


def compact_ascii(value: object) -> str:
    """Encode like `compact`, in ASCII."""
    text = _quick(value)
    if text is None or not text.isascii() or _DEL in text:
        return _ascii.encode(value)
    return text.decode("ascii")


def compact_exact(value: object) -> bytes:
    """Encode like `compact`. Raises `InvalidJson` for NaN, infinities and lone surrogates."""
    try:
        return compact(value)
    except UnicodeEncodeError:
        raise InvalidJson(Flaw.VALUE, "a string has a lone surrogate") from None
    except (ValueError, TypeError) as error:
        raise InvalidJson(Flaw.VALUE, f"not a JSON value: {error}") from error


def compact_stable(value: object) -> bytes:
    """Encode like `compact`, with one spelling of each number at all times."""
    return _exact.encode(value).encode()


def compact_portable(value: object) -> str:
    """Encode without white space as JSON.stringify does: a lone surrogate is escaped. Raises ValueError on NaN."""
    text = _exact.encode(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _ascii.encode(value)
    return text


def plain_within(value: object) -> str:
    """Encode with white space. Raises ValueError for NaN and infinities, and for nesting beyond `MAX_DEPTH`."""
    try:
        text = _checked(value)
    except RecursionError as error:
        raise InvalidJson(Flaw.DEPTH, "nested too deep") from error
    if text.count("{") + text.count("[") > MAX_DEPTH and nests_deeper(value, MAX_DEPTH):
        raise InvalidJson(Flaw.DEPTH, f"nested deeper than {MAX_DEPTH}")
    return text


def quote(text: str) -> str:
    """Encode a string as JSON in ASCII."""
    return orjson.dumps(text).decode() if text.isascii() and DEL not in text else encode_basestring_ascii(text)


def _quick(value: object) -> bytes | None:
    """Encode with orjson; None if it cannot, or may have written NaN as `null`."""
    try:
        data = orjson.dumps(value, option=_OURS)
    except TypeError:  # integers of more than 64 bits, deep nesting, lone surrogates, keys that are not strings
        return None
    nulls = data.count(_NULL)
    return data if not nulls or (type(value) is dict and [*value.values()].count(None) == nulls) else None


PARTS: Final = 5000
"""Values above which JSON counts as large."""

SIZE: Final = 256 * 1024
"""Characters of strings above which JSON counts as large, and the length of a piece."""


def is_large(value: object) -> bool:
    """Return whether a value takes long to write."""
    parts, size = PARTS, SIZE
    waiting = [value]
    for one in waiting:  # it grows meanwhile
        if isinstance(one, str):
            size -= len(one)
        elif isinstance(one, dict):
            parts -= len(one)
            size -= sum(map(len, one))
            waiting += one.values()
        elif isinstance(one, list):
            parts -= len(one)
            waiting += one
        else:
            continue
        if parts < 0 or size < 0:
            return True
    return False


def write_pieces(value: object, compact: Callable[[object], str] = compact_ascii) -> Iterator[str]:
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
            yield from write_pieces(one, compact)
            mark = ","
        yield "}"
    elif isinstance(value, list):
        mark = "["
        for one in value:
            yield mark
            yield from write_pieces(one, compact)
            mark = ","
        yield "]"


def escape_parts(texts: Iterable[str]) -> Iterator[str]:
    """Yield one long string, given in parts, as JSON in ASCII."""
    yield '"'
    for text in texts:
        yield quote(text)[1:-1]
    yield '"'


def gather(texts: Iterable[str]) -> list[bytes]:
    """Join ASCII strings into byte chunks of about `SIZE`."""
    sizes, waiting, size = [], list[str](), 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size >= SIZE:
            sizes.append("".join(waiting).encode("ascii"))
            waiting, size = [], 0
    return [*sizes, "".join(waiting).encode("ascii")]


def encodable(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` with `?` for lone surrogates and null for numbers that JSON cannot represent.
    A page can put both into its own JSON (as `"\\ud800"` and `1e400`); serialized, one would spoil the whole answer.
    """
    try:
        _checked(values).encode()
    except ValueError:
        text = plain_json_utf8(values).encode("utf-8", "replace")
        value: dict[str, Any] = json.loads(text, parse_constant=lambda _: None)
        return value
    return values


def without_surrogates(value: object) -> object:
    """Return `value` with `?` for lone surrogates."""
    return json.loads(plain_json_utf8(value).encode("utf-8", "replace"))


def with_text_for_constants(value: object) -> Any:
    """Return `value` as JSON reads it back, with text for NaN and infinities. Raises TypeError, RecursionError."""
    return json.loads(plain_json(value), parse_constant=str)
