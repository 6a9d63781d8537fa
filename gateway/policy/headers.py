"""Filters header fields: of a request to the backend, and of an answer to the app."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final

from gateway.model import Headers

MAX_FIELDS: Final = 100
MAX_BYTES: Final = 32 * 1024

HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OVERRIDES: Final = frozenset(
    {
        "x-http-method",
        "x-http-method-override",
        "x-method-override",
        "x-original-method",
        "x-original-url",
        "x-original-uri",
        "x-rewrite-url",
    }
)
# Fetch's forbidden request headers, and the headers in which proxies describe client and host.
_DROPPED: Final = HOP_BY_HOP | {
    "accept-charset",
    "accept-encoding",
    "access-control-request-headers",
    "access-control-request-method",
    "access-control-request-private-network",
    "authorization",
    "cf-connecting-ip",
    "client-ip",
    "content-length",
    "cookie",
    "cookie2",
    "date",
    "dnt",
    "expect",
    "forwarded",
    "front-end-https",
    "gateway-pending",
    "gateway-reason",
    "host",
    "http2-settings",
    "origin",
    "referer",
    "set-cookie",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-host",
    "x-original-host",
    "x-real-ip",
}
_DROPPED_PREFIXES: Final = ("proxy-", "sec-", "x-forwarded", "webmcp-gateway-")

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
LAST_EVENT_ID: Final = "last-event-id"
EVENT_ID: Final = re.compile(r"[\x01-\x09\x0b\x0c\x0e-\xff]*")
"""The values of `last-event-id`: the UTF-8 of any event id, one character per byte (HTML, 9.2.2)."""

_HTMX = (
    *("location", "push-url", "redirect", "refresh", "replace-url", "reselect", "reswap", "retarget"),
    *("trigger", "trigger-after-settle", "trigger-after-swap"),
)
"""Response headers of htmx, without `hx-`."""

DEFAULT_RESPONSE: Final = frozenset(
    {
        "accept-ranges",
        "allow",
        "cache-control",
        "content-disposition",
        "content-language",
        "content-range",
        "content-type",
        "etag",
        *(f"hx-{name}" for name in _HTMX),
        "last-modified",
        "link",
        "location",
        "ratelimit",
        "ratelimit-limit",
        "ratelimit-policy",
        "ratelimit-remaining",
        "ratelimit-reset",
        "retry-after",
        "vary",
        "x-total-count",
    }
)
NEVER_IN_RESPONSE: Final = HOP_BY_HOP | {
    "content-encoding",
    "content-length",
    "gateway-pending",
    "gateway-reason",
    "set-cookie",
    "set-cookie2",
}
_NEVER_PREFIXES: Final = ("cdn-", "surrogate-", "proxy-", "webmcp-gateway-")
_SHARED_CACHE = re.compile(r"\s*(?:public|s-maxage|cdn-[a-z-]*|surrogate-[a-z-]*)\s*(?:=.*)?", re.IGNORECASE)


def filter_request_headers(headers: Headers) -> Headers:
    """Return the headers to send, names in lower case.

    Raises ValueError for an invalid header field, for headers that change the method or the URL, for a compressed body,
    and for more than `MAX_FIELDS` or `MAX_BYTES`.
    """
    if len(headers) > MAX_FIELDS:
        raise ValueError(f"{len(headers)} headers: at most {MAX_FIELDS} are taken")
    fields: list[tuple[str, str]] = []
    names: set[str] = set()
    size = 0
    for name, value in headers:
        size += len(name) + len(value)
        result = _request_name(name) if len(name) <= 128 else _request_name.__wrapped__(name)
        if not _VALUE.fullmatch(value) and not (result == LAST_EVENT_ID and EVENT_ID.fullmatch(value)):
            raise ValueError(
                f"the value of the header {result or name.lower()} has a character that HTTP does not allow"
            )
        if result == "content-encoding" and value.strip(" \t").lower() not in ("", "identity"):
            raise ValueError("a compressed body cannot be decided on: send it without content-encoding")
        if result is not None:
            fields.append((result, value.strip(" \t")))
        elif name.lower() == "connection":
            names |= {token.strip().lower() for token in value.split(",")}
    if size > MAX_BYTES:
        raise ValueError(f"the headers are larger than {MAX_BYTES // 1024} KiB")
    if sum(name == "content-type" for name, _ in fields) > 1:
        raise ValueError("more than one content-type header: send one")
    return without(tuple(fields), names) if names else tuple(fields)


def is_field(name: str, value: str) -> bool:
    """Return whether it is a valid header field (RFC 9110 5.1, 5.5)."""
    return _TOKEN.fullmatch(name) is not None and _VALUE.fullmatch(value) is not None


def without(headers: Headers, names: Collection[str]) -> Headers:
    """Return `headers` without `names` (lower case) and their variants with `_` for `-`; for an injected header."""
    if not headers:
        return ()
    hidden_names = {_hyphenate(name) for name in names}
    return tuple([field for field in headers if _hyphenate(field[0]) not in hidden_names])


def filter_response_headers(headers: Headers, allowed: frozenset[str] = DEFAULT_RESPONSE) -> Headers:
    """Return the headers of an answer that an app may see: those in `allowed`, never connection headers.

    Invalid header fields are dropped. The caller must check `location`.
    """
    return tuple(
        [
            (lower_name, value)
            for name, value in headers
            if (lower_name := name.lower()) in allowed and not never_in_response(lower_name) and _VALUE.fullmatch(value)
        ]
    )


@lru_cache(maxsize=512)
def never_in_response(name: str) -> bool:
    """Return whether the header `name` (lower case) is hidden from apps under every policy."""
    return name in NEVER_IN_RESPONSE or name.startswith(_NEVER_PREFIXES) or not _TOKEN.fullmatch(name)


def forbid_shared_caching(headers: Headers, *, credentialed: bool, confirmed: bool) -> Headers:
    """Return the headers with a `cache-control` that keeps shared caches out, and stores nothing that was confirmed."""
    others = tuple([field for field in headers if field[0] != "cache-control"])
    if confirmed:
        return (*others, ("cache-control", "no-store"))
    if credentialed:
        return (*others, ("cache-control", "private, no-cache"))
    directives = (part for name, value in headers if name == "cache-control" for part in value.split(","))
    directives_left = ", ".join(
        part.strip() for part in directives if part.strip() and not _SHARED_CACHE.fullmatch(part)
    )
    return (*others, ("cache-control", directives_left)) if directives_left else others


@lru_cache(maxsize=512)
def _request_name(name: str) -> str | None:
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name[:40]!r} is not a header name")
    lower_name = name.lower()
    hyphen_name = _hyphenate(lower_name)
    if hyphen_name in _OVERRIDES:
        raise ValueError(f"the header {lower_name} is refused: send the method and the URL that you mean")
    # "_" imitates "-": many servers treat both alike, and a condition sees only one
    return (
        None
        if "_" in lower_name or hyphen_name in _DROPPED or hyphen_name.startswith(_DROPPED_PREFIXES)
        else lower_name
    )


def _hyphenate(name: str) -> str:
    return name.lower().replace("_", "-")
