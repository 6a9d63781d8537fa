"""After each kind of tampering the first wrong line is named; heads prove the lines before them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Timer

import pytest

from gateway.errors import StartError
from gateway.model import AuditRecord, Json
from gateway.stores.heads import JournalKey, key_in, keys_beside, known_keys, new_key, remember
from gateway.stores.journal import Journal, Keeping
from gateway.stores.lines import NO_HASH, read_line, without_values
from gateway.stores.segments import closed_segments
from gateway.stores.verify import Check, Verdict, found_in, verify_chain
from tests.stores.journals import write_line

KEY = new_key()
TRUSTED = [KEY.public]


class Clock:
    """A clock that advances one second with each reading."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


async def write_journal(path: Path, key: JournalKey = KEY) -> list[bytes]:
    """Two starts, each with four lines, a head, four lines, a head; its lines: 1, 6, 11 | 12, 17, 22 are heads."""
    clock = Clock()
    for start in "ab":
        async with Journal(path, now=clock, key=key) as journal:
            for part in "xy":
                for number in range(4):
                    fields: dict[str, Json] = {"app": "cart", "url": f"/{number}"}
                    journal.append(AuditRecord(f"{start}{part}{number}", "outcome", clock(), fields))
                journal.seal()
    return path.read_bytes().splitlines()


def verdict_on(path: Path, lines: list[bytes], trusted: list[str] | None = TRUSTED, known_head: int = 0) -> Verdict:
    """Return the verdict on the journal with these lines."""
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return verify_chain(found_in(path), trusted, known_head)


def first(verdict: Verdict) -> str:
    """Return the first problem."""
    return str(verdict.problems[0])


def rechain(lines: list[bytes], change: int, key: JournalKey | None = None) -> list[bytes]:
    """Return the lines with another URL in one and all later hashes recomputed; with a key, heads are signed anew."""
    result = lines[:change] if key is None else []
    before = read_line(result[-1]).hash if result else NO_HASH
    for number, raw in enumerate(lines):
        if number < len(result):
            continue
        line = read_line(raw)
        fields = dict(line.record.fields)
        if number == change:
            fields["url"] = "/forged"
        if key is not None and "signature" in fields:
            del fields["signature"]
            fields = key.sign(line.writer, line.seq, before, line.record.time, fields)
        record = AuditRecord(line.record.id, line.record.phase, line.record.time, fields)
        made = write_line(line.writer, line.seq, before, record)
        before = made.hash
        result.append(made.text.encode())
    return result


async def test_a_whole_journal(path: Path) -> None:
    """It is proven to its last head."""
    verdict = verdict_on(path, await write_journal(path))
    assert verdict.sound
    assert (verdict.lines, verdict.head, verdict.tail, verdict.writers) == (22, 6, 0, 2)


async def test_altered(path: Path) -> None:
    """One byte of a value; the line is named."""
    lines = await write_journal(path)
    lines[7] = lines[7].replace(b'"/1"', b'"/7"')
    assert first(verdict_on(path, lines)) == "journal:8 was altered: its values are others than were written"


async def test_altered_with_a_hash_that_fits(path: Path) -> None:
    """The next line does not continue it."""
    lines = await write_journal(path)
    line = read_line(lines[7])
    record = AuditRecord(line.record.id, "outcome", line.record.time, {"url": "/forged"})
    lines[7] = write_line(line.writer, line.seq, line.prev, record).text.encode()
    assert first(verdict_on(path, lines)).startswith("journal:9 does not continue the line before it")


async def test_deleted(path: Path) -> None:
    """The position and size of the gap are reported."""
    lines = await write_journal(path)
    del lines[7:9]
    assert first(verdict_on(path, lines)) == "journal:8 has the number 10 instead of 8: 2 before it are missing"


async def test_inserted(path: Path) -> None:
    """A made-up line, with a matching number and previous hash."""
    lines = await write_journal(path)
    after = read_line(lines[7])
    made = write_line(after.writer, after.seq + 1, after.hash, AuditRecord("evil", "outcome", 1.0, {}))
    lines.insert(8, made.text.encode())
    assert first(verdict_on(path, lines)) == "journal:10 has the number 9 instead of 10: it was inserted or moved"


async def test_swapped(path: Path) -> None:
    """Two lines in the other order."""
    lines = await write_journal(path)
    lines[7], lines[8] = lines[8], lines[7]
    assert first(verdict_on(path, lines)) == "journal:8 has the number 9 instead of 8: 1 before it are missing"


