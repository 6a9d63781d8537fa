"""Published MCP Apps servers behind the gateway: the same as without it, to the byte, in both eras."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from aiohttp import ClientSession, web
from mcp import Client, StdioServerParameters
from mcp.client import advertise
from pydantic import ConfigDict

from gateway.mcp.tools import APP_MIME_TYPE, UI_EXTENSION
from tests.docs.blocks import lines
from tests.interop.serving import gateway
from tests.interop.test_every_way import PIPE, ROOT
from tests.world import serving

MODULES = Path(__file__).parent / "node_modules"
SERVERS = ["budget-allocator", "debug", "system-monitor", "basic-react", "basic-vanillajs"]
MODES = ["legacy", "auto"]
PAIRINGS = [
    pytest.param(name, mode, era, marks=[pytest.mark.corpus] if (at + (mode == "auto") + (era == "modern")) % 2 else [])
    for at, name in enumerate(SERVERS)
    for mode in MODES
    for era in ("legacy", "modern")
]
"""Each server with each era of a client and of itself; half of them are enough for each era of both."""
UI = [advertise(UI_EXTENSION, {"mimeTypes": [APP_MIME_TYPE]})]
INSPECTOR = MODULES / ".bin/mcp-inspector"


def command(name: str, *arguments: str) -> list[str]:
    """Return the command that starts the server."""
    return ["node", str(MODULES / f"@modelcontextprotocol/server-{name}/dist/index.js"), *arguments, "--stdio"]


def upstream(name: str, more: str = "", *arguments: str) -> str:
    """Return the server in gateway.yaml."""
    return f"{name}: {{command: {json.dumps(command(name, *arguments))}{more}}}"


class Whole(types.Result):
    """A result with all its members, known to the SDK or not."""

    model_config = ConfigDict(extra="allow")


async def send_raw(client: Client, request: Any) -> dict[str, Any]:
    """Return a server's answer unchanged."""
    return (await client.session.send_request(request, Whole)).model_dump(mode="json", by_alias=True)


async def visible_state(client: Client) -> dict[str, Any]:
    """Return all that a client can see of a server: its info, its tools, and its resources with their content."""
    tools = (await send_raw(client, types.ListToolsRequest()))["tools"]
    resources = (await send_raw(client, types.ListResourcesRequest()))["resources"]
    reads = {uri: types.ReadResourceRequestParams(uri=uri) for uri in (one["uri"] for one in resources)}
    read = {
        uri: (await send_raw(client, types.ReadResourceRequest(params=params)))["contents"]
        for uri, params in reads.items()
    }
    about = client.session.server_info
    info = about.model_dump(mode="json", by_alias=True) if about is not None else None
    said = {"info": info, "instructions": client.session.instructions}
    return {**said, "tools": tools, "resources": resources, "read": read}


@asynccontextmanager
async def modern_only(url: str) -> AsyncIterator[str]:
    """Forward to `url` only requests of protocol 2026-07-28: published servers on pipes speak the handshake."""

    async def forward(request: web.Request) -> web.StreamResponse:
        if not request.headers.get("mcp-protocol-version", "").startswith("2026"):
            return web.Response(status=400)
        kept = {
            name: value for name, value in request.headers.items() if name.lower() not in ("host", "content-length")
        }
        async with http.post(url, data=await request.read(), headers=kept) as answer:
            passed = web.StreamResponse(status=answer.status, headers={"content-type": answer.headers["content-type"]})
            await passed.prepare(request)
            async for part in answer.content.iter_any():
                await passed.write(part)
            return passed

    app = web.Application(client_max_size=2**24)
    app.router.add_post("/mcp", forward)
    async with ClientSession() as http, serving(app) as port:
        yield f"http://localhost:{port}/mcp"


