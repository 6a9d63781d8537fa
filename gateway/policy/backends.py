"""The `backends` of a policy file: where requests go, and which absolute URLs mean them."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from gateway.documents import Section
from gateway.model import Json
from gateway.policy import paths
from gateway.policy.canonical import canonical_origin
from gateway.policy.network import PUBLIC, Network, parse_network
from gateway.policy.rules import BackendSpec

_URL = re.compile(r"(https?)://([^/?#\\]+)([^?#]*)", re.ASCII | re.IGNORECASE)
_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_\-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_\-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9_\-]{0,63}", re.ASCII)
_COMMON_KEYS: Final = ("type", "url", "credential", "origins", "network")


def read_backends(top: Section) -> dict[str, BackendSpec]:
    """All backends of the file by name."""
    backends = {name: _backend(name, section) for name, section in top.named("backends").items()}
    owners: dict[str, str] = {}
    for spec in backends.values():
        for origin in spec.origins:
            if owners.setdefault(origin, spec.name) != spec.name:
                top.problem(f"{origin} is an origin of {owners[origin]} and of {spec.name}", "backends")
    return backends


def canonical_url(text: str) -> str:
    """The one form of an http or https URL without query, and without a slash at its end. Raises ValueError."""
    match = _URL.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text[:80]}" is not an http or https URL without query and fragment')
    origin = canonical_origin(match[1], match[2])
    _check_authority(origin.partition("://")[2], text)
    path = paths.canonical_path(match[3] or "/")
    if any(map(paths.is_ambiguous, path.split("/"))):
        raise ValueError(f'"{text[:80]}" has an ambiguous path')
    return origin + path.rstrip("/")


def parse_origin(text: str) -> str:
    """The one form of an origin, such as `https://www.example.com`. Raises ValueError."""
    url = canonical_url(text)
    if url.count("/") != 2 or text.endswith("/"):
        raise ValueError(
            f'"{text[:80]}" is not an origin: write scheme, host and port alone, such as https://example.com'
        )
    return url


def _backend(name: str, section: Section) -> BackendSpec:
    section.unavailable("cookies", "retry", "circuit")
    if not _NAME.fullmatch(name):
        section.problem(f'"{name[:40]}" is not a name (a-z, 0-9, _ and -, beginning with a letter)')
    type = section.text("type", "http")
    if type == "asgi":
        section.problem('"asgi" is not available in this version', "type")
    if type == "http":
        section.require("url")
    url = section.text("url")
    return BackendSpec(
        name=name,
        url=_url(section, url) if url or type == "http" else f"http://{name}.invalid",
        credential=section.text("credential") or None,
        origins=_origins(section),
        network=_network(section),
        type=type,
        options={} if type in ("http", "asgi") else _options(section),
    )


def _url(section: Section, text: str) -> str:
    try:
        return canonical_url(text) if text else ""
    except ValueError as error:
        section.problem(str(error), "url")
        return ""


def _origins(section: Section) -> tuple[str, ...]:
    found = []
    for text in section.texts("origins"):
        try:
            found.append(parse_origin(text))
        except ValueError as error:
            section.problem(str(error), "origins")
    return tuple(found)


def _network(section: Section) -> Network:
    node = section.get("network")
    if node is None:
        return PUBLIC
    words = (node.value,) if isinstance(node.value, str) else section.texts("network")
    try:
        network = parse_network(words)
    except ValueError as error:
        section.problem(str(error), "network")
        return PUBLIC
    if not words:
        section.problem("must name public, private, or blocks such as 10.0.0.0/8", "network")
    return network


def _options(section: Section) -> dict[str, Json]:
    keys = [key for key in section if key not in (*_COMMON_KEYS, "cookies", "retry", "circuit")]
    return {key: node.plain() for key in keys if (node := section.get(key)) is not None}


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
