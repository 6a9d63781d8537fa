"""Tests of `gateway.stores.journal`: nothing lost, nothing altered unseen, through kills and full disks."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.errors import StartError
from gateway.model import AuditRecord, Json
from gateway.stores.journal import UNKNOWN, Journal
from gateway.stores.lines import NOTE
from gateway.stores.verify import verify
from tests.stores.journals import journal_lines, write_line


def record(id: str, phase: str = "outcome", **fields: Json) -> AuditRecord:
    return AuditRecord(id, phase, 1000.0, {"app": "cart", **fields})


def line_phases(path: Path) -> list[tuple[str, str]]:
    """Return id and phase of all lines but the journal's notes."""
    return [(line.record.id, line.record.phase) for line in journal_lines(path) if line.record.phase != NOTE]


def aside(path: Path) -> list[Json]:
    """Return the files of torn lines that the journal's notes name."""
    return [line.record.fields["set_aside"] for line in journal_lines(path) if "set_aside" in line.record.fields]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


async def write(path: Path, *records: AuditRecord) -> None:
    """Open, append, close."""
    async with Journal(path) as journal:
        for one in records:
            journal.append(one)


async def write_and_die(path: Path, *records: AuditRecord) -> None:
    """Open, append, and leave the file as a killed process does: without the closing head."""
    async with Journal(path) as journal:
        for one in records:
            journal.append(one)
        left = path.read_bytes()
    path.write_bytes(left)


async def test_lines(path: Path) -> None:
    """The appended records are in the file, in order, as JSON, one per line, readable by the owner only."""
    await write(path, record("a", "intent", url="/x"), record("a", status=200))
    written = [json.loads(text) for text in path.read_text().splitlines()]
    assert [(line["seq"], line["id"], line["phase"]) for line in written[1:3]] == [
        (2, "a", "intent"),
        (3, "a", "outcome"),
    ]
    assert written[1]["fields"] == {"app": "cart", "url": "/x"}
    assert written[2]["prev"] == written[1]["hash"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert verify(path) == []


async def test_in_the_file_at_once(path: Path) -> None:
    """A record is in the file when `append` returns."""
    async with Journal(path) as journal:
        journal.append(record("a"))
        assert line_phases(path) == [("a", "outcome")]


async def test_redaction(path: Path) -> None:
    """A value at a redacted path never reaches the file."""
    async with Journal(path, redact=["$..password"]) as journal:
        journal.append(record("a", body={"password": "hunter2"}))
    assert b"hunter2" not in path.read_bytes()


async def test_resume(path: Path) -> None:
    """A second start continues the chain with a new writer id."""
    await write(path, record("a"))
    await write(path, record("b"))
    assert line_phases(path) == [("a", "outcome"), ("b", "outcome")]
    assert len({line.writer for line in journal_lines(path)}) == 2
    assert verify(path) == []


async def test_one_process_only(path: Path) -> None:
    """A journal that another process has open is refused, with the remedy."""
    async with Journal(path):
        with pytest.raises(StartError, match="a separate journal"):
            async with Journal(path):
                pass
    async with Journal(path):
        pass


async def test_a_file_of_another_kind(path: Path) -> None:
    """A file that is no journal is refused, and left unchanged."""
    path.write_text("dear diary\n")
    with pytest.raises(StartError, match="is not a journal"):
        async with Journal(path):
            pass
    assert path.read_text() == "dear diary\n"


@pytest.mark.parametrize("place", ["missing/journal", "."])
async def test_a_place_that_cannot_be_used(tmp_path: Path, place: str) -> None:
    """With a missing folder, or a folder instead of a file, the start fails and names it."""
    with pytest.raises(StartError, match="cannot be used"):
        async with Journal(tmp_path / place):
            pass


# after a loss of power


@pytest.mark.parametrize("cut", [1, 2, 30, 150])
async def test_torn_last_line(path: Path, cut: int) -> None:
    """An incomplete last line is set aside and reported; the chain continues from the one before it."""
    await write_and_die(path, record("a"), record("b"))
    whole = path.read_bytes()
    os.truncate(path, len(whole) - cut)
    await write(path, record("c"))
    lost = [] if cut == 1 else ["b"]
    assert line_phases(path) == [(id, "outcome") for id in ["a", "b", "c"] if id not in lost]
    assert verify(path) == []
    files = list(path.parent.glob("*.torn-*"))
    if lost:
        last = whole.splitlines(keepends=True)[-1]
        assert [file.read_bytes() for file in files] == [last[:-cut]]
        assert stat.S_IMODE(files[0].stat().st_mode) == 0o600
        assert aside(path) == [files[0].name]
    else:
        assert files == []


async def test_torn_first_line(path: Path) -> None:
    """A journal that is nothing but a torn line can be opened, too."""
    path.write_bytes(b'{"v":1,"writer":"abc","seq":1,"pr')
    await write(path, record("a"))
    assert line_phases(path) == [("a", "outcome")]
    assert verify(path) == []


async def test_blank_tail(path: Path) -> None:
    """A tail of zeros, as file systems leave it, is set aside."""
    await write(path, record("a"))
    with path.open("ab") as file:
        file.write(bytes(5000))
    await write(path, record("b"))
    assert line_phases(path) == [("a", "outcome"), ("b", "outcome")]
    assert verify(path) == []


async def test_intents_without_outcome(path: Path) -> None:
    """An intent without an outcome gets one with an unknown result, at the next start and only then."""
    await write(path, record("a", "intent", url="/a"), record("b", "intent"), record("b"), record("c", "intent"))
    await write(path, record("d", "intent"))
    await write(path)
    await write(path)
    unknown = [line.record for line in journal_lines(path) if line.record.fields.get("reason") == UNKNOWN]
    assert [line.id for line in unknown] == ["a", "c", "d"]
    assert unknown[0].fields["url"] == "/a"
    assert {line.phase for line in unknown} == {"outcome"}


async def test_an_intent_is_reported_though_the_start_itself_was_cut_off(path: Path) -> None:
    """A start that dies while reporting leaves the rest to the next."""
    await write(path, record("a", "intent"), record("b", "intent"))
    await write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))  # without the note of the second start, and without the outcome of b
    await write(path)
    assert sorted(line_phases(path)) == [("a", "intent"), ("a", "outcome"), ("b", "intent"), ("b", "outcome")]


