"""JSON parsing and encoding, alike in Python and in a browser: no NaN, no overflow, bounded depth."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NoReturn, cast

from gateway.errors import MuxError
from gateway.model import Json

DEPTH_LIMIT = 64
"""Maximum nesting of arrays and objects, including the outermost."""


def parse(text: str) -> Json:
    """Parse `text`. Raises MuxError `bad-json`."""
    try:
        value = cast(Json, json.loads(text, parse_constant=_refuse, parse_float=_number, parse_int=_integer))
    except (ValueError, RecursionError) as error:
        raise MuxError("bad-json", f"this is no JSON that the bridge takes: {str(error)[:200]}") from error
    # Fewer brackets than the limit cannot nest deeper, so most frames need no walk.
    if text.count("{") + text.count("[") > DEPTH_LIMIT and is_deep(value):
        raise MuxError("bad-json", f"nested deeper than {DEPTH_LIMIT}")
    return value


def dump(value: object) -> str:
    """Encode compact JSON, always encodable as UTF-8. Raises ValueError on NaN and infinities."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate is escaped, as in JSON.stringify
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text


def sayable(value: Json) -> str:
    """Encode `value`. Raises ValueError for NaN and infinities, and beyond the depth limit."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if text.count("{") + text.count("[") > DEPTH_LIMIT and is_deep(value):
        raise ValueError(f"nested deeper than {DEPTH_LIMIT}")
    return text


def is_deep(value: Json) -> bool:
    """Return whether `value` nests deeper than the limit, without recursion."""
    layer: list[Json] = [value]
    for _ in range(DEPTH_LIMIT):
        layer = [child for item in layer for child in _children(item) if isinstance(child, dict | list)]
        if not layer:
            return False
    return True


def _children(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _number(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number that no double can hold")
    return number


def _integer(text: str) -> int:
    if len(text) > 308:
        _number(text)
    return int(text)
