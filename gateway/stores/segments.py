"""The files of one journal: the one that grows, and those before it, which begin at the byte that their names say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.stores.lines import fields_of, raw_lines, raw_lines_backwards, read_link


@dataclass(frozen=True, slots=True)
class Segment:
    """One file; `start` is the byte of the whole journal with which it begins. `size` is its own."""

    path: Path
    start: int
    size: int

    @property
    def end(self) -> int:
        """The byte of the whole journal behind it."""
        return self.start + self.size


def closed_path(path: Path, start: int) -> Path:
    """What the file of the journal `path` that begins at `start` is called when it grows no more."""
    return path.with_name(f"{path.name}.{start:015d}")


def closed_segments(path: Path) -> list[Segment]:
    """The files of before that are still there, oldest first."""
    pattern = re.compile(re.escape(path.name) + r"\.(\d{15})")
    found = ((pattern.fullmatch(one.name), one) for one in path.parent.iterdir())
    return sorted(
        (Segment(one, int(match[1]), one.stat().st_size) for match, one in found if match), key=lambda one: one.start
    )


def all_segments(path: Path) -> list[Segment]:
    """Every file of a journal, oldest first; the last is the one that grows, if it is there."""
    closed = closed_segments(path)
    if not path.exists():
        return closed
    return [*closed, Segment(path, start_of(path), path.stat().st_size)]


def start_of(path: Path) -> int:
    """The byte of the whole journal with which the file `path` begins, as its first line says."""
    with path.open("rb") as file:
        for _, raw in raw_lines(file):
            with suppress(ValueError):
                start = fields_of(read_link(raw)).get("start")
                if isinstance(start, int):
                    return start
            break
    return 0


def lines_from(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """The lines of a whole journal from the byte `start` on, each with the offset behind it.

    Files that are gone are passed over.
    """
    for segment in all_segments(path):
        if segment.end <= start and segment.size:
            continue
        with segment.path.open("rb") as file:
            for offset, raw in raw_lines(file, max(0, start - segment.start)):
                yield segment.start + offset, raw


def lines_backwards(path: Path) -> Iterator[bytes]:
    """The lines of a whole journal, last first."""
    for segment in reversed(all_segments(path)):
        yield from lines_of_backwards(segment.path, segment.size)


def lines_of_backwards(path: Path, end: int) -> Iterator[bytes]:
    """The lines of one file that end before its byte `end`, last first."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield from (raw for _, raw in raw_lines_backwards(descriptor, end) if raw)
    finally:
        os.close(descriptor)


def line_before(path: Path, offset: int) -> bytes | None:
    """The line of a whole journal that ends at the byte `offset`, None where none does."""
    for segment in all_segments(path):
        if segment.start < offset <= segment.end:
            descriptor = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                at = offset - segment.start
                if os.pread(descriptor, 1, at - 1) != b"\n":
                    return None
                return next((raw for _, raw in raw_lines_backwards(descriptor, at) if raw), None)
            finally:
                os.close(descriptor)
    return None
