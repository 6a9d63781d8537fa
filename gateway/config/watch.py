"""Detects, by polling, that files have changed since they were read: the configuration, policies, and packed apps."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from gateway.config.values import Config

_PASSED = re.compile(r"^\.|\.(db|journal)\b")
_OF_PAGE = re.compile(
    r"\.([cm]?js|json|css|html?|svg|a?png|jpe?g|jfif|gif|webp|avif|bmp|ico|cur|woff2?|ttf|otf|eot|mp[34]|m4[av]|aac|flac"
    r"|wav|og[agv]|opus|web[amp]|vtt)$",
    re.IGNORECASE,
)
"""File types that a page may be packed with; a single-file app may have unrelated files beside it."""
WATCHED: Final = 2_000
"""Files of a folder that are checked every second; of a larger folder only the page is."""


def stamp(source: Path) -> str:
    """Return a digest that changes with any file of the app."""
    sha = hashlib.sha256()
    for path in (*(_walk(source) if source.is_dir() else files_to_watch(source)), _vendor_lock(source)):
        with suppress(OSError):
            status = path.stat()
            if not stat.S_ISDIR(status.st_mode):
                sha.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return sha.hexdigest()


def files_to_watch(source: Path) -> tuple[Path, ...]:
    """Return the files and folders to watch: a folder's stamp changes when an entry is added or removed.

    For a single-file app these are the file and page files beside it.
    """
    paths = tuple(islice(_walk(source if source.is_dir() else source.parent), WATCHED + 1))
    if source.is_dir():
        watch_paths = paths if len(paths) <= WATCHED else (source, source / "index.html")
        return (*watch_paths, _vendor_lock(source))
    beside = (path for path in paths if _OF_PAGE.search(path.name) and path != source)
    return (source, *beside) if len(paths) <= WATCHED else (source,)


def configured_files(config: Config) -> list[Path]:
    """Return every file of a configuration, except secrets and the unwatched files of apps."""
    apps = config.apps.values()
    policies = (Path(source) for app in apps for source in app.policy.sources)
    behind = (Path(source) for one in config.upstreams.values() if one.policy for source in one.policy.sources)
    pages = (path for app in apps if isinstance(app.source, Path) for path in files_to_watch(app.source))
    return [config.path, *config.files, *policies, *behind, *pages]


def _walk(source: Path) -> Iterator[Path]:
    """Yield a folder and its contents in a fixed order, except hidden files and those that a gateway writes."""
    yield source
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        for name in (*folders, *sorted(names)):
            if not _PASSED.search(name):
                yield Path(folder) / name


def _vendor_lock(source: Path) -> Path:
    """Return the lock of the files of other sites, which `pack --vendor` writes beside the app."""
    return source.with_name(f"{source.name}.vendor") / "lock.json"


YOUNG = 2.0
"""Seconds within which a change may not show in the time stamps: file systems count in ticks, some in seconds."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The identity and state of a file, through all symlinks; a replaced file differs too."""

    device: int
    inode: int
    size: int
    mtime: int


class Watch:
    """Polls `files`. Those that changed shortly before the start count as changed."""

    def __init__(self, files: Iterable[Path], now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._files = tuple(files)
        self._read_stamps = {file: self._unless_young(stamp) for file, stamp in self.stamps().items()}
        self._last_stamps: dict[Path, Stamp | None] = {}

    def look(self) -> bool:
        """Return whether to read again: a file differs from the state that was read, and all are stable."""
        stamps = self.stamps()
        rests, self._last_stamps = stamps == self._last_stamps, stamps
        return rests and stamps != self._read_stamps

    def stamps(self) -> dict[Path, Stamp | None]:
        """Return the current stamps of the files; None for an inaccessible one."""
        return {file: _stamp(file) for file in self._files}

    def note_read(self, read: dict[Path, Stamp | None], files: Iterable[Path]) -> None:
        """Record that the files were read in the state `read`; poll `files` from now on."""
        self._files = tuple(files)
        self._read_stamps = {file: read[file] if file in read else _stamp(file) for file in self._files}

    def _unless_young(self, stamp: Stamp | None) -> Stamp | None:
        return stamp if stamp is not None and stamp.mtime / 1e9 < self._now() - YOUNG else None


def _stamp(file: Path) -> Stamp | None:
    try:
        stat = os.stat(file)
    except OSError:
        return None
    return Stamp(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
