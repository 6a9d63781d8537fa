"""The files of a journal are read while it is rotated."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.model import AuditRecord
from gateway.stores import segments
from gateway.stores.journal import Journal, Keeping
from gateway.stores.lines import read_line
from gateway.stores.segments import line_before, lines_backwards, lines_from
from gateway.stores.verify import found_in, verify_chain


def grow(journal: Journal, number: int) -> None:
    """Append one more line, in a new file."""
    journal.append(AuditRecord(f"r{number}", "outcome", 1000.0, {"app": "cart"}))
    journal.rotate()


async def test_a_journal_that_is_rotated_while_it_is_read(path: Path) -> None:
    """The reader continues in its file, with the lines in their places; none is left out."""
    async with Journal(path, keeping=Keeping(size=1)) as journal:
        grow(journal, 0)
        journal.append(AuditRecord("r1", "outcome", 1000.0, {}))
        seen = journal.position
        forwards, backwards, found = lines_from(path), lines_backwards(path), found_in(path)
        lines, last, checked = [next(forwards)], [next(backwards)], [next(found)]
        for number in range(2, 4):
            grow(journal, number)
        lines += forwards
        last += backwards
        verdict = verify_chain([*checked, *found])
    assert [raw for _, raw in lines if read_line(raw).record.id == "r1"]
    assert [raw for _, raw in lines][: len(last)] == last[::-1]
    assert verdict.sound, verdict.problems
    assert lines[-1][0] >= seen
    for offset, raw in lines:
        assert line_before(path, offset) == raw


@pytest.mark.parametrize("moment", ["before the list", "after the list"])
async def test_a_journal_that_is_rotated_while_it_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """No file is read twice, and none between two others is missing."""
    listed = segments.closed_segments
    async with Journal(path, keeping=Keeping(size=1)) as journal:
        for number in range(2):
            grow(journal, number)

        def closed(of: Path) -> list[segments.Segment]:
            before = listed(of)
            with monkeypatch.context() as again:
                again.setattr(segments, "closed_segments", listed)
                grow(journal, 2)
            return before if moment == "after the list" else listed(of)

        monkeypatch.setattr(segments, "closed_segments", closed)
        raws = [raw for _, raw in lines_from(path)]
        monkeypatch.undo()
    assert [read_line(raw).record.id for raw in raws if read_line(raw).record.id] == ["r0", "r1", "r2"]
    assert len(raws) == len(set(raws))


async def test_a_file_that_was_begun_in_this_moment(path: Path) -> None:
    """It has no line yet, and begins where the previous file ends."""
    async with Journal(path, keeping=Keeping(size=1)) as journal:
        grow(journal, 0)
        end = journal.position
    path.write_bytes(b"")
    *_, last = segments.all_segments(path)
    assert last.start == segments.closed_segments(path)[-1].end < end
