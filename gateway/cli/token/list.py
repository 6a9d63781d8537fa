"""`token list`: shows tokens with their capabilities, never the tokens themselves."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.table import Table

from gateway.callers.nouns import TokenGrant
from gateway.cli.options import config_option
from gateway.cli.policy.output import console, json_option, write_json
from gateway.cli.token.database import read, run
from gateway.model import Json
from gateway.stores.issued import IssuedTokens
from gateway.stores.sql import Database


@click.command("list")
@click.option("--all", "also_ended", is_flag=True, help="Those too that are revoked or expired.")
@config_option()
@json_option
def list_tokens(also_ended: bool, path: Path, as_json: bool) -> None:
    """List the tokens that can be used, the newest first.

    Example: webmcp-gateway token list --all
    """

    async def listed(database: Database) -> list[TokenGrant]:
        return await IssuedTokens(database).listed()

    now = time.time()
    found = [grant for grant in run(read(path), listed) if also_ended or grant.good(now)]
    if as_json:
        write_json([_told(grant, now) for grant in found])
        return
    table = Table("name", "state", "expires", "on behalf of", "may", box=None, pad_edge=False)
    for grant in found:
        expires = datetime.fromtimestamp(grant.expires, UTC).strftime("%Y-%m-%d %H:%M UTC")
        may = ", ".join(sorted(grant.capabilities))
        table.add_row(grant.name, _state(grant, now), expires, grant.person or "nobody (shared)", may)
    console().print(table if found else "There is no token.")


def _told(grant: TokenGrant, now: float) -> Json:
    return {
        "id": grant.id,
        "name": grant.name,
        "state": _state(grant, now),
        "capabilities": list[Json](sorted(grant.capabilities)),
        "person": grant.person,
        "created": grant.created,
        "expires": grant.expires,
        "revoked": grant.revoked,
    }


def _state(grant: TokenGrant, now: float) -> str:
    if grant.revoked is not None:
        return "revoked"
    return "good" if grant.good(now) else "expired"
