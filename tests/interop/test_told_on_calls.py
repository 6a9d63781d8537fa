"""Messages of upstreams on the stream of a call: all arrive, and those for others reach them, too."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from aiohttp import web
from mcp import Client

from tests.interop.raw import raw
from tests.interop.serving import gateway

MODES = ["legacy", "2026-07-28"]
MANY = 1500
"""More messages at once than any buffer on the way holds."""


def notification(method: str, **params: Any) -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


LOGGED = [notification("message", level="info", data=number) for number in range(MANY)]
RESULT = {"resultType": "complete", "content": [{"type": "text", "text": "fine"}]}

TALKS = """
import json, sys
for line in sys.stdin:
    said = json.loads(line)
    about = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "talks", "version": "1"}}
    match said["method"]:
        case "initialize":
            result = {**about, "capabilities": {"tools": {}, "logging": {}}}
        case "tools/list":
            result = {"tools": [{"name": "tool", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "fine"}]}
            logged = {"jsonrpc": "2.0", "method": "notifications/message"}
            for number in range(%d):
                print(json.dumps({**logged, "params": {"level": "info", "data": number}}))
        case _:
            result = {}
    if "id" in said:
        print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result}), flush=True)
"""


def events(told: list[dict[str, Any]]) -> web.Response:
    """Return a stream of these messages, sent at once."""
    text = "".join(f"data: {json.dumps(one)}\n\n" for one in told)
    return web.Response(text=text, content_type="text/event-stream")


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a call."""
    return {"jsonrpc": "2.0", "id": asked["id"], "result": RESULT}


@asynccontextmanager
async def talking(folder: Path, kind: str) -> AsyncIterator[str]:
    """Yield the mount of an upstream that sends many log messages at once, and then answers."""

    async def called(_: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        return events([*LOGGED, answer(asked)])

    if kind == "command":
        (folder / "talks.py").write_text(TALKS % MANY, "utf-8")
        async with gateway(folder, f"up: {json.dumps({'command': [sys.executable, str(folder / 'talks.py')]})}") as mcp:
            yield f"{mcp}/up"
    else:
        async with raw(called) as up, gateway(folder, f'up: {{url: "{up.url}", network: private}}') as mcp:
            yield f"{mcp}/up"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["command", "url"])
async def test_all_that_a_call_logs_in_one_go_arrives(tmp_path: Path, kind: str, mode: str) -> None:
    """In order, before the answer."""
    heard: list[Any] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params.data)

    more: dict[str, Any] = {"log_level": "info"} if mode != "legacy" else {}
    async with (
        talking(tmp_path, kind) as url,
        Client(url, mode=mode, logging_callback=log, **more) as client,
        asyncio.timeout(60),
    ):
        await client.call_tool("tool")
        assert heard == list(range(MANY))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["tools", "resources", "prompts"])
async def test_a_change_that_a_call_tells_of_reaches_all_who_follow(tmp_path: Path, kind: str, mode: str) -> None:
    """Among the call's other messages, and although its own client subscribed to nothing."""
    changed = notification(f"{kind}/list_changed")

    async def called(_: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        return events([*LOGGED, changed, answer(asked)])

    heard = asyncio.Event()

    async def on_message(message: object) -> None:
        if getattr(message, "method", None) == changed["method"]:
            heard.set()

    async with (
        raw(called) as up,
        gateway(tmp_path, f'up: {{url: "{up.url}", network: private}}') as mcp,
        Client(f"{mcp}/up", mode=mode, message_handler=on_message) as follower,
        Client(f"{mcp}/up") as caller,
        asyncio.timeout(60),
    ):
        if mode == "legacy":
            await caller.call_tool("tool")
            await heard.wait()
        else:
            wanted: dict[str, Any] = {f"{kind}_list_changed": True}
            async with follower.listen(**wanted) as changes:
                await caller.call_tool("tool")
                await anext(aiter(changes))
