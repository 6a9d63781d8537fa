"""Canonical JSON for bodies that rules read: unambiguous, and serialised again, so that the decided value is sent.

Every function raises ValueError with the remedy.
"""

from __future__ import annotations

import json
import re
from typing import Final, Never

from gateway.model import BodyType, Headers, Json

MAX_DEPTH: Final = 64
MAX_NUMBER: Final = 2**53

_JSON_TYPE = re.compile(r"application/(?:json|[a-z0-9!#$&^_.+-]{1,100}\+json)", re.ASCII)
_CHARSET = re.compile(r'\s*charset\s*=\s*"?utf-?8"?\s*', re.ASCII | re.IGNORECASE)
_RAW: Final = (BodyType.JSON, BodyType.TEXT, BodyType.BASE64)


def canonical_json(headers: Headers, body: bytes, body_type: BodyType) -> tuple[bytes, Json]:
    """Return the bytes to send, and their value."""
    _check_type(headers, body_type)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise ValueError("the body is not UTF-8") from None
    value = read_json(text)
    return write_json(value), value


def read_json(text: str) -> Json:
    """Parse `text`: no duplicate keys (ignoring case), no number beyond 2^53, at most 64 levels."""
    try:
        value: Json = json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float
        )
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise ValueError(f"the body is not JSON ({error.msg}, line {error.lineno}, column {error.colno})") from None
    _check_depth(value)
    return value


def write_json(value: Json) -> bytes:
    """Serialise `value` canonically."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        raise ValueError("the body has a lone surrogate, which has no encoding") from None


def _check_type(headers: Headers, body_type: BodyType) -> None:
    """Check that the media type and the body type agree."""
    if any(name == "content-encoding" for name, _ in headers):
        raise ValueError("a rule reads this body: send it without content-encoding")
    given = next((value for name, value in headers if name == "content-type"), "")
    media_type, _, parameters = given.partition(";")
    if not _JSON_TYPE.fullmatch(media_type.strip().lower()):
        raise ValueError(f"a rule reads this body: send JSON, with content-type application/json, not {given[:60]!r}")
    if body_type not in _RAW:
        raise ValueError(f"bodyType {body_type} and content-type {given[:60]} do not agree: send the body as JSON")
    if not all(_CHARSET.fullmatch(one) for one in parameters.split(";") if one.strip().lower().startswith("charset")):
        raise ValueError("a rule reads this body: send it in UTF-8")


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len({key.casefold() for key in found}) != len(pairs):
        twice = "" if len(found) == len(pairs) else " twice"
        raise ValueError(f"an object of the body has a key{twice or ' in two forms that differ only in case'}")
    return found


def _constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _integer(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > MAX_NUMBER:
        raise ValueError(f"the number {text[:40]} is beyond 2^53: send it as a text")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if abs(number) > MAX_NUMBER:
        raise ValueError(f"the number {text[:40]} is beyond 2^53: send it as a text")
    return number


def _check_depth(value: Json) -> None:
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"the body is nested deeper than {MAX_DEPTH} levels")
