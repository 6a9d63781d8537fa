"""`audit …`: what the record says to a person and to a program, and what it proves."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import text

from gateway.cli import main
from gateway.cli.audit.shown import table
from gateway.config import load_config
from gateway.model import AuditRecord, Json
from gateway.recording import journal as journal_of
from gateway.stores.filler import Filler
from gateway.stores.heads import Key, key_in
from gateway.stores.journal import Journal
from gateway.stores.lines import read_line, write_line
from gateway.stores.records import Record, Records
from gateway.stores.sql import Database

START = 1_790_000_000.0
SIGNED = Key.signed


def fields(number: int, **others: Json) -> dict[str, Json]:
    """What an exchange says."""
    return {
        "kind": "http",
        "principal": "idp|cli|ada" if number % 2 else "idp|cli|bob",
        "app": "cart" if number % 3 else "desk",
        "view": f"v{number % 2}",
        "door": "bridge",
        "initiator": ("person", "page", "model")[number % 3],
        "method": "POST" if number % 2 else "GET",
        "url": f"/api/items/{number}",
        "route": "items",
        "decision": "allow",
        "trace": f"{number:032x}",
        **others,
    }


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
            async with asyncio.timeout(20):
                while (found := await records.position(journal.chain)) is None or found.end < end:
                    await asyncio.sleep(0.01)
            filling.cancel()
    return tmp_path


def run(folder: Path, *arguments: str) -> Result:
    """`webmcp-gateway audit …` with the configuration of `folder`."""
    command, *rest = arguments
    return CliRunner().invoke(main, ["audit", command, "--config", str(folder / "gateway.yaml"), *rest])


def test_what_is_not_copied_yet(folder: Path) -> None:
    """A query finds what stands in the journal alone: new records, outcomes of old ones, and what no longer fits."""

    async def write() -> None:
        key = key_in(folder / "gateway.journal.key")
        async with Journal(folder / "gateway.journal", key=key, now=lambda: START + 20) as journal:
            # the start says of r11, whose intent is in the database, that its result is unknown
            journal.append(AuditRecord("r12", "intent", START + 21, fields(12)))
            journal.append(AuditRecord("r12", "outcome", START + 22, fields(12, status=404)))
            journal.append(AuditRecord("r13", "intent", START + 23, fields(13)))

    asyncio.run(write())
    found = {one["id"]: one for one in json.loads(run(folder, "query", "--json").stdout)}
    assert list(found)[-4:] == ["a1", "r11", "r12", "r13"]
    assert (found["r11"]["reason"], found["r11"]["url"]) == ("result-unknown", "/<script>alert(1)</script>")
    assert (found["r12"]["status"], found["r13"]["ended"]) == (404, None)
    assert ids(run(folder, "query", "--json", "--reason", "result-unknown")) == ["r11"]
    assert ids(run(folder, "query", "--json", "--limit", "1")) == ["r13"]


async def changed(folder: Path, *statements: str) -> None:
    """Somebody who may write to the database has."""
    async with Database(f"sqlite:///{folder}/gateway.db") as database, database.connect() as connection:
        for statement in statements:
            await connection.exec_driver_sql(statement)
        await connection.commit()


def ids(result: Result) -> list[str]:
    """The ids in a JSON answer."""
    assert result.exit_code == 0, result.output
    return [one["id"] for one in json.loads(result.stdout)]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--limit", "2"], ["a1", "r11"]),
        (["--app", "desk", "--initiator", "person"], ["r0", "r3", "r6", "r9"]),
        (["--principal", "idp|cli|ada", "--view", "v1", "--limit", "2"], ["r9", "r11"]),
        (["--decision", "deny"], ["r10"]),
        (["--reason", "policy-denied"], ["r10"]),
        (["--trace", f"{7:032x}"], ["r7"]),
        (["--id", "r10"], ["r10", "r11"]),
        (["--since", "2026-09-21T14:13:28", "--until", "2026-09-21T14:13:30"], ["r8", "r9"]),
        (["--door", "mcp"], []),
    ],
)
async def test_queries(folder: Path, options: list[str], found: list[str]) -> None:
    """The database and the journal give the same."""
    assert ids(await asyncio.to_thread(run, folder, "query", "--json", *options)) == found
    journal = ["--record", str(folder / "gateway.journal")]
    assert sorted(ids(await asyncio.to_thread(run, folder, "query", "--json", *journal, *options))) == sorted(found)


async def test_a_table_shows_no_control_characters(folder: Path) -> None:
    """And says where nobody knows how a call ended."""
    result = await asyncio.to_thread(run, folder, "query")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "unknown" in result.stdout
    assert "r11" in result.stdout


def test_one_long_cell_does_not_widen_the_others() -> None:
    """It is shown whole, and moves nothing but what is behind it."""
    url = "/" + "a" * 2000
    records = [Record(id, START, START, {"method": "GET", "url": at}) for id, at in (("r1", url), ("r2", "/"))]
    _, first, second = table(records).splitlines()
    assert url in first
    assert len(second) < 200


async def test_tail(folder: Path) -> None:
    """The last ones, of the journal."""
    result = await asyncio.to_thread(run, folder, "tail", "-n", "3", "--json")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["r10", "a1", "r11"]


async def test_what_waits_for_a_person(folder: Path) -> None:
    """Tail and query say that a call waits, and for which answer; a backend's own 202 to an approved one stays that."""
    waits: dict[str, Json] = {**fields(12), "status": 202, "approval": "q12"}
    async with Journal(folder / "gateway.journal", key=key_in(folder / "gateway.journal.key")) as journal:
        journal.append(AuditRecord("r12", "outcome", START + 21, waits))
        journal.append(AuditRecord("r13", "outcome", START + 22, {**waits, "answered_by": "ada"}))
    for command in (["tail", "-n", "2"], ["query", "--limit", "2"]):
        lines = (await asyncio.to_thread(run, folder, *command)).stdout.splitlines()[-2:]
        assert [line.split()[-4:] for line in lines] == [
            ["waits", "approval", "q12", "r12"],
            ["/api/items/12", "allow", "202", "r13"],
        ]


async def test_exports(folder: Path) -> None:
    """Everything, as JSON lines and as CSV in which nothing is a formula."""
    lines = (await asyncio.to_thread(run, folder, "export")).stdout.splitlines()
    assert len(lines) == 13
    assert json.loads(lines[0])["timing"] == {"send": 1.5}
    rows = list(csv.DictReader(io.StringIO((await asyncio.to_thread(run, folder, "export", "--format", "csv")).stdout)))
    assert len(rows) == 13
    (refused,) = [row for row in rows if row["id"] == "r10"]
    assert refused["detail"].startswith("'=cmd")
    assert (refused["status"], refused["reason"]) == ("403", "policy-denied")


async def test_report(folder: Path) -> None:
    """One page that loads nothing, with every value escaped."""
    result = await asyncio.to_thread(run, folder, "report", "--since", "2026-09-01", "--until", "2026-10-01")
    assert result.exit_code == 0, result.output
    page = result.stdout
    assert "policy-denied" in page
    assert "approved" in page
    assert "&lt;script&gt;" in page
    assert not any(word in page for word in ("<script", "http://", "https://", "src=", "url("))


async def test_verify(folder: Path) -> None:
    """Journal and database are proven to their last head."""
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("proven to head") == 2
    told = json.loads((await asyncio.to_thread(run, folder, "verify", "--json")).stdout)
    assert [one["ok"] for one in told["records"]] == [True, True]


async def test_verify_with_the_public_key_alone(folder: Path) -> None:
    """As an auditor has it; without one it says so."""
    public = (await asyncio.to_thread(run, folder, "key")).stdout.strip()
    (folder / "gateway.journal.key").unlink()
    assert (await asyncio.to_thread(run, folder, "verify")).exit_code == 2
    assert (await asyncio.to_thread(run, folder, "verify", "--key", public)).exit_code == 0
    assert (await asyncio.to_thread(run, folder, "verify", "--any-key")).exit_code == 0
    other = await asyncio.to_thread(run, folder, "verify", "--key", key_in(folder / "other").public)
    assert other.exit_code == 1
    assert "not one that you trust" in other.stdout


async def test_a_journal_that_was_cut_off_behind_a_head(folder: Path) -> None:
    """The database knows a later head; without it, one that somebody kept does."""
    path = folder / "gateway.journal"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    assert "gateway.journal:1 is head 1, the last one, and head 2 is known" in result.stdout
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
    """By whoever may write to it; the journal stays proven."""
    await changed(folder, change)
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    assert "gateway.journal: 25 lines" in result.stdout
    assert problem in result.stdout.partition("database")[2]


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
    """With or without the note that it was there."""
    await changed(folder, *changes)
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    assert problem in result.stdout


