"""A page of the cart on a real bridge, without a browser: its tools request the shop, as with the view runtime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from gateway import mux
from gateway.model import Channel
from tests.doors.bridge.test_bridge import Host, connected
from tests.world import World

JsonObject = dict[str, Any]
TOOLS = ("remove_from_cart", "checkout", "get_cart")
SCHEMA: JsonObject = {"type": "object", "properties": {"item": {"type": "string"}, "more": {"type": "integer"}}}


@dataclass
class CartPage:
    """The page of one view; `ran` are the tools that ran, `outcomes` the results of their requests."""

    host: Host
    view: str
    ran: list[str] = field(default_factory=list)
    outcomes: list[JsonObject] = field(default_factory=list)
    listed: asyncio.Event = field(default_factory=asyncio.Event)
    _answers: dict[int, asyncio.Future[JsonObject]] = field(default_factory=dict)
    _calls: dict[Any, asyncio.Task[None]] = field(default_factory=dict)
    _number: int = 0

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Answer each message until the connection ends."""
        while True:
            for frame in self.host.connection.receive_data(await self.host.socket.receive_str()):
                if isinstance(frame, mux.Message):
                    self._take(frame.channel, frame.message, tasks)

    async def fetch(self, **arguments: Any) -> JsonObject:
        """Send a request of the page; while an approval is pending, poll for the answer."""
        answer = await self._tool("http_request", arguments)
        while "gateway-pending" in answer.get("headers", {}):
            answer = await self._tool("http_stream", {"id": answer["headers"]["gateway-pending"]})
        self.outcomes.append(answer)
        return answer

    def _take(self, channel: Channel, message: JsonObject, tasks: asyncio.TaskGroup) -> None:
        if channel is Channel.UI and "method" not in message:
            waiting = self._answers.pop(message["id"])
            if not waiting.cancelled():
                waiting.set_result(message)
        elif channel is Channel.WEBMCP and "id" in message and "method" in message:
            self._calls[message["id"]] = tasks.create_task(self._serve(message))
        elif message.get("method") == "notifications/cancelled":
            call = self._calls.get(message["params"]["requestId"])
            if call is not None:
                call.cancel()

    async def _tool(self, name: str, arguments: JsonObject) -> JsonObject:
        self._number += 1
        waiting = self._answers[self._number] = asyncio.get_running_loop().create_future()
        params = {"name": name, "arguments": arguments}
        message: JsonObject = {"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params}
        await self.host.say(mux.Message(self.view, Channel.UI, message))
        result: JsonObject = (await waiting)["result"]["structuredContent"]
        return result

    async def _serve(self, message: JsonObject) -> None:
        match message["method"]:
            case "initialize":
                info = {"name": "page", "version": "1"}
                result: JsonObject = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
            case "tools/list":
                result = {"tools": [{"name": name, "inputSchema": SCHEMA} for name in TOOLS]}
            case "tools/call":
                result = await self._execute(message["params"])
            case _:
                result = {}
        await self.host.say(
            mux.Message(self.view, Channel.WEBMCP, {"jsonrpc": "2.0", "id": message["id"], "result": result})
        )
        if message["method"] == "tools/list":
            self.listed.set()

    async def _execute(self, params: JsonObject) -> JsonObject:
        self.ran.append(params["name"])
        arguments = params.get("arguments") or {}
        match params["name"]:
            case "remove_from_cart":
                answer = await self.fetch(url=f"/api/cart/{arguments.get('item', 'tea')}", method="DELETE")
            case "checkout":
                answer = await self.fetch(url="/api/checkout", method="POST", body={})
            case _:
                answer = await self.fetch(url="/api/cart")
        reason = answer["headers"].get("gateway-reason", answer["status"])
        return {"content": [{"type": "text", "text": f"{params['name']}: {reason}"}]}


@asynccontextmanager
async def show_cart(world: World, client: aiohttp.ClientSession) -> AsyncIterator[CartPage]:
    """The page of a cart that is open in a host page of `client`, and has declared its tools."""
    async with connected(world, client) as host:
        page = CartPage(host, (await host.open()).view)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(page.run(tasks))
            async with asyncio.timeout(60):
                await page.listed.wait()
            yield page
            running.cancel()
