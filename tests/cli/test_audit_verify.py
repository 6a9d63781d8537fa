"""`audit verify`: what the record proves, and how it detects changes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from sqlalchemy import text

from gateway.assembly.audit import journal as journal_of
from gateway.config import load_config
from gateway.model import AuditRecord, Json
from gateway.stores.copying import Stretch, copy
from gateway.stores.filler import Filler
from gateway.stores.heads import JournalKey, key_in
from gateway.stores.journal import Journal
from gateway.stores.lines import read_line, without_values
from gateway.stores.records import Records
from gateway.stores.retention import Retention
from gateway.stores.sql import Database
from gateway.stores.verify import found_in, verify_chain
from tests.calls import counted_calls
from tests.cli.audited import START, execute_statements, fields, run
from tests.stores.journals import write_line

SIGNED = JournalKey.sign


async def test_verify(folder: Path) -> None:
    """Journal and database are verified up to their last head."""
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("proven to head") == 2
    told = json.loads((await asyncio.to_thread(run, folder, "verify", "--json")).stdout)
    assert [one["ok"] for one in told["records"]] == [True, True]


async def test_verify_with_the_public_key_alone(folder: Path) -> None:
    """An auditor has only the public key; without it, the exit code is 2."""
    public = (await asyncio.to_thread(run, folder, "key")).stdout.strip()
    (folder / "gateway.journal.key").unlink()
    assert (await asyncio.to_thread(run, folder, "verify")).exit_code == 2
    assert (await asyncio.to_thread(run, folder, "verify", "--key", public)).exit_code == 0
    assert (await asyncio.to_thread(run, folder, "verify", "--any-key")).exit_code == 0
    other = await asyncio.to_thread(run, folder, "verify", "--key", key_in(folder / "other").public)
    assert other.exit_code == 1
    assert "not one that you trust" in other.stdout
    for missing in ("no-such-file.pub", public[:-4], ""):
        wrong = await asyncio.to_thread(run, folder, "verify", "--key", missing)
        assert (wrong.exit_code, "neither a file nor a public key" in wrong.output) == (2, True), wrong.output


async def test_a_journal_that_was_cut_off_behind_a_head(folder: Path) -> None:
    """The database contains a later head; without it, the number of a kept head reveals the loss."""
    path = folder / "gateway.journal"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    assert "gateway.journal:1 is head 1, the last one, and head 3 is known" in result.stdout
    alone = ["--record", str(path)]
    assert (await asyncio.to_thread(run, folder, "verify", *alone)).exit_code == 0
    assert (await asyncio.to_thread(run, folder, "verify", *alone, "--head", "2")).exit_code == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("DELETE FROM audit WHERE id = 'r4'", "2 before it are missing"),
        ("UPDATE audit SET line = replace(line, '/api/items/4', '/api/items/5') WHERE id = 'r4'", "was altered"),
        ("UPDATE audit SET position = position + 10000 WHERE id = 'r4'", "before it are missing"),
        ("DELETE FROM audit WHERE position > 5000", "lines after it are missing"),
    ],
)
async def test_a_database_that_was_changed(folder: Path, change: str, problem: str) -> None:
    """An attacker with write access can do so; the journal is still proven."""
    await execute_statements(folder, change)
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    assert "gateway.journal: 27 lines" in result.stdout
    assert problem in result.stdout.partition("database")[2]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("app", "'other'"), ("principal", "NULL"), ("view", "'v9'"), ("door", "'site'"), ("initiator", "'person'")),
        *(("decision", "'deny'"), ("reason", "'cancelled'"), ("trace", "'0'"), ("client", "'192.0.2.1'")),
        *(("status", "500"), ("opens", "NOT opens"), ("phase", "'note'"), ("id", "'r3'"), ("time", "time - 86400")),
        *(("seq", "seq + 1000"), ("writer", "'0123456789abcdef'")),
    ],
)
@pytest.mark.parametrize("phase", ["intent", "outcome"])
async def test_a_column_by_which_records_are_found(folder: Path, phase: str, column: str, value: str) -> None:
    """A change hides a record from queries, or attributes it to another, though its line is intact."""
    await execute_statements(folder, f"UPDATE audit SET {column} = {value} WHERE id = 'r4' AND phase = '{phase}'")
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1, result.stdout
    assert f"was altered: its column {column} differs from the line" in result.stdout.partition("database")[2]


async def test_a_database_that_is_gone(folder: Path) -> None:
    """The heads in the journal record that it existed."""
    for file in folder.glob("gateway.db*"):
        file.unlink()
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    assert "its own file is here" in result.stdout


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (["DELETE FROM audit"], "all its lines are missing"),
        (["DELETE FROM audit", "DELETE FROM audit_filled"], "its own file is here"),
    ],
)
async def test_a_whole_journal_that_was_taken_out_of_the_database(
    folder: Path, changes: list[str], problem: str
) -> None:
    """The loss is found with or without the row of the fill position."""
    await execute_statements(folder, *changes)
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    assert problem in result.stdout


async def goes_on(folder: Path) -> None:
    """Run the gateway once more, so that the last head records what was copied."""
    key = key_in(folder / "gateway.journal.key")
    async with (
        Database(f"sqlite:///{folder}/gateway.db") as database,
        Journal(folder / "gateway.journal", key=key, now=lambda: START + 60) as journal,
        asyncio.TaskGroup() as tasks,
    ):
        records = Records(database)
        filling = tasks.create_task(Filler(records, journal).run())
        async with asyncio.timeout(60):
            while (position := await records.position(journal.chain)) is None or position.end < journal.position:
                await asyncio.sleep(0.01)
        journal.append(AuditRecord("r12", "outcome", START + 61, fields(12)))
        filling.cancel()


async def cut_off(folder: Path) -> None:
    """Delete all but the first lines from the database, and reset the fill position."""
    async with Database(f"sqlite:///{folder}/gateway.db") as database, database.connect() as connection:
        (first,) = await connection.execute(text("SELECT position, line FROM audit WHERE phase = 'note' LIMIT 1"))
    place = f"UPDATE audit_filled SET \"offset\" = {first.position}, hash = '{read_line(first.line.encode()).hash}'"
    await execute_statements(folder, f"DELETE FROM audit WHERE NOT (position <= {first.position})", place)


async def test_the_end_of_a_journal_that_was_taken_out_of_the_database(folder: Path) -> None:
    """With the fill position reset as well, the heads of the journal reveal how far the database was."""
    await goes_on(folder)
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 0, result.stdout
    await cut_off(folder)
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    assert "NOT PROVEN" not in result.stdout.partition("database")[0]
    database_said = result.stdout.partition("database")[2]
    assert "is the last line, and lines after it are missing, which it had when the last head" in database_said


def without_copied(
    key: JournalKey, writer: str, seq: int, prev: str, time: float, fields: Mapping[str, Json]
) -> dict[str, Json]:
    """A head in the format of earlier versions."""
    return SIGNED(key, writer, seq, prev, time, {name: value for name, value in fields.items() if name != "copied"})


async def test_the_end_of_a_journal_of_before_that_was_taken_out_of_the_database(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No head records how far the database was, but the journal beside it continues."""
    path = folder / "gateway.journal"
    key = key_in(folder / "gateway.journal.key")
    path.unlink()
    with monkeypatch.context() as old:
        old.setattr(JournalKey, "sign", without_copied)
        async with Journal(path, key=key, now=lambda: START) as journal:
            journal.append(AuditRecord("r0", "outcome", START, fields(0)))
            async with Database(f"sqlite:///{folder}/old.db") as database, asyncio.TaskGroup() as tasks:
                filling = tasks.create_task(Filler(Records(database), journal).run())
                async with asyncio.timeout(60):
                    while not await Records(database).query(1):
                        await asyncio.sleep(0.01)
                filling.cancel()
    (folder / "old.db").replace(folder / "gateway.db")
    for left in folder.glob("gateway.db-*"):
        left.unlink()
    await cut_off(folder)
    assert (await asyncio.to_thread(run, folder, "verify")).exit_code == 0  # a short delay is usual
    with monkeypatch.context() as old:
        old.setattr(JournalKey, "sign", without_copied)
        async with Journal(path, key=key, now=lambda: START + 3600):
            pass
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    database_said = result.stdout.partition("database")[2]
    assert "number 1 is the last line here, and the journal continues for 3,600 s" in database_said


