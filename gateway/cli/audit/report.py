"""`audit report`: one page about a period: callers, refusals, approvals, and calls that a model caused."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

from gateway.cli.audit.page import page
from gateway.cli.audit.source import every, filter_of, filter_options, source, source_options
from gateway.cli.audit.tally import Tally
from gateway.cli.private import output


@click.command()
@source_options
@filter_options
@click.option("--output", "-o", "place", metavar="FILE", default="-", help="A file to write, for its owner alone.")
@click.option("--title", default="What the gateway carried", show_default=True, help="The heading of the page.")
def report(config: Path, record: str | None, place: str, title: str, **given: str | None) -> None:
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
    with output(place) as file:
        file.write(page(tally, title))
