"""Caches in bounded memory: an LRU store with a limit per owner, and results computed from header fields."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Final, Generic, TypeVar, TypeVarTuple

from gateway.bounds import Bound
from gateway.model import Headers

T = TypeVar("T")
Others = TypeVarTuple("Others")

KEPT: Final = 32
FEW: Final = 12
"""Most fields of a cached head, so that large heads do not fill the memory."""


def cache_by_headers(find: Callable[[Headers, *Others], T]) -> Callable[[Headers, *Others], T]:
    """Cache the pure function `find` for the last few headers; its other arguments must be hashable."""
    known = lru_cache(maxsize=KEPT)(find)

    def lookup(headers: Headers, *others: *Others) -> T:
        return known(headers, *others) if len(headers) <= FEW else find(headers, *others)

    return lookup


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

EACH: Final = 256
"""Values per owner."""

IN_ALL: Final = 16_384
"""Values of all owners."""


class OwnerCache(Generic[K, V]):
    """The newest `each` values of every owner, `most` in all; beyond that the oldest of the largest owner is evicted.

    Reading a value makes it the newest. Every operation takes constant time. An eviction is reported as exceeding
    `bound`, unless that is None: a cache.
    """

    def __init__(self, each: int = EACH, most: int = IN_ALL, bound: Bound | None = None) -> None:
        self._bound = bound
        self._each = each
        self._most = most
        self._values: dict[K, tuple[str, V]] = {}
        self._of: dict[str, OrderedDict[K, None]] = {}
        # The owners by their number of values, and the highest such number.
        self._having: dict[int, dict[str, None]] = {}
        self._highest = 0

    def __len__(self) -> int:
        """Return the number of values."""
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value, and make it its owner's newest."""
        entry = self._values.get(key)
        if entry is None:
            return None
        self._of[entry[0]].move_to_end(key)
        return entry[1]

    def put(self, owner: str, key: K, value: V) -> None:
        """Store a value, and evict beyond the limits."""
        self.pop(key)
        mine = self._of.get(owner, ())
        if self._bound is not None and (len(mine) >= self._each or len(self._values) >= self._most):
            self._bound.report(owner)
        if self._most < 1 or self._each < 1:
            return
        if len(mine) >= self._each:
            self.pop(next(iter(mine)))
        elif len(self._values) >= self._most:
            most = next(iter(self._having[self._highest]))
            self.pop(next(iter(self._of[most])))
        self._values[key] = (owner, value)
        self._of.setdefault(owner, OrderedDict())[key] = None
        self._update_counts(owner, len(self._of[owner]) - 1)

    def pop(self, key: K) -> V | None:
        """Remove a value and return it."""
        entry = self._values.pop(key, None)
        if entry is None:
            return None
        owner, value = entry
        del self._of[owner][key]
        self._update_counts(owner, len(self._of[owner]) + 1)
        return value

    def clear(self) -> None:
        """Remove all values."""
        self._values.clear()
        self._of.clear()
        self._having.clear()
        self._highest = 0

    def _update_counts(self, owner: str, before: int) -> None:
        """Update the counts after the owner gained or lost a value; it had `before`."""
        now = len(self._of[owner])
        if before:
            del self._having[before][owner]
            if not self._having[before]:
                del self._having[before]
        if now:
            self._having.setdefault(now, {})[owner] = None
        else:
            del self._of[owner]
        if now > self._highest or (before == self._highest and before not in self._having):
            self._highest = now
