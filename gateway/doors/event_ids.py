"""Header fields as browsers send them: a `Last-Event-ID` may have control characters, which aiohttp's parser rejects.
Such an id (HTML, 9.2.2) is therefore passed through the parser in hexadecimal, in a private field.
"""

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
