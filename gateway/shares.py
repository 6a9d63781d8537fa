"""Room that callers share: each of them has so much of it, and nobody takes what others need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SMALL: Final = 64
"""As soon as half of all the room is taken, an owner may hold this fraction of it at most."""


class Shares:
    """Places or bytes by owner: `each` at most, `in_all` together.

    A few owners cannot take it all: once half of it is taken, whoever holds more than a small share, beside others,
    gets no more.
    """

    def __init__(self, each: int, in_all: int) -> None:
        self._each = each
        self._in_all = in_all
        self._small = max(1, in_all // SMALL)
        self._taken: dict[str, int] = {}
        self.used = 0

    def take(self, owner: str, amount: int = 1) -> bool:
        """Take `amount` for `owner`; False where there is no room for it."""
        before = self._taken.get(owner, 0)
        mine, used = before + amount, self.used + amount
        if mine > self._each or used > self._in_all:
            return False
        if 2 * used > self._in_all and mine > self._small and self.used > before:
            return False
        self._taken[owner], self.used = mine, used
        return True

    def give(self, owner: str, amount: int = 1) -> None:
        """Give back what was taken."""
        left = self._taken.get(owner, 0) - amount
        self.used -= amount
        if left > 0:
            self._taken[owner] = left
        else:
            self._taken.pop(owner, None)

    @contextmanager
    def place(self, owner: str) -> Iterator[bool]:
        """One place for the block, which is told whether there was one."""
        taken = self.take(owner)
        try:
            yield taken
        finally:
            if taken:
                self.give(owner)
