"""A page that speaks MCP on its webmcp channel, without a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from gateway.model import Principal
from gateway.views.registry import Views
from gateway.views.view import View

JsonObject = dict[str, Any]
Execute = Callable[[JsonObject], Awaitable[JsonObject]]


def text(value: str) -> JsonObject:
    """Return a tool's result."""
    return {"content": [{"type": "text", "text": value}]}


@dataclass
class Page:
    """Its registered tools by name; the gateway's messages arrive at `hear`."""

    tools: dict[str, tuple[JsonObject, Execute]] = field(default_factory=dict)
    heard: list[JsonObject] = field(default_factory=list)
    view: View | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def register(self, name: str, execute: Execute, **definition: Any) -> None:
        """Register a tool, and notify the gateway if the page is connected."""
        self.tools[name] = ({"name": name, "inputSchema": {"type": "object"}, **definition}, execute)
        self.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    def drop(self, name: str) -> None:
        """Drop a tool."""
        del self.tools[name]
        self.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    def say(self, message: JsonObject) -> None:
        """Send a message to the gateway."""
        if self.view is not None and self.view.session is not None:
            self.view.session.receive(message)

    async def hear(self, message: JsonObject) -> None:
        """Handle a message of the gateway."""
        self.heard.append(message)
        if "id" in message and "method" in message:
            task = asyncio.create_task(self._answer(message))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _answer(self, message: JsonObject) -> None:
        self.say({"jsonrpc": "2.0", "id": message["id"], "result": await self._result(message)})

    async def _result(self, message: JsonObject) -> JsonObject:
        match message["method"]:
            case "initialize":
                info = {"name": "page", "version": "1"}
                return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                return {"tools": [definition for definition, _ in self.tools.values()]}
            case "tools/call":
                params = message["params"]
                return await self.tools[params["name"]][1](params.get("arguments") or {})
            case _:
                return {}


def connect(views: Views, principal: Principal, page: Page, app: str = "cart") -> View:
    """Open a view of `app` and connect its page."""
    view = views.open_bridged(principal, app)
    page.view = view
    views.connect(view, page.hear)
    return view


async def until(holds: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)
