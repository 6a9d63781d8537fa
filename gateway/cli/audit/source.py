"""The source of `audit` commands: the journal or database of a gateway.yaml, or a given one."""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from gateway.cli.group import Unusable, config_option
from gateway.config import Places, record_places
from gateway.documents import parse_duration
from gateway.documents.reader import open_file
from gateway.doors.refused_callers import CODES
from gateway.errors import Reason, StartError
from gateway.model import AuditRecord, Effect, Initiator, Json
from gateway.ports.approvals import ApprovalState
from gateway.stores.heads import key_of, keys_beside, known_keys
from gateway.stores.journal import UNKNOWN
from gateway.stores.lines import NOTE, Line, read_line
from gateway.stores.records import Filter, Records, StoredRecord
from gateway.stores.segments import Segment, all_segments, lines_backwards, lines_from
from gateway.stores.sql import Database

WIDEST = 80
"""Maximum width of a column in characters; a longer cell shifts only the rest of its line."""

COLUMNS = ("time", "app", "initiator", "door", "client", "what", "decision", "status", "reason", "id")


def as_json(record: StoredRecord) -> dict[str, Json]:
    """Return a record as one object; `ended` is null if its end is unknown."""
    return {"id": record.id, "time": when(record.time), "ended": when(record.ended_at), **record.fields}


def table(records: list[StoredRecord]) -> str:
    """Format records as lines; no cell is cut to fit a terminal, since ids and URLs are copied."""
    rows = [COLUMNS, *(tuple(visible(cell) for cell in row(record)) for record in records)]
    widths = [min(WIDEST, max(len(line[column]) for line in rows)) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in rows)


def row(record: StoredRecord) -> tuple[str, ...]:
    """Return the cells of `COLUMNS`."""
    fields = record.fields
    status, reason = fields.get("status"), fields.get("reason")
    if status == 202 and "approval" in fields and "answered_by" not in fields:  # its outcome has a separate record
        status, reason = "waits", f"approval {_text(fields['approval'])}"
    if record.ended_at is None or fields.get("reason") == "result-unknown":
        status = "unknown"
    words = (fields.get(name) for name in ("app", "initiator", "door", "client"))
    return (
        when(record.time) or "",
        *(_text(word) for word in words),
        what(record),
        _text(fields.get("decision")),
        _text(status),
        _text(reason),
        record.id,
    )


def what(record: StoredRecord) -> str:
    """Return method and URL, or the tool; for a line that sums up refusals their number."""
    if "more" in record.fields:
        return f"{_text(record.fields['more'])} more refused"
    return (
        f"{_text(record.fields.get('method'))} {_text(record.fields.get('tool') or record.fields.get('url'))}".strip()
    )


def when(seconds: float | None) -> str | None:
    """Format a time in UTC (RFC 3339)."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def visible(text: str) -> str:
    """Escape control characters, so that content from a page cannot imitate a line of ours."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _text(value: Json) -> str:
    return "" if value is None else str(value)


T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

_ANSWERED = (
    ApprovalState.APPROVED.value,
    ApprovalState.DECLINED.value,
    ApprovalState.EXPIRED.value,
    ApprovalState.VOID.value,
)
DECISIONS = (*map(str, Effect), "ask", *_ANSWERED, "revoked", "added", "removed")
"""The decisions of policies and people in records."""

_SQLITE = b"SQLite format 3\0"
_POSTGRESQL = re.compile(r"postgres(ql)?(\+asyncpg)?://")


@dataclass(frozen=True, slots=True)
class RecordSource:
    """A journal, or a database by its URL; `places` are the configured locations, if any."""

    journal: Path | None
    database: str | None
    places: Places | None


def source_options(command: F) -> F:
    """Add the options that select a record."""
    record = click.option(
        "--record", help="A journal, an SQLite file or a postgresql:// URL, instead of gateway.yaml's."
    )
    config = config_option("The configuration, which names the record.", "config")
    return config(record(command))


