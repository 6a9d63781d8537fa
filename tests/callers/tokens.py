"""Tokens and login links of a gateway under test, created in its database as the commands do."""

from __future__ import annotations

import time
from collections.abc import Collection

from gateway.cli.token import login_link
from gateway.stores.sessions import IssuedTokens
from gateway.stores.sql import Database
from tests.world import World


async def token(
    world: World,
    name: str,
    *capabilities: str,
    person: str | None = "local",
    life: float = 3600.0,
) -> dict[str, str]:
    """The headers with a new token."""
    async with Database(world.config.database.reveal()) as database:
        now = time.time()
        made = await IssuedTokens(database).create(name, _all(capabilities), person, now=now, expires=now + life)
    return {"authorization": f"Bearer {made.reveal()}"}


async def revoke(world: World, name: str) -> None:
    """Revoke a token."""
    async with Database(world.config.database.reveal()) as database:
        assert await IssuedTokens(database).revoke(name, time.time()) == 1


async def link(world: World, person: str = "local") -> str:
    """A URL that logs a person in."""
    async with Database(world.config.database.reveal()) as database:
        return await login_link(world.config, database, person)


def _all(capabilities: Collection[str]) -> list[str]:
    return sorted(capabilities)
