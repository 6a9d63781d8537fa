"""The lines of the record that a page of the console receives."""

from __future__ import annotations

from pathlib import Path

from gateway.doors.authorization import Lines
from gateway.model import LOCAL, AuditRecord
from gateway.stores.journal import Journal


async def test_what_a_journal_says_of_itself_is_nobody_s_request(tmp_path: Path) -> None:
    """Signed heads between the lines of requests are left out."""
    async with Journal(tmp_path / "journal") as journal:
        with journal.subscribe() as follower:
            journal.append(AuditRecord("1", "outcome", 1.0, {"principal": LOCAL.id}))
            journal.seal()
            journal.append(AuditRecord("2", "outcome", 2.0, {"principal": LOCAL.id}))
            seen = Lines(LOCAL)
            follower.end()
            assert [line.record.id async for line in follower if seen.sees(line)] == ["1", "2"]
