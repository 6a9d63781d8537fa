"""The same server over every transport, to clients of both eras; and the error after it is gone."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from aiohttp import ClientSession
from mcp import Client

from tests.interop import everything
from tests.interop.kinds import KINDS, upstream
from tests.interop.serving import gateway, over_http
from tests.interop.test_connections import problems
from tests.interop.test_pairings import elicit, roots, sample, text

MODES = ["legacy", "2026-07-28"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "http_client"),
    [*((kind, "gateway") for kind in KINDS), *((kind, "aiohttp") for kind in ("url", "json", "sse"))],
    indirect=["http_client"],
)
async def test_every_transport_carries_calls_and_questions(
    tmp_path: Path, kind: str, mode: str, http_client: str
) -> None:
    """Lists, calls, and the server's own requests during a call; those over HTTP with either client."""
    asks = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}
    async with AsyncExitStack() as stack:
        spec = await stack.enter_async_context(upstream(kind, everything))
        mcp = await stack.enter_async_context(gateway(tmp_path, f"up: {spec}", http_client=http_client))
        client = await stack.enter_async_context(Client(f"{mcp}/up", mode=mode, **asks))  # type: ignore[arg-type]  # by name
        assert len((await client.list_tools()).tools) > 20
        assert "simple text" in text(await client.call_tool("test_simple_text"))
        if mode == "legacy" and kind != "json":
            asked = await client.call_tool("test_elicitation", {"message": "Who?"})
            assert "action=accept" in text(asked)
        elif mode != "legacy":
            assert text(await client.call_tool("test_input_required_result_elicitation")) == "Hello, Ada!"
        read = (await client.read_resource("test://static-text")).contents[0]
        assert isinstance(read, types.TextResourceContents)


async def test_an_address_that_the_network_does_not_allow_is_not_reached(tmp_path: Path) -> None:
    """Without `network: private` no upstream on this machine is connected to."""
    async with over_http(everything.server()) as url, gateway(tmp_path, f'up: {{url: "{url}"}}') as mcp:
        async with Client(mcp) as client:
            said = text(await client.call_tool("up_test_simple_text"))
            assert "The upstream up cannot be reached: localhost:" in said
            remedy = "If it may be there, write `network: private` at `upstreams.up`."
            assert said.endswith(f" {remedy}")
            async with asyncio.timeout(60):
                while not (told := await problems(mcp)):
                    await asyncio.sleep(0.05)
            assert told[0].endswith(f"is at an address that its `network` does not allow. {remedy}")
        with pytest.raises(Exception, match=r"does not allow|unhandled"):  # of the SDK's own kind
            async with Client(f"{mcp}/up", mode="legacy"):
                pass


async def test_clients_of_both_eras_are_told_why_their_upstream_is_gone(tmp_path: Path) -> None:
    """A modern client takes an error at the beginning for another version: only its next request fails."""
    dead = "import sys; sys.exit('no database')"
    async with gateway(tmp_path, f'up: {{command: ["{sys.executable}", "-c", "{dead}"]}}') as mcp:
        assert "2026-07-28" in (await modern(f"{mcp}/up", "server/discover"))["result"]["supportedVersions"]
        told = (await modern(f"{mcp}/up", "tools/list"))["error"]["message"]
        assert "the process ended with status 1; it said: no database" in told
        with pytest.raises(Exception, match=r"the process ended with status 1|unhandled"):  # of the SDK's own kind
            async with Client(f"{mcp}/up", mode="legacy"):
                pass


async def modern(url: str, method: str) -> Any:
    """Return the answer to one request of a modern client, as sent."""
    version = "2026-07-28"
    said = {types.PROTOCOL_VERSION_META_KEY: version, types.CLIENT_CAPABILITIES_META_KEY: {}}
    said[types.CLIENT_INFO_META_KEY] = {"name": "modern", "version": "1"}
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": said}}
    fields = {"accept": "application/json, text/event-stream", "mcp-protocol-version": version, "mcp-method": method}
    async with ClientSession() as http, http.post(url, json=request, headers=fields) as answer:
        return await answer.json()
