"""Waits for lines of the record."""

import asyncio
from typing import Any

from tests.world import World


def outcomes(world: World, **wanted: Any) -> list[dict[str, Any]]:
    """The outcome lines of the record that have these fields."""
    lines = [line["fields"] | {"id": line["id"]} for line in world.records() if line["phase"] == "outcome"]
    return [fields for fields in lines if all(fields.get(name) == value for name, value in wanted.items())]


async def outcome(world: World, **wanted: Any) -> dict[str, Any]:
    """The first such outcome, once it is recorded."""
    async with asyncio.timeout(60):
        while not (found := outcomes(world, **wanted)):
            await asyncio.sleep(0.05)
    return found[0]
