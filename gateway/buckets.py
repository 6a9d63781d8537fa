"""Token buckets by key in bounded memory, of which those that are full again are forgotten a few at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

EACH: Final = 4096
"""Buckets of one owner that are not full again; what comes beyond them shares one bucket."""

IN_ALL: Final = 1_000_000
"""Those of all owners."""

LOOKS: Final = 2
"""Buckets that are looked at for each new one: what is full again goes faster than new ones come."""


class Buckets(Generic[K]):
    """The theoretical arrival times (`tat`) of token buckets, as `gateway.policy.take` reads and gives them.

    A bucket is forgotten only once it is full again, when a new one says the same: nobody gets a second burst by
    having a bucket forgotten. Each new bucket looks at the two that were looked at longest ago, so that forgetting
    costs the same however many there are. `each` owner has so many buckets, and all owners have `most`; a new bucket
    beyond that is the `shared` one, until that is full again: its callers get less, and take nothing from others.
    """

    def __init__(self, each: int = EACH, most: int = IN_ALL) -> None:
        self._each = each
        self._most = most
        self.tats: dict[K, float] = {}
        """The time of each bucket that is there; one that is there may be set directly."""
        self._owned: dict[str, int] = {}
        self._turn: deque[tuple[K, str | None]] = deque()
        self.looked = 0
        """How many buckets were ever looked at, to be forgotten."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.tats)

    def place(self, key: K, owner: str, shared: K, now: float) -> K:
        """The key of a bucket that is not there yet: `key` itself, or `shared` where its owner has too many."""
        if self._full(owner):
            self._forget(now)
            if self._full(owner):
                return shared
        return shared if self.tats.get(shared, 0.0) > now else key

    def put(self, key: K, tat: float, now: float, owner: str | None = None) -> None:
        """Keep the time of a bucket, and forget of the others what is full again.

        Without an owner it takes no share of anybody: such keys are few by themselves.
        """
        if key not in self.tats:
            self._forget(now)
            self._turn.append((key, owner))
            if owner is not None:
                self._owned[owner] = self._owned.get(owner, 0) + 1
        self.tats[key] = tat

    def give_back(self, key: K, interval: float) -> None:
        """One cell of a bucket was not used after all."""
        if key in self.tats:
            self.tats[key] -= interval

    def _full(self, owner: str) -> bool:
        return self._owned.get(owner, 0) >= self._each or len(self.tats) >= self._most

    def _forget(self, now: float) -> None:
        for _ in range(min(LOOKS, len(self._turn))):
            self.looked += 1
            key, owner = self._turn.popleft()
            if self.tats[key] > now:
                self._turn.append((key, owner))
                continue
            del self.tats[key]
            if owner is not None:
                self._owned[owner] -= 1
                if not self._owned[owner]:
                    del self._owned[owner]
