"""`credential test`: checks that a credential works, without showing it."""

from __future__ import annotations

import time
from pathlib import Path

import click

from gateway.assembly.credentials import Accounts
from gateway.cli.credential.opened import is_connected, kind, named, person_option, principal, run
from gateway.cli.options import config_option
from gateway.cli.policy.output import FAILED, json_option, write_json
from gateway.credentials import OAuth, Token
from gateway.errors import Refusal
from gateway.exchange.run_flow import Obtaining
from gateway.model import Json


@click.command()
@click.argument("name")
@person_option
@config_option()
@json_option
@click.pass_context
def test(ctx: click.Context, name: str, person: str, path: Path, as_json: bool) -> None:
    """Get a token for credential NAME as a request would, and say what came; nothing secret is shown.

    For an account of a person their stored token is taken, and renewed if it has expired.

    Exit code 0 if it works, 1 if not, 2 if the configuration cannot be used.

    Example: webmcp-gateway credential test shop-service
    """

    async def tried(accounts: Accounts) -> dict[str, Json]:
        spec = named(accounts, name)
        caller = principal(person)
        told: dict[str, Json] = {"name": name, "type": kind(spec)}
        try:
            if isinstance(spec, OAuth):
                if is_connected(spec):
                    token = await accounts.fetched[name].token(caller)
                else:
                    obtain = Obtaining(spec, accounts.servers[name], accounts.fetched)
                    token = await obtain(caller, None, time.time())
                return {**told, "ok": True, **_described(token)}
            injected = await accounts.authenticator.inject(name, caller, "GET", "https://backend.invalid/")
            return {**told, "ok": True, "headers": [field for field, _ in injected.headers]}
        except Refusal as refusal:
            return {**told, "ok": False, "reason": refusal.reason.value, "detail": refusal.detail}

    result = run(path, tried)
    if as_json:
        write_json(result)
    elif result["ok"]:
        rest = ", ".join(f"{key} {value}" for key, value in result.items() if key not in ("name", "type", "ok"))
        click.echo(f"{name}: works ({result['type']}; {rest})")
    else:
        click.echo(f"{name}: {result['reason']}: {result['detail']}", err=True)
    if not result["ok"]:
        ctx.exit(FAILED)


def _described(token: Token) -> dict[str, Json]:
    lasts = round(token.expires_at - time.time()) if token.expires_at is not None else None
    return {
        "token_type": token.token_type,
        "expires_in": lasts,
        "scope": token.scope,
        "account": token.account.label if token.account is not None else None,
    }
