"""`credential list`: what there is, and who has connected; never a secret."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click
from rich.table import Table

from gateway.accounts import Accounts
from gateway.cli.credential.opened import is_connected, kind, run
from gateway.cli.options import config_option
from gateway.cli.policy.output import console, json_option, write_json
from gateway.model import Json
from gateway.stores.tokens import Listed


@click.command("list")
@config_option()
@json_option
def list_credentials(path: Path, as_json: bool) -> None:
    """List the credentials of gateway.yaml, with the tokens that are stored for them; never the tokens themselves.

    Example: webmcp-gateway credential list --json
    """

    async def listed(accounts: Accounts) -> list[Json]:
        stored = await accounts.store.list()
        return [
            {
                "name": name,
                "type": kind(spec),
                "per_person": is_connected(spec),
                "tokens": [_told(one) for one in stored if one.credential == name],
            }
            for name, spec in accounts.specs.items()
        ]

    found = run(path, listed)
    if as_json:
        write_json(found)
        return
    table = Table("credential", "type", "person", "account", "expires", box=None, pad_edge=False)
    for one in found:
        assert isinstance(one, dict)  # noqa: S101  made above
        tokens = one["tokens"]
        for token in tokens if isinstance(tokens, list) and tokens else [{}]:
            shown = token if isinstance(token, dict) else {}
            table.add_row(
                str(one["name"]),
                str(one["type"]),
                str(shown.get("person") or ""),
                str(shown.get("account") or ""),
                _date(shown),
            )
    console().print(table if found else "There is no credential.")


def _told(one: Listed) -> Json:
    kept = one.kept
    return {
        "person": one.principal or None,
        "account": kept.token.account.label if kept is not None and kept.token.account is not None else None,
        "expires": kept.token.expires_at if kept is not None else None,
        "refreshes": kept is not None and kept.token.refresh is not None,
        "changed": one.changed,
        "key": one.key,
        "readable": kept is not None,
    }


def _date(token: dict[str, Json]) -> str:
    if token and not token["readable"]:
        return "no key opens it"
    expires = token.get("expires")
    if not isinstance(expires, float):
        return ""
    return datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%d %H:%M UTC") + (
        " (renewed then)" if token.get("refreshes") else ""
    )
