"""The chat's connection to the gateway at /mcp, with the MCP SDK's client: tools, changes, calls and approvals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client import advertise
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from examples.chat_host.items import Approval

UI_EXTENSION = "io.modelcontextprotocol/ui"
APP_MIME_TYPE = "text/html;profile=mcp-app"
OPEN = "open_"
COLLECT = "call_view_tool"
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
SILENT_FOR = 330.0
"""Seconds that a stream of the gateway may be silent: it lets clients come back more often than that."""

LONGEST_CALL = 900.0
"""Seconds after which a call is given up, with the time that a person needs to answer."""

log = logging.getLogger(__name__)

Ask = Callable[[Approval | None], Awaitable[None]]
"""Shows that a call waits for the person, or with None that it does not any more."""

_current: ContextVar[Ask | None] = ContextVar("current call", default=None)


class GatewayError(Exception):
    """The gateway could not be asked; the text is for the model and for the person."""


@dataclass(frozen=True, slots=True)
class GatewayTool:
    """A tool that the model may call. `app` or `upstream` names what shows its result, at `resource_uri`."""

    name: str
    title: str
    description: str
    schema: Mapping[str, Any]
    resource_uri: str | None = None
    app: str | None = None
    upstream: str | None = None


@dataclass(slots=True)
class Gateway:
    """Connects to `url`, stays connected while `run` runs, and knows the tools of the moment.

    `is_connected` is None before the first attempt has ended. `console` is the origin of its own pages; `token`
    identifies the person, where the gateway asks for one.
    """

    url: str
    console: str
    token: str | None = field(default=None, repr=False)
    tools: tuple[GatewayTool, ...] = ()
    is_connected: bool | None = None
    is_closing: bool = False
    on_change: Callable[[], None] = lambda: None
    _client: Client | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _stale: asyncio.Event = field(default_factory=asyncio.Event)
    _asking: set[Ask] = field(default_factory=set)

    async def run(self) -> None:
        """Connect, and connect again whenever the connection is lost, until cancelled; set `is_closing` before."""
        pause = FIRST_PAUSE
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._connect_once()
            except* (MCPError, SubscriptionLost, httpx2.HTTPError, OSError, anyio.ClosedResourceError) as errors:
                log.info("The connection to the gateway is lost: %s", errors.exceptions[0])
            self._disconnect()
            if self.is_closing:  # a failure at the same time takes the place of the cancellation
                return
            if asyncio.get_running_loop().time() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)

    async def call(self, name: str, arguments: dict[str, Any], ask: Ask) -> dict[str, Any]:
        """Return the result in MCP's JSON form, also of a call that waited for a person. Raises `GatewayError`."""
        client = self._client
        if client is None:
            raise GatewayError("The gateway cannot be reached at the moment.")
        token = _current.set(ask)
        self._asking.add(ask)
        try:
            async with asyncio.timeout(LONGEST_CALL):
                result = await self._call(client, name, arguments)
                while (call := _running_call(result)) is not None:
                    await ask(Approval(self.console, _first_text(result)))
                    result = await self._call(client, COLLECT, {"call": call})
                await ask(None)
        except TimeoutError as error:
            raise GatewayError("The call took too long, and was given up.") from error
        except (MCPError, httpx2.HTTPError, OSError, RuntimeError, anyio.ClosedResourceError) as error:
            raise GatewayError(str(error) or "The connection to the gateway was lost.") from error
        finally:
            self._asking.discard(ask)
            _current.reset(token)
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)

    def find(self, name: str) -> GatewayTool | None:
        """Return the tool with this name, or None."""
        return next((tool for tool in self.tools if tool.name == name), None)

    async def wait_for_tools(self, prefix: str, seconds: float) -> bool:
        """Wait until a tool with this prefix is there: the page of an app registers its tools when it has loaded."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not any(tool.name.startswith(prefix) for tool in self.tools):
                    await self._changed.wait()
        return any(tool.name.startswith(prefix) for tool in self.tools)

    async def _call(self, client: Client, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        return await client.call_tool(name, arguments, read_timeout_seconds=LONGEST_CALL)

    async def _connect_once(self) -> None:
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        timeout = httpx2.Timeout(30, read=SILENT_FOR)
        async with httpx2.AsyncClient(headers=headers, timeout=timeout) as http:
            client = Client(
                streamable_http_client(self.url, http_client=http),
                client_info=types.Implementation(name="chat-host", version="1"),
                elicitation_callback=self._elicit,
                message_handler=self._hear,
                extensions=[advertise(UI_EXTENSION, {"mimeTypes": [APP_MIME_TYPE]})],
                cache=None,
            )
            async with client:
                self._client = client
                await self._refresh(client)
                if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                    while True:  # `_hear` is notified of changes
                        self._stale.clear()
                        await self._stale.wait()
                        await self._refresh(client)
                async with client.listen(tools_list_changed=True) as changes:
                    await self._refresh(client)  # what has changed before the subscription
                    async for _ in changes:
                        await self._refresh(client)

    async def _refresh(self, client: Client) -> None:
        listed: list[types.Tool] = []
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            listed += page.tools
            if (cursor := page.next_cursor) is None:
                break
        made = (_tool_of(tool) for tool in listed)
        self._publish(tuple(tool for tool in made if tool is not None), connected=True)

    def _disconnect(self) -> None:
        self._client = None
        self._publish((), connected=False)

    def _publish(self, tools: tuple[GatewayTool, ...], *, connected: bool) -> None:
        self.tools, self.is_connected = tools, connected
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self.on_change()

    async def _hear(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._stale.set()

    async def _elicit(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Show the person where to answer. This approves nothing: only the gateway's page does."""
        ask = _current.get() or (next(iter(self._asking)) if len(self._asking) == 1 else None)
        if ask is None or not isinstance(params, types.ElicitRequestURLParams) or not _is_web(params.url):
            return types.ElicitResult(action="decline")
        parts = urlsplit(params.url)
        is_gateways = f"{parts.scheme}://{parts.netloc}" == self.console and parts.path.startswith("/approvals/")
        await ask(Approval(params.url, params.message, is_gateways))
        return types.ElicitResult(action="accept")


def _tool_of(tool: types.Tool) -> GatewayTool | None:
    """Return the tool, or None if it is for apps alone (MCP Apps, `_meta.ui.visibility`)."""
    meta = tool.meta or {}
    ui = meta.get("ui")
    ui = ui if isinstance(ui, dict) else {}
    if "model" not in ui.get("visibility", ["model", "app"]):
        return None
    uri = ui.get("resourceUri") or meta.get("ui/resourceUri")
    uri = uri if isinstance(uri, str) else None
    app = tool.name.removeprefix(OPEN) if uri and tool.name.startswith(OPEN) else None
    upstream = None
    if uri and app is None:  # at /mcp, the name of the upstream stands before the address that the upstream gave
        scheme, _, rest = uri.partition("://")
        upstream, _, path = rest.partition("/")
        uri = f"{scheme}://{path}"
    title = tool.title or tool.name
    return GatewayTool(tool.name, title, tool.description or title, tool.input_schema, uri, app, upstream)


def _running_call(result: types.CallToolResult) -> str | None:
    """Return the id of a call that still runs in its view, and is to be collected."""
    match result.structured_content:
        case {"status": "running", "call": str(call)}:
            return call
        case _:
            return None


def _first_text(result: types.CallToolResult) -> str:
    texts = [part.text for part in result.content if isinstance(part, types.TextContent)]
    return texts[0].partition(" Collect its answer")[0] if texts else "The call has not been answered yet."


def _is_web(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https")
