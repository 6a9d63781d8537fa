"""JSON values that every transport can serialize."""

from __future__ import annotations

import json
from typing import Any


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
