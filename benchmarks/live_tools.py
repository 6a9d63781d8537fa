"""`python -m benchmarks.live_tools`: how long after a page changes its tools the clients of each era hear it."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import mcp_types as types
from mcp import Client
from mcp.client.session import MessageHandlerFnT

from benchmarks import gateway_files
from benchmarks.processes import Processes, free_port
from gateway import mux
from gateway.model import Channel, Json

PAUSE = 1.2
"""Seconds between two changes: longer than the interval in which changes are coalesced."""

_SERVE = "from gateway.cli import main; main()"


class Page:
    """A host page with one view, whose page has one tool or none."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._host = f"gateway.localhost:{port}"
        self._place = f"http://127.0.0.1:{port}"
        self._mux = mux.ClientConnection()
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._view = ""
        self._tools: list[Json] = []
        self.listed = asyncio.Event()

    async def run(self) -> None:
        """Open the view, and answer the gateway."""
        own = {"host": self._host, "origin": f"http://{self._host}", "sec-fetch-site": "same-origin"}
        async with self._session.get(f"{self._place}/api/state", headers=own) as answer:
            csrf = (await answer.json())["csrf"]
        headers = {**own, "webmcp-gateway-csrf": csrf}
        body = {"apps": [gateway_files.APP]}
        async with self._session.post(f"{self._place}/bridge/tickets", json=body, headers=headers) as answer:
            ticket = (await answer.json())["ticket"]
        url = f"{self._place}/bridge"
        self._socket = await self._session.ws_connect(url, headers=own, protocols=("webmcp-gateway.v1",))
        self._mux.send(mux.Hello(ticket))
        self._mux.send(mux.Open("1", gateway_files.APP))
        await self._flush()
        async for message in self._socket:
            for event in self._mux.receive_data(message.data):
                if isinstance(event, mux.Opened):
                    self._view = event.view
                elif isinstance(event, mux.Message) and event.channel is Channel.WEBMCP:
                    self._answer(event.message)
            await self._flush()

    async def change(self) -> None:
        """Register the tool, or remove it."""
        tool: Json = {"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}
        self._tools = [] if self._tools else [tool]
        self._say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await self._flush()

    def _answer(self, message: dict[str, Json]) -> None:
        results: dict[str, dict[str, Json]] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "page", "version": "1"},
            },
            "tools/list": {"tools": self._tools},
        }
        if "id" in message:
            self._say({"jsonrpc": "2.0", "id": message["id"], "result": results[str(message["method"])]})
        if message.get("method") == "tools/list":
            self.listed.set()

    def _say(self, message: dict[str, Json]) -> None:
        self._mux.send(mux.Message(self._view, Channel.WEBMCP, message))

    async def _flush(self) -> None:
        if self._socket is not None:
            for text in self._mux.pending_output():
                await self._socket.send_str(text)


class Clock:
    """Records when each client was notified of the last change."""

    def __init__(self) -> None:
        self.heard: dict[str, float] = {}
        self.all = asyncio.Event()

    def hear(self, who: str, count: int = 2) -> None:
        """Note that a client is notified now."""
        self.heard.setdefault(who, time.perf_counter())
        if len(self.heard) == count:
            self.all.set()

    def clear(self) -> None:
        """Begin with a new change."""
        self.heard = {}
        self.all.clear()


async def measure(port: int, changes: int) -> dict[str, list[float]]:
    """Return milliseconds by era."""
    clock, found = Clock(), dict[str, list[float]]()
    url = f"http://localhost:{port}/mcp"
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        page = Page(session, port)
        await stack.enter_async_context(Client(url, mode="legacy", message_handler=_record_notifications(clock)))
        modern = await stack.enter_async_context(Client(url, mode="2026-07-28"))
        listening = await stack.enter_async_context(modern.listen(tools_list_changed=True))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        for work in (page.run(), _listen(listening, clock)):
            stack.callback(tasks.create_task(work).cancel)
        async with asyncio.timeout(10):
            await page.listed.wait()
        for _ in range(changes):
            await asyncio.sleep(PAUSE)
            clock.clear()
            began = time.perf_counter()
            await page.change()
            async with asyncio.timeout(10):
                await clock.all.wait()
            for who, when in clock.heard.items():
                found.setdefault(who, []).append((when - began) * 1000)
    return found


def _record_notifications(clock: Clock) -> MessageHandlerFnT:
    async def hear(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            clock.hear("legacy")

    return hear


async def _listen(listening: Any, clock: Clock) -> None:
    async for _ in listening:
        clock.hear("modern")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live_tools", description=__doc__)
    parser.add_argument("--changes", type=int, default=20, help="how often the page changes its tools")
    given = parser.parse_args()
    os.environ.setdefault("BENCH_SECRET", "bench")
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder, Processes(Path(folder)) as processes:
        port = free_port()
        config = gateway_files.write(Path(folder), port=port, backend="http://127.0.0.1:9", routes=10)
        with (Path(folder) / "policy.yaml").open("a") as policy:
            policy.write("tools: {add: {}}\n")
        processes.start("gateway", [sys.executable, "-c", _SERVE, "serve", "--config", str(config)], port=port)
        found = asyncio.run(measure(port, given.changes))
    print("| clients of the era | median ms | longest ms |\n| --- | ---: | ---: |")
    for who, times in sorted(found.items()):
        print(f"| {who} | {statistics.median(times):.1f} | {max(times):.1f} |")


if __name__ == "__main__":
    main()
