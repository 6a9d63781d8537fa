"""Detects, by polling, that files have changed since they were read and are stable again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

YOUNG = 2.0
"""Seconds within which a change may not show in the time stamps: file systems count in ticks, some in seconds."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The identity and state of a file, through all symlinks; a replaced file differs too."""

    device: int
    inode: int
    size: int
    modified: int


class Watch:
    """Polls `files`. Those that changed shortly before the start count as changed."""

    def __init__(self, files: Iterable[Path], now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._files = tuple(files)
        self._read = {file: self._unless_young(stamp) for file, stamp in self.stamps().items()}
        self._seen: dict[Path, Stamp | None] = {}

    def look(self) -> bool:
        """Return whether to read again: a file differs from the state that was read, and all are stable."""
        found = self.stamps()
        rests, self._seen = found == self._seen, found
        return rests and found != self._read

    def stamps(self) -> dict[Path, Stamp | None]:
        """Return the current stamps of the files; None for an inaccessible one."""
        return {file: _stamp(file) for file in self._files}

    def took(self, read: dict[Path, Stamp | None], files: Iterable[Path]) -> None:
        """Record that the files were read in the state `read`; poll `files` from now on."""
        self._files = tuple(files)
        self._read = {file: read[file] if file in read else _stamp(file) for file in self._files}

    def _unless_young(self, stamp: Stamp | None) -> Stamp | None:
        return stamp if stamp is not None and stamp.modified / 1e9 < self._now() - YOUNG else None


def _stamp(file: Path) -> Stamp | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
