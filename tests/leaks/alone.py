"""Taps a gateway in a separate process, and scans the files that it leaves at its end."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

from gateway.stores.journal import Journal
from tests.leaks import taps
from tests.leaks.files import look_through
from tests.leaks.watch import TAPS


def install() -> None:
    """Tap from now on; the gateway's folder may be gone when the tests end."""
    taps.install()
    opened = Journal.__init__

    def opening(self: Journal, path: Path, *arguments: Any, **options: Any) -> None:
        opened(self, path, *arguments, **options)
        atexit.register(lambda: look_through(path.parent, TAPS.watch, TAPS.cookies))

    Journal.__init__ = opening  # type: ignore[method-assign]  # the same, and scanned
