"""Opens the database of a configuration for one command; the gateway may be running."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from gateway.callers.nouns import TokenAuth
from gateway.cli.group import Unusable
from gateway.config import Config, load_config
from gateway.config.secrets import Unneeded
from gateway.stores.sql import Database

T = TypeVar("T")


def read(path: Path) -> Config:
    """Load the configuration with only the database's secret required. Raises DocumentError."""
    return load_config(path, Unneeded("database"))


def need_tokens(config: Config) -> None:
    """Check that the gateway accepts its own tokens. Raises `Unusable`."""
    if not any(isinstance(method, TokenAuth) for method in config.auth):
        raise Unusable(f"{config.path}: auth does not name token, so no token would be taken: write auth: [token]")


def run(config: Config, work: Callable[[Database], Awaitable[T]]) -> T:
    """Return the result of `work` on the open database. Raises `Unusable` if it is down, and StartError."""

    async def opened() -> T:
        async with Database(config.database.reveal()) as database:
            return await work(database)

    try:
        return asyncio.run(opened())
    except OSError as error:
        raise Unusable(str(error)) from error
