"""The files of one journal: the growing one, and its predecessors, whose names contain their start offset."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from gateway.stores.lines import fields_of, raw_lines, raw_lines_backwards, read_link


@dataclass(frozen=True, slots=True)
class Segment:
    """One file; `start` is the offset of its beginning in the whole journal. `size` is its own.

    `descriptor` is that of the growing file, within `pinned`.
    """

    path: Path
    start: int
    size: int
    descriptor: int = -1

    def open(self) -> BinaryIO:
        """Open the file itself, even if it was renamed."""
        return os.fdopen(os.dup(self.descriptor), "rb") if self.descriptor >= 0 else self.path.open("rb")

    @property
    def end(self) -> int:
        """The offset of its end in the whole journal."""
        return self.start + self.size


def closed_path(path: Path, start: int) -> Path:
    """Return the name of a closed file of the journal `path` that begins at `start`."""
    return path.with_name(f"{path.name}.{start:015d}")


def closed_segments(path: Path) -> list[Segment]:
    """Return the closed files that still exist, oldest first."""
    pattern = re.compile(re.escape(path.name) + r"\.(\d{15})")
    found = ((pattern.fullmatch(one.name), one) for one in path.parent.iterdir())
    return sorted(
        (Segment(one, int(match[1]), one.stat().st_size) for match, one in found if match), key=lambda one: one.start
    )


def all_segments(path: Path) -> list[Segment]:
    """Return every file of a journal, oldest first; the last is the growing one, if it exists."""
    with pinned(path) as segments:
        return [replace(segment, descriptor=-1) for segment in segments]


@contextmanager
def pinned(path: Path) -> Iterator[list[Segment]]:
    """Yield every file, readable within this context even if the journal is rotated meanwhile.

    The growing file is opened first: after a rotation, its name belongs to another file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield closed_segments(path)
        return
    try:
        growing = os.fstat(descriptor)
        closed = [one for one in closed_segments(path) if not os.path.samestat(one.path.stat(), growing)]
        if growing.st_size:
            start = _start_in(descriptor)
            closed = [one for one in closed if one.start < start]  # others were closed while this one was opened
        else:
            start = closed[-1].end if closed else 0  # it was just begun
        yield [*closed, Segment(path, start, growing.st_size, descriptor)]
    finally:
        os.close(descriptor)


def start_of(path: Path) -> int:
    """Return the offset of the file `path` in the whole journal, from its first line."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _start_in(descriptor)
    finally:
        os.close(descriptor)


def _start_in(descriptor: int) -> int:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        for _, raw in raw_lines(file):
            with suppress(ValueError):
                start = fields_of(read_link(raw)).get("start")
                if isinstance(start, int):
                    return start
            break
    return 0


def lines_from(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a whole journal from byte `start`, each with the offset behind it.

    Missing files are skipped.
    """
    with pinned(path) as segments:
        for segment in segments:
            if segment.end <= start and segment.size:
                continue
            with segment.open() as file:
                for offset, raw in raw_lines(file, max(0, start - segment.start)):
                    yield segment.start + offset, raw


def lines_backwards(path: Path) -> Iterator[bytes]:
    """Yield the lines of a whole journal, last first."""
    with pinned(path) as segments:
        for segment in reversed(segments):
            with segment.open() as file:
                yield from (raw for _, raw in raw_lines_backwards(file.fileno(), segment.size) if raw)


def line_before(path: Path, offset: int) -> bytes | None:
    """Return the line of a whole journal that ends at byte `offset`, None if there is none."""
    with pinned(path) as segments:
        for segment in segments:
            if segment.start < offset <= segment.end:
                with segment.open() as file:
                    descriptor, at = file.fileno(), offset - segment.start
                    if os.pread(descriptor, 1, at - 1) != b"\n":
                        return None
                    return next((raw for _, raw in raw_lines_backwards(descriptor, at) if raw), None)
    return None
