"""Which header fields pass: of a request to the backend, and of an answer to the app."""

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
# The forbidden request headers of Fetch, and what proxies tell backends about the client and the host.
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
"""The values of `last-event-id`: the UTF-8 of any id that a stream gave, one character a byte (HTML, 9.2.2)."""

_HTMX = (
    *("location", "push-url", "redirect", "refresh", "replace-url", "reselect", "reswap", "retarget"),
    *("trigger", "trigger-after-settle", "trigger-after-swap"),
)
"""By these, behind `hx-`, a backend tells htmx what becomes of its answer."""

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
    """What of the app's headers goes out, names in lower case. Raises ValueError for what is no HTTP header field,
    for headers that change the method or the URL, for a compressed body, and for more than `MAX_FIELDS` or `MAX_BYTES`.
    """
    if len(headers) > MAX_FIELDS:
        raise ValueError(f"{len(headers)} headers: at most {MAX_FIELDS} are taken")
    kept: list[tuple[str, str]] = []
    nominated: set[str] = set()
    size = 0
    for name, value in headers:
        size += len(name) + len(value)
        passed = _request_name(name) if len(name) <= 128 else _request_name.__wrapped__(name)
        if not _VALUE.fullmatch(value) and not (passed == LAST_EVENT_ID and EVENT_ID.fullmatch(value)):
            raise ValueError(
                f"the value of the header {passed or name.lower()} has a character that HTTP does not allow"
            )
        if passed == "content-encoding" and value.strip(" \t").lower() not in ("", "identity"):
            raise ValueError("a compressed body cannot be decided on: send it without content-encoding")
        if passed is not None:
            kept.append((passed, value.strip(" \t")))
        elif name.lower() == "connection":
            nominated |= {token.strip().lower() for token in value.split(",")}
    if size > MAX_BYTES:
        raise ValueError(f"the headers are larger than {MAX_BYTES // 1024} KiB")
    if sum(name == "content-type" for name, _ in kept) > 1:
        raise ValueError("more than one content-type header: send one")
    return without(tuple(kept), nominated) if nominated else tuple(kept)


def is_field(name: str, value: str) -> bool:
    """Whether this can stand in a message (RFC 9110 5.1, 5.5)."""
    return _TOKEN.fullmatch(name) is not None and _VALUE.fullmatch(value) is not None


def without(headers: Headers, names: Collection[str]) -> Headers:
    """`headers` without `names` (lower case), nor their twins with `_` for `-`; for a header that we inject."""
    if not headers:
        return ()
    dropped = {_hyphened(name) for name in names}
    return tuple([field for field in headers if _hyphened(field[0]) not in dropped])


def filter_response_headers(headers: Headers, allowed: frozenset[str] = DEFAULT_RESPONSE) -> Headers:
    """What of a backend's headers an app may see: those in `allowed`, never what only concerns the connection.

    A field that is no HTTP header field is dropped. `location` is the caller's to check.
    """
    return tuple(
        [
            (lowered, value)
            for name, value in headers
            if (lowered := name.lower()) in allowed and not never_in_response(lowered) and _VALUE.fullmatch(value)
        ]
    )


@lru_cache(maxsize=512)
def never_in_response(name: str) -> bool:
    """Whether the header `name` (lower case) is kept from apps whatever a policy says."""
    return name in NEVER_IN_RESPONSE or name.startswith(_NEVER_PREFIXES) or not _TOKEN.fullmatch(name)


def private_caching(headers: Headers, *, credentialed: bool, confirmed: bool) -> Headers:
    """`cache-control` as it may leave a door: nothing for shared caches, and nothing stored of what was confirmed."""
    others = tuple([field for field in headers if field[0] != "cache-control"])
    if confirmed:
        return (*others, ("cache-control", "no-store"))
    if credentialed:
        return (*others, ("cache-control", "private, no-cache"))
    directives = (part for name, value in headers if name == "cache-control" for part in value.split(","))
    kept = ", ".join(part.strip() for part in directives if part.strip() and not _SHARED_CACHE.fullmatch(part))
    return (*others, ("cache-control", kept)) if kept else others


@lru_cache(maxsize=512)
def _request_name(name: str) -> str | None:
    if not _TOKEN.fullmatch(name):
        raise ValueError(f"{name[:40]!r} is not a header name")
    lowered = name.lower()
    meant = _hyphened(lowered)
    if meant in _OVERRIDES:
        raise ValueError(f"the header {lowered} is refused: send the method and the URL that you mean")
    # with "_" it is the twin of a name with "-": many servers read both as one, and a condition sees only the other
    return None if "_" in lowered or meant in _DROPPED or meant.startswith(_DROPPED_PREFIXES) else lowered


def _hyphened(name: str) -> str:
    return name.lower().replace("_", "-")
