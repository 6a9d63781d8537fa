"""`python -m benchmarks.memory`: what an idle session and a live view cost the gateway that holds thousands of them."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import aiohttp

from benchmarks import gateway_files, report
from benchmarks.errors import BenchmarkError, leaves
from benchmarks.processes import Processes, free_port
from benchmarks.targets import SERVE
from gateway import mux
from gateway.model import Channel, Json

T = TypeVar("T")

PER_PAGE = 25
"""Views of one host page."""

AT_ONCE = 16
"""Sessions and pages that are opened at the same time."""

TOOLS = 3
"""Tools that each page registers."""

GLANCES = 60
"""Checks, half a second apart."""

VERSION = "2025-11-25"
_ACCEPT = {"accept": "application/json, text/event-stream"}
_NEVER = aiohttp.ClientTimeout()


@dataclass(frozen=True, slots=True)
class Held:
    """The number of held objects, and KiB of the gateway's resident memory for each; `answered` at the end."""

    what: str
    count: int
    kib: float
    seconds: float
    answered: int


class Sessions:
    """Sessions of the handshake protocols, each with an open stream."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._fields: list[dict[str, str]] = []
        self._streams: list[aiohttp.ClientResponse] = []

    async def open(self) -> None:
        """Open one more. Raises `BenchmarkError` if it is refused."""
        params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "idle", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        async with self._http.post(self._url, json=message, headers=_ACCEPT) as answer:
            if answer.status != 200:
                raise BenchmarkError(f"Session {len(self._fields) + 1} was refused: {await answer.text()}")
            await answer.read()
            fields = {**_ACCEPT, "mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": VERSION}
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        async with self._http.post(self._url, json=ready, headers=fields) as answer:
            await answer.read()
        stream = await self._http.get(self._url, headers=fields, timeout=_NEVER)
        if stream.status != 200:
            raise BenchmarkError(f"The stream of a session was refused with {stream.status}.")
        self._fields.append(fields)
        self._streams.append(stream)

    async def ping(self, number: int) -> bool:
        """Return whether a session still answers, and its stream is open."""
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        async with self._http.post(self._url, json=message, headers=self._fields[number]) as answer:
            text = await answer.text()
        return answer.status == 200 and '"result"' in text and not self._streams[number].content.at_eof()

    def close(self) -> None:
        """Close their connections."""
        for stream in self._streams:
            stream.close()


class Pages:
    """Host pages, each with a bridge connection that carries views of the app."""

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self._http = http
        self._place = f"http://127.0.0.1:{port}"
        host = f"gateway.localhost:{port}"
        self._own = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
        self._sockets: list[tuple[aiohttp.ClientWebSocketResponse, mux.ClientConnection, list[str]]] = []
        self._tasks: asyncio.TaskGroup | None = None

    async def open(self, tasks: asyncio.TaskGroup, views: int) -> None:
        """Open one more page; return when all of its views have listed their tools. Raises `BenchmarkError`."""
        async with self._http.get(f"{self._place}/api/state", headers=self._own) as answer:
            csrf = await _said(answer, "csrf")
        headers = {**self._own, "webmcp-gateway-csrf": csrf}
        body = {"apps": [gateway_files.APP]}
        async with self._http.post(f"{self._place}/bridge/tickets", json=body, headers=headers) as answer:
            ticket = await _said(answer, "ticket")
        socket = await self._http.ws_connect(
            f"{self._place}/bridge", headers=self._own, protocols=("webmcp-gateway.v1",), autoping=True
        )
        connection, opened = mux.ClientConnection(), list[str]()
        connection.send(mux.Hello(ticket))
        for number in range(views):
            connection.send(mux.Open(str(number), gateway_files.APP))
        await _flush(socket, connection)
        self._sockets.append((socket, connection, opened))
        listed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tasks.create_task(self._answer(socket, connection, opened, views, listed))
        await listed

    async def _answer(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        connection: mux.ClientConnection,
        opened: list[str],
        views: int,
        listed: asyncio.Future[None],
    ) -> None:
        told = set[str]()
        async for message in socket:
            for event in connection.receive_data(message.data):
                if isinstance(event, mux.Opened):
                    opened.append(event.view)
                elif isinstance(event, mux.ErrorFrame):
                    if not listed.done():  # another page was refused before, and this one is not awaited
                        listed.set_exception(BenchmarkError(f"View {len(opened) + 1} of a page: {event.detail}"))
                    return
                elif isinstance(event, mux.Message) and event.channel is Channel.WEBMCP and "id" in event.message:
                    method = str(event.message["method"])
                    answer: dict[str, Json] = {"jsonrpc": "2.0", "id": event.message["id"], "result": _result(method)}
                    connection.send(mux.Message(event.view, Channel.WEBMCP, answer))
                    if method == "tools/list":
                        told.add(event.view)
            await _flush(socket, connection)
            if len(told) == views and not listed.done():
                listed.set_result(None)

    @property
    def views(self) -> list[str]:
        """The handles of all views."""
        return [view for _, _, opened in self._sockets for view in opened]

    async def close(self) -> None:
        """Close their connections."""
        for socket, _, _ in self._sockets:
            await socket.close()


async def measure(port: int, pid: int, sessions: int, views: int) -> list[Held]:
    """Hold all at once, and call each at the end. Raises `BenchmarkError`."""
    url = f"http://localhost:{port}/mcp"
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        idle, pages = Sessions(http, url), Pages(http, port)
        stack.callback(idle.close)
        stack.push_async_callback(pages.close)
        await idle.open()  # the first of each is not counted: it has one-time costs
        await pages.open(tasks, 1)
        before = await _settled(pid)
        began = time.monotonic()
        await _all([idle.open] * sessions)
        took, with_sessions = time.monotonic() - began, await _settled(pid)
        began = time.monotonic()
        await _all([lambda: pages.open(tasks, PER_PAGE)] * (views // PER_PAGE))
        viewing, with_views = time.monotonic() - began, await _settled(pid)
        pings = await _all([partial(idle.ping, number) for number in range(sessions + 1)])
        answers = await _all([partial(_called, http, url, view) for view in pages.views])
        return [
            Held("idle session", sessions, (with_sessions - before) / sessions, took, sum(pings) - 1),
            Held("view", views, (with_views - with_sessions) / views, viewing, sum(answers) - 1),
        ]


async def _called(http: aiohttp.ClientSession, url: str, view: str) -> bool:
    """Return whether a model's call reaches the page of a view."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    arguments = {"view": view, "tool": "tool0", "arguments": {}}
    params = {"name": "call_view_tool", "arguments": arguments, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    fields = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "call_view_tool"}
    async with http.post(url, json=message, headers={**_ACCEPT, **fields}) as answer:
        return "the page answered" in await answer.text()


