"""`audit tail`: shows the last records, and new ones as they are written."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import click

from gateway.cli.audit.shown import as_json, row, visible
from gateway.cli.audit.source import (
    RecordSource,
    filter_of,
    filter_options,
    newest,
    segments_of,
    source,
    source_options,
)
from gateway.cli.group import Unusable
from gateway.stores.journal import NOTE
from gateway.stores.lines import read_line
from gateway.stores.records import Filter, StoredRecord
from gateway.stores.segments import lines_from

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
def tail(config: Path, record: str | None, lines: int, follow: bool, json_lines: bool, **given: str | None) -> None:
    """Show the last records; with --follow also new ones as they are written.

    Example: webmcp-gateway audit tail --follow --app cart
    """
    where, wanted = source(config, record), filter_of(dict(given), time.time())
    if where.journal is None:
        raise Unusable("audit tail reads a journal; for a database there is audit query")
    place = RecordSource(where.journal, None, where.places)
    end = max((segment.end for segment in segments_of(where.journal)), default=0)
    try:
        for one in newest(place, lines, wanted) if lines else ():
            _write(one, json_lines)
        while follow:
            for ended, behind in _ended(where.journal, end, wanted):
                end = behind
                if ended is not None:
                    _write(ended, json_lines)
            time.sleep(PAUSE)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(0) from None


def _ended(journal: Path, start: int, wanted: Filter) -> Iterator[tuple[StoredRecord | None, int]]:
    """Yield the records that ended in the lines from the byte `start`, each with the offset after its line."""
    for end, raw in lines_from(journal, start):
        found: StoredRecord | None = None
        try:
            line = read_line(raw).record
        except ValueError:
            line = None
        if line is not None and line.phase not in (NOTE, "intent"):
            whole = StoredRecord(line.id, line.time, line.time, line.fields)
            found = whole if wanted.fits(whole) else None
        yield found, end


def _write(record: StoredRecord, json_lines: bool) -> None:
    if json_lines:
        click.echo(json.dumps(as_json(record)))
    else:
        click.echo("  ".join(visible(cell) for cell in row(record) if cell))
