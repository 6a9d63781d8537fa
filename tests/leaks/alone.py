"""Taps the gateway of a process of its own, and looks at its end through the files that it leaves."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

from gateway.stores.journal import Journal
from tests.leaks import taps
from tests.leaks.files import look_through
from tests.leaks.watch import TAPS


def install() -> None:
    """From now on; its folder may be gone when the tests end."""
    taps.install()
    opened = Journal.__init__

    def opening(self: Journal, path: Path, *arguments: Any, **options: Any) -> None:
        opened(self, path, *arguments, **options)
        atexit.register(lambda: look_through(path.parent, TAPS.watch, TAPS.cookies))

    Journal.__init__ = opening  # type: ignore[method-assign]  # the same, and looked at
