"""Open connections of clients: so many from one address, so many in all."""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
from typing import Final

from gateway.bounds import Area, Bound
from gateway.callers.methods import Blocks
from gateway.callers.proxies import address_of, within
from gateway.doors.server_name import NAME
from gateway.doors.token_lookup_limits import subscriber
from gateway.shares import Shares

EACH: Final = 1000
"""Connections from one address where nothing is said."""

IN_ALL: Final = 10_000
"""Those of all."""

CONNECTIONS: Final = Bound(
    Area.DOORS,
    "connections of clients",
    f"`server.connections_each` ({EACH:,}) from one address (of IPv6 the first 64 bits), `server.connections` "
    f"({IN_ALL:,}) in all, three quarters of the files that the process may have open at most; a small share each once "
    "half of that is taken; this machine, `server.trusted_proxies` and the proxies of `auth` may have all",
    "503; the connection is closed",
)

BOUNDS: Final = (CONNECTIONS,)

_PROBLEM: Final = json.dumps(
    {
        "type": "urn:webmcp-gateway:too-many-connections",
        "title": "too many connections",
        "status": 503,
        "detail": "Too many connections are open, from this address or in all: see `server.connections_each` and "
        "`server.connections` in gateway.yaml. Name a reverse proxy in `server.trusted_proxies`.",
    }
).encode()

REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 5\r\n"
    b"connection: close\r\nserver: %b\r\ncontent-length: %d\r\n\r\n%b" % (NAME.encode(), len(_PROBLEM), _PROBLEM)
)
"""The answer to a connection beyond the limit, for any request."""


def peer_of(transport: asyncio.BaseTransport) -> str | None:
    """The address of the other end of a connection."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else str(peer) if peer is not None else None


class Peers:
    """The places of all connections. `near` are the addresses that many clients share: those of proxies."""

    def __init__(self, each: int = EACH, in_all: int = IN_ALL, near: Blocks = ()) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = in_all if soft == resource.RLIM_INFINITY else soft
        self._places = Shares(each, min(in_all, max(1, files * 3 // 4)))
        self._near = near
        self._alone = itertools.count()

    def take(self, remote: str | None) -> str | None:
        """A place for a connection from there, by what is to be given back; None where there is none.

        Behind a proxy the address tells nothing: each of its connections counts for itself.
        """
        address = address_of(remote)
        shared = address is None or address.is_loopback or within(address, self._near)
        owner = str(next(self._alone) if shared else subscriber(address))
        if self._places.take(owner):
            return owner
        CONNECTIONS.exceeded(client=str(address) if address is not None else None)
        return None

    def give(self, owner: str) -> None:
        """It is closed."""
        self._places.give(owner)
