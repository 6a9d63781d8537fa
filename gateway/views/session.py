"""The gateway's MCP client of one page, over the webmcp channel of its view.

It does not use the SDK's client: a model waits for each step, and the SDK takes several iterations of the event loop
for a call, between which the page's own requests would run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final

import mcp_types as mcp
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal
from gateway.model import ViewTool
from gateway.mux import IN_FLIGHT_LIMIT
from gateway.traces import current
from gateway.views.tools import Listing, result_of

QUEUE = 256
"""Answers and cancellations to a page that may be queued; a page that sends more requests loses its session."""

READY = 60.0
"""Seconds that a page has to answer `initialize` or `tools/list`: its person may open the tab later."""

LIST_PAUSE = 1.0
"""Seconds between two listings of a page's tools."""

CATCH_UP = 5.0
"""Seconds that a model's call waits for a page's new list of tools."""

LIST_PAGES = 5

MOST_CALLS = IN_FLIGHT_LIMIT - 1
"""Calls of one page that may be under way: one place is left for `tools/list`, without which its session ends."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "unread messages to a page",
        f"{QUEUE} per view",
        "the session with that page is closed",
    ),
    Bound(
        Area.VIEWS,
        "concurrent calls into a page",
        f"{MOST_CALLS} per view",
        "further ones are refused",
    ),
)

_UNSAID, _CALLS = BOUNDS

log = logging.getLogger(__name__)

JsonObject = dict[str, Any]


class PageSession:
    """Speaks MCP with the page: `send` sends a message to it, `on_tools` receives its tools whenever they change."""

    def __init__(
        self,
        send: Callable[[JsonObject], Awaitable[None]],
        on_tools: Callable[[Sequence[mcp.Tool]], None],
        owner: str | None = None,
    ) -> None:
        self._send = send
        self._on_tools = on_tools
        self._owner = owner
        self._change = asyncio.Event()
        self._looking = asyncio.Lock()
        self._ids = count()
        self._requests: dict[int, asyncio.Future[JsonObject]] = {}
        self._unsaid: asyncio.Queue[JsonObject] = asyncio.Queue(QUEUE)
        self._ready = False
        self._closed = False

    def receive(self, message: JsonObject) -> bool:
        """Take a message of the page from the mux. False if the session is over, or the page sends too many."""
        if self._closed:
            return False
        if "method" not in message:
            self._take_answer(message)
        elif "id" in message:  # a ping: the only request that a page may send
            return self._say({"jsonrpc": "2.0", "id": message["id"], "result": {}})
        elif message["method"] == "notifications/tools/list_changed":
            self._change.set()
        return True

    async def call(
        self, tool: ViewTool, arguments: Mapping[str, Any], on_start: Callable[[], None]
    ) -> mcp.CallToolResult:
        """Run a tool of the page; `on_start` is called before.

        Raises `MCPError` (also when the page closes), and `Refusal` if too many calls are under way. Cancelling this
        call cancels it in the page. The result is not validated against the page's own output schema.
        """
        if not self._ready:
            raise MCPError(mcp.CONNECTION_CLOSED, "The page is not ready.")
        if len(self._requests) >= MOST_CALLS:
            _CALLS.report(self._owner)
            raise Refusal(Reason.RATE_LIMITED, f"{MOST_CALLS} calls of this view are under way already.")
        on_start()
        params: JsonObject = {"name": tool.page_name, "arguments": dict(arguments)}
        if trace := current():
            params["_meta"] = dict(trace.headers())
        return result_of(await self._ask("tools/call", params))

    @property
    def behind(self) -> bool:
        """True if the page announced a change of its tools that is not applied yet."""
        return self._ready and (self._change.is_set() or self._looking.locked())

    async def catch_up(self) -> bool:
        """Request an announced change of the page's tools at once; False if there is none, or no answer."""
        if not self.behind:
            return False
        with suppress(MCPError, TimeoutError):
            async with asyncio.timeout(CATCH_UP), self._looking:
                if self._change.is_set():
                    await self._look()
                return True
        return False

    async def run(self) -> None:
        """Run the session until cancelled. A page that breaks the protocol ends only this."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._write())
                await self._talk()
        except* Exception as group:  # noqa: BLE001  any error that a hostile page causes ends this session alone
            log.warning("the webmcp session of a view ended: %s", group.exceptions)
        finally:
            self._on_tools(())
            self.close()

    def close(self) -> None:
        """Fail all pending requests, also if `run` was cancelled before it began."""
        self._closed, self._ready = True, False
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(MCPError(mcp.CONNECTION_CLOSED, "Connection closed"))

    async def _talk(self) -> None:
        async with asyncio.timeout(READY):
            await self._greet()
        self._ready = True
        async with self._looking:
            await self._look()
        while True:  # a page registers its tools at any time: the first change is requested at once
            await self._change.wait()
            async with self._looking:
                await self._look()
            await asyncio.sleep(LIST_PAUSE)

    async def _look(self) -> None:
        self._change.clear()
        tools: list[mcp.Tool] | None = None
        try:
            with suppress(TimeoutError):  # it may sleep, or the request was lost
                async with asyncio.timeout(READY):
                    tools = await self._list_tools()
        finally:
            if tools is None:  # the known tools stay until it answers
                self._change.set()
        if tools is not None:
            self._on_tools(tools)

    async def _greet(self) -> None:
        own = {"name": "webmcp-gateway", "version": "1"}
        params = {"protocolVersion": LATEST_HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": own}
        version = (await self._ask("initialize", params)).get("protocolVersion")
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise MCPError(mcp.INVALID_REQUEST, f"The page supports no known version of MCP: {version!r:.100}")
        await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _list_tools(self) -> list[mcp.Tool]:
        """Request the tools of the page."""
        listing = Listing()
        params: JsonObject = {}
        for _ in range(LIST_PAGES):
            page = await self._ask("tools/list", params)
            if not isinstance(page.get("tools"), list):
                raise MCPError(mcp.INVALID_REQUEST, "The page's list of tools is invalid.")
            listing.add(page["tools"])
            if not isinstance(page.get("nextCursor"), str):
                break
            params = {"cursor": page["nextCursor"]}
        return listing.tools

    async def _ask(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request and return its result. Raises `MCPError`. Cancelling this notifies the page."""
        id = next(self._ids)
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._requests[id] = answer
        try:
            await self._send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
            return await answer
        except asyncio.CancelledError:
            self._say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
            raise
        finally:
            del self._requests[id]

    def _take_answer(self, message: JsonObject) -> None:
        id, error = message.get("id"), message.get("error")
        answer = self._requests.get(int(id)) if isinstance(id, int | float) else None
        if answer is None or answer.done():
            return
        if error is None:
            answer.set_result(message["result"])
        else:
            answer.set_exception(MCPError(error["code"], error["message"], error.get("data")))

    def _say(self, message: JsonObject) -> bool:
        """Queue a message; False if the queue is full."""
        if self._unsaid.full():
            _UNSAID.report(self._owner)
            return False
        self._unsaid.put_nowait(message)
        return True

    async def _write(self) -> None:
        while True:
            await self._send(await self._unsaid.get())
