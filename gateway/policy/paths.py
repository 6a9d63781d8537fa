"""Canonical paths and queries: the matched bytes are the bytes that are sent (RFC 3986, section 6.2.2).

Percent-encoding is normalised and dot segments are removed; paths that are still ambiguous are refused. Every function
raises ValueError with the remedy.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final
from urllib.parse import unquote_to_bytes

_PLAIN_PATH = re.compile(r"/[A-Za-z0-9\-._~!$&'()*+,=:@/]*", re.ASCII)
_PLAIN_QUERY = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:@/?]*", re.ASCII)
_PERCENT = re.compile("%(..?)?", re.DOTALL)
_LONE_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")
_UNICODE_ESCAPE = re.compile("%u[0-9A-Fa-f]{4}", re.IGNORECASE)
_HEX = re.compile("[0-9A-Fa-f]{2}", re.ASCII)
_NOT_PATH = re.compile(r"[^A-Za-z0-9\-._~!$&'()*+,=:@/%]", re.ASCII)
_NOT_QUERY = re.compile(r"[^A-Za-z0-9\-._~!$&'()*+,;=:@/?%]", re.ASCII)
_AMBIGUOUS = re.compile("%(?:2F|5C|25|3B|3F|23)")
_ENCODED_PCHAR = re.compile("%(?:2[146-9A-C]|3[AD]|40)")
_SEPARATORS = re.compile(r"[/\\]")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PUNCTUATION: Final = frozenset("./\\%;?#")

ENCODED_REMEDY: Final = "if the API needs it in one segment, write that segment as {name:encoded} in the policy"


def canonical_path(path: str) -> str:
    """Return the canonical form of `path`, which may still have `ambiguous` segments."""
    if _PLAIN_PATH.fullmatch(path) and "//" not in path and "/." not in path:
        return path
    return remove_dots(normalised_path(path))


def canonical_query(query: str) -> str:
    """Return the canonical form of a query, without `?`."""
    if _PLAIN_QUERY.fullmatch(query):
        return query
    control = next((char for char in query if char < " " or char == "\x7f"), None)
    if control is not None:
        raise ValueError(f"the query has the control character U+{ord(control):04X}: percent-encode it")
    return _PERCENT.sub(_normalise, _NOT_QUERY.sub(_percent_encode, query))


def query_of_backend(query: str) -> str:
    """Return the canonical form of a query that a backend wrote, as in a `Location`: a `%` may be literal in it.

    Such a query is sent unchanged, since decoding beside that `%` could create an encoding; no rule reads it. Raises
    ValueError as `canonical_query` does, and for `%u0041`, which some servers decode.
    """
    if not _LONE_PERCENT.search(query):
        return canonical_query(query)
    if _UNICODE_ESCAPE.search(query):
        raise ValueError('the query has a "%u", which some servers decode')
    return "%".join(map(canonical_query, query.split("%")))


def has_lone_percent(query: str) -> bool:
    """Return whether a `%` begins no percent-encoding."""
    return _LONE_PERCENT.search(query) is not None


def normalised_path(path: str) -> str:
    """Normalise percent-encoding: decode unreserved characters, write hex in upper case, encode unsafe ASCII."""
    for char, name in (("\\", "a backslash"), (";", 'a ";"')):
        if char in path:
            raise ValueError(f"the path has {name}, which servers read in different ways: leave it out")
    if not path.startswith("/"):
        raise ValueError('the path does not start with "/"')
    if "//" in path:
        raise ValueError('the path has an empty segment ("//"): write one "/"')
    if not path.isascii():
        raise ValueError("the path has a character outside ASCII: percent-encode it as UTF-8")
    if any(char < " " or char == "\x7f" for char in path):
        raise ValueError("the path has a control character")
    path_text = _PERCENT.sub(_normalise, _NOT_PATH.sub(_percent_encode, path))
    if "%" in path_text:
        _check_encoded(path_text)
    return path_text


def remove_dots(path: str) -> str:
    """Remove `.` and `..` segments (RFC 3986, section 5.2.4)."""
    if "/." not in path:
        return path
    result: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del result[-1:]
        elif segment != ".":
            result.append(segment)
    if segments[-1] in (".", ".."):
        result.append("")
    return "/" + "/".join(result)


def is_ambiguous(segment: str) -> bool:
    """Return whether a segment has `%2F %5C %25 %3B %3F %23`, which a server may decode to a delimiter."""
    return _AMBIGUOUS.search(segment) is not None


def fold(segment: str) -> str:
    """Return a segment as policy literals are compared: `%40` is `@`, since every server decodes it."""
    return _ENCODED_PCHAR.sub(lambda match: chr(int(match[0][1:], 16)), segment)


def check_opaque(segment: str) -> None:
    """Check that an ambiguous segment is harmless to servers that decode it once or twice."""
    text = segment
    for _ in range(2):
        text = _utf8(unquote_to_bytes(text))
        if any(unicodedata.category(char) == "Cc" for char in text):
            raise ValueError(f"the segment {segment} has a control character when decoded")
        if any(part.split(";")[0] in (".", "..") for part in _SEPARATORS.split(text)):
            raise ValueError(f"the segment {segment} has a dot part when decoded")


def decode(segment: str) -> str:
    """Return a segment as text for display."""
    return unquote_to_bytes(segment).decode(errors="replace")


def _normalise(match: re.Match[str]) -> str:
    digits = match[1] or ""
    if not _HEX.fullmatch(digits):
        raise ValueError(f'"%{digits}" is not a percent-encoding: write %25 for a percent sign')
    char = chr(int(digits, 16))
    return char if char in _UNRESERVED else f"%{digits.upper()}"


def _percent_encode(match: re.Match[str]) -> str:
    try:
        return "".join(f"%{byte:02X}" for byte in match[0].encode())
    except UnicodeEncodeError:
        raise ValueError("the URL has a lone surrogate, which has no encoding") from None


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ValueError("the path has a percent-encoding that is not UTF-8 (or is over-long)") from None


def _check_encoded(path: str) -> None:
    """Refuse encoded text that is invalid, invisible, or changes when a server normalises it."""
    text = _utf8(unquote_to_bytes(path))
    for char in text:
        if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cn", "Co"):
            raise ValueError(f"the path has the encoded control or invisible character U+{ord(char):04X}")
        if char > "\x7f" and not _PUNCTUATION.isdisjoint(unicodedata.normalize("NFKC", char)):
            raise ValueError(f"the path has U+{ord(char):04X}, which some servers read as punctuation")
    if unicodedata.normalize("NFC", text) != text:
        raise ValueError("the path has encoded text that is not in Unicode normal form C: normalise it")
