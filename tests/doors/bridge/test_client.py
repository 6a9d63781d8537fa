"""The MCP SDK's own client speaks through a view's end of the bridge, in both eras: MCP over the WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anyio
import mcp_types as types
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import jsonrpc_message_adapter

from gateway import mux
from gateway.model import Channel
from tests.doors.bridge.test_bridge import connected, console
from tests.doors.upstream_view import ERAS, HTML, UI, opened
from tests.world import World

MODES = pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


@asynccontextmanager
async def transport(
    socket: aiohttp.ClientWebSocketResponse, connection: mux.ClientConnection, view: str
) -> AsyncIterator[Streams]:
    """The ui channel of a view as the SDK's streams."""
    heard, hear = anyio.create_memory_object_stream[SessionMessage | Exception](64)
    say, said = anyio.create_memory_object_stream[SessionMessage](64)

    async def reading() -> None:
        async for frame in socket:
            for event in connection.receive_data(frame.data):
                if isinstance(event, mux.Message) and event.channel is Channel.UI:
                    await heard.send(SessionMessage(jsonrpc_message_adapter.validate_python(event.message)))

    async def writing() -> None:
        async for one in said:
            message = one.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
            connection.send(mux.Message(view, Channel.UI, message))
            for text in connection.pending_output():
                await socket.send_str(text)

    async with heard, hear, say, said, asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(reading()), tasks.create_task(writing())]
        yield hear, say
        for task in running:
            task.cancel()


@MODES
async def test_a_client_holds_its_handshake_and_calls(world: World, mode: str) -> None:
    """The client learns the server and its tools, and its calls are those of the view."""
    async with console(world) as http, connected(world, http) as host:
        view = (await host.open()).view
        async with Client(transport(host.socket, host.connection, view), mode=mode) as client:
            if mode == "legacy":
                assert client.server_info is not None
                assert client.server_info.name == "webmcp-gateway"
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert {"http_request", "http_stream"} <= tools
            assert "call_view_tool" not in tools  # that tool is for the model
            called = await client.call_tool("http_request", {"url": "/api/products"})
            assert called.structured_content is not None
            assert called.structured_content["status"] == 200
            [resource] = (await client.list_resources()).resources
            [page] = (await client.read_resource(str(resource.uri))).contents
            assert isinstance(page, types.TextResourceContents)
            assert "</html>" in page.text
            with pytest.raises(MCPError):
                await client.call_tool("call_view_tool", {})
    fields = next(line["fields"] for line in world.records() if line["fields"].get("url") == "/api/products")
    assert (fields["door"], fields["view"]) == ("bridge", view)


@MODES
@ERAS
async def test_the_view_of_an_upstream_is_one_of_its_clients(tmp_path: Path, era: str, mode: str) -> None:
    """In every pairing of eras: the tools for apps, and the app exactly as its upstream wrote it."""
    async with (
        opened(tmp_path, era) as view,
        Client(transport(view.socket, view.connection, view.id), mode=mode) as client,
    ):
        assert {tool.name for tool in (await client.list_tools()).tools} == {"both", "page", "http_request"}
        called = await client.call_tool("page", {})
        assert isinstance(called.content[0], types.TextContent)
        assert called.content[0].text == "page ran"
        [page] = (await client.read_resource(UI)).contents
        assert isinstance(page, types.TextResourceContents)
        assert page.text == HTML
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["greet"]
        if mode != "2026-07-28":  # that version has no such request
            assert client.server_capabilities.prompts is not None


@pytest.mark.parametrize(("asked", "given"), [("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")])
async def test_the_handshake_names_a_version_that_is_spoken(tmp_path: Path, asked: str, given: str) -> None:
    """The requested version if it is supported."""
    async with opened(tmp_path, "modern") as view:
        client = {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        answer = await view.result("initialize", protocolVersion=asked, **client)
        assert answer["protocolVersion"] == given
