"""The gateway's MCP client session with one page, over the webmcp channel of its view."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
from mcp import ClientSession, MCPError
from mcp import types as mcp
from mcp.shared.message import SessionMessage
from mcp_types.jsonrpc import jsonrpc_message_adapter
from mcp_types.methods import parse_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from gateway.model import ViewTool

QUEUE = 256
"""Messages of a page that may wait to be read; a page that sends more loses its session."""

READY = 60.0
"""Seconds that a page has to answer `initialize`: its person may look at it later."""

LIST_PAUSE = 1.0
"""Seconds between two listings of a page's tools."""

LIST_PAGES = 5

log = logging.getLogger(__name__)

JsonObject = dict[str, Any]


class PageSession:
    """Speaks MCP with the page: `send` carries a message to it, `on_tools` is told its tools whenever they change."""

    def __init__(
        self, send: Callable[[JsonObject], Awaitable[None]], on_tools: Callable[[Sequence[mcp.Tool]], None]
    ) -> None:
        self._send = send
        self._on_tools = on_tools
        self._changed = asyncio.Event()
        self._client: ClientSession | None = None
        self._to_client, self._from_page = anyio.create_memory_object_stream[SessionMessage | Exception](QUEUE)
        self._to_page, self._from_client = anyio.create_memory_object_stream[SessionMessage](QUEUE)

    def receive(self, message: JsonObject) -> bool:
        """A message of the page. False if the page sends faster than it is read: its session is over then."""
        try:
            parsed = jsonrpc_message_adapter.validate_python(_with_valid_tools(message))
            self._to_client.send_nowait(SessionMessage(parsed))
        except ValidationError:
            return True
        except (anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True

    async def call(
        self, tool: ViewTool, arguments: Mapping[str, Any], started: Callable[[], None]
    ) -> mcp.CallToolResult:
        """Run a tool of the page; `started` is called before. Raises `MCPError` (also when the page closes).

        Cancelling this call cancels it in the page. The result is not checked against the page's own output schema.
        """
        if self._client is None:
            raise MCPError(mcp.CONNECTION_CLOSED, "The page is not ready.")
        started()
        params = mcp.CallToolRequestParams(name=tool.page_name, arguments=dict(arguments))
        request = mcp.CallToolRequest(params=params)
        return await self._client.send_request(request, mcp.CallToolResult)

    async def run(self) -> None:
        """Keep the session until cancelled. A page that breaks the protocol ends only this."""
        try:
            async with asyncio.TaskGroup() as tasks:
                writer = tasks.create_task(self._write())
                await self._talk()
                writer.cancel()
        except* Exception as group:  # noqa: BLE001  whatever a hostile page makes the SDK raise ends this session alone
            log.warning("the webmcp session of a view ended: %s", group.exceptions)
        finally:
            self._client = None
            self._on_tools(())
            self.close()

    def close(self) -> None:
        """Let go of what is held, also where `run` was cancelled before it began."""
        for stream in (self._to_client, self._from_page, self._to_page, self._from_client):
            stream.close()

    async def _talk(self) -> None:
        async with ClientSession(self._from_page, self._to_page, message_handler=self._notified) as client:
            async with asyncio.timeout(READY):
                await client.initialize()
            self._client = client
            self._on_tools(await _list_tools(client))
            while True:  # a page registers its tools when it likes: the first change is asked for at once
                await self._changed.wait()
                self._changed.clear()
                self._on_tools(await _list_tools(client))
                await asyncio.sleep(LIST_PAUSE)

    async def _write(self) -> None:
        async for item in self._from_client:
            await self._send(item.message.model_dump(mode="json", by_alias=True, exclude_none=True))

    async def _notified(self, message: object) -> None:
        if isinstance(message, mcp.ToolListChangedNotification):
            self._changed.set()


def _with_valid_tools(message: JsonObject) -> JsonObject:
    """The message without definitions that are no valid tools: the SDK would refuse the whole list for one of them."""
    result = message.get("result")
    if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
        return message
    return {**message, "result": {**result, "tools": [tool for tool in result["tools"] if is_tool(tool)]}}


def is_tool(definition: object) -> bool:
    """Whether a page's definition of a tool is one."""
    try:
        parse_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": [definition]})
    except ValidationError:
        return False
    return True


async def _list_tools(client: ClientSession) -> list[mcp.Tool]:
    tools: list[mcp.Tool] = []
    cursor: str | None = None
    for _ in range(LIST_PAGES):
        page = await client.list_tools(params=mcp.PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools
