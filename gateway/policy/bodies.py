"""Bodies that rules read, as canonical JSON, and `_method` in them, by which some servers override the method.

What is decided is what is sent: a body is unambiguous, and serialised again. Reading and writing raise ValueError with
the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import Final
from urllib.parse import unquote_plus, unquote_to_bytes

from gateway.jsontext.reading import EXACT_NUMBERS, NO_NUMBERS, Keys, Reader
from gateway.jsontext.sizes import MAX_DEPTH, Flaw, InvalidJson, is_bulky
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
    content_type = next((value for name, value in headers if name == "content-type"), "")
    media_type, _, parameters = content_type.partition(";")
    if not _JSON_TYPE.fullmatch(media_type.strip().lower()):
        raise ValueError(
            f"a rule reads this body: send JSON, with content-type application/json, not {content_type[:60]!r}"
        )
    if body_type not in _RAW:
        raise ValueError(
            f"bodyType {body_type} and content-type {content_type[:60]} do not agree: send the body as JSON"
        )
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


NAME: Final = "_method"

_SLICE: Final = 128 * 1024
"""Bytes scanned in one step."""

_PLAIN = re.compile(rb"_method", re.IGNORECASE)
# Each begins with literal bytes, which `re` finds much faster than anything else.
_ENCODED = tuple(
    re.compile(first + rb"(?:m|%6[dD])(?:e|%65)(?:t|%74)(?:h|%68)(?:o|%6[fF])(?:d|%64)")
    for first in (rb"_", rb"%5[fF]")
)
# As a JSON key, with any of its letters escaped.
_KEY = tuple(
    re.compile(first + rb"(?:m|\\u006[dD])(?:e|\\u0065)(?:t|\\u0074)(?:h|\\u0068)(?:o|\\u006[fF])(?:d|\\u0064)\"")
    for first in (rb'"_', rb'"\\u005[fF]')
)
_PART = re.compile(rb"-(?i:disposition)[ \t]*:[^\r\n]{0,1024}")
_NAME = re.compile(
    rb"(?<![A-Za-z0-9_-])name(?:\*[0-9]*\*?)?[ \t]*=[ \t]*(\"(?:[^\"\\]|\\.)*\"|[^; \t]*)", re.IGNORECASE
)
_CHARSET_PREFIX = re.compile(rb"[A-Za-z0-9_-]*'[A-Za-z0-9_-]*'")
_LONGEST: Final = 6 * len(NAME) + 2
_SPACE: Final = b" \t\n\r\f\v"


def method_override(query: str, headers: Headers, body: bytes) -> Generator[None, None, str | None]:
    """Return where a `_method` parameter is (`query`, `form` or `JSON body`), None without one; in short steps."""
    if query and _names(query):
        return "query"
    media_type = next((value for name, value in headers if name == "content-type"), "").split(";")[0].strip().lower()
    if media_type == "application/json" or media_type.endswith("+json"):
        return "JSON body" if (yield from _is_any(_is_key, _KEY, body)) and _in_json(body) else None
    if media_type == "multipart/form-data":
        return "form" if (yield from _is_any(_is_part, (_PLAIN, _PART), body)) else None
    if media_type in ("application/x-www-form-urlencoded", ""):
        return "form" if (yield from _is_any(_is_parameter, _ENCODED, body)) else None
    return None


def _is_any(
    test: Callable[[bytes, int, int], bool], patterns: Sequence[re.Pattern[bytes]], body: bytes
) -> Generator[None, None, bool]:
    for start in range(0, len(body), _SLICE):
        if start:
            yield
        for pattern in patterns:
            if any(test(body, *match.span()) for match in pattern.finditer(body, start, start + _SLICE + _LONGEST)):
                return True
    return False


def _is_key(body: bytes, start: int, end: int) -> bool:
    """Accept every match: the parser decides (`_in_json`)."""
    return True


def _is_parameter(body: bytes, start: int, end: int) -> bool:
    """Return whether the match is the whole name of a parameter."""
    return body[start - 1 : start] in (b"", b"&", b";") and body[end : end + 1] in (b"", b"=", b"&", b";")


def _is_field(body: bytes, start: int, end: int) -> bool:
    """Return whether the match follows `name=` and is a whole value: quoted, or a word."""
    quote = body[start - 1 : start]
    if quote in (b'"', b"'"):
        start, whole = start - 1, body[end : end + 1] == quote
    else:
        whole = not _is_word(body[end : end + 1])
    at = _before_space(body, start)
    if not whole or body[at - 1 : at] != b"=":
        return False
    at = _before_space(body, at - 1)
    return body[max(0, at - 4) : at].lower() == b"name" and not _is_word(body[max(0, at - 5) : at - 4])


def _is_part(body: bytes, start: int, end: int) -> bool:
    """Return whether a part has that name at the match of `_PLAIN` or `_PART`."""
    return _is_disguised(body, start) if body.startswith(b"-", start) else _is_field(body, start, end)


def _is_disguised(body: bytes, start: int) -> bool:
    """Return whether a part has that name once it is unescaped, decoded, and joined from pieces (RFC 2231)."""
    line = _PART.match(body, start)  # to its end, even past the end of a slice
    pieces = [match[1] for match in _NAME.finditer(line[0])] if line is not None else []
    plain = b"".join(re.sub(rb"\\(.)", rb"\1", piece.strip(b'"')) for piece in pieces)
    return unquote_to_bytes(_CHARSET_PREFIX.sub(b"", plain, count=1)).lower() == NAME.encode()


def _before_space(body: bytes, end: int) -> int:
    while end:
        start = max(0, end - _SLICE)
        if length := len(body[start:end].rstrip(_SPACE)):
            return start + length
        end = start
    return 0


def _is_word(byte: bytes) -> bool:
    return byte.isalnum() or byte == b"_"


def _names(text: str) -> bool:
    return any(unquote_plus(part.partition("=")[0]) == NAME for part in re.split("[&;]", text))


_LENIENT: Final = Reader(NO_NUMBERS, constants=True)


def _in_json(body: bytes) -> bool:
    """Return whether the top-level object has that key; True if it is too large or too deep to parse."""
    if is_bulky(body):
        return True
    try:
        value = _LENIENT.read(body)
    except InvalidJson as error:
        return error.flaw is Flaw.DEPTH  # servers parse deeper nesting
    except UnicodeDecodeError:
        return False
    return isinstance(value, dict) and NAME in value