async def test_truncated_behind_a_head(path: Path) -> None:
    """The file alone does not show it; a head that is known from elsewhere does."""
    lines = (await write_journal(path))[:17]
    assert verdict_on(path, lines).sound
    verdict = verdict_on(path, lines, known_head=6)
    assert first(verdict) == ("journal:17 is head 5, the last one, and head 6 is known: lines after it are missing")


async def test_truncated_at_the_beginning(path: Path) -> None:
    """Unless the operator who moved the first files names the head with which the rest begins."""
    lines = (await write_journal(path))[5:]
    assert first(verdict_on(path, lines)) == "journal:1 is head 2: what was written before it is missing"
    assert "is not the first line" in first(verdict_on(path, lines[1:]))
    assert verify_chain(found_in(path), TRUSTED).problems
    verdict_on(path, lines)
    assert verify_chain(found_in(path), TRUSTED, begins_at=2).sound


async def test_a_forged_head(path: Path) -> None:
    """A head whose content differs from what was signed."""
    lines = await write_journal(path)
    line = read_line(lines[5])
    record = AuditRecord("", "note", line.record.time, {**line.record.fields, "open": ["x"]})
    lines[5] = write_line(line.writer, line.seq, line.prev, record).text.encode()
    assert first(verdict_on(path, lines)).startswith("journal:6 is a head with an invalid signature")


async def test_rechained_without_the_key(path: Path) -> None:
    """Every hash fits, but not the first head after the change."""
    lines = rechain(await write_journal(path), 7)
    assert first(verdict_on(path, lines)).startswith("journal:11 is a head with an invalid signature")


async def test_rechained_with_another_key(path: Path) -> None:
    """Every signature is valid, by an untrusted key."""
    other = new_key()
    lines = rechain(await write_journal(path), 7, other)
    assert "which is not one that you trust" in first(verdict_on(path, lines))
    assert verdict_on(path, lines, trusted=None).sound


@pytest.mark.parametrize("pause", [31.0, 3600.0])
async def test_a_journal_in_which_nothing_was_written_for_long(path: Path, pause: float) -> None:
    """A killed gateway leaves no head after its last lines, however old the ones before are."""
    now = [1_700_000_000.0]
    async with Journal(path, now=lambda: now[0], key=KEY) as journal:
        now[0] += pause
        journal.append(AuditRecord("a", "outcome", now[0], {}))
        verdict = verify_chain(found_in(path), TRUSTED)
        assert (verdict.problems, verdict.tail) == ([], 1)


async def test_a_machine_that_slept_between_two_lines(path: Path) -> None:
    """Earlier lines are signed first, and the tail after that head is no longer than usual."""
    now = [1_700_000_000.0]
    async with Journal(path, now=lambda: now[0], key=KEY) as journal:
        for number in range(3):
            journal.append(AuditRecord(f"a{number}", "outcome", now[0], {}))
            now[0] += 3600
        verdict = verify_chain(found_in(path), TRUSTED)
        assert (verdict.problems, verdict.heads, verdict.tail) == ([], 3, 1)


async def test_rechained_without_heads(path: Path) -> None:
    """Lines that continue past the time when a head is due."""
    lines = await write_journal(path)
    clock = 1_700_000_100.0
    end = read_line(lines[-1])
    seq, before = end.seq, end.hash
    for number in range(5):
        seq += 1
        made = write_line(end.writer, seq, before, AuditRecord("x", "outcome", clock + 10 * number, {}))
        before = made.hash
        lines.append(made.text.encode())
    verdict = verdict_on(path, lines)
    assert (verdict.head, verdict.tail) == (6, 5)
    assert "heads were taken away" in first(verdict)


async def test_a_head_that_was_left_out(path: Path) -> None:
    """Heads are numbered."""
    lines = await write_journal(path)
    del lines[5]
    assert first(verdict_on(path, lines)) == "journal:6 has the number 7 instead of 6: 1 before it are missing"


async def test_the_tail_is_not_proven(path: Path) -> None:
    """Lines after the last head are reported as such."""
    lines = await write_journal(path)
    verdict = verdict_on(path, lines[:-1])
    assert verdict.sound
    assert (verdict.head, verdict.tail) == (5, 4)


@pytest.mark.parametrize("kept", [1, 25, 60, 110, 200, -1])
async def test_a_last_line_that_was_cut_off(path: Path, kept: int) -> None:
    """The part of a line that a kill leaves is no tampering, and proves nothing itself."""
    *lines, last = await write_journal(path)
    path.write_bytes(b"".join(line + b"\n" for line in lines) + last[:kept])
    verdict = verify_chain(found_in(path), TRUSTED)
    assert (verdict.problems, verdict.cut_off) == ([], "journal:22")
    assert (verdict.lines, verdict.head, verdict.tail) == (21, 5, 4)
    assert first(verify_chain(found_in(path), TRUSTED, known_head=6)).endswith("lines after it are missing")


