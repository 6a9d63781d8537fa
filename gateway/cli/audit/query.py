"""`audit query`: shows the newest matching records."""

from __future__ import annotations

import time
from pathlib import Path

import click

from gateway.cli.audit.shown import as_json, table
from gateway.cli.audit.source import filter_of, filter_options, newest, source, source_options
from gateway.cli.policy.output import write_json


@click.command()
@source_options
@filter_options
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Maximum number of records."
)
@click.option("--json", "json_lines", is_flag=True, help="Write JSON.")
def query(config: Path, record: str | None, limit: int, json_lines: bool, **given: str | None) -> None:
    """Show the newest matching records, oldest first.

    Example: webmcp-gateway audit query --initiator model --decision deny --since 7d
    """
    found = newest(source(config, record), limit, filter_of(dict(given), time.time()))
    if json_lines:
        write_json([as_json(one) for one in found])
    else:
        click.echo(table(found))
