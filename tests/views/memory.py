"""The views of one process, on the clock of a test."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from gateway.ports.views import StoredTaint, TaintGroup, TaintKey, TaintStore
from gateway.views.memory import Launches, MemoryDirectory
from gateway.views.registry import LIVE, Views
from gateway.views.view import AppRules


class Unreachable:
    """The port `OtherTaints` of a process that the others share only the database with."""

    async def tell(self, key: TaintKey, group: TaintGroup, taint: StoredTaint) -> None:
        """Tell nobody."""

    def tell_soon(self, key: TaintKey, group: TaintGroup, taint: StoredTaint) -> None:
        """Tell nobody."""

    def ended(self, key: TaintKey, after: Callable[[], Awaitable[object]]) -> None:
        """Tell nobody."""


def views_of(
    rules: Mapping[str, AppRules],
    clock: Callable[[], float] = time.monotonic,
    *,
    each: int = LIVE,
    taints: TaintStore | None = None,
    shared: bool = False,
) -> Views:
    """Make the views of apps with these rules, none open; `shared`: those of one of several processes."""
    launches, directory = Launches(clock), MemoryDirectory()
    others = Unreachable() if shared else None
    return Views(rules, clock, launches=launches, directory=directory, each=each, taints=taints, other_taints=others)
