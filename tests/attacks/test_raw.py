"""Every request that is written byte by byte, at each door of HTTP: refused or answered whole, nothing hidden in it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.backends.connect import Connections
from gateway.cli.attack import messages, raw
from tests.attacks.corpus import family
from tests.attacks.world import AttackWorld
from tests.world import Loopback

WAIT = 10.0


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    """The way out."""
    async with Connections(resolver=Loopback()) as connections:
        yield connections


def places(world: AttackWorld) -> dict[str, raw.Place]:
    """A right request at each door; what is hidden in a wrong one would reach a backend, or be answered."""
    fields, body = messages.message({"rpc": {}})
    own = {"webmcp-gateway-client": "1", "content-type": "text/plain"}
    console, site = (f"http://{world.hosts[name]}" for name in ("console", "app"))
    mcp = raw.Place(f"http://{world.hosts['plain']}", "POST", "/mcp/target", fields, json.dumps(body), "/healthz")
    return {
        "mcp": mcp,
        "mcp-sdk": replace(mcp, fields={**fields, "last-event-id": "0"}),
        "site": raw.Place(site, "POST", "/api/open/x", own, "hello", "/api/exact"),
        "console": raw.Place(console, "POST", "/bridge/tickets", own, '{"apps":["target"]}', "/api/state"),
    }


@pytest.mark.parametrize("door", ["mcp", "mcp-sdk", "site", "console"])
async def test_raw_requests_at_a_door(attacked_world: AttackWorld, connections: Connections, door: str) -> None:
    """None that is refused reaches a backend or has a second answer; the gateway lives on."""
    place = places(attacked_world)[door]
    problems: list[str] = []
    for case in family("raw"):
        attacked_world.take_arrived()
        attacked_world.take_errors()
        wire = await raw.exchanged(connections, place, case, WAIT)
        arrived = [one.line for one in attacked_world.take_arrived()]
        if not raw.held(case["expect"], wire) or (arrived and case["expect"] == "refused"):
            problems.append(
                f"{case['id']} ({case['why']}): {wire.statuses}, arrived {arrived}: {bytes(wire.came[:300])!r}"
            )
        problems += [f"{case['id']}: logged as an error: {line}" for line in attacked_world.take_errors()]
    assert not problems, f"{len(problems)} problems at {door}:\n" + "\n".join(problems)
