"""Validates the header fields of a backend's response, and removes those of the connection."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from gateway.backends.codings import is_coded
from gateway.errors import Reason, Refusal
from gateway.model import Headers, Response
from gateway.policy.headers import HOP_BY_HOP

FRAMING: Final = HOP_BY_HOP | {"content-length", "expect", "host"}
"""Fields of one connection (RFC 9110 7.6.1) or of message framing; each side writes its own."""

NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}\Z")
_PHRASE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\Z")

_QUIET: Final = 86_400.0
"""Seconds for which an event stream may be silent: browsers do not end one for that."""


def parse_fields(raw: Iterable[tuple[bytes, bytes]], backend: str) -> Headers:
    """Return names in lower case, values as Latin-1 (Fetch, "isomorphic decode"), so that no browser refuses them.

    Raises `Refusal` (`backend-protocol`) for an invalid header field.
    """
    fields = tuple(raw)
    for name, value in fields:
        if not NAME.match(name) or not _VALUE.match(value):
            raise Refusal(Reason.BACKEND_PROTOCOL, f"backend {backend!r} sent a broken header field")
        if name.lower() == b"transfer-encoding" and value.strip(b" \t").lower() != b"chunked":
            raise Refusal(Reason.BACKEND_PROTOCOL, f"backend {backend!r} sent a body in a way that is not chunked")
    return without_framing(tuple((name.decode("ascii").lower(), value.decode("latin-1")) for name, value in fields))


def length_is_of_body(method: str, status: int) -> bool:
    """Return whether the content length in a head is that of a body behind it (RFC 9110 8.6)."""
    return method != "HEAD" and status != HTTPStatus.NOT_MODIFIED


def declared_length(raw: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Return the content length of the body that follows, or that a response to HEAD omits (RFC 9110 8.6).

    None if it is not a single number, or the body is coded: it is passed on decoded.
    """
    lengths: list[bytes] = []
    coded: list[str] = []
    for name, value in raw:
        match name.lower():
            case b"content-length":
                lengths.append(value.strip(b" \t"))
            case b"content-encoding":
                coded.append(value.decode("latin-1"))
            case b"transfer-encoding":
                return None
            case _:
                pass
    if coded and is_coded(", ".join(coded)):
        return None
    return int(lengths[0]) if len(lengths) == 1 and _LENGTH.match(lengths[0]) else None


def kept_length(method: str, length: int | None) -> int | None:
    """Return the content length that is kept beside a whole body: that of a HEAD response, and 0."""
    return length if method == "HEAD" or length == 0 else None


def without_framing(headers: Headers) -> Headers:
    """Return the fields without those of the connection, by name or by the `connection` field."""
    named = [value for name, value in headers if name == "connection"]
    hop = FRAMING.union(*map(_tokens, named)) if named else FRAMING
    return tuple([pair for pair in headers if pair[0] not in hop])


def without_coding(headers: Headers) -> Headers:
    """Return the fields of a decoded body."""
    return tuple([pair for pair in headers if pair[0] != "content-encoding"])


def response_head(
    status: int,
    headers: Headers,
    reason: str | None,
    backend: str,
    body: bytes = b"",
    length: int | None = None,
) -> Response:
    """Return the response, with its body or without it yet; `headers` are those of the decoded body.

    Raises `Refusal` (`backend-protocol`) for a status outside 200 to 599.
    """
    if not 200 <= status <= 599:
        raise Refusal(Reason.BACKEND_PROTOCOL, f"backend {backend!r} answered with status {status}")
    return Response(
        status=status,
        headers=headers,
        body=body,
        reason_phrase=reason if reason and _PHRASE.match(reason) else "",
        length=length,
    )


def silence_timeout(answer: Response, timeout: float) -> float:
    """Return the seconds that the backend has for the next part of a response."""
    return max(timeout, _QUIET) if answer.says_by_and_by() else timeout


def content_encoding(headers: Headers) -> str:
    """Return the `content-encoding` of a response."""
    return ", ".join(value for name, value in headers if name == "content-encoding")


def _tokens(value: str) -> list[str]:
    return [token.strip().lower() for token in value.split(",")]
