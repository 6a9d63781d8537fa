"""Request heads eligible for the fast path, parsed more strictly than by any HTTP/1.1 parser (RFC 9112)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from multidict import CIMultiDict

LONGEST_HEAD: Final = 8190
"""Bytes of the longest request head that is parsed here."""

BEGINNING: Final = b"POST /mcp"
"""The beginning of every eligible head."""

# Stricter than any HTTP/1.1 parser (RFC 9112): an ambiguous head is not parsed here.
_HEAD: Final = re.compile(
    rb"POST (/mcp(?:/([A-Za-z0-9_-]{1,64}))?) HTTP/1\.1\r\n"
    rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}: ?[\x21-\x7e][\x20-\x7e]*\r\n)+)"
)
_ANY_HEAD: Final = re.compile(
    rb"[A-Z]{3,7} /[\x21-\x7e]* HTTP/1\.1\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}: ?[\x20-\x7e]*\r\n)+)"
)
_LENGTH: Final = re.compile(rb"(?i)(?:^|\n)content-length: ?([0-9]{1,7})\r\n")
_FRAMING: Final = frozenset({b"transfer-encoding", b"upgrade", b"expect", b"connection"})
_ASIDE: Final = frozenset({b"keep-alive", b"te", b"trailer", b"proxy-connection"})


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A head eligible for the fast path: to `mount` ("" is `/mcp` itself), with a body of `length` bytes."""

    mount: str
    length: int
    raw: tuple[tuple[bytes, bytes], ...]
    headers: CIMultiDict[str]
    last: bool = False
    """The client asks to close the connection afterwards."""
    traced: bool = False
    """The head may carry a trace context."""


def read_head(raw: bytes) -> RequestHead | None:
    """Parse a head with its empty line; return None if it is not plainly eligible."""
    found = _HEAD.fullmatch(raw, 0, len(raw) - 2)
    if found is None:
        return None
    fields = tuple(
        (name, value.strip(b" "))
        for name, _, value in (line.partition(b":") for line in found[3].split(b"\r\n") if line)
    )
    named = {name.lower(): value for name, value in fields}
    length = named.get(b"content-length", b"")
    if len(named) != len(fields) or not _ASIDE.isdisjoint(named) or not length.isdigit() or len(length) > 7:
        return None
    headers = CIMultiDict((name.decode("ascii"), value.decode("ascii")) for name, value in fields)
    connection = named.get(b"connection", b"keep-alive").lower()
    if connection not in (b"keep-alive", b"close"):
        return None
    last, traced = connection == b"close", b"traceparent" in named
    return RequestHead((found[2] or b"").decode("ascii"), int(length), fields, headers, last, traced)


_NEXT_HEAD: Final = re.compile(
    rb"[A-Z]{3,7} [\x21-\x7e]+ HTTP/1\.1\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}:[\t\x20-\x7e\x80-\xff]*\r\n)+)\Z"
)
_ELSEWHERE: Final = re.compile(rb"(?i)(?:^|\n)(?:transfer-encoding|upgrade|expect):")


def is_one(data: bytes) -> bool:
    """Whether `data` is exactly one request for every HTTP/1.1 parser: the next byte begins another."""
    end = data.find(b"\r\n\r\n") + 4
    found = _NEXT_HEAD.match(data[: end - 2]) if end >= 4 else None
    if found is None or _ELSEWHERE.search(found[1]):
        return False
    length, told = _LENGTH.search(found[1]), found[1].lower().count(b"content-length:")
    if told != (length is not None):
        return False
    return len(data) - end == (int(length[1]) if length is not None else 0)


def is_whole(data: bytes) -> bool:
    """Whether `data` is exactly one complete request, without any doubt."""
    end = data.find(b"\r\n\r\n") + 4
    found = _ANY_HEAD.fullmatch(data, 0, end - 2) if 4 <= end <= LONGEST_HEAD else None
    if found is None:
        return False
    names = [line.partition(b":")[0].lower() for line in found[1].split(b"\r\n") if line]
    if len(set(names)) != len(names) or not _FRAMING.isdisjoint(names):
        return False
    length = _LENGTH.search(found[1]) if b"content-length" in names else None
    return len(data) - end == (int(length[1]) if length is not None else 0)
