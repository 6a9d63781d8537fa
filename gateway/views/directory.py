"""The directory of live views in memory, indexed by principal: each call reads only its caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.model import Principal
from gateway.ports.views import LiveView


class MemoryDirectory:
    """The port `ViewDirectory` of one process."""

    def __init__(self) -> None:
        self._all: dict[str, tuple[Principal, LiveView]] = {}
        self._of: dict[str, dict[str, LiveView]] = {}
        self._watchers: set[Callable[[Principal], None]] = set()

    def put(self, principal: Principal, view: LiveView) -> None:
        """Add a view, or replace it at its place."""
        mine = self._of.setdefault(principal.id, {})
        if mine.get(view.id) != view:
            mine[view.id] = view
            self._all[view.id] = (principal, view)
            self._changed(principal)

    def remove(self, principal: Principal, id: str) -> None:
        """Remove a view."""
        mine = self._of.get(principal.id, {})
        if mine.pop(id, None) is not None:
            del self._all[id]
            if not mine:
                del self._of[principal.id]
            self._changed(principal)

    def of(self, principal: Principal, app: str | None = None) -> tuple[LiveView, ...]:
        """Return the live views of `principal`, oldest first."""
        mine = self._of.get(principal.id)
        if mine is None:
            return ()
        return tuple([view for view in mine.values() if app is None or view.app == app])

    def all(self) -> Iterable[tuple[Principal, LiveView]]:
        """Return the live views of all principals, oldest first."""
        return tuple(self._all.values())

    def watch(self, callback: Callable[[Principal], None]) -> Callable[[], None]:
        """Call `callback` after each change of a principal's views or tools."""
        self._watchers.add(callback)
        return lambda: self._watchers.discard(callback)

    def _changed(self, principal: Principal) -> None:
        for watcher in list(self._watchers):
            watcher(principal)
