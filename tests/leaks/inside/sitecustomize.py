"""Taps a gateway that tests start as a process of its own: Python runs this before the program."""

import os
import sys
from pathlib import Path
from typing import Any

from tests.leaks import taps
from tests.leaks.watch import FOLDER, Watch


def _tap(stream: Any, kind: str) -> None:
    """Look at what the program prints."""
    write = stream.write

    def writing(text: str) -> Any:
        taps.TAPS.watch.look(kind, text.encode("utf-8", "backslashreplace"))
        return write(text)

    stream.write = writing


if FOLDER in os.environ:
    taps.TAPS.watch = Watch(Path(os.environ[FOLDER]))
    taps.install()
    _tap(sys.stdout, "standard output")
    _tap(sys.stderr, "standard error")
