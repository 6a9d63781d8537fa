"""`audit verify`: checks that the record is unaltered, and up to which head that is proven."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import click
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gateway.cli.audit.source import (
    RecordSource,
    check_journal,
    has_database,
    open_database,
    source,
    source_options,
    trusted_keys,
)
from gateway.cli.group import Unusable
from gateway.cli.output import FAILED, console, json_option, write_json
from gateway.model import Json
from gateway.stores.heads import copies_of, is_head
from gateway.stores.lines import NO_HASH, fields_of, read_link
from gateway.stores.records import Records
from gateway.stores.segments import all_segments, lines_backwards
from gateway.stores.verify import LONGEST_UNSIGNED, Check, LineProblem, Verdict, found_in

STEP = 2000
"""Lines between updates of the progress bar."""

UNDECIDED = 3
"""Exit code if no line is invalid, but a copy that is behind lacks the head that would explain what it lacks."""

_LOST = "SQLite may lose them where the machine loses its power, and the next start of the gateway copies them again"

_LOST_HERE = "a loss of power takes them, too, unless audit.fsync is always"


@dataclass(frozen=True, slots=True)
class CopiedLine:
    """The hash of the last copied line, from the last head of the journal `chain`; None in older journals."""

    chain: str
    hash: str | None


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    """The verdict on one chain in one place."""

    place: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of verification: trusted keys, journals that may be missing, known heads."""

    trusted_keys: Sequence[str]
    in_order: bool
    deleted_chains: frozenset[str]
    head: int
    begins_at: int | None
    quiet: bool


@click.command()
@source_options
@click.option("--key", "keys", multiple=True, help="A trusted public key, or a file with it; repeatable.")
@click.option("--any-key", is_flag=True, help="Accept any key: a completely rewritten record is then not detected.")
@click.option("--head", type=int, default=0, help="Number of a known head that the record must reach.")
@click.option("--begins-at", type=int, help="Head with which the journal begins, if older files were archived.")
@click.option("--gone", multiple=True, help="A journal that was archived from the database; repeatable.")
@json_option
def verify(
    config: Path,
    record: str | None,
    keys: tuple[str, ...],
    any_key: bool,
    head: int,
    begins_at: int | None,
    gone: tuple[str, ...],
    as_json: bool,
) -> None:
    """Verify that no line of the record was altered, removed, added or moved.

    Reads the journal and the database. Exit code 0 if they are proven (also if a killed gateway left the beginning of a
    line at the end of the journal), 1 with the first invalid line if not, 3 if a copy that is behind cannot decide it.

    Example: webmcp-gateway audit verify
    """
    where = source(config, record)
    check_journal(where)
    trusted = None if any_key else trusted_keys(keys, where)
    if trusted is None and not any_key:
        raise Unusable("no key to check the heads with: give --key, as `audit key` wrote it, or --any-key")
    rules = Rules(trusted or (), bool(trusted) and not keys, frozenset(gone), max(head, 0), begins_at, as_json)
    verdicts = list(_judge(where, rules))
    if as_json:
        code = _exit_code(verdicts)
        write_json({"ok": code == 0, "undecided": code == UNDECIDED, "records": [_json(one) for one in verdicts]})
    else:
        for one in verdicts:
            _tell(one)
    click.get_current_context().exit(_exit_code(verdicts))


def _exit_code(verdicts: Sequence[ChainVerdict]) -> int:
    if not all(one.verdict.sound for one in verdicts):
        return FAILED
    return UNDECIDED if any(one.verdict.doubts for one in verdicts) else 0


def _judge(where: RecordSource, rules: Rules) -> Iterator[ChainVerdict]:
    copies: dict[str, Check] = {}
    filled = False
    copied = CopiedLine("", None)
    if where.database is not None and where.places is not None:
        filled = where.places.fills_database
        copied = _read_copied(where.journal) if filled and where.journal is not None else copied
    if where.database is not None and (where.journal is None or has_database(where.database)):
        copies = asyncio.run(_database(where.database, rules, copied))
    copy = copies.get(copied.chain)
    own = _journal(where.journal, rules, copy.verdict if copy is not None else None) if where.journal else None
    head = rules.head if own is None else 0
    retained = {own.verdict.chain: own.retained} if own is not None else {}
    database = {
        chain: ChainVerdict(f"database, journal {chain}", copy.end(head, retained.get(chain)))
        for chain, copy in copies.items()
    }
    lines = []
    if own is not None:
        known = {chain: one.verdict.head for chain, one in database.items() if one.verdict.sound}
        head = max(rules.head, known.get(own.verdict.chain, 0))
        journal = ChainVerdict(str(where.journal), own.end(head, own.retained))
        if own.unreached and journal.verdict.sound:
            own.missing_end(f", which the database has; {_LOST_HERE}")
        if filled and journal.verdict.chain in database and copied.hash is None:
            _hold_to_journal(database[journal.verdict.chain].verdict, journal.verdict)
        lines.append(journal)
    lines += database.values()
    yield from lines
    # Nothing of it was copied yet; of an older journal that cannot be known.
    behind = {copied.chain} if copied.hash == NO_HASH or (copied.hash is None and not copies) else set[str]()
    yield from _missing_lines(lines, {*database, *rules.deleted_chains, *behind}, filled=filled)


def _read_copied(path: Path) -> CopiedLine:
    """Return how far the database was at the journal's last head; read first, as the database may advance meanwhile."""
    for raw in lines_backwards(path):
        with suppress(ValueError):  # an invalid line is reported when the journal is read
            link = read_link(raw)
            if is_head(link):
                fields = fields_of(link)
                last = copies_of(fields).get(Records.name, NO_HASH) if "copied" in fields else None
                return CopiedLine(str(fields.get("chain")), last)
    return CopiedLine("", None)


