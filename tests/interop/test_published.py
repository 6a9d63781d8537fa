"""Published MCP Apps servers behind the gateway: the same as without it, to the byte, in both eras."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client import advertise

from gateway.mcp.tools import APP_MIME_TYPE, UI_EXTENSION
from tests.interop.serving import gateway

MODULES = Path(__file__).parent / "node_modules"
SERVERS = ["budget-allocator", "debug", "system-monitor", "basic-react", "basic-vanillajs"]
MODES = ["legacy", "auto"]
UI = [advertise(UI_EXTENSION, {"mimeTypes": [APP_MIME_TYPE]})]
INSPECTOR = MODULES / ".bin/mcp-inspector"


def command(name: str) -> list[str]:
    """How the server is started."""
    return ["node", str(MODULES / f"@modelcontextprotocol/server-{name}/dist/index.js"), "--stdio"]


def upstream(name: str, more: str = "") -> str:
    """The server in gateway.yaml."""
    return f"{name}: {{command: {json.dumps(command(name))}{more}}}"


async def everything(client: Client) -> dict[str, Any]:
    """All that a client can see of a server: its words, its tools, and its resources with their content."""
    tools, resources = await client.list_tools(), await client.list_resources()
    read = {str(one.uri): await client.read_resource(str(one.uri)) for one in resources.resources}
    return {
        "tools": [tool.model_dump(mode="json", by_alias=True) for tool in tools.tools],
        "resources": [one.model_dump(mode="json", by_alias=True) for one in resources.resources],
        "read": {uri: [c.model_dump(mode="json", by_alias=True) for c in one.contents] for uri, one in read.items()},
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SERVERS)
async def test_a_published_server_is_the_same_behind_the_gateway(tmp_path: Path, name: str, mode: str) -> None:
    """Tools, `_meta` and HTML are identical to a direct connection."""
    program, *arguments = command(name)
    async with AsyncExitStack() as stack:
        mcp = await stack.enter_async_context(gateway(tmp_path, upstream(name)))
        server = StdioServerParameters(command=program, args=arguments, env={"PATH": os.environ["PATH"]})
        direct = await stack.enter_async_context(Client(server, mode=mode, extensions=UI, cache=None))
        behind = await stack.enter_async_context(Client(f"{mcp}/{name}", mode=mode, extensions=UI, cache=None))
        expected, found = await asyncio.gather(everything(direct), everything(behind))
        assert found == expected
        assert expected["tools"]
        assert any(APP_MIME_TYPE in json.dumps(one) for one in expected["read"].values())


@pytest.mark.parametrize("mode", MODES)
async def test_two_servers_with_the_same_names_stand_side_by_side(tmp_path: Path, mode: str) -> None:
    """Each tool opens the page of its own server."""
    lines = "\n".join(upstream(name, ", trust: basics") for name in ("basic-react", "basic-vanillajs"))
    async with gateway(tmp_path, lines) as mcp, Client(mcp, mode=mode, extensions=UI, cache=None) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        pages = {}
        for name in ("basic-react", "basic-vanillajs"):
            tool = tools[f"{name}_get-time"]
            assert not (await client.call_tool(tool.name)).is_error
            uri = (tool.meta or {})["ui"]["resourceUri"]
            pages[name] = (await client.read_resource(uri)).contents[0]
        direct = {}
        for name in pages:
            async with Client(f"{mcp}/{name}", extensions=UI, cache=None) as alone:
                uri = str((await alone.list_resources()).resources[0].uri)
                direct[name] = (await alone.read_resource(uri)).contents[0]
        assert {name: page.model_dump()["text"] for name, page in pages.items()} == {
            name: page.model_dump()["text"] for name, page in direct.items()
        }
        assert pages["basic-react"].model_dump()["text"] != pages["basic-vanillajs"].model_dump()["text"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_lists_and_calls(tmp_path: Path, era: str) -> None:
    """The inspector's command line, which is neither our client nor our server."""
    async with gateway(tmp_path, upstream("system-monitor")) as mcp:
        said = json.loads(await inspect(f"{mcp}/system-monitor", era, "--method", "tools/list"))
        names = [tool["name"] for tool in said["tools"]]
        assert names
        called = await inspect(f"{mcp}/system-monitor", era, "--method", "tools/call", "--tool-name", names[0])
        assert "content" in json.loads(called)


async def inspect(url: str, era: str, *arguments: str) -> str:
    """What the inspector prints."""
    process = await asyncio.create_subprocess_exec(
        str(INSPECTOR), "--cli", url, "--transport", "http", "--protocol-era", era, *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, complaint = await process.communicate()
    assert process.returncode == 0, (said + complaint).decode()
    return said.decode()
