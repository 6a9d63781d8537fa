"""Canonical JSON for bodies that rules read: unambiguous, and serialised again, so that the decided value is sent.

Every function raises ValueError with the remedy.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.jsontext.reading import EXACT_NUMBERS, Keys, Reader
from gateway.jsontext.sizes import MAX_DEPTH, Flaw, InvalidJson
from gateway.jsontext.writing import compact_stable
from gateway.model import BodyType, Headers, Json

_READER: Final = Reader(EXACT_NUMBERS, Keys.UNIQUE_IN_ANY_CASE, depth=MAX_DEPTH)

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
        value: Json = _READER.read(text)
    except InvalidJson as error:
        raise ValueError(_describe(error)) from None
    return value


def write_json(value: Json) -> bytes:
    """Serialise `value` canonically."""
    try:
        return compact_stable(value)
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


def _describe(error: InvalidJson) -> str:
    """Return what is wrong with the body, with the remedy."""
    match error.flaw:
        case Flaw.DEPTH:
            return f"the body is nested deeper than {MAX_DEPTH} levels"
        case Flaw.DUPLICATE:
            return "an object of the body has a key twice"
        case Flaw.ALIKE:
            return "an object of the body has a key in two forms that differ only in case"
        case Flaw.NUMBER:
            return f"the number {error.subject} is beyond 2^53: send it as a text"
        case Flaw.SYNTAX:
            return f"the body is not JSON ({error.subject})"
        case _:
            return str(error)