async def test_a_first_line_that_was_cut_off(path: Path) -> None:
    """Killed right after its first start."""
    lines = await write_journal(path)
    path.write_bytes(lines[0][:50])
    assert verify_chain(found_in(path), TRUSTED).cut_off == "journal:1"


async def test_a_new_start_whose_line_was_cut_off(path: Path) -> None:
    """Another writer begins with number 1."""
    lines = await write_journal(path)
    path.write_bytes(b"".join(line + b"\n" for line in lines[:11]) + lines[11][:150])
    verdict = verify_chain(found_in(path), TRUSTED)
    assert (verdict.problems, verdict.cut_off, verdict.head) == ([], "journal:12", 3)


async def test_zeros_in_the_place_of_a_line(path: Path) -> None:
    """A loss of power leaves them."""
    lines = await write_journal(path)
    path.write_bytes(b"".join(line + b"\n" for line in lines[:-1]) + lines[-1][:90] + bytes(300))
    verdict = verify_chain(found_in(path), TRUSTED)
    assert (verdict.problems, verdict.cut_off) == ([], "journal:22")


async def test_a_last_line_without_its_newline(path: Path) -> None:
    """The line is whole, and proves what it says."""
    lines = await write_journal(path)
    path.write_bytes(b"\n".join(lines))
    verdict = verify_chain(found_in(path), TRUSTED)
    assert (verdict.problems, verdict.cut_off, verdict.head, verdict.tail) == ([], None, 6, 0)


@pytest.mark.parametrize(
    "rest",
    [
        b"x",
        b'{"v":2',
        b'{"v":1,"writer":"0123456789abcdef","seq":2',
        b'{"v":1,"writer":"0123456789abcdef","seq":1,"prev":"' + b"0" * 64,
        b"\0x",
    ],
)
async def test_what_is_not_the_beginning_of_the_next_line(path: Path, rest: bytes) -> None:
    """The gateway did not write it."""
    lines = await write_journal(path)
    path.write_bytes(b"".join(line + b"\n" for line in lines) + rest)
    verdict = verify_chain(found_in(path), TRUSTED)
    assert first(verdict) == "journal:23 is not a line of a journal, nor the beginning of the next one"
    assert verdict.cut_off is None


async def test_an_altered_last_line_without_its_newline(path: Path) -> None:
    """A line with a hash is whole."""
    lines = await write_journal(path)
    path.write_bytes(b"\n".join([*lines[:-2], lines[-2].replace(b"/3", b"/4")]))
    verdict = verify_chain(found_in(path), TRUSTED)
    assert "was altered" in first(verdict)


async def test_a_line_that_was_cut_off_in_a_closed_file(path: Path) -> None:
    """The gateway closes only whole files."""
    async with Journal(path, now=Clock(), key=KEY, keeping=Keeping(size=100)) as journal:
        journal.append(AuditRecord("a", "outcome", 1_700_000_000.0, {}))
        journal.rotate()
    closed = closed_segments(path)[0].path
    closed.write_bytes(closed.read_bytes()[:-3])
    assert "is torn: it has no end" in first(verify_chain(found_in(path), TRUSTED))


async def test_values_that_retention_did_not_delete(path: Path) -> None:
    """Values cannot be removed in retention's name."""
    lines = await write_journal(path)
    blank = without_values(lines[7])
    assert blank is not None
    lines[7] = blank
    assert first(verdict_on(path, lines)) == "journal:8 lost its values, and no retention deleted them"


async def test_a_writer_that_was_added_without_the_key(path: Path) -> None:
    """Each start is signed."""
    lines = await write_journal(path)
    end = read_line(lines[-1])
    made = write_line("f" * 16, 1, end.hash, AuditRecord("x", "outcome", end.record.time, {}))
    assert "not signed" in first(verdict_on(path, [*lines, made.text.encode()]))


# files


async def test_the_journal_goes_on_in_new_files(path: Path) -> None:
    """The chain and its positions continue, also over a start; together the files are proven."""
    clock = Clock()
    for _ in range(2):
        async with Journal(path, now=clock, key=KEY, keeping=Keeping(size=2000)) as journal:
            for number in range(12):
                journal.append(AuditRecord(str(number), "outcome", clock(), {"app": "cart"}))
                journal.rotate()
            assert journal.position == sum(one.size for one in closed_segments(path)) + journal.size
    assert len(closed_segments(path)) > 3
    verdict = verify_chain(found_in(path), TRUSTED)
    assert verdict.sound, verdict.problems
    said = [json.loads(found.raw or b"")["id"] for found in found_in(path)]
    assert [id for id in said if id] == [str(number) for number in range(12)] * 2
    closed_segments(path)[1].path.unlink()
    assert not verify_chain(found_in(path), TRUSTED).sound


