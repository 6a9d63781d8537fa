"""`credential revoke`: deletes stored tokens, and revokes them at their server."""

from __future__ import annotations

import time
from pathlib import Path

import click

from gateway.assembly.credentials import Accounts
from gateway.cli.credential.opened import named, person_option, run
from gateway.cli.options import config_option
from gateway.cli.policy.output import json_option, write_json
from gateway.credentials import OAuth
from gateway.credentials import revoke as revocation
from gateway.errors import Refusal
from gateway.exchange.run_flow import drive
from gateway.model import Json
from gateway.stores.tokens import ListedToken


@click.command()
@click.argument("name")
@person_option
@click.option("--all", "everybody", is_flag=True, help="The accounts of all persons, and the gateway's own tokens.")
@config_option()
@json_option
def revoke(name: str, person: str, everybody: bool, path: Path, as_json: bool) -> None:
    """Forget the stored tokens of credential NAME, and tell its server that they are no longer wanted.

    A running gateway takes notice within five seconds.

    Example: webmcp-gateway credential revoke calendar --person "https://login.example.com|alice"
    """

    async def forgotten(accounts: Accounts) -> list[Json]:
        spec = named(accounts, name)
        stored = [one for one in await accounts.store.list() if one.credential == name]
        wanted = [one for one in stored if everybody or one.principal in (person, "")]
        told: list[Json] = []
        for one in wanted:
            await accounts.store.delete(name, one.principal)
            revoked = isinstance(spec, OAuth) and await _tell(accounts, spec, one)
            told.append({"person": one.principal or None, "revoked": revoked})
        return told

    result = run(path, forgotten)
    if as_json:
        write_json({"forgotten": result})
        return
    told = sum(1 for one in result if isinstance(one, dict) and one["revoked"])
    click.echo(f"{name}: {len(result)} forgotten, {told} revoked at the server")


async def _tell(accounts: Accounts, spec: OAuth, one: ListedToken) -> bool:
    if one.kept is None:
        return False
    try:
        return await drive(revocation(spec, one.kept.token, time.time()), accounts.servers[spec.name])
    except Refusal as refusal:
        click.echo(refusal.detail, err=True)
        return False
