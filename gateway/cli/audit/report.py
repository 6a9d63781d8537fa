"""`audit report`: one page of a period: who did what, what was refused, approved, and caused by a model."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import IO

import click

from gateway.cli.audit.page import page
from gateway.cli.audit.source import every, filter_of, filter_options, source, source_options
from gateway.cli.audit.tally import Tally


@click.command()
@source_options
@filter_options
@click.option("--output", "-o", type=click.File("w", encoding="utf-8", lazy=True), default="-", help="A file to write.")
@click.option("--title", default="What the gateway carried", show_default=True, help="The heading of the page.")
def report(config: Path, record: str | None, output: IO[str], title: str, **given: str | None) -> None:
    """Write a page in HTML about a period, the last 30 days if none is named. It needs no network.

    Example: webmcp-gateway audit report --since 7d --output week.html
    """
    now = time.time()
    wanted = filter_of(dict(given), now)
    if wanted.since is None:
        wanted = replace(wanted, since=now - 30 * 86400)
    tally = Tally(wanted.since or 0.0, wanted.until or now)
    for one in every(source(config, record), wanted):
        tally.take(one)
    output.write(page(tally, title))
