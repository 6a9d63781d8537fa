"""Every raw request at each door of HTTP is refused, or answered completely without a smuggled second request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.backends.connect import Connections
from gateway.cli.attack import cases, raw
from tests.attacks.corpus import family
from tests.attacks.world import AttackWorld, running_world
from tests.world import Loopback

WAIT = 10.0
LOGGED = "logged as an error"


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    """The client connections."""
    async with Connections(resolver=Loopback()) as connections:
        yield connections


def places(world: AttackWorld) -> dict[str, raw.RawTarget]:
    """A valid request at each door; one smuggled into an invalid request would reach a backend, or be answered."""
    fields, body = cases.message({"rpc": {}})
    own = {"webmcp-gateway-client": "1", "content-type": "text/plain"}
    console, site = (f"http://{world.hosts[name]}" for name in ("console", "app"))
    mcp = raw.RawTarget(f"http://{world.hosts['plain']}", "POST", "/mcp/target", fields, json.dumps(body), "/healthz")
    return {
        "mcp": mcp,
        "mcp-sdk": replace(mcp, fields={**fields, "last-event-id": "0"}),
        "site": raw.RawTarget(site, "POST", "/api/open/x", own, "hello", "/api/exact"),
        "console": raw.RawTarget(console, "POST", "/bridge/tickets", own, '{"apps":["target"]}', "/api/state"),
    }


@pytest.mark.parametrize("door", ["mcp", "mcp-sdk", "site", "console"])
async def test_raw_requests_at_a_door(attacked_world: AttackWorld, connections: Connections, door: str) -> None:
    """A refused request reaches no backend and has no second answer; the gateway keeps running."""
    problems = [one async for one in try_door(attacked_world, connections, door)]
    assert not problems, f"{len(problems)} problems at {door}:\n" + "\n".join(problems)


async def test_raw_requests_in_an_application_of_others(tmp_path: Path, connections: Connections) -> None:
    """The same holds under another HTTP server, which logs unparsable requests as errors."""
    async with running_world(tmp_path, mounted=True) as world:
        problems = [one async for one in try_door(world, connections, "mcp") if LOGGED not in one]
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems)


async def try_door(world: AttackWorld, connections: Connections, door: str) -> AsyncIterator[str]:
    """The violations in the answers of this door."""
    for case in family("raw"):
        world.take_arrived()
        world.take_errors()
        wire = await raw.exchange_raw(connections, places(world)[door], case, WAIT)
        arrived = [one.line for one in world.take_arrived()]
        if not raw.matches_answers(case["expect"], wire) or (arrived and case["expect"] == "refused"):
            yield f"{case['id']} ({case['why']}): {wire.statuses}, arrived {arrived}: {bytes(wire.came[:300])!r}"
        for line in world.take_errors():
            yield f"{case['id']}: {LOGGED}: {line}"
