"""An upstream of protocol 2026-07-28 that answers with bytes of the test, and counts its requests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.world import Server

INFO = {"io.modelcontextprotocol/serverInfo": {"name": "raw", "version": "1"}}
TOOLS = {
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
    "tools": [{"name": "tool", "inputSchema": {"type": "object"}}],
    "_meta": INFO,
}
DISCOVERED = {
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "_meta": INFO,
}

Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Raw:
    """`answer` answers calls of its one tool, `tool`, `again` a GET, and `listen` `subscriptions/listen`.

    `asked` counts by method.
    """

    answer: Answer
    again: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    listen: Answer | None = None
    asked: Counter[str] = field(default_factory=Counter)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """The aiohttp handler."""
        if request.method == "GET" and self.again is not None:
            return await self.again(request)
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        self.asked[message["method"]] += 1
        match message["method"]:
            case "server/discover":
                return _result(message, DISCOVERED)
            case "tools/list":
                return _result(message, TOOLS)
            case "tools/call":
                return await self.answer(request, message)
            case "initialize":
                return web.Response(status=400)
            case "subscriptions/listen" if self.listen is not None:
                return await self.listen(request, message)
            case _:
                return web.Response(status=202)


@asynccontextmanager
async def raw(answer: Answer) -> AsyncIterator[Raw]:
    """Yield such an upstream."""
    made = Raw(answer)
    app = web.Application()
    app.router.add_route("*", "/mcp", made.handle)
    server = Server()
    await server.start(app)
    made.url = f"http://localhost:{server.port}/mcp"
    try:
        yield made
    finally:
        await server.stop()


def _result(message: dict[str, Any], result: dict[str, Any]) -> web.Response:
    return web.Response(
        text=json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), content_type="application/json"
    )