def filter_options(command: F) -> F:
    """Add the options that filter records."""
    options = (
        click.option("--app", help="App."),
        click.option("--principal", help="Caller: issuer|client|subject."),
        click.option("--view", help="View."),
        click.option("--door", help="Door: mcp, bridge, site or another."),
        click.option("--initiator", type=click.Choice([*map(str, Initiator)]), help="Initiator."),
        click.option("--decision", type=click.Choice(DECISIONS), help="Decision of the policy or a person."),
        click.option(
            "--reason",
            type=click.Choice([*map(str, Reason), UNKNOWN, *CODES]),
            metavar="REASON",
            help="Reason of the outcome, such as policy-denied, result-unknown or unidentified.",
        ),
        click.option("--trace", help="Trace id."),
        click.option("--client", help="Address of the client."),
        click.option("--id", help="Id of the record, or of the one that caused it."),
        click.option("--since", help="Start of the period: 2h, 7d, 2026-11-22 or 2026-11-22T10:00 (UTC)."),
        click.option("--until", help="End of the period, exclusive, in the same forms."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def filter_of(options: dict[str, Any], now: float) -> Filter:
    """Return the filter of the options. Raises `Unusable`."""
    since, until = (_time(options.pop(name), now) for name in ("since", "until"))
    return Filter(**options, since=since, until=until)


def source(config: Path, record: str | None) -> RecordSource:
    """Return the source to read. Raises `Unusable` and DocumentError."""
    if record is None:
        places = record_places(config, os.environ)
        return RecordSource(places.journal, places.database.reveal(), places)
    if _POSTGRESQL.match(record):
        return RecordSource(None, record, None)
    path = Path(record)
    try:
        with os.fdopen(open_file(path), "rb") as file:
            start = file.read(len(_SQLITE))
    except OSError as error:
        raise Unusable(f"{path}: cannot be read: {error.strerror}") from error
    if start == _SQLITE:
        return RecordSource(None, f"sqlite:///{path.resolve()}", None)
    return RecordSource(path, None, None)


def newest(where: RecordSource, limit: int, record_filter: Filter) -> list[StoredRecord]:
    """Return the newest matching records, oldest first.

    They come from the database and the journal's lines that were not copied yet, or from the only one there is.
    """
    if where.database is not None and (where.journal is None or has_database(where.database)):
        return run_on(where.database, lambda records: _join(records, where.journal, limit, record_filter))
    return list(deque((one for one in every(where, record_filter)), maxlen=limit))


async def _join(records: Records, journal: Path | None, limit: int, record_filter: Filter) -> list[StoredRecord]:
    joined_records = {record.id: record for record in reversed(await records.query(limit, record_filter))}
    beyond = await _beyond(records, journal) if journal is not None else []
    here = {record.id for record in beyond if record.phase == "intent"}
    known = await records.with_ids({record.id for record in beyond} - here)
    for record in beyond:
        before = known.get(record.id)
        time, fields = (before.time, {**before.fields, **record.fields}) if before else (record.time, record.fields)
        ended = record.time if record.phase == "outcome" else None
        whole = known[record.id] = StoredRecord(record.id, time, ended, fields)
        joined_records.pop(record.id, None)
        if record_filter.fits(whole):
            joined_records[record.id] = whole
    return sorted(joined_records.values(), key=lambda record: record.time)[-limit:]


async def _beyond(records: Records, journal: Path) -> list[AuditRecord]:
    """Return the lines of a journal that were not copied yet: a busy gateway delays that."""
    chain = next((str(record.fields.get("chain")) for record in _backwards(journal) if record.phase == NOTE), "")
    position = await records.position(chain)
    result = []
    for line in _lines(journal, position.end if position is not None else 0):
        if line.record.phase != NOTE and line.kept:
            result.append(line.record)
    return result


def _lines(journal: Path, start: int = 0) -> Iterator[Line]:
    """Yield the lines from the byte `start` on, and report on the standard error how many others there are."""
    others = 0
    for _, raw in lines_from(journal, start):
        try:
            line = read_line(raw)
        except ValueError:
            others += 1
        else:
            yield line
    if others:
        click.echo(
            f"{journal}: {others:,} lines are not records, and are left out; `audit verify` names them", err=True
        )


def _backwards(journal: Path) -> Iterator[AuditRecord]:
    for raw in lines_backwards(journal):
        with suppress(ValueError):  # `audit verify` reports it
            yield read_line(raw).record


def every(where: RecordSource, record_filter: Filter) -> Iterator[StoredRecord]:
    """Yield every matching record in the order of their ends; unended ones last."""
    if where.journal is None:
        from_database = run_on(where.database or "", lambda records: records.query(2**31 - 1, record_filter))
        yield from reversed(from_database)
        return
    check_journal(where)
    intents: dict[str, AuditRecord] = {}
    for line in _lines(where.journal):
        record = line.record
        if record.phase == NOTE or not line.kept:
            continue
        if record.phase == "intent":
            intents[record.id] = record
            continue
        before = intents.pop(record.id, record)
        whole = StoredRecord(record.id, before.time, record.time, {**before.fields, **record.fields})
        if record_filter.fits(whole):
            yield whole
    for record in intents.values():
        whole = StoredRecord(record.id, record.time, None, record.fields)
        if record_filter.fits(whole):
            yield whole


def check_journal(where: RecordSource) -> None:
    """Check that a configured journal exists. Raises `Unusable`."""
    if where.journal is None or segments_of(where.journal):
        return
    if where.database is not None and has_database(where.database) and run_on(where.database, Records.sizes):
        raise Unusable(f"{where.journal}: there is no journal, though there is the database that is filled from it")
    raise Unusable(f"{where.journal}: nothing has been recorded yet: the gateway creates this file when it starts")


def segments_of(journal: Path) -> list[Segment]:
    """Return the files of a journal. Raises `Unusable`."""
    try:
        return all_segments(journal)
    except OSError as error:
        raise Unusable(f"{journal}: cannot be read: {error.strerror}") from error


def has_database(url: str) -> bool:
    """Return whether the database exists; a missing file is not created."""
    scheme, _, path = url.partition(":///")
    return scheme != "sqlite" or Path(path).is_file()


def run_on(url: str, work: Callable[[Records], Coroutine[Any, Any, T]]) -> T:
    """Run `work` on the database at `url`. Raises `Unusable` if it is unusable."""

    async def run() -> T:
        async with open_database(url) as records:
            return await work(records)

    return asyncio.run(run())


@asynccontextmanager
async def open_database(url: str) -> AsyncIterator[Records]:
    """Open the record in the database at `url`. Raises `Unusable` if it is unusable."""
    if not has_database(url):
        raise Unusable(f"{url.partition(':///')[2]}: there is no database")
    try:
        async with Database(url) as database:
            yield Records(database)
    except (StartError, OSError) as error:
        raise Unusable(str(error)) from error


def trusted_keys(keys: tuple[str, ...], where: RecordSource) -> list[str] | None:
    """Return the public keys that may sign heads: those given, else the known ones, oldest first; or None."""
    if keys:
        try:
            return [public for key in keys for public in (known_keys(Path(key)) if os.path.exists(key) else _key(key))]
        except OSError as error:
            raise Unusable(f"--key {error.filename}: cannot be read: {error.strerror}") from error
    journal = where.places.journal if where.places is not None else where.journal
    if journal is None:
        return None
    try:
        known = known_keys(keys_beside(journal))
        now = _key_now(where.places, journal)
    except (OSError, ValueError) as error:
        raise Unusable(f"the key of the record {getattr(error, 'strerror', None) or error}") from error
    if now is not None and known[-1:] != [now]:
        known.append(now)
    return known or None


def _key(key: str) -> tuple[str]:
    try:
        key_of(key)  # public and private keys have the same form
    except ValueError as error:
        raise Unusable(f"--key {key}: neither a file nor a public key, which `audit key` prints") from error
    return (key,)


def _key_now(places: Places | None, journal: Path) -> str | None:
    if places is not None and places.key is not None:
        return key_of(places.key.reveal()).public
    file = places.key_file if places is not None else journal.with_name(f"{journal.name}.key")
    return key_of(file.read_text("ascii")).public if file.is_file() else None


def _time(text: str | None, now: float) -> float | None:
    if text is None:
        return None
    try:
        return now - parse_duration(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Unusable(f"{text!r} is not a time: write 2h, 7d, 2026-11-22 or 2026-11-22T10:00") from error
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