def _hold_to_journal(copy: Verdict, journal: Verdict) -> None:
    """Check a copy against a journal of an older version, whose heads do not state how far the copy was.

    A copy is a moment behind; one that ends long before its journal lacks lines.
    """
    late = journal.last_time - copy.last_time
    if copy.sound and copy.lines and late > LONGEST_UNSIGNED:
        goes_on = f"is the last line here, and the journal continues for {late:,.0f} s"
        say = f"{goes_on}: lines after it are missing, or not copied yet, which a gateway does at its start"
        copy.problems.append(LineProblem(copy.last_place, say))


def _missing_lines(verdicts: list[ChainVerdict], there: set[str], *, filled: bool) -> Iterator[ChainVerdict]:
    """Report journals missing from the database although other heads name them, or their files exist."""
    chains: set[str] = set()
    for one in verdicts:
        beside = set(one.verdict.beside)
        if filled and one.verdict.chain:
            beside.add(one.verdict.chain)
        for chain in sorted(beside - there - chains):
            chains.add(chain)
            mine = chain == one.verdict.chain
            who = "its own file is here" if mine else f"head {one.verdict.head} of {one.place} names it"
            say = f"of it is there, and {who}: give --gone {chain} if it was removed on purpose"
            yield ChainVerdict(f"database, journal {chain}", Verdict(chain, problems=[LineProblem("no line", say)]))


def _check(rules: Rules, begins_at: int | None = None, reaches: Collection[str] = ()) -> Check:
    return Check(rules.trusted_keys or None, begins_at, in_order=rules.in_order, reaches=reaches)


def _journal(path: Path, rules: Rules, copy: Verdict | None) -> Check:
    """Check the journal, which must have every line that was copied from it."""
    segments = all_segments(path)
    check = _check(rules, rules.begins_at, {copy.last_hash} if copy is not None and copy.sound and copy.lines else ())
    with _bar(f"{path.name}", sum(segment.size for segment in segments), rules.quiet) as advance:
        size = 0
        for number, line in enumerate(found_in(path), 1):
            check.take(line)
            size += len(line.raw or b"") + 1
            if number % STEP == 0:
                advance(size)
    return check


async def _database(url: str, rules: Rules, copied: CopiedLine) -> dict[str, Check]:
    async with open_database(url) as records:
        return {
            chain: await _chain(records, chain, count, rules, copied.hash if chain == copied.chain else None)
            for chain, count in (await records.sizes()).items()
        }


async def _chain(records: Records, chain: str, count: int, rules: Rules, copied: str | None) -> Check:
    """Check one journal; `copied` is the hash of a line that must be there, though a gateway may be copying more."""
    position = await records.position(chain)
    reaches = {position.hash} if position is not None else set()
    check = _check(rules, reaches=reaches | ({copied} if copied not in (None, NO_HASH) else set()))
    with _bar(f"database, {chain}", count, rules.quiet) as advance:
        async for line in records.lines(chain):
            check.take(line)
            if check.verdict.lines % STEP == 0:
                advance(check.verdict.lines)
    if check.unreached & reaches:
        check.missing_end()
    elif check.unreached:
        check.missing_end(f", which it had when the last head of the journal was written; {_LOST}")
    return check


@contextmanager
def _bar(description: str, total: int, quiet: bool) -> Iterator[_Advance]:
    out = console(err=True)
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *times)
    with Progress(*columns, console=out, transient=True, disable=quiet or not out.is_terminal) as progress:
        yield _Advance(progress, description, total)


class _Advance:
    def __init__(self, progress: Progress, description: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(description, total=total)

    def __call__(self, done: int) -> None:
        self._progress.update(self._task, completed=done)


def _tell(judged: ChainVerdict) -> None:
    verdict = judged.verdict
    click.echo(f"{judged.place}: {verdict.lines:,} lines of {verdict.writers} starts, {verdict.heads:,} heads")
    for problem in verdict.problems[:10]:
        click.echo(f"  {problem}")
    if len(verdict.problems) > 10:
        click.echo(f"  and {len(verdict.problems) - 10} more that follow")
    if verdict.deleted:
        click.echo(f"  the values of {verdict.deleted:,} lines were deleted, as configured by audit.retain")
    if verdict.cut_off is not None:
        why = "it was cut off while it was written, as when the gateway is killed, and is no sign of tampering"
        click.echo(f"  {verdict.cut_off} is the beginning of a line: {why}; the next start sets it aside")
    for doubt in verdict.doubts:
        click.echo(f"  {doubt}")
    if verdict.problems:
        click.echo(f"  NOT PROVEN; the lines before the first of these are proven up to head {verdict.head:,}")
    elif verdict.doubts:
        click.echo(f"  UNDECIDED: all lines are proven to head {verdict.head:,}, but not who deleted these values")
    else:
        tail = f"the tail of {verdict.tail:,} lines is unproven" if verdict.tail else "no line follows it"
        click.echo(f"  proven to head {verdict.head:,} ({verdict.head_place}), {tail}")


def _json(judged: ChainVerdict) -> dict[str, Json]:
    verdict = judged.verdict
    return {
        "record": judged.place,
        "ok": verdict.sound,
        "chain": verdict.chain,
        "lines": verdict.lines,
        "heads": verdict.heads,
        "proven_to_head": verdict.head,
        "unproven_lines": verdict.tail,
        "values_deleted": verdict.deleted,
        "cut_off": verdict.cut_off,
        "doubts": [str(doubt) for doubt in verdict.doubts],
        "problems": [str(problem) for problem in verdict.problems],
    }
