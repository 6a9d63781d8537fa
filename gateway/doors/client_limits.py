"""Limits on clients: connections, requests in flight, unread answers, slow bodies, and failed look-ups of tokens."""

from __future__ import annotations

import asyncio
import itertools
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final, TypeAlias

from aiohttp import web

from gateway.bounds import Area, Bound, Shares, size
from gateway.callers.methods import Blocks
from gateway.callers.proxies import Address, address_of, within
from gateway.doors.bridge.uploads import ROOM, ROOM_EACH
from gateway.doors.responses import NAME, RefusedResponse, refusal_response
from gateway.jsontext.writing import plain_json
from gateway.model import Principal
from gateway.policy import Rate, take
from gateway.ports.limits import Attempts
from gateway.token_buckets import Buckets

WRONG: Final = Rate(300, 60.0)
"""Failed look-ups of one address; a valid token costs nothing, and a cached one needs no look-up.
Without this limit strangers could guess tokens at the issuer through the gateway (RFC 7662 4).
"""

EACH: Final = 256
"""Addresses of one network (the first 48 bits of IPv6, 24 of IPv4) that are counted separately."""

IN_ALL: Final = 65_536
"""Addresses that are counted separately in all."""

_WRONG: Final = Bound(
    Area.DOORS,
    "look-ups of invalid opaque tokens and login codes at an issuer",
    f"{WRONG.count} in {WRONG.period:g} s per address (of IPv6 the first 64 bits)",
    "429 for tokens that are not cached as valid",
)
_ADDRESSES: Final = Bound(
    Area.DOORS,
    "addresses with counted invalid tokens",
    f"{EACH} per network (the first 48 bits of IPv6, 24 of IPv4), {IN_ALL:,} in all",
    "further addresses of that network, or of all, share one count",
)

Counted: TypeAlias = tuple[int, int]
"""The version and the first bits of an address, or of the network that is counted instead."""

_ALL: Final[Counted] = (0, 0)


class LookupLimits:
    """The rate limiter of failed look-ups. `clock` is monotonic, in seconds.

    Several processes count together in `attempts`, under the name `of`.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, attempts: Attempts | None = None, of: str = "tokens"
    ) -> None:
        self._clock = clock
        self._attempts = attempts
        self._of = of
        self._buckets = Buckets[Counted](EACH, IN_ALL)

    def __len__(self) -> int:
        """Return the number of counted addresses and networks."""
        return len(self._buckets)

    async def take(self, address: Address | None) -> Counted | None:
        """Count a look-up, and return its key; None beyond the limit."""
        counted = self._take(address)
        if counted is None or self._attempts is None or await self._attempts.take(self._name(counted), WRONG):
            return counted
        _WRONG.report()
        return None

    def _name(self, counted: Counted) -> str:
        return f"{self._of} {counted[0]} {counted[1]}"

    def _take(self, address: Address | None) -> Counted | None:
        now, key, owner = self._clock(), subscriber(address), None
        if key not in self._buckets.tats:
            own, network = key, _network(key)
            key = self._buckets.place(own, str(network), network if len(self._buckets) < IN_ALL else _ALL, now)
            owner = str(network) if key is own else None
            if owner is None:
                _ADDRESSES.report()
        result = take(self._buckets.tats.get(key, 0.0), now, WRONG)
        self._buckets.put(key, result.tat, now, owner)
        if not result.allowed:
            _WRONG.report()
            return None
        return key

    def give_back(self, count: Counted) -> None:
        """Undo the count of a look-up that succeeded."""
        self._buckets.give_back(count, WRONG.period / WRONG.count)
        if self._attempts is not None:
            self._attempts.give_back(self._name(count), WRONG)


@dataclass(slots=True)
class Lookup:
    """One caller, whose look-ups at several issuers count once."""

    guesses: LookupLimits
    address: Callable[[], Address | None]
    counted: Counted | None = None
    refused: bool = False

    async def may_ask(self) -> bool:
        """Return whether an issuer may be asked about the token."""
        if self.counted is None and not self.refused:
            self.counted = await self.guesses.take(self.address())
            self.refused = self.counted is None
        return self.counted is not None

    def right(self) -> None:
        """Undo the count, as an issuer knew the token."""
        if self.counted is not None:
            self.guesses.give_back(self.counted)


def subscriber(address: Address | None) -> Counted:
    """Return the counting key: for IPv6 the first 64 bits, which one subscriber has."""
    if isinstance(address, IPv6Address):
        return 6, int(address) >> 64
    return 4, int(address) if address is not None else -1


def _network(count: Counted) -> Counted:
    """Return the network of an address, as large as one subscriber may have."""
    version, bits = count
    return (48, bits >> 16) if version == 6 else (24, bits >> 8)


MOST_EACH: Final = 1000
"""Default limit of connections from one address."""

MOST: Final = 10_000
"""Default limit of all connections."""

CONNECTIONS: Final = Bound(
    Area.DOORS,
    "client connections",
    f"`server.connections_each` ({MOST_EACH:,}) from one address (of IPv6 the first 64 bits), `server.connections` "
    f"({MOST:,}) in all, at most three quarters of the process's file descriptors; beyond half of it, "
    "a small share per address; loopback, `server.trusted_proxies` and the proxies of `auth` may use all",
    "503; the connection is closed",
)


_PROBLEM: Final = plain_json(
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
    """Return the remote address of a connection."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else str(peer) if peer is not None else None