async def test_a_database_that_is_behind_its_journal(folder: Path) -> None:
    """The database may have been down for any time, or the gateway killed before it copied recent lines."""
    async with Journal(
        folder / "gateway.journal", key=key_in(folder / "gateway.journal.key"), now=lambda: START + 3600
    ):
        pass
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 0, result.stdout


async def test_a_last_line_that_was_cut_off(folder: Path) -> None:
    """A kill leaves it: that is said, and the lines before it are proven."""
    path = folder / "gateway.journal"
    async with Journal(path, key=key_in(folder / "gateway.journal.key"), now=lambda: START + 60):
        pass
    path.write_bytes(path.read_bytes()[:-9])
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 0, result.stdout
    assert "gateway.journal:30 is the beginning of a line: it was cut off while it was written" in result.stdout
    assert "NOT PROVEN" not in result.stdout
    (journal, _) = json.loads((await asyncio.to_thread(run, folder, "verify", "--json")).stdout)["records"]
    assert (journal["ok"], journal["cut_off"]) == (True, "gateway.journal:30")


async def test_lines_behind_the_last_head_that_were_taken_out_of_the_journal(folder: Path) -> None:
    """No head proves them, but the database has them."""
    await goes_on(folder)
    await asyncio.to_thread(run, folder, "verify")
    path = folder / "gateway.journal"
    async with Journal(path, key=key_in(folder / "gateway.journal.key"), now=lambda: START + 61) as journal:
        journal.append(AuditRecord("r13", "outcome", START + 61, fields(13)))
        left = path.read_bytes()
        async with Database(f"sqlite:///{folder}/gateway.db") as database:
            await _fill(Records(database), journal)
    path.write_bytes(left)
    assert (await asyncio.to_thread(run, folder, "verify")).exit_code == 0
    for cut in (b"".join(left.splitlines(keepends=True)[:-1]), left[:-9]):
        path.write_bytes(cut)
        result = await asyncio.to_thread(run, folder, "verify")
        assert result.exit_code == 1, result.stdout
        assert "lines after it are missing, which the database has" in result.stdout


