"""What was looked up a moment ago."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MOST = 4096


class Recent(Generic[K, V]):
    """The newest `most` values, each for as long as it was put there for."""

    def __init__(self, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value, if its time is not over."""
        found = self._kept.get(key)
        if found is None:
            return None
        if found[0] <= self._clock():
            del self._kept[key]
            return None
        return found[1]

    def put(self, key: K, value: V, seconds: float) -> None:
        """Keep `value` for `seconds`; the oldest goes where there are too many."""
        self._kept.pop(key, None)
        self._kept[key] = (self._clock() + seconds, value)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def drop(self, key: K) -> None:
        """Forget one."""
        self._kept.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
