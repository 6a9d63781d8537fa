"""What an upstream wrote, as a JSON value that every transport can write again."""

from __future__ import annotations

import json
import re
from typing import NoReturn

DEPTH = 128
"""Levels of nesting; the serialisers on the other side fail a little beyond."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def decode(raw: bytes) -> object:
    """The JSON value in `raw`. Raises ValueError for what is none, or is nested too deep."""
    try:
        value = json.loads(raw, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if _deep(value):
        raise ValueError(f"nested deeper than {DEPTH}")
    if _SURROGATE.search(raw):
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
        value = json.loads(text)
    return value


def encode(value: object) -> bytes:
    """`value` in one line of JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _deep(value: object) -> bool:
    level = [value]
    for _ in range(DEPTH):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = [item for item in below if isinstance(item, dict | list)]
        if not level:
            return False
    return True
