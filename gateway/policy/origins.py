"""Canonical origins and URLs of backends."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from gateway.policy import paths

_URL = re.compile(r"(https?)://([^/?#\\]+)([^?#]*)", re.ASCII | re.IGNORECASE)
_USER = re.compile(r"(?<=//)[^/?#]*@")
_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_\-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_\-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.ASCII)
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}


def canonical_origin(scheme: str, authority: str) -> str:
    """Return scheme, host and port in lower case, without the scheme's default port."""
    scheme = scheme.lower()
    return f"{scheme}://{authority.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ':'))}"


def canonical_url(text: str) -> str:
    """Return the canonical http or https URL without query and trailing slash. Raises ValueError."""
    match = _URL.fullmatch(text)
    if match is None:
        raise ValueError(
            f'"{shown(text)}" is not an http or https URL without query and fragment, such as https://api.example.com'
        )
    if "@" in match[2]:
        raise ValueError(f'"{shown(text)}" has a user or a password: leave it out, and name a credential')
    origin = canonical_origin(match[1], match[2])
    _check_authority(origin.partition("://")[2], text)
    path = paths.canonical_path(match[3] or "/")
    if any(map(paths.is_ambiguous, path.split("/"))):
        raise ValueError(f'"{text[:80]}" has an ambiguous path')
    return origin + path.rstrip("/")


def shown(text: str) -> str:
    """Return a URL for a message, without user and password."""
    return _USER.sub("…@", text)[:80]


def parse_origin(text: str) -> str:
    """Return the canonical origin, such as `https://www.example.com`. Raises ValueError."""
    url = canonical_url(text)
    if url.count("/") != 2 or text.endswith("/"):
        raise ValueError(
            f'"{text[:80]}" is not an origin: write scheme, host and port alone, such as https://example.com'
        )
    return url


def _check_authority(authority: str, text: str) -> None:
    host, port = authority, ""
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        port = rest.removeprefix(":")
        valid = _is_ipv6(host) and bool(bracket) and (not rest or rest.startswith(":"))
    else:
        host, colon, port = authority.partition(":")
        valid = (
            _HOST.fullmatch(host) is not None and len(host) <= 253 and (not _NUMERIC.fullmatch(host) or _is_ipv4(host))
        )
        valid = valid and (not colon or bool(port))
    if not valid or (port and not (port.isdigit() and port.isascii() and 0 < int(port) < 65536)):
        raise ValueError(f'"{text[:80]}" has no valid host and port (a name in ASCII, an address in its usual form)')


def _is_ipv6(host: str) -> bool:
    try:
        return IPv6Address(host).scope_id is None
    except AddressValueError:
        return False


def _is_ipv4(host: str) -> bool:
    try:
        IPv4Address(host)
    except AddressValueError:
        return False
    return True