class Peers:
    """Counts open connections by address. `near` are the addresses of proxies, which many clients share."""

    def __init__(self, each: int = MOST_EACH, in_all: int = MOST, near: Blocks = ()) -> None:
        self._places = Shares(each, _within_files(in_all))
        self._near = near
        self._alone = itertools.count()

    def limit(self, each: int, in_all: int, near: Blocks) -> None:
        """Change the limits and the proxies; connections that are open stay so."""
        self._places.limit(each, _within_files(in_all))
        self._near = near

    @property
    def count(self) -> int:
        """The number of open connections."""
        return self._places.total

    def take(self, remote: str | None) -> str | None:
        """Count a connection and return its key for `give`; None if a limit is reached.

        The address of a proxy identifies no client: each of its connections has a separate key.
        """
        address = address_of(remote)
        shared = address is None or address.is_loopback or within(address, self._near)
        owner = str(next(self._alone) if shared else subscriber(address))
        if self._places.take(owner):
            return owner
        CONNECTIONS.report(client=str(address) if address is not None else None)
        return None

    def give(self, owner: str) -> None:
        """Release the place of a closed connection."""
        self._places.give(owner)


def _within_files(connections: int) -> int:
    """Return how many connections there may be: three quarters of the files that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = connections if soft == resource.RLIM_INFINITY else soft
    return min(connections, max(1, files * 3 // 4))


REQUESTS_EACH: Final = 1000
"""Default limit of concurrent requests of one person."""

REQUESTS: Final = 10_000
"""Default limit of all concurrent requests: each has a separate connection."""

CODE: Final = "too-many-requests"
"""The code of refusals beyond the limit."""


_REQUESTS: Final = Bound(
    Area.DOORS,
    "requests in flight",
    f"`server.requests_each` ({REQUESTS_EACH:,}) per person, `server.connections` in all, at all doors together; "
    "beyond half of it, a small share per person",
    "429; at `/mcp` with a JSON-RPC error",
)

_STANDING: Final = Bound(
    Area.MCP,
    "standing streams of sessions and of change notifications",
    f"`server.requests_each` ({REQUESTS_EACH:,}) per person, `server.connections` in all, of all mounts together; "
    "beyond half of it, a small share per person",
    "429 with a JSON-RPC error",
)

_SERVER_ERROR: Final = -32000
_LISTEN: Final = "subscriptions/listen"


class InFlight:
    """Counts concurrent requests by person, and standing streams apart from them."""

    def __init__(self, each: int = REQUESTS_EACH, in_all: int = REQUESTS) -> None:
        self.requests = Shares(each, in_all)
        self.streams = Shares(each, in_all)

    def limit(self, each: int, in_all: int) -> None:
        """Change the limits; requests in flight go on."""
        self.requests.limit(each, in_all)
        self.streams.limit(each, in_all)

    @contextmanager
    def place(self, request: web.Request, principal: Principal | None) -> Iterator[RefusedResponse | None]:
        """Count a request while the block runs; yields the refusal to send if a limit is reached.

        Unauthenticated callers are not counted: they hold nothing that lasts, and their connections are limited.
        """
        if principal is None:
            yield None
            return
        stands = _stands(request)
        with (self.streams if stands else self.requests).place(principal.person) as free:
            if free:
                yield None
                return
            (_STANDING if stands else _REQUESTS).report(principal.id)
            yield self._refusal(request, "standing streams" if stands else "requests in flight")

    def _refusal(self, request: web.Request, of: str) -> RefusedResponse:
        detail = (
            f"This caller has reached its limit of {of} (`server.requests_each`: {self.requests.each}, or less under "
            "load). Wait until some have ended."
        )
        headers = {"retry-after": "1"}
        if not _is_mcp(request):
            return refusal_response(429, CODE, detail, headers)
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": _SERVER_ERROR, "message": detail}}
        body = plain_json(error).encode()
        return RefusedResponse(CODE, detail, status=429, body=body, content_type="application/json", headers=headers)


def _is_mcp(request: web.Request) -> bool:
    return request.path == "/mcp" or request.path.startswith("/mcp/")


def _stands(request: web.Request) -> bool:
    """Return whether an MCP client opens a standing stream of messages."""
    listens = request.method == "POST" and request.headers.get("mcp-method") == _LISTEN
    return _is_mcp(request) and (request.method == "GET" or listens)


LARGE: Final = 64 * 1024
"""Bytes from which a response counts: the connection's own buffers hold about as much."""


