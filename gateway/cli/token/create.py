"""`token create`: creates a token for a program, printed only once."""

from __future__ import annotations

import time
from pathlib import Path

import click

from gateway.callers.tokens import capability_problem, name_problem
from gateway.cli.group import Unusable
from gateway.cli.options import config_option
from gateway.cli.policy.output import json_option, write_json
from gateway.cli.token.database import need_tokens, read, run
from gateway.documents import parse_duration
from gateway.model import LOCAL, Secret
from gateway.stores.issued import IssuedTokens, NameTaken
from gateway.stores.sql import Database

LONGEST = 366 * 24 * 3600.0


@click.command()
@click.argument("name")
@click.option("--can", "capabilities", multiple=True, help="A capability; can be repeated.  [default: mcp]")
@click.option("--app", "apps", multiple=True, help="Makes `bridge` and `app` hold for this app alone; can be repeated.")
@click.option("--person", default=LOCAL.subject, show_default=True, help="On whose behalf its holder acts.")
@click.option(
    "--shared", is_flag=True, help="Nobody stands behind it: no credentials of a person's, no tools of views by name."
)
@click.option("--expires", default="90d", show_default=True, help="How long it is good: 12h, 90d; at most 366d.")
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
    """Make a token NAME and print it. It is shown this once; the gateway keeps a hash of it.

    Capabilities: mcp, bridge, app, approve, audit:read, admin. One for mcp cannot have approve or admin.

    Example: webmcp-gateway token create claude --can mcp --expires 30d
    """
    config = read(path)
    need_tokens(config)
    wanted = _for_apps(capabilities or ("mcp",), apps)
    owner = None if shared else person
    for problem in (name_problem(name), name_problem(owner) if owner is not None else None, capability_problem(wanted)):
        if problem is not None:
            raise Unusable(problem)
    for app in apps:
        if app not in config.apps:
            raise Unusable(f"--app {app}: there is no such app; there is {', '.join(config.apps)}")
    now = time.time()
    until = now + _seconds(expires)

    async def made(database: Database) -> Secret:
        return await IssuedTokens(database).create(name, wanted, owner, now=now, expires=until)

    try:
        token = run(config, made)
    except NameTaken:
        raise Unusable(f"there is a token {name!r} already: revoke it first, or take another name") from None
    if as_json:
        write_json(
            {"name": name, "token": token.reveal(), "capabilities": [*wanted], "person": owner, "expires": until}
        )
    else:
        click.echo(token.reveal())
        click.echo("Keep it: it is not shown again. Send it as `Authorization: Bearer …`.", err=True)


def _for_apps(capabilities: tuple[str, ...], apps: tuple[str, ...]) -> list[str]:
    found = [
        f"{capability}:{app}" if app and capability in ("bridge", "app") else capability
        for capability in capabilities
        for app in (apps or ("",))
    ]
    return list(dict.fromkeys(found))


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise Unusable(f"--expires {text}: {error}") from error
    if not 0 < seconds <= LONGEST:
        raise Unusable(f"--expires {text}: more than nothing, and at most 366d")
    return seconds
