"""The fields of a backend's answer: what a message may hold, and what of it belongs to the connection alone."""

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
"""Fields that belong to one connection (RFC 9110 7.6.1) or frame a message; each side writes its own."""

NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}\Z")
_PHRASE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*\Z")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\Z")

_QUIET: Final = 86_400.0
"""Seconds for which an event stream may say nothing: browsers end none for that."""


def received(raw: Iterable[tuple[bytes, bytes]], backend: str) -> Headers:
    """Names in lower case, values as Latin-1 (Fetch, "isomorphic decode"), so that no browser refuses them.

    Raises `Refusal` (`backend-protocol`) for what is no header field.
    """
    fields = tuple(raw)
    for name, value in fields:
        if not NAME.match(name) or not _VALUE.match(value):
            raise Refusal(Reason.BACKEND_PROTOCOL, f"backend {backend!r} sent a broken header field")
        if name.lower() == b"transfer-encoding" and value.strip(b" \t").lower() != b"chunked":
            raise Refusal(Reason.BACKEND_PROTOCOL, f"backend {backend!r} sent a body in a way that is not chunked")
    return without_framing(tuple((name.decode("ascii").lower(), value.decode("latin-1")) for name, value in fields))


def follows(method: str, status: int) -> bool:
    """Whether the length that a head tells is that of a body behind it (RFC 9110 8.6)."""
    return method != "HEAD" and status != HTTPStatus.NOT_MODIFIED


def length_told(raw: Iterable[tuple[bytes, bytes]]) -> int | None:
    """What a head says of the body that follows, or that an answer to HEAD leaves out (RFC 9110 8.6).

    None where that is not one number, and where the body is coded: it is given decoded.
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


def length_kept(method: str, told: int | None) -> int | None:
    """What stays of it beside a whole body: what HEAD leaves out, and that there is nothing."""
    return told if method == "HEAD" or told == 0 else None


def without_framing(headers: Headers) -> Headers:
    """The fields that do not belong to the connection alone, by their own or the message's word."""
    named = [value for name, value in headers if name == "connection"]
    hop = FRAMING.union(*map(_tokens, named)) if named else FRAMING
    return tuple([pair for pair in headers if pair[0] not in hop])


def head(
    status: int,
    headers: Headers,
    reason: str | None,
    backend: str,
    body: bytes = b"",
    length: int | None = None,
) -> Response:
    """An answer, its body given or still to come.

    Raises `Refusal` (`backend-protocol`) for a status outside 200 to 599.
    """
    if not 200 <= status <= 599:
        raise Refusal(Reason.BACKEND_PROTOCOL, f"backend {backend!r} answered with status {status}")
    return Response(
        status=status,
        headers=tuple([pair for pair in headers if pair[0] != "content-encoding"]),
        body=body,
        reason_phrase=reason if reason and _PHRASE.match(reason) else "",
        length=length,
    )


def silence(answer: Response, timeout: float) -> float:
    """Seconds that the backend has for the next part of an answer."""
    return max(timeout, _QUIET) if answer.says_by_and_by() else timeout


def coding(headers: Headers) -> str:
    """The `content-encoding` of an answer."""
    return ", ".join(value for name, value in headers if name == "content-encoding")


def _tokens(value: str) -> list[str]:
    return [token.strip().lower() for token in value.split(",")]
