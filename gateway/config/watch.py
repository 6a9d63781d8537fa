"""Whether files have changed since they were read, and have come to rest: looked at, never listened to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

YOUNG = 2.0
"""Seconds within which a change may leave no trace: file systems count time in ticks, some in seconds."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells one state of a file from another, through all symlinks; another file in its place differs too."""

    device: int
    inode: int
    size: int
    modified: int


class Watch:
    """Looks at `files`. Those that changed just before they are first looked at count as changed."""

    def __init__(self, files: Iterable[Path], now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._files = tuple(files)
        self._read = {file: self._unless_young(stamp) for file, stamp in self.stamps().items()}
        self._seen: dict[Path, Stamp | None] = {}

    def look(self) -> bool:
        """Whether to read again: some file differs from what was read, and all are as they were at the last look."""
        found = self.stamps()
        rests, self._seen = found == self._seen, found
        return rests and found != self._read

    def stamps(self) -> dict[Path, Stamp | None]:
        """The files as they are now; None for one that cannot be looked at."""
        return {file: _stamp(file) for file in self._files}

    def took(self, read: dict[Path, Stamp | None], files: Iterable[Path]) -> None:
        """The files were read when they were as in `read`; from now on `files` are looked at."""
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
