"""`storage delete`: deletes page storage."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.assembly.credentials import Accounts
from gateway.cli.credential.accounts import run
from gateway.cli.group import Unusable, config_option
from gateway.cli.policy.output import json_option, write_json


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
        raise Unusable("say --app, --person or both; or --all")

    async def forgotten(accounts: Accounts) -> int:
        return await accounts.storage.delete(person, app)

    count = run(path, forgotten)
    write_json({"deleted": count}) if as_json else click.echo(f"Forgotten: {count} of what `storage list` names.")
