"""The bytes of a request as browsers send them: exactly one request, and the fields that aiohttp's parser rejects."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from gateway.model import Headers

_ESCAPED: Final = "webmcp-gateway-event-id"
_EVENT_STREAM: Final = b"text/event-stream"
_CONTROLS: Final = re.compile(
    rb"(?i)(?<=\r\n)last-event-id:([^\r\n\0]*[\x01-\x08\x0b\x0c\x0e-\x1f\x7f][^\r\n\0]*)(?=\r\n)"
)
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")


def escape_ids(data: bytes) -> bytes:
    """Return `data`, the beginning of a request, with the id in hexadecimal if aiohttp could not parse it."""
    if not data.startswith(b"GET ") or _EVENT_STREAM not in data:
        return data
    end = data.find(b"\r\n\r\n") + 2  # of the last field's line
    return _CONTROLS.sub(_in_hex, data[:end], count=1) + data[end:]


def _in_hex(found: re.Match[bytes]) -> bytes:
    return f"{_ESCAPED}: ".encode() + found[1].strip(b" \t").hex().encode()


def received_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return names in lower case, values as Latin-1 (Fetch, "isomorphic decode"), the id as the browser sent it."""
    return tuple(_field(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw)


def _field(name: str, value: str) -> tuple[str, str]:
    if name == _ESCAPED and _HEX.fullmatch(value):
        return "last-event-id", bytes.fromhex(value).decode("latin-1")
    return name, value


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
