"""Rate limit of failed look-ups of tokens and login codes at an issuer, per address."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final, TypeAlias

from gateway.bounds import Area, Bound
from gateway.callers.proxies import Address
from gateway.policy import Rate, take
from gateway.token_buckets import Buckets

WRONG: Final = Rate(300, 60.0)
"""Failed look-ups of one address; a valid token costs nothing, and a cached one needs no look-up.
Without this limit strangers could guess tokens at the issuer through the gateway (RFC 7662 4).
"""

EACH: Final = 256
"""Addresses of one network (the first 48 bits of IPv6, 24 of IPv4) that are counted separately."""

IN_ALL: Final = 65_536
"""Addresses that are counted separately in all."""

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "look-ups of invalid opaque tokens and login codes at an issuer",
        f"{WRONG.count} in {WRONG.period:g} s per address (of IPv6 the first 64 bits)",
        "429 for tokens that are not cached as valid",
    ),
    Bound(
        Area.DOORS,
        "addresses with counted invalid tokens",
        f"{EACH} per network (the first 48 bits of IPv6, 24 of IPv4), {IN_ALL:,} in all",
        "further addresses of that network, or of all, share one count",
    ),
)

_WRONG, _ADDRESSES = BOUNDS

Counted: TypeAlias = tuple[int, int]
"""The version and the first bits of an address, or of the network that is counted instead."""

_ALL: Final[Counted] = (0, 0)


class LookupLimits:
    """The rate limiter of failed look-ups. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets = Buckets[Counted](EACH, IN_ALL)

    def __len__(self) -> int:
        """Return the number of counted addresses and networks."""
        return len(self._buckets)

    def take(self, address: Address | None) -> Counted | None:
        """Count a look-up, and return its key; None beyond the limit."""
        now, key, owner = self._clock(), subscriber(address), None
        if key not in self._buckets.tats:
            own, network = key, _network(key)
            key = self._buckets.place(own, str(network), network if len(self._buckets) < IN_ALL else _ALL, now)
            owner = str(network) if key is own else None
            if owner is None:
                _ADDRESSES.report()
        taken = take(self._buckets.tats.get(key, 0.0), now, WRONG)
        self._buckets.put(key, taken.tat, now, owner)
        if not taken.allowed:
            _WRONG.report()
            return None
        return key

    def give_back(self, counted: Counted) -> None:
        """Undo the count of a look-up that succeeded."""
        self._buckets.give_back(counted, WRONG.period / WRONG.count)


@dataclass(slots=True)
class Lookup:
    """One caller, whose look-ups at several issuers count once."""

    guesses: LookupLimits
    address: Callable[[], Address | None]
    taken: Counted | None = None
    refused: bool = False

    def may_ask(self) -> bool:
        """Return whether an issuer may be asked about the token."""
        if self.taken is None and not self.refused:
            self.taken = self.guesses.take(self.address())
            self.refused = self.taken is None
        return self.taken is not None

    def right(self) -> None:
        """Undo the count, as an issuer knew the token."""
        if self.taken is not None:
            self.guesses.give_back(self.taken)


def subscriber(address: Address | None) -> Counted:
    """Return the counting key: for IPv6 the first 64 bits, which one subscriber has."""
    if isinstance(address, IPv6Address):
        return 6, int(address) >> 64
    return 4, int(address) if address is not None else -1


def _network(counted: Counted) -> Counted:
    """Return the network of an address, as large as one subscriber may have."""
    version, bits = counted
    return (48, bits >> 16) if version == 6 else (24, bits >> 8)
