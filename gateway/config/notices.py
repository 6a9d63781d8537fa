"""Current notices about the running configuration: errors, and changes that wait for a restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gateway.errors import Problem


class NoticeKind(StrEnum):
    """The subject of a notice.

    A record that cannot be kept as configured, a file that was not applied, an upstream that fails or changed, a change
    that waits for a restart, report mode.
    """

    RECORD = "record"
    BROKEN = "broken"
    UPSTREAM = "upstream"
    RESTART = "restart"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice, with its place in a file."""

    kind: NoticeKind
    problem: Problem


class Notices:
    """The current notices, by source."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[Notice, ...]] = {}
        self._watchers: set[Callable[[], None]] = set()

    def now(self) -> tuple[Notice, ...]:
        """Return all notices, most important first."""
        everything = [notice for said in self._said.values() for notice in said]
        return tuple(sorted(everything, key=lambda notice: list(NoticeKind).index(notice.kind)))

    def say(self, notices: Sequence[Notice], source: str = "files") -> bool:
        """Replace the notices of `source`; return whether they changed."""
        if tuple(notices) == self._said.get(source, ()):
            return False
        self._said[source] = tuple(notices)
        for watcher in list(self._watchers):
            watcher()
        return True

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the notices change; the result unsubscribes it."""
        self._watchers.add(callback)
        return lambda: self._watchers.discard(callback)
