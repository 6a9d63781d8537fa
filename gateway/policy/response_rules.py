"""Filters a backend's answer for the app: its headers, and the target of a redirect."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from gateway.caches import cache_by_headers
from gateway.model import CanonicalRequest, Headers
from gateway.policy import paths
from gateway.policy.destinations import canonical_origin
from gateway.policy.headers import filter_response_headers, forbid_shared_caching
from gateway.policy.obligations import Obligations
from gateway.policy.policy import Policy
from gateway.policy.rules import METHODS, BackendSpec

_BASE: Final = re.compile(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?", re.ASCII)
_AUTHORITY: Final = re.compile(r"[\x21-\x7e]+")
_EMPTY_USER: Final = re.compile(r":?@")
_PORT: Final = re.compile(r":([0-9]*)\Z", re.ASCII)

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):", re.ASCII)
_PARTS: Final = re.compile(r"([^?#]*)(\?[^#]*)?", re.DOTALL)
_NO_VALUE: Final = re.compile(r"[\r\n\0]|[^\0-\xff]")
"""Characters that a header's value cannot have (RFC 9110 5.5)."""

_REMOVED: Final = str.maketrans("", "", "\t")
_EDGES: Final = "".join(map(chr, range(0x21)))
"""C0 controls and space, which are stripped at both ends."""

_NOT_IN_QUERY: Final = re.compile(r"[^\x21\x23-\x26\x28-\x3b\x3d\x3f-\x7e]")
_NOT_IN_PATH: Final = re.compile(r"[^\x21\x23-\x3b\x3d\x40-\x5d\x5f\x61-\x7a\x7e]")


def resolve(base: str, reference: str) -> str | None:
    """Resolve `reference` against `base` to an absolute URL in ASCII without fragment; None if it is no HTTP URL.

    `reference` is a header's value, one character per byte.
    """
    at = _BASE.fullmatch(base)
    if at is None or not reference or _NO_VALUE.search(reference):
        return None
    text = reference.strip(_EDGES).translate(_REMOVED)
    scheme = at[1]
    match = _SCHEME.match(text)
    if match is not None:
        scheme = match[1].lower()
        if scheme not in ("http", "https"):
            return None
        text = text[match.end() :]
    parts = _PARTS.match(text)
    path, query = (parts[1].replace("\\", "/"), parts[2]) if parts is not None else ("", None)
    if path.startswith("//") or scheme != at[1]:
        authority, slash, path = path.lstrip("/").partition("/")
        return _write(scheme, authority, slash + path or "/", query)
    if not path:
        return _write(scheme, at[2], at[3] or "/", at[4] if query is None else query)
    if not path.startswith("/"):
        path = f"{at[3].rpartition('/')[0]}/{path}"
    return _write(scheme, at[2], path, query)


def _write(scheme: str, authority: str, path: str, query: str | None) -> str | None:
    if (user := _EMPTY_USER.match(authority)) is not None:
        authority = authority[user.end() :]
    authority = _PORT.sub(_plain_port, authority)
    if not _AUTHORITY.fullmatch(authority):
        return None
    return f"{scheme}://{authority}{_NOT_IN_PATH.sub(_encode, path)}{_NOT_IN_QUERY.sub(_encode, query or '')}"


def _plain_port(port: re.Match[str]) -> str:
    """Write a port without leading zeros, and none behind a colon as none (URL Standard, "port state")."""
    return f":{port[1].lstrip('0') or '0'}" if port[1] else ""


def _encode(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"


_ABSOLUTE = re.compile(r"([A-Za-z]+)://([^/?#\\@]+)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.ASCII)


class RedirectTarget(NamedTuple):
    """The target of a redirect: a backend of the policy, and a URL relative to the app."""

    backend: str
    url: str


def leads_nowhere(policy: Policy, request: CanonicalRequest, location: str) -> bool:
    """Return whether `location` is no URL that `request` could be sent to (Fetch, HTTP-redirect fetch, steps 3 to 6).

    An empty one counts as outside the policy.
    """
    spec = policy.backends.get(request.backend)
    if not location or spec is None:
        return False
    url = resolve(spec.target(request), location)
    try:
        return url is None or urlsplit(url).port == 0
    except ValueError:  # no host, or no port
        return True


def redirect_location(policy: Policy, request: CanonicalRequest, location: str) -> RedirectTarget | None:
    """Resolve `location` against `request`; None if it is invalid or outside the policy's backends."""
    spec = policy.backends.get(request.backend)
    url = resolve(spec.target(request), location) if spec is not None else None
    match = _ABSOLUTE.fullmatch(url) if url is not None else None
    if spec is None or match is None:
        return None
    try:
        origin = canonical_origin(match[1], match[2])
        path = paths.canonical_path(match[3] or "/")
        query = paths.query_of_backend(match[4] or "")
    except ValueError:
        return None
    for candidate in (spec, *policy.backends.values()):
        inside = _inside(candidate, origin, path)
        if inside is not None:
            return RedirectTarget(candidate.name, f"{inside}?{query}" if query else inside)
    return None


def answer_headers(
    policy: Policy, request: CanonicalRequest, obligations: Obligations, headers: Headers, *, credentialed: bool
) -> Headers:
    """Return the headers of an answer for the app; `credentialed` if a credential or cookie jar was used."""
    confirmed = obligations.no_store
    fields, final = _allowed_headers(headers, obligations.response_headers, credentialed, confirmed)
    if final is not None:
        return final
    cookies = tuple(
        (name, value)
        for name, raw in fields
        if (value := location_for_app(policy, request, raw) if name == "location" else raw) is not None
    )
    return forbid_shared_caching(cookies, credentialed=credentialed, confirmed=confirmed)


@cache_by_headers
def _allowed_headers(
    headers: Headers, allowed: frozenset[str], credentialed: bool, confirmed: bool
) -> tuple[Headers, Headers | None]:
    """Return the allowed headers; and, without a `location`, the same with their final `cache-control`."""
    fields = filter_response_headers(headers, allowed)
    if any(name == "location" for name, _ in fields):
        return fields, None
    return fields, forbid_shared_caching(fields, credentialed=credentialed, confirmed=confirmed)


def location_for_app(policy: Policy, request: CanonicalRequest, location: str) -> str | None:
    """Return the location relative to the app, None if it is outside the app's routes."""
    location_found = redirect_location(policy, request, location)
    if location_found is None:
        return None
    path = location_found.url.partition("?")[0]
    deciding = (policy.routes.find(method, path, location_found.backend) for method in METHODS)
    inside = any(route is not None and route.deny is None for route in deciding)
    # A relative URL is unambiguous only with a single backend.
    reachable = policy.only_backend is not None or location_found.backend == request.backend
    return location_found.url if inside and reachable else None


def _inside(spec: BackendSpec, origin: str, path: str) -> str | None:
    prefix = spec.url.removeprefix(origin) if spec.url.startswith(origin) else None
    if prefix is not None and (not prefix or prefix.startswith("/")) and (path + "/").startswith(prefix + "/"):
        return path[len(prefix) :] or "/"
    return path if origin in spec.origins else None
