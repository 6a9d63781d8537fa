"""`storage list`: shows the owners and sizes of page storage, never its content."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from gateway.assembly.credentials import Accounts
from gateway.cli.credential.accounts import run
from gateway.cli.group import config_option
from gateway.cli.policy.output import console, json_option, minute, write_json
from gateway.stores.page_storage import StoredPage


@click.command("list")
@config_option()
@json_option
def list_storage(path: Path, as_json: bool) -> None:
    """List the owners and sizes of page storage by app, without its content.

    Example: webmcp-gateway storage list --json
    """

    async def listed(accounts: Accounts) -> list[StoredPage]:
        return await accounts.storage.list()

    found = run(path, listed)
    if as_json:
        write_json([{"app": o.app, "person": o.person, "characters": o.size, "changed": o.changed} for o in found])
        return
    table = Table("app", "person", "characters", "changed", box=None, pad_edge=False)
    for one in found:
        changed = minute(one.changed)
        table.add_row(one.app, one.person, f"{one.size:,}", changed)
    console().print(table if found else "No page keeps anything.")