async def goes_on(folder: Path) -> None:
    """The gateway runs once more: what was copied before, the last head says."""
    key = key_in(folder / "gateway.journal.key")
    async with (
        Database(f"sqlite:///{folder}/gateway.db") as database,
        Journal(folder / "gateway.journal", key=key, now=lambda: START + 60) as journal,
        asyncio.TaskGroup() as tasks,
    ):
        records = Records(database)
        filling = tasks.create_task(Filler(records, journal).run())
        async with asyncio.timeout(20):
            while (position := await records.position(journal.chain)) is None or position.end < journal.position:
                await asyncio.sleep(0.01)
        journal.append(AuditRecord("r12", "outcome", START + 61, fields(12)))
        filling.cancel()


async def cut_off(folder: Path) -> None:
    """Take all but the first line out of the database, and set back how far it was."""
    async with Database(f"sqlite:///{folder}/gateway.db") as database, database.connect() as connection:
        (first,) = await connection.execute(text("SELECT position, line FROM audit WHERE phase = 'note' LIMIT 1"))
    place = f"UPDATE audit_filled SET \"offset\" = {first.position}, hash = '{read_line(first.line.encode()).hash}'"
    await changed(folder, f"DELETE FROM audit WHERE NOT (position <= {first.position})", place)


async def test_the_end_of_a_journal_that_was_taken_out_of_the_database(folder: Path) -> None:
    """Together with the note of how far it was: the heads of the journal say how far the database was."""
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
    key: Key, writer: str, seq: int, prev: str, time: float, fields: Mapping[str, Json]
) -> dict[str, Json]:
    """A head as gateways of before wrote it."""
    return SIGNED(key, writer, seq, prev, time, {name: value for name, value in fields.items() if name != "copied"})


