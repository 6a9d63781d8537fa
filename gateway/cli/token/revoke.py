"""`token revoke`: revokes a token."""

from __future__ import annotations

import time
from pathlib import Path

import click

from gateway.cli.group import Unusable
from gateway.cli.options import config_option
from gateway.cli.token.database import read, run
from gateway.stores.issued import IssuedTokens
from gateway.stores.sql import Database


@click.command()
@click.argument("name")
@config_option()
def revoke(name: str, path: Path) -> None:
    """End the token NAME. A running gateway refuses it within five seconds.

    Example: webmcp-gateway token revoke claude
    """

    async def ended(database: Database) -> int:
        return await IssuedTokens(database).revoke(name, time.time())

    if not run(read(path), ended):
        raise Unusable(f"there is no token {name!r} that could be used; `token list --all` shows the others")
    click.echo(f"Revoked {name}.")
