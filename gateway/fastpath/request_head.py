"""The one parser of request heads on the fast path, stricter than any HTTP/1.1 parser (RFC 9112).

A head that two parsers could read differently is not parsed here, but left to aiohttp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from multidict import CIMultiDict, istr

LONGEST_HEAD: Final = 8190
"""Bytes of the longest request head that is parsed here."""

MOST_FIELDS: Final = 100
"""Header fields of a head that is parsed here; aiohttp refuses more than 128."""

NAMES: Final = 256
"""Field names of which heads share the text."""

_METHODS: Final = rb"GET|POST|PUT|PATCH|DELETE"
_PATH: Final = rb"(?:/(?![./])[A-Za-z0-9._~!$&'()*+,;=:@-]*)+"
"""A path in origin-form (RFC 9112, 3.2.1) that needs no decoding and no normalising; `//` may begin an authority."""

_QUERY: Final = rb"[A-Za-z0-9._~!$&'()*+,;=:@/?%-]*"
_NAME: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}"
_HEAD: Final = re.compile(
    rb"(%b) ((%b)(?:\?%b)?) HTTP/1\.1\r\n((?:%b: ?[\x21-\x7e][\x20-\x7e]*\r\n)+)" % (_METHODS, _PATH, _QUERY, _NAME)
)

_ASIDE: Final = frozenset(
    {
        b"content-encoding",
        b"expect",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Fields of requests that are framed, coded or continued otherwise than by `Content-Length`."""

_CONNECTION: Final = frozenset({b"keep-alive", b"close"})


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A head that is eligible for the fast path, with a body of `length` bytes; `target` is path and query.

    `fields` are the header fields as they came. `last` means that the client asks to close the connection afterwards.
    """

    method: str
    target: str
    path: str
    length: int
    fields: tuple[tuple[bytes, bytes], ...]
    headers: CIMultiDict[str]
    last: bool


def read_head(raw: bytes) -> RequestHead | None:
    """Parse a head with its empty line; return None if it is not plainly eligible."""
    found = _HEAD.fullmatch(raw, 0, len(raw) - 2)
    if found is None:
        return None
    method, target, path, lines = found.groups()
    fields = tuple(
        (_shared_name(name)[0], value.strip(b" "))
        for name, _, value in (line.partition(b":") for line in lines.split(b"\r\n") if line)
    )
    named = {name.lower(): value for name, value in fields}
    connection = named.get(b"connection", b"keep-alive").lower()
    length = named.get(b"content-length", b"0" if method == b"GET" else b"")
    if (
        len(named) != len(fields)
        or len(fields) > MOST_FIELDS
        or not _ASIDE.isdisjoint(named)
        or connection not in _CONNECTION
    ):
        return None
    if b"host" not in named or not length.isdigit() or len(length) > 7 or (method == b"GET" and length != b"0"):
        return None
    headers = CIMultiDict((_shared_name(name)[1], value.decode("ascii")) for name, value in fields)
    last = connection == b"close"
    return RequestHead(method.decode(), target.decode(), path.decode(), int(length), fields, headers, last)


@lru_cache(maxsize=NAMES)
def _shared_name(name: bytes) -> tuple[bytes, istr]:
    """Return a field name as bytes and as text, the same objects for all heads that have it."""
    return name, istr(name.decode("ascii"))