async def test_the_end_of_a_journal_of_before_that_was_taken_out_of_the_database(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no head says how far the database was, the journal beside it goes on."""
    path = folder / "gateway.journal"
    key = key_in(folder / "gateway.journal.key")
    path.unlink()
    with monkeypatch.context() as old:
        old.setattr(Key, "signed", without_copied)
        async with Journal(path, key=key, now=lambda: START) as journal:
            journal.append(AuditRecord("r0", "outcome", START, fields(0)))
            async with Database(f"sqlite:///{folder}/old.db") as database, asyncio.TaskGroup() as tasks:
                filling = tasks.create_task(Filler(Records(database), journal).run())
                async with asyncio.timeout(20):
                    while not await Records(database).query(1):
                        await asyncio.sleep(0.01)
                filling.cancel()
    (folder / "old.db").replace(folder / "gateway.db")
    for left in folder.glob("gateway.db-*"):
        left.unlink()
    await cut_off(folder)
    assert (await asyncio.to_thread(run, folder, "verify")).exit_code == 0  # a moment behind is usual
    with monkeypatch.context() as old:
        old.setattr(Key, "signed", without_copied)
        async with Journal(path, key=key, now=lambda: START + 3600):
            pass
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    database_said = result.stdout.partition("database")[2]
    assert "number 1 is the last line here, and the journal goes on for 3,600 s" in database_said


async def test_a_database_that_is_behind_its_journal(folder: Path) -> None:
    """However long: it was down, or the gateway was killed before it had copied what came after a long pause."""
    async with Journal(
        folder / "gateway.journal", key=key_in(folder / "gateway.journal.key"), now=lambda: START + 3600
    ):
        pass
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 0, result.stdout


async def test_a_note_of_how_far_the_database_is_that_was_set_back(folder: Path) -> None:
    """The lines are there: nothing is missing, whoever wrote the note last."""
    async with Database(f"sqlite:///{folder}/gateway.db") as database, database.connect() as connection:
        (first,) = await connection.execute(text("SELECT position, line FROM audit WHERE phase = 'note' LIMIT 1"))
    place = f"UPDATE audit_filled SET \"offset\" = {first.position}, hash = '{read_line(first.line.encode()).hash}'"
    await changed(folder, place)
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 0, result.stdout


async def test_a_journal_of_another_process_that_was_taken_out_of_the_database(folder: Path) -> None:
    """The heads of those that stood beside it know of it, also those of a later start."""
    async with Database(f"sqlite:///{folder}/gateway.db") as database:
        records = Records(database)
        key = key_in(folder / "gateway.journal.key")
        for name, starts in (("other.journal", 1), ("gateway.journal", 2)):
            for _ in range(starts):
                async with Journal(folder / name, key=key) as journal:
                    await _filled(records, journal)
            if name == "other.journal":
                gone = journal.chain
    assert (await asyncio.to_thread(run, folder, "verify")).exit_code == 0
    await changed(folder, *(f"DELETE FROM {table} WHERE chain = '{gone}'" for table in ("audit", "audit_filled")))
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    assert f"database, journal {gone}" in result.stdout
    assert "knows" in result.stdout
    assert (await asyncio.to_thread(run, folder, "verify", "--gone", gone)).exit_code == 0


async def _filled(records: Records, journal: Journal) -> None:
    """Until the database has the journal, and it was looked which others it has."""
    done = asyncio.Event()
    filling = asyncio.ensure_future(Filler(records, journal, tell=lambda _: done.set()).run())
    await asyncio.wait_for(done.wait(), 20)
    filling.cancel()


async def test_a_replaced_key_is_known_by_itself(tmp_path: Path) -> None:
    """The gateway keeps the public keys that have signed; the newest is the one that `key` tells."""
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
    """So one that was loosened while the gateway was stopped is seen, under a signature."""
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
    """Named by its number, with exit code 1."""
    path = folder / "gateway.journal"
    lines = path.read_bytes().splitlines()
    line = read_line(lines[7])
    forged = AuditRecord(line.record.id, line.record.phase, line.record.time, {**line.record.fields, "url": "/other"})
    lines[7] = write_line(line.writer, line.seq, line.prev, forged).text.encode()
    path.write_bytes(b"\n".join(lines) + b"\n")
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 1
    assert "gateway.journal:9 does not continue the line before it" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [["verify"], ["verify", "--any-key"], ["query"], ["report"], ["export"], ["tail"]],
    ids=" ".join,
)
def test_before_anything_was_recorded(tmp_path: Path, arguments: list[str]) -> None:
    """It says so, and names the file that will be there, not a key that nobody can have yet."""
    (tmp_path / "gateway.yaml").write_text("apps: {}\n")
    result = run(tmp_path, *arguments)
    assert result.exit_code == 2
    assert f"{tmp_path / 'gateway.journal'}: nothing has been recorded yet" in result.stderr


async def test_a_journal_that_is_gone(folder: Path) -> None:
    """Where the database has what was in it, nobody is told that there never was anything."""
    for path in folder.glob("gateway.journal*"):
        path.unlink()
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 2
    assert "there is no journal, though there is the database" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["query", "--since", "yesterday"], ["query", "--record", "nothing.db"], ["tail"]]
)
def test_what_cannot_be_used(tmp_path: Path, arguments: list[str]) -> None:
    """Exit code 2 and what to write."""
    (tmp_path / "gateway.yaml").write_text("stores: {journal: nothing.journal, database: 'sqlite:///nothing.db'}\n")
    result = run(tmp_path, *arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("option", "named"), [("decision", "'deny'"), ("initiator", "'model'"), ("reason", "'policy-denied'")]
)
def test_a_filter_that_nothing_can_fit_is_refused(folder: Path, option: str, named: str) -> None:
    """With the values that there are, instead of an empty table."""
    result = run(folder, "query", f"--{option}", "maybe")
    assert result.exit_code == 2
    assert named in result.stderr


@pytest.mark.soak
async def test_a_million_lines_are_verified_within_a_minute(tmp_path: Path) -> None:
    """In one process; a change in the last of them is found."""
    path = tmp_path / "gateway.journal"
    async with Journal(path, key=key_in(tmp_path / "gateway.journal.key")) as journal:
        said: dict[str, Json] = {**fields(1), "status": 200, "timing": {"decide": 0.02, "limit": 0.01, "send": 1.5}}
        for number in range(500_000):
            for phase in ("intent", "outcome"):
                journal.append(AuditRecord(f"r{number}", phase, time.time(), said))
            if number % 5000 == 0:
                journal.seal()
    began = time.process_time()
    result = await asyncio.to_thread(run, tmp_path, "verify", "--record", str(path))
    took = time.process_time() - began
    assert result.exit_code == 0, result.output
    assert "1,000,102 lines" in result.stdout
    assert took < 60
    with path.open("r+b") as file:
        file.seek(-3000, 2)
        at = file.tell() + file.read().rindex(b'"app":"cart"') + len(b'"app":"')
        file.seek(at)
        file.write(b"t")
    assert "was altered" in (await asyncio.to_thread(run, tmp_path, "verify", "--record", str(path))).stdout


@pytest.mark.parametrize("command", ["report", "export"])
async def test_what_is_written_of_the_record_is_its_owners_alone(folder: Path, command: str) -> None:
    """Whatever the umask is; what cannot be written is told of."""
    place, umask = folder / "out", os.umask(0)
    try:
        result = await asyncio.to_thread(run, folder, command, "--since", "2020-01-01", "--output", str(place))
    finally:
        os.umask(umask)
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert "/api/items/4" in place.read_text() or command == "report"
    result = await asyncio.to_thread(run, folder, command, "--output", str(folder / "no" / "out"))
    assert result.exit_code == 1
    assert "No such file" in result.output
