"""Recognises data that is exactly one HTTP/1.1 request, for every parser that follows RFC 9112."""

from __future__ import annotations

import re
from typing import Final

HEAD_END: Final = b"\r\n\r\n"
"""The end of a head."""

_HEAD: Final = re.compile(
    rb"(?!CONNECT )[A-Z]{3,7} [\x21-\x7e]+ HTTP/1\.1\r\n"
    rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}:[\t\x20-\x7e\x80-\xff]*\r\n)+)\Z"
)
_LENGTH: Final = re.compile(rb"(?i)(?:^|\n)content-length: ?([0-9]{1,7})\r\n")
_ELSEWHERE: Final = re.compile(rb"(?i)(?:^|\n)(?:transfer-encoding|upgrade|expect):")
"""Fields with which the end of a request depends on more than its length."""


def is_one_request(data: bytes) -> bool:
    """Whether `data` is exactly one request: the next byte begins another. False if in doubt."""
    end = data.find(HEAD_END) + 4
    found = _HEAD.match(data[: end - 2]) if end >= 4 else None
    if found is None or _ELSEWHERE.search(found[1]):
        return False
    length, declared = _LENGTH.search(found[1]), found[1].lower().count(b"content-length:")
    if declared != (length is not None):
        return False
    return len(data) - end == (int(length[1]) if length is not None else 0)
