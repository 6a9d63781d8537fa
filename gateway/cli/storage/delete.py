"""`storage delete`: deletes page storage."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.assembly.credentials import Accounts
from gateway.cli.credential.accounts import run
from gateway.cli.group import Unusable, config_option
from gateway.cli.policy.output import json_option, write_json


@click.command("delete")
@click.option("--app", help="By this app alone.")
@click.option("--person", help="For this person alone, as `storage list` shows them.")
@click.option("--all", "everything", is_flag=True, help="By all apps, for all persons.")
@config_option()
@json_option
def delete_storage(app: str | None, person: str | None, everything: bool, path: Path, as_json: bool) -> None:
    """Forget what pages keep on the gateway. A page that is open keeps what it holds until it is closed.

    Example: webmcp-gateway storage delete --app cart --person "https://login.example.com|alice"
    """
    if everything == bool(app or person):
        raise Unusable("say --app, --person or both; or --all")

    async def forgotten(accounts: Accounts) -> int:
        return await accounts.storage.delete(person, app)

    count = run(path, forgotten)
    write_json({"deleted": count}) if as_json else click.echo(f"Forgotten: {count} of what `storage list` names.")
