"""Takes the large body of an `http_request` out of its message before the SDK parses that in the event loop."""

from __future__ import annotations

import binascii
import codecs
import hashlib
import json
import re
import secrets
from typing import Any, Final

from starlette.requests import Request
from starlette.types import Scope

from gateway.contract import Handed, default_type
from gateway.mcp.envelope import TOOL
from gateway.model import BodyType

LONG: Final = 1024 * 1024
"""Size of a body in bytes from which it is taken out."""

_REST: Final = 64 * 1024
"""Bytes of the largest message around a body."""

_SLICE: Final = 1024 * 1024
"""Bytes decoded at a time, a multiple of four: other threads run in between."""

_CONTROL: Final = re.compile(rb"[\x00-\x1f]")
_TYPES: Final = frozenset((BodyType.BASE64, BodyType.TEXT, BodyType.URL_ENCODED))
_KEY: Final = "webmcp-gateway.apart"


def taken_out(message: bytes) -> tuple[bytes, Handed] | None:
    """Return the message with a placeholder for its large `body`, and the body; None if the message stays as it is.
    Slow: call it in a thread. A message with a missing or invalid body stays, so that the error is reported later.
    """
    start, end = -1, message.find(b'"')
    while 0 <= end < _REST and end - start <= LONG:
        start, end = end, message.find(b'"', end + 1)
    if end - start <= LONG or len(message) - (end - start) > _REST:
        return None
    word = secrets.token_hex(32)
    rest = b"".join((message[: start + 1], word.encode(), message[end:]))
    arguments = _arguments(rest)
    body_type = arguments.get("bodyType")
    body_type = BodyType.TEXT if body_type is None else body_type
    if arguments.get("body") != word or not isinstance(body_type, str) or body_type not in _TYPES:
        return None
    data = _read(memoryview(message)[start + 1 : end], body_type)
    if data is None:
        return None
    # A repeated call must have equal arguments, so the placeholder is the hash of the body.
    rest = rest.replace(word.encode(), hashlib.sha256(data).hexdigest().encode())
    return rest, Handed(data, default_type(BodyType(body_type)))


def keep(scope: Scope, handed: Handed) -> None:
    """Attach the body to the request that it was taken out of."""
    scope[_KEY] = handed


def kept(request: Request | None) -> Handed | None:
    """Return the body that was taken out of the message of `request`."""
    return request.scope.get(_KEY) if request is not None else None


def _arguments(message: bytes) -> dict[str, Any]:
    try:
        params = json.loads(message)["params"]
        arguments = params["arguments"] if params["name"] == TOOL else None
    except (ValueError, RecursionError, TypeError, LookupError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _read(text: memoryview, body_type: object) -> bytes | None:
    """Return the bytes of a JSON string without escapes; None if it is invalid, or no base64."""
    utf8 = codecs.getincrementaldecoder("utf-8")()
    parts: list[bytes] = []
    try:
        for start in range(0, len(text), _SLICE):
            piece = bytes(text[start : start + _SLICE])
            last = start + _SLICE >= len(text)
            if (
                b"\\" in piece
                or _CONTROL.search(piece)
                or (body_type == BodyType.BASE64 and not last and b"=" in piece)
            ):
                return None
            utf8.decode(piece, last)
            parts.append(binascii.a2b_base64(piece, strict_mode=True) if body_type == BodyType.BASE64 else piece)
    except ValueError:
        return None
    return b"".join(parts)
