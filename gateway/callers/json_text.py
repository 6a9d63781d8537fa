"""JSON that comes from issuers and callers: of one reading, or none."""

from __future__ import annotations

import json

from gateway.model import Json


def parsed(text: bytes | str) -> dict[str, Json]:
    """The object in `text`. Raises ValueError: for what is no object, duplicate names, NaN, or too deep."""
    try:
        found: Json = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None  # the cause would quote the text
    if not isinstance(found, dict):
        raise ValueError("is no JSON object")
    return found


def texts(value: Json) -> tuple[str, ...]:
    """The texts of a list, or a text alone."""
    if isinstance(value, str):
        return (value,)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate names")
    return found


def _no_constant(name: str) -> Json:
    raise ValueError(name)
