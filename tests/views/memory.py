"""The views of one process, on the clock of a test."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping

from gateway.ports.views import TaintStore
from gateway.views.memory import Launches, MemoryDirectory
from gateway.views.registry import LIVE, Views
from gateway.views.view import AppRules


def views_of(
    rules: Mapping[str, AppRules],
    clock: Callable[[], float] = time.monotonic,
    *,
    each: int = LIVE,
    taints: TaintStore | None = None,
    take: Callable[[str], Awaitable[None]] | None = None,
) -> Views:
    """Make the views of apps with these rules, none open; with `take` those of one of several processes."""
    launches, directory = Launches(clock), MemoryDirectory()
    return Views(rules, clock, launches=launches, directory=directory, each=each, taints=taints, take=take)
