"""What is to be said of the configuration while the gateway runs: what is wrong, what waits for a restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gateway.errors import Problem


class Kind(StrEnum):
    """Of what a notice tells: of a file that was not taken, of a change that waits for a restart, of report mode, of a
    record that cannot be kept as it should be, of an upstream that fails or is not what it was."""

    RECORD = "record"
    BROKEN = "broken"
    UPSTREAM = "upstream"
    RESTART = "restart"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing to say, and the place that it is about."""

    kind: Kind
    problem: Problem


class Notices:
    """What is to be said now, by those who say it."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[Notice, ...]] = {}
        self._watchers: set[Callable[[], None]] = set()

    def now(self) -> tuple[Notice, ...]:
        """All of it, in the order of importance."""
        everything = [notice for said in self._said.values() for notice in said]
        return tuple(sorted(everything, key=lambda notice: list(Kind).index(notice.kind)))

    def say(self, notices: Sequence[Notice], source: str = "files") -> bool:
        """Replace all that `source` said; whether that is something else than before."""
        if tuple(notices) == self._said.get(source, ()):
            return False
        self._said[source] = tuple(notices)
        for watcher in list(self._watchers):
            watcher()
        return True

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever something else is to be said; the result ends that."""
        self._watchers.add(callback)
        return lambda: self._watchers.discard(callback)
