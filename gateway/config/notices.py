"""What is to be said of the configuration while the gateway runs: what is wrong, what waits for a restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gateway.errors import Problem


class Kind(StrEnum):
    """Of what a notice tells: of a file that was not taken, of a change that waits for a restart, of report mode."""

    BROKEN = "broken"
    RESTART = "restart"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to say, and the place that it is about."""

    kind: Kind
    problem: Problem


class Notices:
    """What is to be said now."""

    def __init__(self) -> None:
        self._now: tuple[Notice, ...] = ()
        self._watchers: set[Callable[[], None]] = set()

    def now(self) -> tuple[Notice, ...]:
        """All of it, in the order of importance."""
        return self._now

    def say(self, notices: Sequence[Notice]) -> bool:
        """Replace all of it; whether that is something else than before."""
        if tuple(notices) == self._now:
            return False
        self._now = tuple(notices)
        for watcher in list(self._watchers):
            watcher()
        return True

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever something else is to be said; the result ends that."""
        self._watchers.add(callback)
        return lambda: self._watchers.discard(callback)
