"""Finds the client address behind proxies, trusting only what configured proxies report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

from gateway.callers.methods import Blocks, ClientHeader

Address: TypeAlias = IPv4Address | IPv6Address

HOPS = 32
"""Addresses examined, nearest first."""

_FOR = re.compile(r"""(?:^|[;,])\s*for=("(?:[^"\\]|\\.)*"|[^;,\s]*)""", re.IGNORECASE)
_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?|([0-9.]+)(?::\d{1,5})?|([0-9A-Fa-f:]+)", re.ASCII)


@lru_cache(maxsize=4096)
def address_of(text: str | None) -> Address | None:
    """Parse the address of a peer; None for a socket without one, or an invalid address."""
    try:
        address = ip_address((text or "").partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def within(address: Address | None, blocks: Blocks) -> bool:
    """Return whether an address is in one of the blocks."""
    return address is not None and any(address in block for block in blocks)


def client_of(
    peer: Address | None,
    forwarded: Sequence[str],
    x_forwarded: Sequence[str],
    trusted: Blocks,
    header: ClientHeader | None = None,
) -> Address | None:
    """Return the client's address: the nearest one that is no trusted proxy's, as each proxy reports the previous hop.

    `forwarded` and `x_forwarded` are the values of `Forwarded` (RFC 7239) and `X-Forwarded-For`; `header` is the one
    that the proxies write, and the other is ignored. None if a trusted proxy reports no valid address, or if it is
    unknown which one they write and the two name different clients: a proxy that writes one of them may pass on the
    other as the client wrote it.
    """
    listed = {
        ClientHeader.FORWARDED: _parse_forwarded(forwarded),
        ClientHeader.X_FORWARDED_FOR: _parse_list(x_forwarded),
    }
    hop_lists = [hops for name, hops in listed.items() if hops and header in (None, name)]
    if not within(peer, trusted) or not hop_lists:
        return peer
    named = {_last(hops, trusted) for hops in hop_lists} - {None}
    return named.pop() if len(named) == 1 else None


def _last(hops: Sequence[str], proxies: Blocks) -> Address | None:
    """Return the nearest address that is no trusted proxy's; None if there is none, or an invalid one in its place."""
    for hop in list(reversed(hops))[:HOPS]:
        address = _address(hop)
        if not within(address, proxies):
            return address
    return None


def is_here(remote: str | None, forwarded: Sequence[str], x_forwarded: Sequence[str]) -> bool:
    """Return whether the caller is on this machine: the peer is, and no forwarding header names another address.

    It is unknown which of the two fields a proxy writes, and the client may have sent the other: both count. A socket
    without an address is on this machine.
    """
    hops = [*_parse_forwarded(forwarded), *_parse_list(x_forwarded)]
    if forwarded and not _parse_forwarded(forwarded):
        return False
    addresses = [address_of(remote)] if remote else []
    addresses += [_address(hop) for hop in hops]
    return all(address is not None and address.is_loopback for address in addresses)


def _parse_forwarded(values: Iterable[str]) -> list[str]:
    return [match.strip('"') for match in _FOR.findall(",".join(values))]


def _parse_list(values: Iterable[str]) -> list[str]:
    return [entry.strip() for entry in ",".join(values).split(",") if entry.strip()]


def _address(hop: str) -> Address | None:
    match = _PORT.fullmatch(hop)
    return address_of(match[1] or match[2] or match[3]) if match is not None else None