async def test_a_database_of_which_nothing_was_copied_yet(tmp_path: Path) -> None:
    """A gateway that is killed right after its first start has created the tables, and its journal has the lines."""
    (tmp_path / "gateway.yaml").write_text("apps: {}\n")
    async with (
        Journal(tmp_path / "gateway.journal", key=key_in(tmp_path / "gateway.journal.key")) as journal,
        Database(f"sqlite:///{tmp_path}/gateway.db"),
    ):
        journal.append(AuditRecord("r1", "outcome", START, fields(1)))
    result = await asyncio.to_thread(run, tmp_path, "verify")
    assert result.exit_code == 0, result.stdout


@pytest.mark.parametrize(
    ("change", "problem"), [(None, None), ("r22", "lost its values, and no retention deleted them")]
)
async def test_values_that_retention_deleted_before_they_were_copied(
    folder: Path, change: str | None, problem: str | None
) -> None:
    """Lines without values are valid in the database only before the head in the journal that records the deletion."""
    key = key_in(folder / "gateway.journal.key")
    now = [START + 60]
    async with (
        Database(f"sqlite:///{folder}/gateway.db") as database,
        Journal(folder / "gateway.journal", key=key, now=lambda: now[0]) as journal,
    ):
        records = Records(database)
        before = await records.position(journal.chain)
        assert before is not None
        for number in (20, 21):
            journal.append(AuditRecord(f"r{number}", "outcome", START + 60, fields(number)))
        now[0] = START + 200
        journal.append(AuditRecord("r22", "outcome", now[0], fields(22)))
        stretch = Stretch(
            str(journal.path), journal.chain, before.end, journal.position, await records.take_over(journal.chain)
        )
        assert await Retention(journal, None, 100, lambda: now[0]).delete() > 2
        await copy(records, stretch)
        if change is not None:
            async with database.connect() as connection:
                (row,) = await connection.execute(text(f"SELECT line FROM audit WHERE id = '{change}'"))
                blank = without_values(row.line.encode())
                assert blank is not None
                values = {"line": blank.decode().rstrip(), "id": change}
                await connection.execute(text("UPDATE audit SET line = :line WHERE id = :id"), values)
                await connection.commit()
    result = await asyncio.to_thread(run, folder, "verify")
    assert (result.exit_code, (problem or "") in result.stdout) == (problem is not None, True), result.stdout
    assert "the values of" in result.stdout.partition("database")[2]
    if change is not None:
        return
    public = (await asyncio.to_thread(run, folder, "key")).stdout.strip()
    alone = await asyncio.to_thread(run, folder, "verify", "--record", str(folder / "gateway.db"), "--key", public)
    assert (alone.exit_code, "UNDECIDED: all lines are proven to head" in alone.stdout) == (3, True), alone.stdout
    assert "NOT PROVEN" not in alone.stdout


