"""Endless lists of large items from an upstream: they are cut, and the excess is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mcp import Client

from tests.interop import large_lists
from tests.interop.kinds import KINDS, upstream
from tests.interop.large_lists import SIZE
from tests.interop.probe import text
from tests.interop.serving import gateway
from tests.world import local_client

ROOM = 16 * 1024 * 1024 // SIZE - 1
"""The number of items that fit."""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_list_has_an_end_in_bytes(tmp_path: Path, kind: str) -> None:
    """On `/mcp`, which reads lists whole; no more pages are requested than fit."""
    large_lists.PAGES.clear()
    async with (
        upstream(kind, large_lists) as spec,
        gateway(tmp_path, f"up: {spec}") as mcp,
        Client(mcp, cache=None) as client,
    ):
        async with asyncio.timeout(60):
            while not (uris := [one.uri for one in (await client.list_resources()).resources]):
                await asyncio.sleep(0.1)
        assert uris == [f"test://{number}" for number in range(ROOM)]
        assert max(large_lists.PAGES, default=ROOM) == ROOM  # as a process, the upstream has a separate list


@pytest.mark.parametrize("kind", ["json", "server"])
async def test_a_tool_that_was_left_out_is_not_called(tmp_path: Path, kind: str) -> None:
    """Its visibility and its form are unknown: the call gets the reason, and the console names it."""
    async with (
        upstream(kind, large_lists) as spec,
        gateway(tmp_path, f"up: {spec}") as mcp,
        Client(f"{mcp}/up") as client,
    ):
        assert text(await client.call_tool("tool_0")) == "tool_0 ran"
        refused = await client.call_tool(f"tool_{ROOM}")
        assert refused.is_error
        assert "its list has more than 16777216 bytes" in text(refused)
        console = mcp[:-4].replace("localhost", "gateway.localhost")
        own = {"origin": console, "sec-fetch-site": "same-origin"}
        said: list[str] = []
        async with local_client(headers=own) as person, asyncio.timeout(60):
            while not said:
                await asyncio.sleep(0.1)
                async with person.get(f"{console}/api/state") as answer:
                    said = [str(one["message"]) for one in (await answer.json())["problems"]]
        why = "the list of tools has more than 16777216 bytes"
        assert said == [f"up: the tool tool_{ROOM} is left out: {why}"]
