"""A shared resource with a limit per owner, so that no caller takes what others need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SMALL: Final = 64
"""Once half of the total is taken, an owner may hold at most this fraction of it."""


class Shares:
    """Slots or bytes by owner: `each` at most, `in_all` together.

    Once half of the total is taken, an owner with more than a small share gets no more while others hold some.
    """

    def __init__(self, each: int, in_all: int) -> None:
        self.limit(each, in_all)
        self._taken: dict[str, int] = {}
        self.used = 0

    def limit(self, each: int, in_all: int) -> None:
        """Change the limits; owners that hold more keep it, and get no more."""
        self.each = each
        self._in_all = in_all
        self._small = max(1, in_all // SMALL)

    def take(self, owner: str, amount: int = 1) -> bool:
        """Take `amount` for `owner`; return False if there is no room."""
        before = self._taken.get(owner, 0)
        mine, used = before + amount, self.used + amount
        if mine > self.each or used > self._in_all:
            return False
        if 2 * used > self._in_all and mine > self._small and self.used > before:
            return False
        self._taken[owner], self.used = mine, used
        return True

    def give(self, owner: str, amount: int = 1) -> None:
        """Return what was taken."""
        left = self._taken.get(owner, 0) - amount
        self.used -= amount
        if left > 0:
            self._taken[owner] = left
        else:
            self._taken.pop(owner, None)

    @contextmanager
    def place(self, owner: str) -> Iterator[bool]:
        """Take one slot for the block, and yield whether there was one."""
        taken = self.take(owner)
        try:
            yield taken
        finally:
            if taken:
                self.give(owner)
