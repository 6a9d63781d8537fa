"""Syncs a file to disk: all callers that wait at the same time share one sync."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

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

    async def reached(self) -> None:
        """Wait until everything that is written now is on the disk. Raises OSError if that fails.

        A thread syncs, one turn after the other: all callers that arrive during one turn share the next.
        """
        _, end = self._now()
        while self._safe < end:
            await asyncio.shield(self._turn or self._begun())

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

    def _begun(self) -> asyncio.Task[None]:
        file, end = self._now()
        own = os.dup(file)  # the original may be closed meanwhile
        again = self._path if self._doubtful else None
        self._thread = self._thread or ThreadPoolExecutor(1, "disk")
        loop = asyncio.get_running_loop()
        brought = loop.run_in_executor(self._thread, _bring, own, again)
        turn = self._turn = loop.create_task(self._ended(brought, own, end))
        turn.add_done_callback(_known)  # the callers that wait may be gone
        return turn

    async def _ended(self, brought: asyncio.Future[None], own: int, end: int) -> None:
        """Note a turn's result together with its end: a caller between the two would wait forever."""
        try:
            await brought
        except BaseException:  # also if cancelled: the state of the disk is unknown then
            self._doubtful = True
            raise
        else:
            self._safe, self._doubtful = max(self._safe, end), False
        finally:
            os.close(own)
            self._turn = None


def _known(turn: asyncio.Task[None]) -> None:
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
