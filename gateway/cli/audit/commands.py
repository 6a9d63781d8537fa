"""`audit key`, `query`, `export`, `tail`: print the record's public key, and matching records."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

import click

from gateway.cli.audit.source import (
    RecordSource,
    as_json,
    every,
    filter_of,
    filter_options,
    newest,
    row,
    segments_of,
    source,
    source_options,
    table,
    trusted_keys,
    visible,
)
from gateway.cli.group import Unusable, output
from gateway.cli.output import write_json
from gateway.jsontext.writing import plain_json
from gateway.model import Json
from gateway.stores.lines import NOTE, read_line
from gateway.stores.records import Filter, StoredRecord
from gateway.stores.segments import lines_from


@click.command()
@source_options
def key(config: Path, record: str | None) -> None:
    """Print the public key of the record's signed heads. Keep it where the gateway cannot write.

    Example: webmcp-gateway audit key > gateway.pub
    """
    keys = trusted_keys((), source(config, record))
    if not keys:
        raise Unusable("there is no key yet: it is made at the first start of the gateway")
    click.echo(keys[-1])


@click.command()
@source_options
@filter_options
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Maximum number of records."
)
@click.option("--json", "json_lines", is_flag=True, help="Write JSON.")
def query(config: Path, record: str | None, limit: int, json_lines: bool, **options: str | None) -> None:
    """Show the newest matching records, oldest first.

    Example: webmcp-gateway audit query --initiator model --decision deny --since 7d
    """
    records = newest(source(config, record), limit, filter_of(dict(options), time.time()))
    if json_lines:
        write_json([as_json(one) for one in records])
    else:
        click.echo(table(records))


FIELDS: Final = (
    "id", "time", "ended", "kind", "principal", "app", "view", "door", "client", "initiator", "evidence", "cause",
    "trace", "method", "url", "tool", "policy_version", "route", "decision", "reasons", "approval", "answered_by",
    "credential", "request_size", "response_size", "status", "reason", "detail", "timing",
)  # fmt: skip
"""The columns of the CSV, in order."""

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@click.command()
@source_options
@filter_options
@click.option(
    "--format", type=click.Choice(("jsonl", "csv")), default="jsonl", show_default=True, help="Output format."
)
@click.option("--output", "-o", "place", metavar="FILE", default="-", help="Output file, readable by its owner only.")
def export(config: Path, record: str | None, format: str, place: str, **options: str | None) -> None:
    """Write all matching records: one JSON object per line, or CSV.

    Example: webmcp-gateway audit export --format csv --since 30d > november.csv
    """
    records = every(source(config, record), filter_of(dict(options), time.time()))
    try:
        with output(place) as file:
            _csv(records, file) if format == "csv" else _jsonl(records, file)
    except BrokenPipeError:
        sys.stderr.close()  # the reader closed the pipe


def _jsonl(records: Iterable[StoredRecord], output: IO[str]) -> None:
    for record in records:
        output.write(plain_json(as_json(record)) + "\n")


def _csv(records: Iterable[StoredRecord], output: IO[str]) -> None:
    writer = csv.writer(output)
    writer.writerow(FIELDS)
    for record in records:
        values = as_json(record)
        writer.writerow([_cell(values.get(name)) for name in FIELDS])


def _cell(value: Json) -> str:
    """Escape a text that a spreadsheet would evaluate as a formula."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else plain_json(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


PAUSE = 0.3
"""Seconds between polls of the journal."""


@click.command()
@source_options
@filter_options
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(0, 100_000),
    default=10,
    show_default=True,
    help="Number of records to begin with.",
)
@click.option("--follow", "-f", is_flag=True, help="Continue with new records until Ctrl-C.")
@click.option("--json", "json_lines", is_flag=True, help="Write JSON, one object per line.")
def tail(config: Path, record: str | None, lines: int, follow: bool, json_lines: bool, **options: str | None) -> None:
    """Show the last records; with --follow also new ones as they are written.

    Example: webmcp-gateway audit tail --follow --app cart
    """
    where, record_filter = source(config, record), filter_of(dict(options), time.time())
    if where.journal is None:
        raise Unusable("audit tail reads a journal; for a database there is audit query")
    place = RecordSource(where.journal, None, where.places)
    end = max((segment.end for segment in segments_of(where.journal)), default=0)
    try:
        last = newest(place, lines, record_filter) if lines else []
        for one in last:
            _write(one, json_lines)
        if lines and not last:
            click.echo(f"{where.journal}: no record matches{' yet' if follow else ''}", err=True)
        while follow:
            for ended, behind in _ended_records(where.journal, end, record_filter):
                end = behind
                if ended is not None:
                    _write(ended, json_lines)
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(0) from None


def _ended_records(journal: Path, start: int, record_filter: Filter) -> Iterator[tuple[StoredRecord | None, int]]:
    """Yield the records that ended in the lines from the byte `start`, each with the offset after its line."""
    for end, raw in lines_from(journal, start):
        record: StoredRecord | None = None
        try:
            line = read_line(raw).record
        except ValueError:
            line = None
        if line is not None and line.phase not in (NOTE, "intent"):
            whole = StoredRecord(line.id, line.time, line.time, line.fields)
            record = whole if record_filter.fits(whole) else None
        yield record, end


def _write(record: StoredRecord, json_lines: bool) -> None:
    if json_lines:
        click.echo(plain_json(as_json(record)))
    else:
        click.echo("  ".join(visible(cell) for cell in row(record) if cell))
