"""Old values are deleted, in the journal and in the database, and the chain can still be verified."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from gateway.model import AuditRecord
from gateway.stores.filler import Filler
from gateway.stores.heads import new_key
from gateway.stores.journal import Journal, Keeping
from gateway.stores.records import Filter, Records
from gateway.stores.retention import Retention
from gateway.stores.sql import Database
from gateway.stores.verify import found_in, verify_chain

DAY = 86400.0
START = 1_700_000_000.0


@pytest.mark.parametrize("size", [10**9, 1000])
async def test_old_values_are_deleted_and_the_chain_holds(tmp_path: Path, size: int) -> None:
    """In every file of the journal and in the database; younger values stay; repeating it changes nothing."""
    key, path, clock = new_key(), tmp_path / "journal", [START]
    keeping = Keeping(size=size)
    async with (
        Database(f"sqlite:///{tmp_path}/gateway.db") as database,
        Journal(path, key=key, now=lambda: clock[0], keeping=keeping) as journal,
    ):
        records = Records(database)
        for day in range(10):
            clock[0] = START + day * DAY
            journal.append(AuditRecord(f"d{day}", "outcome", clock[0], {"app": "cart", "who": f"private-{day}"}))
            journal.rotate()
        retention = Retention(journal, database, 3.5 * DAY, lambda: clock[0])
        filling = asyncio.ensure_future(Filler(records, journal).run())
        while len(await records.query(100)) < 10:
            await asyncio.sleep(0.01)
        assert await retention.delete() == 6
        assert await retention.delete() == 0
        kept = await records.query(100, Filter(app="cart"))
        end = journal.position
        while (position := await records.position(journal.chain)) is None or position.end < end:
            await asyncio.sleep(0.01)
        found = [line async for line in records.lines(journal.chain)]
        filling.cancel()
        everything = b"".join(one.read_bytes() for one in tmp_path.glob("journal*"))
    for day in range(10):
        assert (f"private-{day}".encode() in everything) == (day >= 6)
        assert (f"private-{day}".encode() in b"".join(line.raw or b"" for line in found)) == (day >= 6)
    assert [one.id for one in kept] == ["d9", "d8", "d7", "d6"]
    verdict = verify_chain(found_in(path), [key.public])
    assert verdict.sound, verdict.problems
    assert verdict.deleted == 6
    verdict = verify_chain(found, [key.public])
    assert verdict.sound, verdict.problems
    assert verdict.deleted == 6


async def test_what_was_set_aside_goes_too(tmp_path: Path) -> None:
    """Once it is old enough."""
    path = tmp_path / "journal"
    old, young = tmp_path / "journal.torn-1-aa", tmp_path / "journal.torn-2-bb"
    for file in (old, young):
        file.write_text("private")
    os.utime(old, (START, START))
    async with Journal(path) as journal:
        await Retention(journal, None, DAY).delete()
    assert (old.exists(), young.exists()) == (False, True)


async def test_a_file_that_cannot_be_changed_keeps_its_values_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other files, torn lines set aside and the database lose theirs; then the error is raised; a retry works."""
    path, clock, opened = tmp_path / "journal", [START], os.open
    aside = tmp_path / "journal.torn-1-aa"
    aside.write_text("private")
    os.utime(aside, (START, START))
    async with (
        Database(f"sqlite:///{tmp_path}/gateway.db") as database,
        Journal(path, now=lambda: clock[0], keeping=Keeping(size=1)) as journal,
    ):
        records = Records(database)
        for day in range(3):
            journal.append(AuditRecord(f"d{day}", "outcome", START, {"app": "cart", "who": f"private-{day}"}))
            journal.rotate()
        filling = asyncio.ensure_future(Filler(records, journal).run())
        while len(await records.query(100)) < 3:
            await asyncio.sleep(0.01)
        filling.cancel()
        clock[0] = START + 5 * DAY
        first = min(one for one in tmp_path.glob("journal*") if b"private-0" in one.read_bytes())

        def refuses(file: Any, flags: int, *more: Any, **named: Any) -> int:
            if Path(file) == first and flags & os.O_WRONLY:
                raise PermissionError(13, "not permitted", str(file))
            return opened(file, flags, *more, **named)

        monkeypatch.setattr(os, "open", refuses)
        with pytest.raises(PermissionError):
            await Retention(journal, database, DAY, lambda: clock[0]).delete()
        monkeypatch.undo()
        held = [name for name in ("private-0", "private-1", "private-2") if name.encode() in _content(tmp_path)]
        assert (held, aside.exists()) == (["private-0"], False)
        assert await records.query(100, Filter(app="cart")) == []
        assert await Retention(journal, database, DAY, lambda: clock[0]).delete() == 1


def _content(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.glob("journal*"))


async def test_a_journal_with_deleted_values_is_taken_up(tmp_path: Path) -> None:
    """A start continues from the end of the one before."""
    path, key = tmp_path / "journal", new_key()
    async with Journal(path, key=key, now=lambda: START) as journal:
        journal.append(AuditRecord("a", "intent", START, {"url": "/a"}))
        await Retention(journal, None, DAY, lambda: START + 2 * DAY).delete()
    async with Journal(path, key=key, now=lambda: START + 2 * DAY):
        pass
    assert verify_chain(found_in(path), [key.public]).sound
