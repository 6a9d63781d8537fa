"""The `credential` commands: list, connect, test and revoke credentials, and replace the encryption key."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import click
from rich.table import Table

from gateway.assembly.credentials import Accounts
from gateway.backends.connect import Connections
from gateway.cli.group import Unusable, config_option
from gateway.cli.output import FAILED, console, json_option, minute, write_json
from gateway.config import load_config
from gateway.credentials import AuthorizationCode, Basic, FixedHeader, OAuth, PluginSpec, Spec, Token
from gateway.credentials import revoke as revocation
from gateway.errors import Refusal
from gateway.exchange.oauth_tokens import TokenRequests, run_flow
from gateway.hooks import Hooks
from gateway.model import LOCAL, Json, Principal
from gateway.stores.sealing import new_key
from gateway.stores.sql import Database
from gateway.stores.tokens import ListedToken

T = TypeVar("T")

person_option = click.option(
    "--person", default=LOCAL.person, show_default=True, help="The person whose account it is, as in `credential list`."
)


def run(path: Path, work: Callable[[Accounts], Awaitable[T]]) -> T:
    """Return the result of `work`. Raises DocumentError, StartError, and `Unusable` if the database is down."""
    config = load_config(path, os.environ)

    async def run_opened() -> T:
        async with Connections() as connections, Database(config.database.reveal()) as database:
            accounts = Accounts(config, connections, database, Hooks(config.plugins, config.path.parent))
            await accounts.start()
            return await work(accounts)

    try:
        return asyncio.run(run_opened())
    except OSError as error:
        raise Unusable(str(error)) from error


def find_credential(accounts: Accounts, name: str) -> Spec:
    """Return the credential `name`. Raises `Unusable`."""
    if name not in accounts.specs:
        known = ", ".join(accounts.specs) or "none"
        raise Unusable(f"there is no credential {name!r} in {accounts.path}; known: {known}")
    return accounts.specs[name]


def kind(spec: Spec) -> str:
    """Return its type as in gateway.yaml."""
    match spec:
        case OAuth(grant=grant):
            words = type(grant).__name__
            return "".join(f"_{char.lower()}" if char.isupper() else char for char in words).lstrip("_")
        case FixedHeader():
            return "header"
        case Basic():
            return "basic"
        case PluginSpec(type=type_):
            return type_


def is_connected(spec: Spec) -> bool:
    """Return whether each person connects a separate account."""
    return isinstance(spec, OAuth) and isinstance(spec.grant, AuthorizationCode)


def principal(person: str) -> Principal:
    """Return the principal of a person such as `local|local`."""
    issuer, _, subject = person.partition("|")
    return Principal(issuer.replace("%7C", "|").replace("%25", "%"), "cli", subject)


@click.command("list")
@config_option()
@json_option
def list_credentials(path: Path, as_json: bool) -> None:
    """List the credentials of gateway.yaml and their stored tokens, without the token values.

    Example: webmcp-gateway credential list --json
    """

    async def find_rows(accounts: Accounts) -> list[_Row]:
        tokens = await accounts.store.list()
        return [
            _Row(name, kind(spec), is_connected(spec), tuple(one for one in tokens if one.credential == name))
            for name, spec in accounts.specs.items()
        ]

    rows = run(path, find_rows)
    if as_json:
        write_json([_row_json(row) for row in rows])
        return
    table = Table("credential", "type", "person", "account", "expires", box=None, pad_edge=False)
    for row in rows:
        for token in row.tokens or (None,):
            who = (token.principal or "", _account(token) or "", _date(token)) if token is not None else ("", "", "")
            table.add_row(row.name, row.type, *who)
    console().print(table if rows else "There is no credential.")


@dataclass(frozen=True, slots=True)
class _Row:
    """One credential, and its stored tokens."""

    name: str
    type: str
    per_person: bool
    tokens: tuple[ListedToken, ...]


def _row_json(row: _Row) -> Json:
    return {
        "name": row.name,
        "type": row.type,
        "per_person": row.per_person,
        "tokens": [_token_json(one) for one in row.tokens],
    }


def _token_json(one: ListedToken) -> Json:
    token = one.token
    return {
        "person": one.principal or None,
        "account": _account(one),
        "expires": token.token.expires_at if token is not None else None,
        "refreshes": token is not None and token.token.refresh is not None,
        "changed": one.changed_at,
        "key": one.key,
        "readable": token is not None,
    }


def _account(one: ListedToken) -> str | None:
    account = one.token.token.account if one.token is not None else None
    return account.label if account is not None else None


def _date(one: ListedToken) -> str:
    if one.token is None:
        return "no key opens it"
    expires = one.token.token.expires_at
    if expires is None:
        return ""
    renewal = " (renewed then)" if one.token.token.refresh is not None else ""
    return minute(expires) + renewal


@click.command()
@click.argument("name")
@click.option("--open", "opens", is_flag=True, help="Open it in a browser.")
@config_option()
@json_option
def connect(name: str, opens: bool, path: Path, as_json: bool) -> None:
    """Print the URL of the console page where a person connects an account for credential NAME.

    The gateway must be running. The page requires a login to the console if logins are configured, and does nothing
    before its button is pressed.

    Example: webmcp-gateway credential connect calendar --open
    """

    async def find_url(accounts: Accounts) -> str:
        if not is_connected(find_credential(accounts, name)):
            raise Unusable(f"{name} is the gateway's own: there is nothing to connect. Try `credential test {name}`.")
        return f"{accounts.console}/connect/{quote(name, safe='')}"

    url = run(path, find_url)
    write_json({"connect_url": url}) if as_json else click.echo(url)
    if opens:
        click.launch(url)


@click.command()
@click.argument("name")
@person_option
@config_option()
@json_option
@click.pass_context
def test(ctx: click.Context, name: str, person: str, path: Path, as_json: bool) -> None:
    """Obtain a token for credential NAME as a request would, and show the result without secrets.

    For a personal account the stored token is used, and renewed if it has expired.

    Exit code 0 if it works, 1 if not, 2 if the configuration is invalid.

    Example: webmcp-gateway credential test shop-service
    """

    async def try_credential(accounts: Accounts) -> dict[str, Json]:
        spec = find_credential(accounts, name)
        caller = principal(person)
        tested: dict[str, Json] = {"name": name, "type": kind(spec)}
        try:
            if isinstance(spec, OAuth):
                if is_connected(spec):
                    token = await accounts.tokens[name].token(caller)
                else:
                    obtain = TokenRequests(spec, accounts.servers[name], accounts.tokens)
                    token = await obtain(caller, None, time.time())
                return {**tested, "ok": True, **_token_summary(token)}
            fields = await accounts.authenticator.inject(name, caller, "GET", "https://backend.invalid/")
            return {**tested, "ok": True, "headers": [field for field, _ in fields.headers]}
        except Refusal as refusal:
            return {**tested, "ok": False, "reason": refusal.reason.value, "detail": refusal.detail}

    result = run(path, try_credential)
    if as_json:
        write_json(result)
    elif result["ok"]:
        rest = ", ".join(f"{key} {value}" for key, value in result.items() if key not in ("name", "type", "ok"))
        click.echo(f"{name}: works ({result['type']}; {rest})")
    else:
        click.echo(f"{name}: {result['reason']}: {result['detail']}", err=True)
    if not result["ok"]:
        ctx.exit(FAILED)


def _token_summary(token: Token) -> dict[str, Json]:
    lasts = round(token.expires_at - time.time()) if token.expires_at is not None else None
    return {
        "token_type": token.token_type,
        "expires_in": lasts,
        "scope": token.scope,
        "account": token.account.label if token.account is not None else None,
    }


@click.command()
@click.argument("name")
@person_option
@click.option("--all", "everybody", is_flag=True, help="All persons' accounts and the gateway's own tokens.")
@config_option()
@json_option
def revoke(name: str, person: str, everybody: bool, path: Path, as_json: bool) -> None:
    """Delete the stored tokens of credential NAME, and revoke them at the authorization server.

    A running gateway notices within five seconds.

    Example: webmcp-gateway credential revoke calendar --person "https://login.example.com|alice"
    """

    async def revoke_stored(accounts: Accounts) -> list[Json]:
        spec = find_credential(accounts, name)
        tokens = [one for one in await accounts.store.list() if one.credential == name]
        results: list[Json] = []
        for one in tokens:
            if not everybody and one.principal not in (person, ""):
                continue
            await accounts.store.delete(name, one.principal)
            revoked = isinstance(spec, OAuth) and await _revoke_at_server(accounts, spec, one)
            results.append({"person": one.principal or None, "revoked": revoked})
        return results

    result = run(path, revoke_stored)
    if as_json:
        write_json({"forgotten": result})
        return
    revoked = sum(1 for one in result if isinstance(one, dict) and one["revoked"])
    click.echo(f"{name}: {len(result)} deleted here, {revoked} revoked at the server")


async def _revoke_at_server(accounts: Accounts, spec: OAuth, one: ListedToken) -> bool:
    if one.token is None or not accounts.tokens[spec.name].ownership.owns(one.token.token):
        return False
    try:
        return await run_flow(revocation(spec, one.token.token, time.time()), accounts.servers[spec.name])
    except Refusal as refusal:
        click.echo(refusal.detail, err=True)
        return False


@click.command("rotate-key")
@click.option("--print", "prints", is_flag=True, help="Only print a new key.")
@click.option("--reseal", is_flag=True, help="Create no new key: re-encrypt with the first existing one.")
@config_option()
@json_option
def rotate_key(prints: bool, reseal: bool, path: Path, as_json: bool) -> None:
    """Create a new key for stored tokens, page storage and logins, and re-encrypt them.

    The gateway may be running.

    The previous key stays valid until the next rotation, for processes that still use it. A key in an environment
    variable must be changed by you: prepend the output of --print, separated by a space, restart the gateway, and run
    this with --reseal.

    Example: webmcp-gateway credential rotate-key
    """
    if prints:
        click.echo(new_key())
        return

    async def reseal_all(accounts: Accounts) -> dict[str, Json]:
        if not reseal:
            await accounts.reseal()  # what a rotation that was killed has left, while its key is still kept
            accounts.ring.rotate()
        return await accounts.reseal()

    result = run(path, reseal_all)
    if as_json:
        write_json(result)
        return
    click.echo(f"The key is {result['key']}; {result['sealed']} tokens were sealed with it.")
    if result["pages"]:
        click.echo(f"So was what {result['pages']} pages keep.")
    if result["logins"]:
        click.echo(f"So were the ID tokens of {result['logins']} logins.")
    if result["unreadable_logins"]:
        click.echo(f"{result['unreadable_logins']} logins will end here alone, and not at their issuer.")
    if result["unreadable_pages"]:
        click.echo(f"What {result['unreadable_pages']} pages keep can be opened with no key: see `storage delete`.")
    if result["unreadable"]:
        click.echo(
            f"{result['unreadable']} tokens cannot be decrypted with any key: their accounts must be connected again."
        )
