"""The files of one journal: the growing one, and its predecessors, whose names contain their start offset."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from gateway.documents.reader import open_file
from gateway.errors import StartError
from gateway.stores.lines import fields_of, raw_lines, raw_lines_backwards, read_link

_BLOCK: Final = 1024 * 1024


class Disk:
    """The disk state of the file `path`; `now` returns its descriptor, and the number of bytes ever written.

    Before the file is replaced by the next one, `bring` is called.
    """

    def __init__(self, path: Path, now: Callable[[], tuple[int, int]]) -> None:
        self._path = path
        self._now = now
        self._safe = 0
        self._doubtful = False
        self._thread: ThreadPoolExecutor | None = None
        self._turn: asyncio.Task[None] | None = None

    async def sync(self) -> None:
        """Wait until everything that is written now is on the disk. Raises OSError if that fails.

        A thread syncs, one turn after the other: all callers that arrive during one turn share the next.
        """
        _, end = self._now()
        while self._safe < end:
            await asyncio.shield(self._turn or self._begin_turn())

    def bring(self) -> None:
        """Sync at once, blocking, for rare calls. Raises OSError."""
        file, end = self._now()
        _bring(file, self._path if self._doubtful else None)
        self._safe, self._doubtful = end, False

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
            self._thread = None

    def _begin_turn(self) -> asyncio.Task[None]:
        file, end = self._now()
        own = os.dup(file)  # the original may be closed meanwhile
        again = self._path if self._doubtful else None
        self._thread = self._thread or ThreadPoolExecutor(1, "disk")
        loop = asyncio.get_running_loop()
        bringing = loop.run_in_executor(self._thread, _bring, own, again)
        turn = self._turn = loop.create_task(self._end_turn(bringing, own, end))
        turn.add_done_callback(_retrieve)  # the callers that wait may be gone
        return turn

    async def _end_turn(self, bringing: asyncio.Future[None], own: int, end: int) -> None:
        """Note a turn's result together with its end: a caller between the two would wait forever."""
        try:
            await bringing
        except BaseException:  # also if cancelled: the state of the disk is unknown then
            self._doubtful = True
            raise
        else:
            self._safe, self._doubtful = max(self._safe, end), False
        finally:
            os.close(own)
            self._turn = None


def _retrieve(turn: asyncio.Task[None]) -> None:
    if not turn.cancelled():
        turn.exception()


def _bring(file: int, again: Path | None) -> None:
    """Sync a file to disk.

    `again` is its path if the last sync failed: Linux reports such an error once, and then treats the lost pages as
    clean, so the whole file is rewritten first.
    """
    if again is not None:
        _write_again(again)
    os.fdatasync(file)


def _write_again(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        at = 0
        while block := os.pread(descriptor, _BLOCK, at):
            os.pwrite(descriptor, block, at)
            at += len(block)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Segment:
    """One file; `start` is the offset of its beginning in the whole journal. `size` is its own.

    `descriptor` is that of the growing file, within `pin_files`.
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
    matches = ((pattern.fullmatch(one.name), one) for one in path.parent.iterdir())
    return sorted(
        (Segment(one, int(match[1]), one.stat().st_size) for match, one in matches if match), key=lambda one: one.start
    )


def all_segments(path: Path) -> list[Segment]:
    """Return every file of a journal, oldest first; the last is the growing one, if it exists."""
    with pin_files(path) as segments:
        return [replace(segment, descriptor=-1) for segment in segments]


@contextmanager
def pin_files(path: Path) -> Iterator[list[Segment]]:
    """Yield every file, readable within this context even if the journal is rotated meanwhile.

    The growing file is opened first: after a rotation, its name belongs to another file.
    """
    try:
        descriptor = open_file(path)
    except FileNotFoundError:
        yield closed_segments(path)
        return
    try:
        growing = os.fstat(descriptor)
        segments = [one for one in closed_segments(path) if not os.path.samestat(one.path.stat(), growing)]
        if growing.st_size:
            start = _start_in(descriptor)
            segments = [one for one in segments if one.start < start]  # others were closed while this one was opened
        else:
            start = segments[-1].end if segments else 0  # it was just begun
        yield [*segments, Segment(path, start, growing.st_size, descriptor)]
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
    with pin_files(path) as segments:
        for segment in segments:
            if segment.end <= start and segment.size:
                continue
            with segment.open() as file:
                for offset, raw in raw_lines(file, max(0, start - segment.start)):
                    yield segment.start + offset, raw


def lines_backwards(path: Path) -> Iterator[bytes]:
    """Yield the lines of a whole journal, last first."""
    with pin_files(path) as segments:
        for segment in reversed(segments):
            with segment.open() as file:
                yield from (raw for _, raw in raw_lines_backwards(file.fileno(), segment.size) if raw)


def line_before(path: Path, offset: int) -> bytes | None:
    """Return the line of a whole journal that ends at byte `offset`, None if there is none."""
    with pin_files(path) as segments:
        for segment in segments:
            if segment.start < offset <= segment.end:
                with segment.open() as file:
                    descriptor, at = file.fileno(), offset - segment.start
                    if os.pread(descriptor, 1, at - 1) != b"\n":
                        return None
                    return next((raw for _, raw in raw_lines_backwards(descriptor, at) if raw), None)
    return None


def open_alone(path: Path) -> int:
    """Open or create a journal that no other process may write. Raises `StartError` and OSError."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.stat(path)):
            raise BlockingIOError  # its holder rotated the journal at this moment
        os.fchmod(descriptor, 0o600)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StartError(
            f"another process writes the journal {path}: end it, or give this one a separate journal"
        ) from error
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
