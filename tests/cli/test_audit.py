"""`audit …`: its output for people and for programs."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import stat
from pathlib import Path

import pytest

from gateway.cli.audit.source import table
from gateway.model import AuditRecord, Json
from gateway.stores.heads import key_in
from gateway.stores.journal import Journal
from gateway.stores.records import StoredRecord
from tests.cli.audited import START, execute_statements, fields, ids, run


def test_what_is_not_copied_yet(folder: Path) -> None:
    """A query merges the lines that are only in the journal: new records, and outcomes that complete older ones."""

    async def write() -> None:
        key = key_in(folder / "gateway.journal.key")
        async with Journal(folder / "gateway.journal", key=key, now=lambda: START + 20) as journal:
            # the start records that the result of r11, whose intent is in the database, is unknown
            journal.append(AuditRecord("r12", "intent", START + 21, fields(12)))
            journal.append(AuditRecord("r12", "outcome", START + 22, fields(12, status=404)))
            journal.append(AuditRecord("r13", "intent", START + 23, fields(13)))

    asyncio.run(write())
    found = {one["id"]: one for one in json.loads(run(folder, "query", "--json").stdout)}
    assert list(found) == [*(f"r{number}" for number in range(11)), "a1", "r11", "r12", "r13"]
    assert (found["r11"]["reason"], found["r11"]["url"]) == ("result-unknown", "/<script>alert(1)</script>")
    assert [found[id].get("status") for id in ("r12", "r13")] == [404, None]
    assert [found[id]["ended"] is None for id in ("r11", "r12", "r13")] == [False, False, True]
    assert ids(run(folder, "query", "--json", "--reason", "result-unknown")) == ["r11"]
    assert ids(run(folder, "query", "--json", "--limit", "1")) == ["r13"]


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
    """The database and the journal give the same records."""
    assert ids(await asyncio.to_thread(run, folder, "query", "--json", *options)) == found
    journal = ["--record", str(folder / "gateway.journal")]
    assert sorted(ids(await asyncio.to_thread(run, folder, "query", "--json", *journal, *options))) == sorted(found)


async def test_a_table_shows_no_control_characters(folder: Path) -> None:
    """The table shows that the outcome of a call is unknown."""
    result = await asyncio.to_thread(run, folder, "query")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "unknown" in result.stdout
    assert "r11" in result.stdout


def test_one_long_cell_does_not_widen_the_others() -> None:
    """It is shown in full, and shifts only the cells after it."""
    url = "/" + "a" * 2000
    records = [StoredRecord(id, START, START, {"method": "GET", "url": at}) for id, at in (("r1", url), ("r2", "/"))]
    _, first, second = table(records).splitlines()
    assert url in first
    assert len(second) < 200


async def test_tail(folder: Path) -> None:
    """The last lines of the journal are shown."""
    result = await asyncio.to_thread(run, folder, "tail", "-n", "3", "--json")
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["r10", "a1", "r11"]


async def test_tail_of_nothing(folder: Path) -> None:
    """A message that no record matches is written to standard error, and a missing gateway.yaml has its remedy."""
    result = await asyncio.to_thread(run, folder, "tail", "--app", "none")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.endswith("gateway.journal: no record matches\n")
    (folder / "gateway.yaml").unlink()
    result = await asyncio.to_thread(run, folder, "tail")
    assert (result.exit_code, "`webmcp-gateway init` writes a gateway.yaml" in result.output) == (2, True)


async def test_what_waits_for_a_person(folder: Path) -> None:
    """Tail and query show that a call waits for an approval; a backend's own 202 to an approved call stays a 202."""
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
    """All records are exported, as JSON lines and as CSV in which no cell is a formula."""
    lines = (await asyncio.to_thread(run, folder, "export")).stdout.splitlines()
    assert len(lines) == 13
    assert json.loads(lines[0])["timing"] == {"send": 1.5}
    rows = list(csv.DictReader(io.StringIO((await asyncio.to_thread(run, folder, "export", "--format", "csv")).stdout)))
    assert len(rows) == 13
    (refused,) = [row for row in rows if row["id"] == "r10"]
    assert refused["detail"].startswith("'=cmd")
    assert (refused["status"], refused["reason"]) == ("403", "policy-denied")


async def test_report(folder: Path) -> None:
    """It is one page that loads nothing, with every value escaped."""
    result = await asyncio.to_thread(run, folder, "report", "--since", "2026-09-01", "--until", "2026-10-01")
    assert result.exit_code == 0, result.output
    page = result.stdout
    assert "policy-denied" in page
    assert "approved" in page
    assert "&lt;script&gt;" in page
    assert not any(word in page for word in ("<script", "http://", "https://", "src=", "url("))