async def _all(jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run all jobs, `AT_ONCE` at a time, and return their results."""
    free = asyncio.Semaphore(AT_ONCE)

    async def run(job: Callable[[], Awaitable[T]]) -> T:
        async with free:
            return await job()

    async with asyncio.TaskGroup() as tasks:  # if one fails, the others end before their connections do
        running = [tasks.create_task(run(job)) for job in jobs]
    return [task.result() for task in running]


async def _settled(pid: int) -> float:
    """Return the KiB of resident memory once it no longer grows, after at most `GLANCES` checks.

    Raises `BenchmarkError` if it still grows.
    """
    last = 0.0
    for _ in range(GLANCES):
        now = _resident(pid)
        if now <= last + 64:
            return now
        last = now
        await asyncio.sleep(0.5)
    raise BenchmarkError(f"The gateway's memory still grows after {GLANCES} glances: {last:.0f} KiB.")


def _resident(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1])
    raise BenchmarkError("The system does not tell how much memory a process has.")


def _result(method: str) -> Json:
    tool: dict[str, Json] = {"description": "A tool of the benchmark.", "inputSchema": {"type": "object"}}
    results: dict[str, Json] = {
        "initialize": {
            "protocolVersion": VERSION,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "page", "version": "1"},
        },
        "tools/list": {"tools": [{"name": f"tool{number}", **tool} for number in range(TOOLS)]},
        "tools/call": {"content": [{"type": "text", "text": "the page answered"}]},
    }
    return results.get(method, {})


async def _said(answer: aiohttp.ClientResponse, name: str) -> str:
    """Return a member of a JSON response. Raises `BenchmarkError` with the whole text for another status."""
    text = await answer.text()
    if answer.status != 200:
        raise BenchmarkError(f"{answer.url.path} was answered {answer.status}: {text}")
    return str(json.loads(text)[name])


async def _flush(socket: aiohttp.ClientWebSocketResponse, connection: mux.ClientConnection) -> None:
    for text in connection.pending_output():
        await socket.send_str(text)


def start(processes: Processes, folder: Path, sessions: int, views: int) -> tuple[int, int]:
    """Start a gateway with sufficient limits; return its process and its port."""
    os.environ.setdefault("BENCH_SECRET", "bench")
    port = free_port()
    more = f"mcp: {{sessions: {sessions + 1}, sessions_each: {sessions + 1}, views_each: {views + 1}}}\n"
    config = gateway_files.write(folder, port=port, backend="http://127.0.0.1:9", routes=10, more=more)
    with (folder / "policy.yaml").open("a") as policy:
        policy.write("tools: {" + ", ".join(f"tool{number}: {{}}" for number in range(TOOLS)) + "}\n")
    running = processes.start("gateway", [sys.executable, "-c", SERVE, "serve", "--config", str(config)], port=port)
    return running.pid, port


def table(held: Sequence[Held]) -> str:
    """Return the table, in Markdown."""
    head = "| held at once | how many | KiB each | opened in s | answered at the end |"
    rule = "| --- | ---: | ---: | ---: | ---: |"
    rows = (f"| {one.what} | {one.count:,} | {one.kib:.1f} | {one.seconds:.1f} | {one.answered:,} |" for one in held)
    return "\n".join((head, rule, *rows))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--views", type=int, default=2000)
    given = parser.parse_args(arguments)
    failed = ""
    try:
        with tempfile.TemporaryDirectory(prefix="benchmark-") as folder, Processes(Path(folder)) as processes:
            pid, port = start(processes, Path(folder), given.sessions, given.views)
            held: list[Held] = asyncio.run(measure(port, pid, given.sessions, given.views))
    except* BenchmarkError as errors:
        failed = "\n".join(map(str, leaves(errors)))
    if failed:
        sys.exit(failed)
    print(", ".join(f"{name} {value}" for name, value in report.machine().items()), end="\n\n")
    print(table(held))


if __name__ == "__main__":
    main()