async def test_a_note_of_how_far_the_database_is_that_was_set_back(folder: Path) -> None:
    """The lines are there: nothing is missing, whatever the position."""
    async with Database(f"sqlite:///{folder}/gateway.db") as database, database.connect() as connection:
        (first,) = await connection.execute(text("SELECT position, line FROM audit WHERE phase = 'note' LIMIT 1"))
    place = f"UPDATE audit_filled SET \"offset\" = {first.position}, hash = '{read_line(first.line.encode()).hash}'"
    await execute_statements(folder, place)
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 0, result.stdout


async def test_a_journal_of_another_process_that_was_taken_out_of_the_database(folder: Path) -> None:
    """The heads of the other journals know it, also those of a later start."""
    async with Database(f"sqlite:///{folder}/gateway.db") as database:
        records = Records(database)
        key = key_in(folder / "gateway.journal.key")
        for name, starts in (("other.journal", 1), ("gateway.journal", 2)):
            for _ in range(starts):
                async with Journal(folder / name, key=key) as journal:
                    await _fill(records, journal)
            if name == "other.journal":
                gone = journal.chain
    assert (await asyncio.to_thread(run, folder, "verify")).exit_code == 0
    await execute_statements(
        folder, *(f"DELETE FROM {table} WHERE chain = '{gone}'" for table in ("audit", "audit_filled"))
    )
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    assert f"database, journal {gone}" in result.stdout
    assert "names it" in result.stdout
    assert (await asyncio.to_thread(run, folder, "verify", "--gone", gone)).exit_code == 0


async def _fill(records: Records, journal: Journal) -> None:
    """Wait until the database has the journal, and the other journals in it were recorded."""
    done = asyncio.Event()
    filling = asyncio.ensure_future(Filler(records, journal, tell=lambda _: done.set()).run())
    await asyncio.wait_for(done.wait(), 20)
    filling.cancel()