@pytest.mark.parametrize(
    "arguments",
    [["verify"], ["verify", "--any-key"], ["query"], ["report"], ["export"], ["tail"]],
    ids=" ".join,
)
def test_before_anything_was_recorded(tmp_path: Path, arguments: list[str]) -> None:
    """The message names the journal, and requires no key that cannot exist yet."""
    (tmp_path / "gateway.yaml").write_text("apps: {}\n")
    result = run(tmp_path, *arguments)
    assert result.exit_code == 2
    assert f"{tmp_path / 'gateway.journal'}: nothing has been recorded yet" in result.stderr


async def test_a_database_without_a_record_is_none(tmp_path: Path) -> None:
    """Commands such as `token list` make the database before the gateway runs for the first time."""
    (tmp_path / "gateway.yaml").write_text("apps: {}\n")
    await execute_statements(tmp_path)
    result = await asyncio.to_thread(run, tmp_path, "verify")
    assert result.exit_code == 2
    assert f"{tmp_path / 'gateway.journal'}: nothing has been recorded yet" in result.stderr


async def test_a_journal_that_is_gone(folder: Path) -> None:
    """If the database has its records, the message does not claim that there were none."""
    for path in folder.glob("gateway.journal*"):
        path.unlink()
    result = await asyncio.to_thread(run, folder, "verify")
    assert result.exit_code == 2
    assert "there is no journal, though there is the database" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["query", "--since", "yesterday"], ["query", "--record", "nothing.db"], ["tail"]]
)
def test_what_cannot_be_used(tmp_path: Path, arguments: list[str]) -> None:
    """The exit code is 2, with the remedy."""
    (tmp_path / "gateway.yaml").write_text("stores: {journal: nothing.journal, database: 'sqlite:///nothing.db'}\n")
    result = run(tmp_path, *arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("option", "named"), [("decision", "'deny'"), ("initiator", "'model'"), ("reason", "'policy-denied'")]
)
def test_a_filter_that_nothing_can_fit_is_refused(folder: Path, option: str, named: str) -> None:
    """The error lists the possible values, instead of an empty table."""
    result = run(folder, "query", f"--{option}", "maybe")
    assert result.exit_code == 2
    assert named in result.stderr


@pytest.mark.parametrize("command", ["report", "export"])
async def test_what_is_written_of_the_record_is_its_owners_alone(folder: Path, command: str) -> None:
    """The umask has no effect; a failure to write is reported."""
    place, umask = folder / "out", os.umask(0)
    try:
        result = await asyncio.to_thread(run, folder, command, "--since", "2020-01-01", "--output", str(place))
    finally:
        os.umask(umask)
    assert result.exit_code == 0, result.output
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert "/api/items/4" in place.read_text() or command == "report"
    result = await asyncio.to_thread(run, folder, command, "--output", str(folder / "no" / "out"))
    assert result.exit_code == 2
    assert "No such file" in result.output


@pytest.mark.parametrize("command", ["query", "report", "export"])
@pytest.mark.parametrize("garbage", [b"\x00\xff\n", b"[]\n", b'{"v": 9}\n', b"[" * 100_000 + b"\n"], ids=range(4))
def test_lines_that_are_no_record_are_told_of(tmp_path: Path, command: str, garbage: bytes) -> None:
    """Their number and the command with details are reported; valid lines are shown."""
    (tmp_path / "gateway.yaml").write_text("apps: {}\n")
    (tmp_path / "gateway.journal").write_bytes(garbage * 3)
    result = run(tmp_path, command)
    assert result.exit_code == 0
    assert (
        f"{tmp_path / 'gateway.journal'}: 3 lines are not records, and are left out; `audit verify` names them"
        in result.stderr
    )


@pytest.mark.parametrize("arguments", [["verify"], ["query"], ["report"], ["export"], ["tail"]], ids=" ".join)
def test_a_folder_in_the_place_of_the_journal(tmp_path: Path, arguments: list[str]) -> None:
    """The message is one line with the place of the setting."""
    (tmp_path / "gateway.yaml").write_text("apps: {}\n")
    (tmp_path / "gateway.journal").mkdir()
    result = run(tmp_path, *arguments)
    assert (result.exit_code, type(result.exception)) == (2, SystemExit)
    assert result.stderr == f"{tmp_path / 'gateway.yaml'}:1:1: journal: write the path of a file\n"
