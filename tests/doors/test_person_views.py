"""A person's view in one client, reached by its handle from another client of theirs that `auth` names."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.attack.cases import answer_in
from tests.attacks.mcp_doors import HttpDoor
from tests.callers.tokens import token
from tests.world import World, running

AUTH = "auth: [{type: token, view_clients: [laptop]}]\n"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a gateway, as the doors of attacks read it."""

    port: int
    hosts: dict[str, str]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Yield the cart."""
    async with running(tmp_path, extra=AUTH) as started:
        yield started


async def call_tool(door: HttpDoor, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a call without view proof."""
    message = answer_in((await door.call(tool, json.dumps(arguments)))[1])
    assert message is not None
    found: dict[str, Any] = message["result"]
    return found


async def test_by_handle_at_the_mount(world: World) -> None:
    """The named client lists and calls it; another one, and another person's, see nothing of it."""
    place = Address(world.gateway.port, {})
    async with world.client() as client:
        phone = HttpDoor(place, client, True, app="cart", more=await token(world, "phone", "mcp", person="ann"))
        await phone.open()
        assert phone.proof is not None
        page = [{"name": "look", "inputSchema": {"type": "object"}}]
        await phone.tool("webmcp_poll", json.dumps({"tools": page, "wait": 0}))
        seen = {}
        for name, person in (("laptop", "ann"), ("tablet", "ann"), ("laptop 2", "bob")):
            door = HttpDoor(place, client, True, app="cart", more=await token(world, name, "mcp", person=person))
            views = (await call_tool(door, "list_view_tools", {}))["structuredContent"]["views"]
            arguments = {"view": phone.proof.view, "tool": "look", "arguments": {}}
            words = (await call_tool(door, "call_view_tool", arguments))["content"][0]["text"]
            seen[name] = ([(view["view"], view.get("client")) for view in views], "No view" in words)
        assert seen == {
            "laptop": ([(phone.proof.view, "token:phone")], False),
            "tablet": ([], True),
            "laptop 2": ([], True),
        }
