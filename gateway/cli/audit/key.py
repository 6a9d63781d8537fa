"""`audit key`: prints the public key with which the record can be verified elsewhere."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.cli.audit.source import source, source_options, trusted_keys
from gateway.cli.group import Unusable


@click.command()
@source_options
def key(config: Path, record: str | None) -> None:
    """Print the public key of the record's signed heads. Keep it where the gateway cannot write.

    Example: webmcp-gateway audit key > gateway.pub
    """
    found = trusted_keys((), source(config, record))
    if not found:
        raise Unusable("there is no key yet: it is made at the first start of the gateway")
    click.echo(found[-1])