async def test_a_replaced_key_is_known_by_itself(tmp_path: Path) -> None:
    """The gateway stores the public keys that have signed; `key` prints the newest."""
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "policy.yaml").write_text("version: 1\n")
    (tmp_path / "gateway.yaml").write_text("apps: {page: {source: index.html, policy: policy.yaml}}\n")
    told = []
    for number in range(3):
        async with journal_of(load_config(tmp_path / "gateway.yaml", {})):
            told.append((await asyncio.to_thread(run, tmp_path, "key")).stdout.strip())
        (tmp_path / "gateway.journal.key").rename(tmp_path / f"{number}.key")
    assert len(set(told)) == 3
    result = await asyncio.to_thread(run, tmp_path, "verify", "--record", str(tmp_path / "gateway.journal"))
    assert result.exit_code == 0, result.output
    assert (await asyncio.to_thread(run, tmp_path, "verify", "--key", told[2])).exit_code == 1
    kept = str(tmp_path / "gateway.journal.keys")
    assert (await asyncio.to_thread(run, tmp_path, "verify", "--key", kept)).exit_code == 0


async def test_each_start_says_which_policies_are_in_effect(tmp_path: Path) -> None:
    """A policy that was loosened while the gateway was stopped is recorded under a signature."""
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / "gateway.yaml").write_text("apps: {page: {source: index.html, policy: policy.yaml}}\n")
    told = []
    for rules in ("version: 1\n", 'version: 1\nroutes: [{path: "/**", deny: no}]\n'):
        (tmp_path / "policy.yaml").write_text(rules)
        config = load_config(tmp_path / "gateway.yaml", {})
        async with journal_of(config):
            lines = [json.loads(raw)["fields"] for raw in config.journal.read_text().splitlines()]
        told.append([one["policies"] for one in lines if "policies" in one][-1])
        assert told[-1] == {"page": config.apps["page"].policy.version}
    assert told[0] != told[1]


async def test_a_line_that_was_forged_in_the_journal(folder: Path) -> None:
    """It is reported by its number, with exit code 1."""
    path = folder / "gateway.journal"
    lines = path.read_bytes().splitlines()
    line = read_line(lines[7])
    forged = AuditRecord(line.record.id, line.record.phase, line.record.time, {**line.record.fields, "url": "/other"})
    lines[7] = write_line(line.writer, line.seq, line.prev, forged).text.encode()
    path.write_bytes(b"\n".join(lines) + b"\n")
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    assert "gateway.journal:9 does not continue the line before it" in result.stdout


async def test_the_work_for_a_line_does_not_grow_with_the_journal(tmp_path: Path) -> None:
    """The lines after the first thousand take as many calls each."""
    taken = []
    for number in (500, 1000, 2000):
        path = tmp_path / f"{number}.journal"
        async with Journal(path) as journal:
            for one in range(number):
                for phase in ("intent", "outcome"):
                    journal.append(AuditRecord(f"r{one}", phase, time.time(), {**fields(1), "status": 200}))
        with counted_calls() as calls:
            assert verify_chain(found_in(path)).sound
        taken.append(calls())
    first, second, third = taken
    assert third - second < 2.1 * (second - first)
    assert third < 60 * 4000


@pytest.mark.soak
async def test_a_million_lines_are_verified(tmp_path: Path) -> None:
    """One process does so; a change in the last line is found."""
    path = tmp_path / "gateway.journal"
    async with Journal(path, key=key_in(tmp_path / "gateway.journal.key")) as journal:
        said: dict[str, Json] = {**fields(1), "status": 200, "timing": {"decide": 0.02, "limit": 0.01, "send": 1.5}}
        for number in range(500_000):
            for phase in ("intent", "outcome"):
                journal.append(AuditRecord(f"r{number}", phase, time.time(), said))
            if number % 5000 == 0:
                journal.seal()
    result = await asyncio.to_thread(run, tmp_path, "verify", "--record", str(path))
    assert result.exit_code == 0, result.output
    assert "1,000,102 lines" in result.stdout
    with path.open("r+b") as file:
        file.seek(-3000, 2)
        at = file.tell() + file.read().rindex(b'"app":"cart"') + len(b'"app":"')
        file.seek(at)
        file.write(b"t")
    assert "was altered" in (await asyncio.to_thread(run, tmp_path, "verify", "--record", str(path))).stdout