KILLED = """
import asyncio, sys
from pathlib import Path
from gateway.model import AuditRecord
from gateway.stores.journal import Journal

async def main():
    async with Journal(Path(sys.argv[1])) as journal:
        number = 0
        while True:
            journal.append(AuditRecord(str(number), "outcome", 1.0, {"x": "y" * 500}))
            print(number, flush=True)
            number += 1

asyncio.run(main())
"""


async def test_killed_while_it_writes(path: Path) -> None:
    """Every record that a killed process had acknowledged is in the journal."""
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, cwd=Path.cwd())
    assert process.stdout is not None
    with process.stdout as out:
        for _ in range(200):
            out.readline()
        process.send_signal(signal.SIGKILL)
        told = 200 + len([line for line in out.read().split(b"\n")[:-1] if line])
    process.wait()
    assert len(line_phases(path)) >= told
    await write(path, record("after"))
    assert verify(path) == []


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Limit files to `size` bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 100])
async def test_full_disk(path: Path, room: int) -> None:
    """A line that does not fit raises OSError and leaves nothing; with free space again, the chain continues."""
    async with Journal(path) as journal:
        journal.append(record("a"))
        before = path.read_bytes()
        with file_size_limit(len(before) + room):
            for _ in range(2):
                with pytest.raises(OSError):
                    journal.append(record("b"))
        assert path.read_bytes() == before
        journal.append(record("c"))
    assert line_phases(path) == [("a", "outcome"), ("c", "outcome")]
    assert verify(path) == []


async def test_after_the_end(path: Path) -> None:
    """A closed journal raises the error of a failed disk."""
    async with Journal(path) as journal:
        pass
    with pytest.raises(OSError):
        journal.append(record("a"))


async def test_a_record_is_written_whatever_a_caller_says(path: Path) -> None:
    """A number without a JSON form is written as a word."""
    async with Journal(path) as journal:
        journal.append(record("a", x=[float("nan"), {"y": float("-inf")}]))
    assert [line.record.fields["x"] for line in journal_lines(path) if line.record.id == "a"] == [
        ["NaN", {"y": "-Infinity"}]
    ]
    assert verify(path) == []


async def test_record_that_cannot_be_written(path: Path) -> None:
    """A record without a JSON form raises OSError: the exchange is refused, not left without a record."""
    async with Journal(path) as journal:
        with pytest.raises(OSError, match="JSON"):
            journal.append(record("a", x=b"no JSON"))  # type: ignore[arg-type]  # on purpose
        journal.append(record("b"))
    assert verify(path) == []