async def test_a_new_file_each_day(path: Path) -> None:
    """By the clock, not by the number of lines."""
    clock = Clock()
    async with Journal(path, now=clock, key=KEY, keeping=Keeping(every=86400)) as journal:
        assert not journal.rotate()
        clock.now += 86400
        assert journal.rotate()
        assert not journal.rotate()
    assert verify_chain(found_in(path), TRUSTED).sound


async def test_an_intent_in_the_file_of_before(path: Path) -> None:
    """A call that was open when a new file began, and never ended, is reported at the next start."""
    async with Journal(path, key=KEY, keeping=Keeping(size=1)) as journal:
        journal.append(AuditRecord("a", "intent", 1.0, {"url": "/a"}))
        assert journal.rotate()
        left = path.read_bytes()
    path.write_bytes(left)
    async with Journal(path, key=KEY) as journal:
        (unknown,) = [line for line in journal.last(10) if line.record.fields.get("reason") == "result-unknown"]
    assert unknown.record.fields["url"] == "/a"


async def test_killed_between_two_files(path: Path) -> None:
    """Two names for one file, or an empty new file: the chain continues."""
    async with Journal(path, key=KEY, keeping=Keeping(size=1)) as journal:
        journal.append(AuditRecord("a", "outcome", 1_700_000_000.0, {}))
        journal.rotate()
    old = closed_segments(path)[0].path
    path.unlink()
    os.link(old, path)
    async with Journal(path, key=KEY):
        assert closed_segments(path) == []
    async with Journal(path, key=KEY, keeping=Keeping(size=1)) as journal:
        journal.rotate()
    path.write_bytes(b"")
    async with Journal(path, key=KEY):
        pass
    assert [p for p in verify_chain(found_in(path), TRUSTED).problems if "heads were taken" not in p.message] == []


# the key


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    """And is not shown."""
    path = tmp_path / "key"
    key = key_in(path)
    assert key_in(path).public == key.public
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().strip() not in repr(key)


def test_a_key_that_others_can_read_stops_the_start(tmp_path: Path) -> None:
    """With the remedy."""
    path = tmp_path / "key"
    key_in(path)
    path.chmod(0o644)
    with pytest.raises(StartError, match="chmod 600"):
        key_in(path)


@pytest.mark.parametrize("text", ["", "nonsense!", "QUJD"])
def test_what_is_no_key(tmp_path: Path, text: str) -> None:
    """The error describes a key."""
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(StartError, match="32 bytes in base64"):
        key_in(path)


def test_the_public_keys_are_kept_in_their_order(tmp_path: Path) -> None:
    """Each once per period of use."""
    path = keys_beside(tmp_path / "gateway.journal")
    for public in ("a", "a", "b", "a"):
        remember(path, public)
    assert known_keys(path) == ["a", "b", "a"]
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_key_that_was_replaced_signs_no_more(path: Path) -> None:
    """A stolen old key cannot continue the chain; it counts up to its end."""
    old, new = KEY, new_key()
    for key in (old, new):
        async with Journal(path, key=key):
            pass
    trusted = [old.public, new.public]

    def problems() -> list[str]:
        check = Check(trusted, in_order=True)
        for found in found_in(path):
            check.take(found)
        return [str(problem) for problem in check.end().problems]

    assert problems() == []
    async with Journal(path, key=old):
        pass
    assert "another one had replaced before" in problems()[0]
    trusted.append(old.public)
    assert problems() == []


@pytest.mark.parametrize("completed", [True, False])
def test_a_line_that_is_being_written_is_not_torn(tmp_path: Path, completed: bool) -> None:
    """A reader of a growing journal may see a part of its last line; one that stays a part is reported."""
    path = tmp_path / "journal"
    path.write_bytes(b'{"a": 1}\n{"b"')

    def complete() -> None:
        with path.open("ab") as file:
            file.write(b": 2}\n" if completed else b"")

    found = found_in(path)
    assert next(found).raw == b'{"a": 1}'
    timer = Timer(0.05, complete)
    timer.start()
    rest = [(one.raw, one.cut_off) for one in found]
    timer.join()
    assert rest == ([] if completed else [(b'{"b"', True)])
