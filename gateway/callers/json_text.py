"""What a JSON value of an issuer or a caller says, whatever it is."""

from __future__ import annotations

from gateway.model import Json


def texts(value: Json) -> tuple[str, ...]:
    """The texts of a list, or a text alone."""
    if isinstance(value, str):
        return (value,)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()
