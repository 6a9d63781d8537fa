"""`storage list`, `storage delete`: show the owners and sizes of page storage, and delete it."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from gateway.assembly.credentials import Accounts
from gateway.cli.credential.commands import run
from gateway.cli.group import Unusable, config_option
from gateway.cli.policy.output import console, json_option, minute, write_json
from gateway.stores.page_storage import StoredPage


@click.command("list")
@config_option()
@json_option
def list_storage(path: Path, as_json: bool) -> None:
    """List the owners and sizes of page storage by app, without its content.

    Example: webmcp-gateway storage list --json
    """

    async def load(accounts: Accounts) -> list[StoredPage]:
        return await accounts.storage.list()

    found = run(path, load)
    if as_json:
        write_json([{"app": o.app, "person": o.person, "characters": o.size, "changed": o.changed} for o in found])
        return
    table = Table("app", "person", "characters", "changed", box=None, pad_edge=False)
    for one in found:
        changed = minute(one.changed)
        table.add_row(one.app, one.person, f"{one.size:,}", changed)
    console().print(table if found else "No stored page data.")


@click.command("delete")
@click.option("--app", help="Only of this app.")
@click.option("--person", help="Only of this person, as in `storage list`.")
@click.option("--all", "everything", is_flag=True, help="Of all apps and persons.")
@config_option()
@json_option
def delete_storage(app: str | None, person: str | None, everything: bool, path: Path, as_json: bool) -> None:
    """Delete page storage. An open page keeps its copy until it is closed.

    Example: webmcp-gateway storage delete --app cart --person "https://login.example.com|alice"
    """
    if everything == bool(app or person):
        raise Unusable("name --app, --person or both; or --all")

    async def delete(accounts: Accounts) -> int:
        return await accounts.storage.delete(person, app)

    count = run(path, delete)
    write_json({"deleted": count}) if as_json else click.echo(f"Deleted: {count} entries of `storage list`.")
