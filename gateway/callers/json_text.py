"""Reads strings from untrusted JSON values."""

from __future__ import annotations

from gateway.model import Json


def texts(value: Json) -> tuple[str, ...]:
    """Return the strings of a list, or a single string."""
    if isinstance(value, str):
        return (value,)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()
