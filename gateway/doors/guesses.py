"""How often one address has tokens looked up at their issuer that are nobody's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final

from gateway.callers.proxies import Address
from gateway.policy import Rate, take

WRONG: Final = Rate(300, 60.0)
"""Tokens in vain of one address; a right one costs nothing, and one that is remembered is looked up nowhere.

Strangers shall not be able to poll the issuer for tokens (RFC 7662 4): without a bound they could through us.
"""

SWEEP = 10_000
"""Addresses above which those that may ask as often as any are forgotten."""


class Guesses:
    """`clock` is steady, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tats: dict[Address | None, float] = {}

    def take(self, address: Address | None) -> bool:
        """Count a look-up; False where there were too many in vain."""
        now = self._clock()
        if len(self._tats) > SWEEP:
            self._tats = {other: tat for other, tat in self._tats.items() if tat > now}
        key = _network(address)
        taken = take(self._tats.get(key, 0.0), now, WRONG)
        self._tats[key] = taken.tat
        return taken.allowed

    def give_back(self, address: Address | None) -> None:
        """It was not in vain."""
        key = _network(address)
        self._tats[key] = self._tats.get(key, 0.0) - WRONG.period / WRONG.count


@dataclass(slots=True)
class Guess:
    """One caller, who may have to be looked up at several issuers: that counts once."""

    guesses: Guesses
    address: Callable[[], Address | None]
    taken: bool = False
    refused: bool = False

    def may_ask(self) -> bool:
        """Whether an issuer may be asked about the token."""
        if not self.taken and not self.refused:
            self.taken = self.guesses.take(self.address())
            self.refused = not self.taken
        return self.taken

    def right(self) -> None:
        """Somebody knew the token."""
        if self.taken:
            self.guesses.give_back(self.address())


def _network(address: Address | None) -> Address | None:
    """One subscriber has 2**64 addresses of IPv6."""
    return IPv6Address(int(address) >> 64 << 64) if isinstance(address, IPv6Address) else address
