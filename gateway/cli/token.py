"""The `token` commands: create, list and revoke the gateway's tokens, and create login links."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click
from rich.table import Table

from gateway.callers.methods import TokenAuth
from gateway.callers.tokens import ISSUER, TokenGrant, capability_problem, name_problem
from gateway.cli.group import Unusable, config_option
from gateway.cli.output import console, json_option, minute, write_json
from gateway.config import Config, load_config
from gateway.config.secrets import LenientEnvironment
from gateway.documents import parse_duration, suggestion
from gateway.model import LOCAL, Json, Principal
from gateway.ports.sessions import SessionKind
from gateway.stores.sealing import login_keys
from gateway.stores.sessions import DatabaseSessions, IssuedTokens, TokenNameTaken
from gateway.stores.sql import Database

T = TypeVar("T")

LINK_LIFE = 600.0
"""Lifetime of a link in seconds."""


def load_database_config(path: Path) -> Config:
    """Load the configuration with only the secrets of the rows required. Raises DocumentError."""
    return load_config(path, LenientEnvironment("database", "keys"))


def need_tokens(config: Config) -> None:
    """Check that the gateway accepts its own tokens. Raises `Unusable`."""
    if not any(isinstance(method, TokenAuth) for method in config.auth):
        raise Unusable(f"{config.path}: auth does not name token, so no token would be taken: write auth: [token]")


def run(config: Config, work: Callable[[Database], Awaitable[T]]) -> T:
    """Return the result of `work` on the open database. Raises `Unusable` if it is down, and StartError."""

    async def work_on_database() -> T:
        async with Database(config.database.reveal()) as database:
            return await work(database)

    try:
        return asyncio.run(work_on_database())
    except OSError as error:
        raise Unusable(str(error)) from error


async def login_link(config: Config, database: Database, person: str = LOCAL.subject) -> str:
    """Return a new link that logs `person` in. Raises OSError if the database is down."""
    principal = Principal(ISSUER, "console", person, session=True)
    sessions = DatabaseSessions(database, login_keys(config.cluster))
    code = await sessions.put(SessionKind.LINK, principal, now=time.time(), life=LINK_LIFE)
    return f"{config.server.origins.console}/login/link?code={code.reveal()}"


LONGEST = 366 * 24 * 3600.0
"""Longest lifetime of a token in seconds."""


@click.command()
@click.argument("name")
@click.option("--can", "capabilities", multiple=True, help="A capability; repeatable.  [default: mcp]")
@click.option("--app", "apps", multiple=True, help="Restricts `bridge` and `app` to this app; repeatable.")
@click.option("--person", default=LOCAL.subject, show_default=True, help="The person on whose behalf the token acts.")
@click.option(
    "--shared", is_flag=True, help="The token acts for no person: no personal credentials, no tools of views by name."
)
@click.option("--expires", default="90d", show_default=True, help="Lifetime: 12h, 90d; at most 366d.")
@config_option()
@json_option
def create(
    name: str,
    capabilities: tuple[str, ...],
    apps: tuple[str, ...],
    person: str,
    shared: bool,
    expires: str,
    path: Path,
    as_json: bool,
) -> None:
    """Create the token NAME and print it once; the gateway stores only its hash.

    Capabilities: mcp, bridge, app, approve, audit:read, admin. A token with mcp cannot have approve or admin.

    Example: webmcp-gateway token create claude --can mcp --expires 30d
    """
    config = load_database_config(path)
    need_tokens(config)
    capability_list = _for_apps(capabilities or ("mcp",), apps)
    owner = None if shared else person
    for problem in (
        name_problem(name),
        name_problem(owner) if owner is not None else None,
        capability_problem(capability_list),
    ):
        if problem is not None:
            raise Unusable(problem)
    for app in apps:
        if app not in config.apps:
            known = f"must be one of {', '.join(config.apps)}" if config.apps else "the configuration has no apps"
            raise Unusable(f"--app {app}: {known}{suggestion(app, config.apps)}")
    now = time.time()
    until = now + _seconds(expires)
    try:
        token = run(
            config,
            lambda database: IssuedTokens(database, login_keys(config.cluster)).create(
                name, capability_list, owner, now=now, expires=until
            ),
        )
    except TokenNameTaken:
        raise Unusable(f"there is a token {name!r} already: revoke it first, or take another name") from None
    if as_json:
        write_json(
            {
                "name": name,
                "token": token.reveal(),
                "capabilities": [*capability_list],
                "person": owner,
                "expires": until,
            }
        )
    else:
        click.echo(token.reveal())
        click.echo("Keep it: it is not shown again. Send it as `Authorization: Bearer …`.", err=True)


def _for_apps(capabilities: tuple[str, ...], apps: tuple[str, ...]) -> list[str]:
    grants_found = [
        f"{capability}:{app}" if app and capability in ("bridge", "app") else capability
        for capability in capabilities
        for app in (apps or ("",))
    ]
    return list(dict.fromkeys(grants_found))


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise Unusable(f"--expires {text}: {error}") from error
    if not 0 < seconds <= LONGEST:
        raise Unusable(f"--expires {text}: more than nothing, and at most 366d")
    return seconds


@click.command("list")
@click.option("--all", "also_ended", is_flag=True, help="Include revoked and expired tokens.")
@config_option()
@json_option
def list_tokens(also_ended: bool, path: Path, as_json: bool) -> None:
    """List the valid tokens, newest first.

    Example: webmcp-gateway token list --all
    """
    now = time.time()
    grants = run(load_database_config(path), lambda database: IssuedTokens(database).list_all())
    rows = [grant for grant in grants if also_ended or grant.good(now)]
    if as_json:
        write_json([_grant_json(grant, now) for grant in rows])
        return
    table = Table("name", "state", "expires", "on behalf of", "may", box=None, pad_edge=False)
    for grant in rows:
        may = ", ".join(sorted(grant.capabilities))
        table.add_row(grant.name, _state(grant, now), minute(grant.expires), grant.person or "nobody (shared)", may)
    console().print(table if rows else "There is no token.")


def _grant_json(grant: TokenGrant, now: float) -> Json:
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


@click.command()
@click.argument("name")
@config_option()
def revoke(name: str, path: Path) -> None:
    """Revoke the token NAME. A running gateway refuses it within five seconds.

    Example: webmcp-gateway token revoke claude
    """
    if not run(load_database_config(path), lambda database: IssuedTokens(database).revoke(name, time.time())):
        raise Unusable(f"there is no token {name!r} that could be used; `token list --all` shows the others")
    click.echo(f"Revoked {name}.")


@click.command()
@click.option("--person", default=LOCAL.subject, show_default=True, help="The person to log in.")
@config_option()
def link(person: str, path: Path) -> None:
    """Print a login link to the console, valid once and for ten minutes.

    The person `local` is the gateway's administrator; others see and answer only their own questions.

    Example: webmcp-gateway token link --person alice
    """
    config = load_database_config(path)
    need_tokens(config)
    problem = name_problem(person)
    if problem is not None:
        raise Unusable(problem)
    click.echo(run(config, lambda database: login_link(config, database, person)))
