"""JSON without white space: written by orjson if the result is equivalent, else by the standard library."""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii
from typing import Final

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