@pytest.mark.parametrize(("name", "mode", "era"), PAIRINGS)
async def test_a_published_server_is_the_same_behind_the_gateway(
    tmp_path: Path, name: str, mode: str, era: str
) -> None:
    """Info, tools, `_meta` and HTML are identical to a direct connection, in every pairing of eras.

    A pipe to such a server speaks the handshake; a gateway in front of it speaks the newer protocol to another.
    """
    program, *arguments = command(name)
    outer, inner = tmp_path / "outer", tmp_path / "inner"
    async with AsyncExitStack() as stack:
        outer.mkdir()
        line = upstream(name)
        if era == "modern":
            inner.mkdir()
            mcp = await stack.enter_async_context(gateway(inner, line))
            url = await stack.enter_async_context(modern_only(f"{mcp}/{name}"))
            line = f'{name}: {{url: "{url}", network: private}}'
        mcp = await stack.enter_async_context(gateway(outer, line))
        server = StdioServerParameters(command=program, args=arguments, env={"PATH": os.environ["PATH"]})
        direct = await stack.enter_async_context(Client(server, mode="legacy", extensions=UI, cache=None))
        behind = await stack.enter_async_context(Client(f"{mcp}/{name}", mode=mode, extensions=UI, cache=None))
        expected, found = await asyncio.gather(visible_state(direct), visible_state(behind))
        assert behind.session.protocol_version == {"legacy": "2025-11-25", "auto": "2026-07-28"}[mode]
        assert found == expected
        assert all(tool["_meta"] for tool in expected["tools"])
        assert any(APP_MIME_TYPE in json.dumps(one) for one in expected["read"].values())


@pytest.mark.parametrize("mode", MODES)
async def test_two_servers_with_the_same_names_stand_side_by_side(tmp_path: Path, mode: str) -> None:
    """Each tool runs at, and opens the page of, its own server: one of them also returns structured content."""
    names = ("basic-react", "basic-vanillajs")
    lines = "\n".join(upstream(name, ", trust: basics") for name in names)
    async with gateway(tmp_path, lines) as mcp, Client(mcp, mode=mode, extensions=UI, cache=None) as client:
        pages = {}
        tools: dict[str, types.Tool] = {}
        async with asyncio.timeout(60):
            while not tools.keys() >= {
                f"{name}_get-time" for name in names
            }:  # a slow one is left out of the first lists
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name in names:
            tool = tools[f"{name}_get-time"]
            result = await client.call_tool(tool.name)
            assert not result.is_error
            assert ("time" in (result.structured_content or {})) is (name == "basic-vanillajs")
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


@pytest.mark.parametrize(("way", "mount"), [("http", "/system-monitor"), ("http", ""), ("stdio", "")])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_inspector_lists_calls_and_reads(tmp_path: Path, era: str, way: str, mount: str) -> None:
    """The inspector's command line, independent of our client and server, at `/mcp`, too, and by the pipe."""
    async with gateway(tmp_path, upstream("system-monitor")) as mcp:
        url = mcp + mount
        target = [url, "--transport", "http"] if way == "http" else [sys.executable, *PIPE, url, "--transport", "stdio"]

        async def said(*arguments: str) -> dict[str, Any]:
            found: dict[str, Any] = json.loads(await inspect(target, era, *arguments))
            return found

        name = "get-system-info" if mount else "system-monitor_get-system-info"
        tools: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while name not in tools:  # `/mcp` leaves out upstreams that start more slowly than a list may wait
                tools = {tool["name"]: tool for tool in (await said("--method", "tools/list"))["tools"]}
        called = await said("--method", "tools/call", "--tool-name", name)
        assert called["structuredContent"]["hostname"] == os.uname().nodename
        uri = tools[name]["_meta"]["ui"]["resourceUri"]
        read = await said("--method", "resources/read", "--uri", uri)
        assert read["contents"][0]["mimeType"] == APP_MIME_TYPE


async def test_the_inspector_of_the_readme(tmp_path: Path) -> None:
    """The command is run as written, with the gateway's port, and with the version that is installed for the tests."""
    ((_, line),) = lines(".venv/bin/npx ")
    _, _, package, *arguments = line.split()
    versions = json.loads((MODULES.parent / "package.json").read_text("utf-8"))["dependencies"]
    name, _, version = package.rpartition("@")
    assert versions[name] == version
    async with gateway(tmp_path, upstream("system-monitor")) as mcp:
        called = [mcp if word == "http://localhost:8080/mcp" else word for word in arguments]
        assert "tools" in json.loads(await ran(*called))


async def inspect(target: list[str], era: str, *arguments: str) -> str:
    """Return the inspector's output."""
    return await ran("--cli", *target, "--protocol-era", era, *arguments)


async def ran(*arguments: str) -> str:
    """Return the output of the inspector's command."""
    process = await asyncio.create_subprocess_exec(
        str(INSPECTOR), *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    said, complaint = await process.communicate()
    assert process.returncode == 0, (said + complaint).decode()
    return said.decode()
