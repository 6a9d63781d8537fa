"""A cache of recent look-ups."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from gateway.bounds import Area, Bound
from gateway.owned import EACH, IN_ALL, Owned

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

BOUNDS: Final = (
    Bound(
        Area.DOORS,
        "tokens and logins that were looked up a moment ago",
        f"{EACH} per principal, {IN_ALL:,} in all, of each issuer, and of tokens and logins of the gateway",
        "the one of that principal, or of whoever has most, that was not used for longest is looked up again",
        uncounted="a cache",
    ),
)


class Recent(Generic[K, V]):
    """The recently used values of each owner, each with a lifetime; `bound` as for `Owned`."""

    def __init__(
        self,
        each: int = EACH,
        most: int = IN_ALL,
        clock: Callable[[], float] = time.monotonic,
        bound: Bound | None = None,
    ) -> None:
        self._clock = clock
        self._kept: Owned[K, tuple[float, V]] = Owned(each, most, bound)

    def get(self, key: K) -> V | None:
        """Return the value, unless it has expired."""
        found = self._kept.get(key)
        if found is None:
            return None
        if found[0] <= self._clock():
            self._kept.pop(key)
            return None
        return found[1]

    def put(self, key: K, value: V, seconds: float, owner: str) -> None:
        """Store `value` for `seconds`; beyond the owner's limit, another one of theirs is evicted."""
        self._kept.put(owner, key, (self._clock() + seconds, value))

    def drop(self, key: K) -> None:
        """Remove one value."""
        self._kept.pop(key)

    def clear(self) -> None:
        """Remove all values."""
        self._kept.clear()
