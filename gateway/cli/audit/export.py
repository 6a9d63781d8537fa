"""`audit export`: writes every matching record for other programs."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

import click

from gateway.cli.audit.shown import as_json
from gateway.cli.audit.source import every, filter_of, filter_options, source, source_options
from gateway.cli.private import output
from gateway.model import Json
from gateway.stores.records import StoredRecord

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
def export(config: Path, record: str | None, format: str, place: str, **given: str | None) -> None:
    """Write all matching records: one JSON object per line, or CSV.

    Example: webmcp-gateway audit export --format csv --since 30d > november.csv
    """
    found = every(source(config, record), filter_of(dict(given), time.time()))
    try:
        with output(place) as file:
            _csv(found, file) if format == "csv" else _jsonl(found, file)
    except BrokenPipeError:
        sys.stderr.close()  # the reader closed the pipe


def _jsonl(records: Iterable[StoredRecord], output: IO[str]) -> None:
    for record in records:
        output.write(json.dumps(as_json(record)) + "\n")


def _csv(records: Iterable[StoredRecord], output: IO[str]) -> None:
    writer = csv.writer(output)
    writer.writerow(FIELDS)
    for record in records:
        said = as_json(record)
        writer.writerow([_cell(said.get(name)) for name in FIELDS])


def _cell(value: Json) -> str:
    """Escape a text that a spreadsheet would evaluate as a formula."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text
