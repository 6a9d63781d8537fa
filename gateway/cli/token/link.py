"""`token link`: creates a single-use link that logs a person in to the console."""

from __future__ import annotations

import time
from pathlib import Path

import click

from gateway.callers.tokens import ISSUER, name_problem
from gateway.cli.group import Unusable
from gateway.cli.options import config_option
from gateway.cli.token.database import need_tokens, read, run
from gateway.config import Config
from gateway.model import LOCAL, Principal
from gateway.stores.sessions import SessionKind, Sessions
from gateway.stores.sql import Database

LIFE = 600.0
"""Lifetime of a link in seconds."""


@click.command()
@click.option("--person", default=LOCAL.subject, show_default=True, help="Who is then logged in.")
@config_option()
def link(person: str, path: Path) -> None:
    """Print an address that logs a person in to the console: once, within ten minutes.

    The person `local` is the gateway's own, and may do everything; another sees and answers what is their own.

    Example: webmcp-gateway token link --person alice
    """
    config = read(path)
    need_tokens(config)
    problem = name_problem(person)
    if problem is not None:
        raise Unusable(problem)

    async def made(database: Database) -> str:
        return await login_link(config, database, person)

    click.echo(run(config, made))


async def login_link(config: Config, database: Database, person: str = LOCAL.subject) -> str:
    """Return a new link that logs `person` in. Raises OSError if the database is down."""
    principal = Principal(ISSUER, "console", person, session=True)
    code = await Sessions(database).put(SessionKind.LINK, principal, now=time.time(), life=LIFE)
    return f"{config.server.origins.console}/login/link?code={code.reveal()}"