# problems that verify finds


async def write_journal(path: Path) -> list[bytes]:
    """Write a journal of two starts; return its lines."""
    await write(path, record("a", "intent"), record("a"), record("b"))
    await write_and_die(path, record("c"), record("d"))
    assert verify(path) == []
    return path.read_bytes().splitlines(keepends=True)


async def test_altered_line(path: Path) -> None:
    """An altered line is found by its number, even with a matching hash."""
    lines = await write_journal(path)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b"cart", b"tart"), *lines[3:]]))
    assert verify(path)[0] == "journal.jsonl:3 was altered: its values are others than were written"
    with pytest.raises(ValueError, match="its values are others"):
        journal_lines(path)


@pytest.mark.parametrize("number", range(8))
async def test_removed_line(path: Path, number: int) -> None:
    """A removed line is detected, also between two starts; only the removal of the last leaves no trace."""
    lines = await write_journal(path)
    path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))
    assert bool(verify(path)) is (number != len(lines) - 1)


async def test_swapped_and_doubled_lines(path: Path) -> None:
    """Swapped or repeated lines are found."""
    lines = await write_journal(path)
    path.write_bytes(b"".join([lines[0], lines[2], lines[1], *lines[3:]]))
    assert verify(path)
    path.write_bytes(b"".join([lines[0], lines[1], lines[1], *lines[2:]]))
    assert verify(path)


async def test_numbers(path: Path) -> None:
    """A line that continues the chain with a wrong number is found."""
    lines = await write_journal(path)
    *_, end = journal_lines(path)
    with path.open("a") as file:
        file.write(write_line(end.writer, end.seq + 2, end.hash, record("e")).text + "\n")
    wrong = f"has the number {end.seq + 2} instead of {end.seq + 1}: 1 before it are missing"
    assert verify(path) == [f"journal.jsonl:{len(lines) + 1} {wrong}"]


async def test_torn_end(path: Path) -> None:
    """A torn end is what a kill leaves; something else in its place is a problem."""
    lines = await write_journal(path)
    path.write_bytes(b"".join(lines)[:-5])
    assert verify(path) == []
    path.write_bytes(b"".join(lines) + b"...")
    assert verify(path) == [
        f"journal.jsonl:{len(lines) + 1} is not a line of a journal, nor the beginning of the next one"
    ]


# followers


async def test_followers(path: Path) -> None:
    """Each follower gets every line from its subscription on, and ends with the journal."""
    async with Journal(path) as journal:
        journal.append(record("before"))
        with journal.subscribe() as one, journal.subscribe() as two:
            journal.append(record("a"))
            journal.append(record("b"))
            assert (await anext(one)).record.id == "a"
        with journal.subscribe() as three:
            journal.append(record("c"))
    assert [line.record.id async for line in three] == []
    assert [line.record.id async for line in two] == []


async def test_a_follower_waits_for_lines(path: Path) -> None:
    """A follower that has read everything waits, and wakes for the next line and for the end."""
    seen: list[str] = []
    async with asyncio.TaskGroup() as group, Journal(path) as journal:
        follower = journal.subscribe()

        async def follow() -> None:
            seen.extend([line.record.id async for line in follower])

        group.create_task(follow())
        for id in ("a", "b"):
            await asyncio.sleep(0.01)
            journal.append(record(id))
    assert [id for id in seen if id] == ["a", "b"]
    assert not follower.lost


async def test_a_slow_follower_harms_itself_only(path: Path) -> None:
    """A follower whose buffer is full ends, and knows that it lost lines; the journal and the others continue."""
    async with Journal(path) as journal:
        slow, quick = journal.subscribe(limit=2), journal.subscribe()
        for id in "abcd":
            journal.append(record(id))
        assert [line.record.id async for line in slow] == ["a", "b"]
        assert slow.lost
        assert [(await anext(quick)).record.id for _ in range(4)] == list("abcd")
        assert not quick.lost
    assert len(line_phases(path)) == 4


async def test_last(path: Path) -> None:
    """The last lines, without the journal's own, oldest first, also from former starts."""
    await write(path, record("a"), record("b"))
    async with Journal(path) as journal:
        journal.append(record("c"))
        assert [line.record.id for line in journal.last(2)] == ["b", "c"]
        assert [line.record.id for line in journal.last(200)] == ["a", "b", "c"]
