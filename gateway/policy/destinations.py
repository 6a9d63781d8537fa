"""The destinations of requests: canonical origins and URLs of backends, and the addresses that may be connected to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, TypeAlias

from gateway.policy import paths

Address: TypeAlias = IPv4Address | IPv6Address
Block: TypeAlias = IPv4Network | IPv6Network


def _blocks(*texts: str) -> tuple[Block, ...]:
    return tuple(ip_network(text) for text in texts)


_PRIVATE: Final = _blocks(
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "100.64.0.0/10", "::1/128", "fc00::/7"
)
_EXACT: Final = _blocks(
    "169.254.0.0/16",
    "fe80::/10",
    "100.100.100.200/32",  # Alibaba Cloud
    "168.63.129.16/32",  # Azure
    "192.0.0.192/32",  # Oracle Cloud
    "fd00:ec2::/32",  # AWS
    "fd20:ce::/32",  # Google Cloud
    "64:ff9b:1::/48",  # local NAT64: the position of the IPv4 address is unknown
    "2001::/32",  # Teredo
)
_NOT_PUBLIC: Final = _blocks(
    "0.0.0.0/8",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
)
_GLOBAL_IPV6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")


@dataclass(frozen=True, slots=True)
class Network:
    """Addresses that may be connected to, by default none, and a file of certificate authorities to trust there.

    The file counts in addition to the system's authorities.
    """

    public: bool = False
    private: bool = False
    blocks: tuple[Block, ...] = ()
    authorities: str | None = None

    def allows(self, ip: str) -> bool:
        """Return whether a connection to `ip` is allowed. An address in an unusual form is not."""
        try:
            address = ip_address(ip)
        except ValueError:
            return False
        return self._allows(_without_zone(address))

    def _allows(self, address: Address) -> bool:
        if isinstance(address, IPv6Address):
            if address.ipv4_mapped is not None:
                return self._allows(address.ipv4_mapped)
            inner = _translate(address)
            if inner is not None:
                opened = self.private or self._is_listed(address) or self._is_listed(inner)
                return opened and self._allows(inner)
        if address.is_multicast or address.is_unspecified:
            return False
        if _within(address, _EXACT):
            return self._is_listed_exactly(address)
        return (
            (self.public and _is_public(address))
            or (self.private and _within(address, _PRIVATE))
            or self._is_listed(address)
        )

    def _is_listed(self, address: Address) -> bool:
        return _within(address, self.blocks)

    def _is_listed_exactly(self, address: Address) -> bool:
        return any(block.num_addresses == 1 and address in block for block in self.blocks)


PUBLIC: Final = Network(public=True)


def parse_network(words: Iterable[str]) -> Network:
    """Parse `public`, `private` and blocks such as `10.0.0.0/8` or `10.1.2.3`. Raises ValueError."""
    public = private = False
    blocks: list[Block] = []
    for word in words:
        if word == "public":
            public = True
        elif word == "private":
            private = True
        else:
            blocks.append(_block(word))
    return Network(public, private, tuple(blocks))


def _block(word: str) -> Block:
    try:
        block = ip_network(word)
    except ValueError as error:
        raise ValueError(f'"{word}" is not public, private, or a block such as 10.0.0.0/8 ({error})') from None
    if isinstance(block, IPv6Network) and block.network_address.ipv4_mapped is not None:
        raise ValueError(f'"{word}" is an IPv4-mapped block: write the IPv4 block')
    return block


def _within(address: Address, blocks: Iterable[Block]) -> bool:
    return any(address in block for block in blocks)


def _is_public(address: Address) -> bool:
    if _within(address, _PRIVATE) or _within(address, _NOT_PUBLIC):
        return False
    return address in _GLOBAL_IPV6 if isinstance(address, IPv6Address) else True


def _translate(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        return IPv4Address((int(address) >> 80) & 0xFFFFFFFF)
    return None


def _without_zone(address: Address) -> Address:
    return IPv6Address(int(address)) if isinstance(address, IPv6Address) and address.scope_id else address


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
            f'"{without_userinfo(text)}" is not an http or https URL without query and fragment, such as https://api.example.com'
        )
    if "@" in match[2]:
        raise ValueError(f'"{without_userinfo(text)}" has a user or a password: leave it out, and name a credential')
    origin = canonical_origin(match[1], match[2])
    _check_authority(origin.partition("://")[2], text)
    path = paths.canonical_path(match[3] or "/")
    if any(map(paths.is_ambiguous, path.split("/"))):
        raise ValueError(f'"{text[:80]}" has an ambiguous path')
    return origin + path.rstrip("/")


def without_userinfo(text: str) -> str:
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
