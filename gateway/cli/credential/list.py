"""`credential list`: shows credentials and connected accounts, never a secret."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.table import Table

from gateway.assembly.credentials import Accounts
from gateway.cli.credential.opened import is_connected, kind, run
from gateway.cli.options import config_option
from gateway.cli.policy.output import console, json_option, write_json
from gateway.model import Json
from gateway.stores.tokens import ListedToken


@click.command("list")
@config_option()
@json_option
def list_credentials(path: Path, as_json: bool) -> None:
    """List the credentials of gateway.yaml, with the tokens that are stored for them; never the tokens themselves.

    Example: webmcp-gateway credential list --json
    """

    async def listed(accounts: Accounts) -> list[_Row]:
        stored = await accounts.store.list()
        return [
            _Row(name, kind(spec), is_connected(spec), tuple(one for one in stored if one.credential == name))
            for name, spec in accounts.specs.items()
        ]

    found = run(path, listed)
    if as_json:
        write_json([_json(row) for row in found])
        return
    table = Table("credential", "type", "person", "account", "expires", box=None, pad_edge=False)
    for row in found:
        for token in row.tokens or (None,):
            who = (token.principal or "", _account(token) or "", _date(token)) if token is not None else ("", "", "")
            table.add_row(row.name, row.type, *who)
    console().print(table if found else "There is no credential.")


@dataclass(frozen=True, slots=True)
class _Row:
    """One credential, and its stored tokens."""

    name: str
    type: str
    per_person: bool
    tokens: tuple[ListedToken, ...]


def _json(row: _Row) -> Json:
    return {
        "name": row.name,
        "type": row.type,
        "per_person": row.per_person,
        "tokens": [_told(one) for one in row.tokens],
    }


def _told(one: ListedToken) -> Json:
    kept = one.kept
    return {
        "person": one.principal or None,
        "account": _account(one),
        "expires": kept.token.expires_at if kept is not None else None,
        "refreshes": kept is not None and kept.token.refresh is not None,
        "changed": one.changed,
        "key": one.key,
        "readable": kept is not None,
    }


def _account(one: ListedToken) -> str | None:
    account = one.kept.token.account if one.kept is not None else None
    return account.label if account is not None else None


def _date(one: ListedToken) -> str:
    if one.kept is None:
        return "no key opens it"
    expires = one.kept.token.expires_at
    if expires is None:
        return ""
    renewed = " (renewed then)" if one.kept.token.refresh is not None else ""
    return datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%d %H:%M UTC") + renewed
