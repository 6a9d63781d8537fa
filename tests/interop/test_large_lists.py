"""Lists of an upstream that have no end, of things that are large: they are cut, and what was cut off is closed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client

from tests.interop import large_lists
from tests.interop.large_lists import SIZE, server
from tests.interop.probe import text
from tests.interop.serving import gateway, over_http, over_sse, over_websocket

ROOT = Path(__file__).parents[2]
ROOM = 16 * 1024 * 1024 // SIZE - 1
"""Things for which there is room."""


@asynccontextmanager
async def upstream(kind: str) -> AsyncIterator[str]:
    """The server by `kind`, as an upstream of gateway.yaml."""
    match kind:
        case "url" | "json":
            async with over_http(server(), json_response=kind == "json") as url:
                yield f'{{url: "{url}", network: private}}'
        case "sse":
            async with over_sse(server()) as url:
                yield f'{{sse: "{url}", network: private}}'
        case "websocket":
            async with over_websocket(server()) as url:
                yield f'{{websocket: "{url}", network: private}}'
        case "command":
            yield json.dumps({"command": [sys.executable, "-m", "tests.interop.large_lists"], "cwd": str(ROOT)})
        case _:
            yield '{server: "tests.interop.large_lists:server"}'


@pytest.mark.parametrize("kind", ["url", "json", "sse", "websocket", "command", "server"])
async def test_a_list_has_an_end_in_bytes(tmp_path: Path, kind: str) -> None:
    """On `/mcp`, which reads lists whole; no more pages are asked for than there is room for."""
    large_lists.PAGES.clear()
    async with upstream(kind) as spec, gateway(tmp_path, f"up: {spec}") as mcp, Client(mcp, cache=None) as client:
        async with asyncio.timeout(60):
            while not (uris := [one.uri for one in (await client.list_resources()).resources]):
                await asyncio.sleep(0.1)
        assert uris == [f"test://{number}" for number in range(ROOM)]
        assert max(large_lists.PAGES, default=ROOM) == ROOM  # the command has a list of its own


@pytest.mark.parametrize("kind", ["json", "server"])
async def test_a_tool_that_was_left_out_is_not_called(tmp_path: Path, kind: str) -> None:
    """Whom it is for is not known, nor whether it changes: the call says why, and the console names it."""
    async with upstream(kind) as spec, gateway(tmp_path, f"up: {spec}") as mcp, Client(f"{mcp}/up") as client:
        assert text(await client.call_tool("tool_0")) == "tool_0 ran"
        refused = await client.call_tool(f"tool_{ROOM}")
        assert refused.is_error
        assert "its list has more than 16777216 bytes" in text(refused)
