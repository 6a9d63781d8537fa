"""Large bodies outside the frames: `params` or `result` of a message is sent by HTTP and named `{"$body": id}`.

The sender of a large message calls `split_body`, uploads or offers the text under `/bridge/bodies/<id>`, then sends the
message that names it; the receiver gets the text and calls `join_body`. A value of the page that itself has the form
`{"$body": id}` is always split, however short, so that a page cannot name a body that it did not send.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gateway.errors import MuxError
from gateway.jsontext.sizes import nests_deeper
from gateway.jsontext.writing import compact_portable, write_pieces
from gateway.model import Json
from gateway.mux.frames import parse_json

BODY_LIMIT = 256 * 1024
"""Bytes of UTF-8 above which `params` or `result` is sent as a separate body."""

_ID = re.compile(r"[A-Za-z0-9_-]{22,64}")


def is_large(message: Mapping[str, Json]) -> bool:
    """Return whether this message must be split before it is sent."""
    place = _place(message)
    if place is None:
        return False
    value = message[place]
    return _is_name(value) or (
        not nests_deeper(value) and sum(len(text.encode()) for text in _texts(value)) > BODY_LIMIT
    )


def split_body(message: Mapping[str, Json], body: str) -> tuple[dict[str, Json], str]:
    """Return the message that names the body `body` (22 to 64 characters of base64url), and its JSON text."""
    place = _place(message)
    if place is None or not _ID.fullmatch(body):
        raise ValueError("a message with params or result, and an id of base64url")
    return {**message, place: {"$body": body}}, "".join(_texts(message[place]))


def named_body(message: Mapping[str, Json]) -> str | None:
    """Return the id of the body that this message names, or None. Raises MuxError `bad-message` for an invalid id."""
    place = _place(message)
    value = message[place] if place else None
    if not isinstance(value, dict) or not _is_name(value):
        return None
    body = value["$body"]
    if not isinstance(body, str) or not _ID.fullmatch(body):
        raise MuxError("bad-message", "$body: an id of base64url")
    return body


def join_body(message: Mapping[str, Json], text: str) -> dict[str, Json]:
    """Return the whole message. Raises MuxError `bad-json` or `bad-message` if the text is not a JSON object."""
    place = _place(message)
    value = parse_json(text)
    if place is None or not isinstance(value, dict):
        raise MuxError("bad-message", "a body is a JSON object, and stands for params or result")
    return {**message, place: value}


def _texts(value: Json) -> Iterator[str]:
    """Yield its JSON in pieces: in a thread, a long one lets the event loop run in between."""
    return write_pieces(value, compact_portable)


def _place(message: Mapping[str, Json]) -> str | None:
    return next((name for name in ("params", "result") if name in message), None)


def _is_name(value: Json) -> bool:
    return isinstance(value, dict) and value.keys() == {"$body"}
