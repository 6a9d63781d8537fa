"""The record of the tests of `audit`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.model import AuditRecord, Json
from gateway.stores.filler import Filler
from gateway.stores.heads import key_in
from gateway.stores.journal import Journal
from gateway.stores.records import Records
from gateway.stores.sql import Database
from tests.cli.audited import START, fields


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A gateway.yaml with the record of twelve exchanges, one refused, one of unknown result, one approval."""
    path = tmp_path / "gateway.journal"
    (tmp_path / "gateway.yaml").write_text("apps: {}\n")
    now = [START]
    key = key_in(tmp_path / "gateway.journal.key")

    def at(seconds: float) -> float:
        now[0] = START + seconds
        return now[0]

    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        records = Records(database)
        async with Journal(path, key=key, now=lambda: now[0]) as journal, asyncio.TaskGroup() as tasks:
            filling = tasks.create_task(Filler(records, journal).run())
            for number in range(10):
                said = fields(number)
                journal.append(AuditRecord(f"r{number}", "intent", at(number), said))
                ended: dict[str, Json] = {**said, "status": 200, "reason": None, "timing": {"send": 1.5}}
                journal.append(AuditRecord(f"r{number}", "outcome", at(number + 0.5), ended))
            refused = fields(10, decision="deny", status=403, reason="policy-denied", detail="=cmd()\x1b[31m")
            journal.append(AuditRecord("r10", "outcome", at(10), refused))
            asked: dict[str, Json] = {
                "kind": "approval",
                "app": "cart",
                "principal": "idp|web|ada",
                "decision": "approved",
            }
            journal.append(AuditRecord("a1", "outcome", at(11), {**asked, "status": 200}))
            journal.append(
                AuditRecord("r11", "intent", at(12), fields(11, url="/<script>alert(1)</script>", cause="r10"))
            )
            journal.seal()
            end = journal.position
            async with asyncio.timeout(60):
                while (found := await records.position(journal.chain)) is None or found.end < end:
                    await asyncio.sleep(0.01)
                while journal._copied_heads.get(records.name) != found.hash:  # the last head says so
                    await asyncio.sleep(0.01)
            filling.cancel()
    return tmp_path