_ANSWERS: Final = Bound(
    Area.DOORS,
    "bytes of responses that clients have not read",
    f"`mcp.bodies_each` ({size(ROOM_EACH)}) per person, `mcp.bodies` ({size(ROOM)}) in all",
    "the connection with the oldest unread response of that person, or of the largest holder, is closed",
)


class Unread:
    """Counts the unread bytes of responses by connection and owner: a person, or an unauthenticated address."""

    def __init__(self, each: int = ROOM_EACH, in_all: int = ROOM) -> None:
        self.limit(each, in_all)
        self._waiting: dict[asyncio.Transport, tuple[str, int]] = {}
        self._of = Counter[str]()

    def limit(self, each: int, in_all: int) -> None:
        """Change the limits, which count at the next unread response."""
        self._each = each
        self._in_all = in_all

    @property
    def total_bytes(self) -> int:
        """Unread bytes of all responses."""
        return self._of.total()

    def hold(self, connection: asyncio.Transport, owner: str, count: int) -> None:
        """Count unread bytes of `owner`; beyond a limit the oldest connections of the largest holder are closed."""
        self.release(connection)
        if count <= LARGE:
            return
        self._waiting[connection] = (owner, count)
        self._of[owner] += count
        while (greedy := self._greedy(owner)) is not None:
            first = next(one for one, (whose, _) in self._waiting.items() if whose == greedy)
            if first is connection:
                return  # a single response may be as large as its route allows
            _ANSWERS.report(greedy)
            self.release(first)
            first.abort()

    def release(self, connection: asyncio.Transport) -> None:
        """Stop counting the connection."""
        owner, count = self._waiting.pop(connection, ("", 0))
        self._of[owner] -= count
        if not self._of[owner]:
            del self._of[owner]

    def _greedy(self, owner: str) -> str | None:
        """Return the owner whose responses exceed a limit after a new one of `owner`; None if none does."""
        if self._of[owner] > self._each:
            return owner
        return self._of.most_common(1)[0][0] if self.total_bytes > self._in_all else None


SILENCE = 30.0
"""Seconds within which an incomplete body must grow."""

RATE = 500.0
"""Bytes per second required on average from 1.5 times `SILENCE` on (Apache's default rate)."""

_SLOW: Final = Bound(
    Area.DOORS,
    "request bodies that no handler reads yet",
    f"{SILENCE:g} s without a byte, and {RATE:g} bytes a second after that",
    "the connection is closed",
)

BOUNDS: Final = (
    _WRONG,
    _ADDRESSES,
    CONNECTIONS,
    _REQUESTS,
    _STANDING,
    _ANSWERS,
    _SLOW,
)


@contextmanager
def watch_progress(request: web.Request, give_up: Callable[[], None]) -> Iterator[None]:
    """Call `give_up` if the body of `request` stalls or is too slow; most bodies are complete already."""
    if request.content.is_eof():
        yield
        return
    watch = _Watch(request, give_up)
    try:
        yield
    finally:
        watch.stop()


class _Watch:
    def __init__(self, request: web.Request, give_up: Callable[[], None]) -> None:
        self._content = request.content
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._wait()

    def stop(self) -> None:
        self._timer.cancel()

    def _wait(self) -> None:
        self._last_size = self._content.total_bytes
        self._timer = self._loop.call_later(SILENCE, self._look)

    def _look(self) -> None:
        if self._content.is_eof():
            return
        total = self._content.total_bytes
        if total == self._last_size or total < RATE * (self._loop.time() - self._began - SILENCE * 1.5):
            _SLOW.report()
            self._give_up()
        else:
            self._wait()
