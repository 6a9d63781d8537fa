"""Tests of `gateway.stores.segments`: which writers wait for the disk, how many share a sync, and its failure."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.model import AuditRecord
from gateway.stores.heads import new_key
from gateway.stores.journal import Journal, Keeping
from gateway.stores.verify import found_in, verify_chain

KEY = new_key()
ALWAYS = Keeping(fsync=True)


class Turns:
    """The system's `fdatasync`, counted, blocked while `open` is not set, and failing `failures` times."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.failures = 0
        self.open = threading.Event()
        self.open.set()
        self._bring = os.fdatasync
        patch.setattr(os, "fdatasync", self)

    def __call__(self, descriptor: int) -> None:
        """Sync once."""
        self.count += 1
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        assert self.open.wait(10)
        self._bring(descriptor)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    return Turns(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


async def append_line(journal: Journal, id: str) -> None:
    """Append one line and wait until it is on the disk."""
    journal.append(AuditRecord(id, "outcome", 1.0, {}))
    await journal.sync()


@pytest.fixture
def bounded() -> Iterator[None]:
    """End a test whose event loop spins, which no timeout of its own could."""

    def end(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("bounded")
async def test_who_comes_as_a_turn_ends_does_not_wait_for_ever(path: Path, turns: Turns) -> None:
    """The sync is done, but its waiters were not woken yet: a line that arrives then takes the next sync."""
    async with Journal(path, key=KEY, keeping=ALWAYS) as journal:
        turns.open.clear()
        first = asyncio.create_task(append_line(journal, "a"))
        await asyncio.sleep(0)
        turns.open.set()
        threading.Event().wait(0.3)  # the loop is blocked while the sync ends
        before = turns.count
        await asyncio.gather(first, asyncio.create_task(append_line(journal, "b")))
        assert turns.count > before


async def test_all_who_come_meanwhile_share_a_turn(path: Path, turns: Turns) -> None:
    """Forty lines that are written during one sync are on the disk with the next."""
    async with Journal(path, keeping=ALWAYS) as journal:
        turns.open.clear()
        before = turns.count
        first = asyncio.ensure_future(append_line(journal, "first"))
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(append_line(journal, str(number))) for number in range(40)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in (first, *others))
        turns.open.set()
        await asyncio.wait_for(asyncio.gather(first, *others), 10)
        assert turns.count - before == 2


async def test_nobody_waits_without_need(path: Path, turns: Turns) -> None:
    """A line that is already on the disk takes no sync; without `fsync` none does."""
    async with Journal(path, keeping=ALWAYS) as journal:
        await append_line(journal, "a")
        before = turns.count
        await journal.sync()
        assert turns.count == before
    async with Journal(path.with_name("other")) as other:
        await append_line(other, "a")
        assert turns.count == before + 1  # the head with which the first journal was closed


async def test_a_new_file_during_a_turn(path: Path, turns: Turns) -> None:
    """Waiters for a line of the previous file are woken."""
    async with Journal(path, key=KEY, keeping=Keeping(fsync=True, size=1)) as journal:
        turns.open.clear()
        waiting = asyncio.ensure_future(append_line(journal, "a"))
        await asyncio.sleep(0)
        turns.open.set()
        assert journal.rotate()
        await asyncio.wait_for(waiting, 10)
        await append_line(journal, "b")
    assert verify_chain(found_in(path), [KEY.public]).sound


async def test_a_disk_that_fails(path: Path, turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    """All waiters get the error; lines that may be lost are written again with the next sync, and the chain holds."""
    again: list[int] = []
    write = os.pwrite

    def counted(descriptor: int, block: bytes, at: int) -> int:
        again.append(len(block))
        return write(descriptor, block, at)

    async with Journal(path, key=KEY, keeping=ALWAYS) as journal:
        await append_line(journal, "a")
        turns.failures = 1
        found = await asyncio.gather(*(append_line(journal, id) for id in "bcd"), return_exceptions=True)
        assert [type(one) for one in found] == [OSError] * 3
        monkeypatch.setattr(os, "pwrite", counted)
        size = journal.size
        await append_line(journal, "e")
        assert sum(again) > size
        await append_line(journal, "f")
        assert sum(again) < 2 * size
    assert verify_chain(found_in(path), [KEY.public]).sound


async def test_one_who_gives_up_takes_nobody_along(path: Path, turns: Turns) -> None:
    """The sync continues for the others."""
    async with Journal(path, keeping=ALWAYS) as journal:
        turns.open.clear()
        one = asyncio.ensure_future(append_line(journal, "a"))
        await asyncio.sleep(0)
        other = asyncio.ensure_future(journal.sync())
        await asyncio.sleep(0)
        one.cancel()
        turns.open.set()
        await asyncio.wait_for(other, 10)
        assert one.cancelled()
