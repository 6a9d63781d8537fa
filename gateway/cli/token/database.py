"""Opens the database of a configuration for a token command, and creates login links; the gateway may be running."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from gateway.callers.methods import TokenAuth
from gateway.callers.tokens import ISSUER
from gateway.cli.group import Unusable
from gateway.config import Config, load_config
from gateway.config.secrets import Unneeded
from gateway.model import LOCAL, Principal
from gateway.ports.sessions import SessionKind
from gateway.stores.sessions import DatabaseSessions
from gateway.stores.sql import Database

T = TypeVar("T")

LINK_LIFE = 600.0
"""Lifetime of a link in seconds."""


def load_database_config(path: Path) -> Config:
    """Load the configuration with only the database's secret required. Raises DocumentError."""
    return load_config(path, Unneeded("database"))


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
    code = await DatabaseSessions(database).put(SessionKind.LINK, principal, now=time.time(), life=LINK_LIFE)
    return f"{config.server.origins.console}/login/link?code={code.reveal()}"
