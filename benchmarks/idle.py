"""Holds thousands of idle sessions and views at a gateway, and measures the memory that each takes there."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import aiohttp

from benchmarks import gateway_files
from benchmarks.at_rest import resident
from benchmarks.errors import BenchmarkError
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

GLANCES = 120
"""Checks, half a second apart."""

PERSONS = 1000
"""Persons to whom the views belong: one may open a limited number in a minute, and with each all others poll again."""

AT_REST: Final = 8.0
"""Seconds after which a session that was just opened is idle, and has left the SDK."""

WAIT = 14.0
"""Seconds that a poll waits: less than the silence after which its answer would be an event stream."""

VERSION = "2025-11-25"
_ACCEPT = {"accept": "application/json, text/event-stream", "x-user": "person0"}
_NEVER = aiohttp.ClientTimeout()
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {
        "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
    },
}


@dataclass(frozen=True, slots=True)
class Held:
    """The number of held objects, and KiB of the gateway's resident memory for each; `answered` at the end."""

    what: str
    count: int
    kib: float
    seconds: float
    answered: int


class Kind(Protocol):
    """One kind of held objects."""

    @property
    def name(self) -> str:
        """The name in the table."""

    @property
    def each(self) -> int:
        """Objects that are opened together."""

    async def open(self, tasks: asyncio.TaskGroup, number: int) -> None:
        """Open so many more. Raises `BenchmarkError` if one is refused."""

    def checks(self) -> Sequence[Callable[[], Awaitable[bool]]]:
        """For each object a check whether it still answers."""

    async def close(self) -> None:
        """Close the connections."""


class Sessions:
    """Sessions of the handshake protocols, each with an open stream."""

    name = "handshake session with its stream"
    each = 1

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self._http = http
        self._url = f"http://localhost:{port}/mcp"
        self._fields: list[dict[str, str]] = []
        self._streams: list[aiohttp.ClientResponse] = []

    async def open(self, tasks: asyncio.TaskGroup, number: int) -> None:
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

    def checks(self) -> Sequence[Callable[[], Awaitable[bool]]]:
        """Return whether each session still answers, and its stream is open."""
        return [partial(self._ping, number) for number in range(len(self._fields))]

    async def _ping(self, number: int) -> bool:
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        async with self._http.post(self._url, json=message, headers=self._fields[number]) as answer:
            text = await answer.text()
        return answer.status == 200 and '"result"' in text and not self._streams[number].content.at_eof()

    async def close(self) -> None:
        """Close their connections."""
        for stream in self._streams:
            stream.close()


class Pages:
    """Host pages, each with a bridge connection that carries views of the app."""

    name = "view of a host page"
    each = PER_PAGE

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self._http = http
        self._place = f"http://127.0.0.1:{port}"
        self._url = f"http://localhost:{port}/mcp"
        host = f"gateway.localhost:{port}"
        self._own = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
        self._numbers = count()
        self._sockets: list[tuple[aiohttp.ClientWebSocketResponse, str, list[str]]] = []

    async def open(self, tasks: asyncio.TaskGroup, views: int) -> None:
        """Open one more page; return when all of its views have listed their tools. Raises `BenchmarkError`."""
        name = _person(next(self._numbers))
        person = {"x-user": name}
        async with self._http.get(f"{self._place}/api/state", headers={**self._own, **person}) as answer:
            csrf = await _read_member(answer, "csrf")
        headers = {**self._own, **person, "webmcp-gateway-csrf": csrf}
        body = {"apps": [gateway_files.APP]}
        async with self._http.post(f"{self._place}/bridge/tickets", json=body, headers=headers) as answer:
            ticket = await _read_member(answer, "ticket")
        socket = await self._http.ws_connect(
            f"{self._place}/bridge", headers={**self._own, **person}, protocols=("webmcp-gateway.v1",), autoping=True
        )
        connection, opened = mux.ClientConnection(), list[str]()
        connection.send(mux.Hello(ticket))
        for number in range(views):
            connection.send(mux.Open(str(number), gateway_files.APP))
        await _flush(socket, connection)
        self._sockets.append((socket, name, opened))
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

    def checks(self) -> Sequence[Callable[[], Awaitable[bool]]]:
        """Return for each view whether a model's call reaches its page."""
        return [
            partial(_reaches_page, self._http, self._url, name, view)
            for _, name, opened in self._sockets
            for view in opened
        ]

    async def close(self) -> None:
        """Close their connections."""
        for socket, _, _ in self._sockets:
            await socket.close()


class Polls:
    """Views of a host that only forwards `tools/call`: each polls for calls, on a connection of its own."""

    name = "polling view"
    each = 1

    def __init__(self, http: aiohttp.ClientSession, port: int) -> None:
        self._http = http
        self._port = port
        self._url = f"http://localhost:{port}/mcp"
        self._views: list[tuple[str, str]] = []
        self._numbers = count()
        self._running: list[asyncio.Task[None]] = []

    async def open(self, tasks: asyncio.TaskGroup, number: int) -> None:
        """Open one more. Raises `BenchmarkError` if it is refused."""
        person = _person(next(self._numbers))
        opened = await call(self._http, self._url, person, f"open_{gateway_files.APP}", {})
        launch = opened["_meta"]["webmcp-gateway/launch"]
        attached = await call(self._http, self._url, person, "webmcp_attach", {"launch": launch})
        attached = attached["structuredContent"]
        view, key = str(attached["view"]), base64.urlsafe_b64decode(f"{attached['key']}==")
        proofs = Proofs(view, key)
        tools = _result("tools/list")["tools"]  # type: ignore[index,call-overload]  # of the benchmark's own
        listing = {"_view": proofs.next(), "after": 0, "wait": 0, "tools": tools}
        await call(self._http, self._url, person, "webmcp_poll", listing)
        self._views.append((person, view))
        self._running.append(tasks.create_task(self._poll(person, proofs)))

    async def _poll(self, person: str, proofs: Proofs) -> None:
        after = 0
        async with _Wire.open(self._port, person) as wire:
            while True:
                asked = {"_view": proofs.next(), "after": after, "wait": int(WAIT * 1000)}
                told = (await wire.call("webmcp_poll", asked))["structuredContent"]
                for event in told["events"]:
                    after = event["number"]
                    if "tool" in event:
                        answer = {"_view": proofs.next(), "call": event["call"], "result": _result("tools/call")}
                        await call(self._http, self._url, person, "webmcp_result", answer)

    def checks(self) -> Sequence[Callable[[], Awaitable[bool]]]:
        """Return for each view whether a model's call reaches its page."""
        return [partial(_reaches_page, self._http, self._url, person, view) for person, view in self._views]

    async def close(self) -> None:
        """End the polls."""
        for task in self._running:
            task.cancel()


class _Wire:
    """A connection that makes plain calls; thousands of them wait at once, and aiohttp's client would cost more."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, person: str) -> None:
        self._reader = reader
        self._writer = writer
        self._person = person

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int, person: str) -> AsyncIterator[_Wire]:
        """Connect to the gateway at this port."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=16 * 1024)
        try:
            yield cls(reader, writer, person)
        finally:
            writer.transport.abort()

    async def call(self, tool: str, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Return the result of a `tools/call`. Raises `BenchmarkError`."""
        body, fields = message_of(tool, arguments, self._person)
        port = self._writer.get_extra_info("peername")[1]
        fields |= {"host": f"localhost:{port}", "content-type": "application/json", "content-length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self._writer.write(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = answer.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if not answer.startswith(b"http/1.1 200 "):
            raise BenchmarkError(f"{tool} was answered {answer!r}")
        if length:
            text = await self._reader.readexactly(int(length))
        else:  # an event stream: the machine is so busy that the answer came late
            stream = await self._reader.readuntil(b"\r\n0\r\n\r\n")
            text = stream.partition(b"data: ")[2].partition(b"\r\n")[0]
        result: dict[str, Any] = json.loads(text)["result"]
        return result


class Proofs:
    """The view proofs of one view."""

    def __init__(self, view: str, key: bytes) -> None:
        self._view = view
        self._key = key
        self._number = 0

    def next(self) -> str:
        self._number += 1
        signature = hmac.digest(self._key, str(self._number).encode(), "sha256")
        return f"{self._view}.{self._number}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


KINDS: dict[str, Callable[[aiohttp.ClientSession, int], Kind]] = {"sessions": Sessions, "polls": Polls, "pages": Pages}


async def measure(kind: str, port: int, pid: int, most: int, tell: Callable[[str], None] = lambda _: None) -> Held:
    """Hold so many of a kind at once, and call each at the end. Raises `BenchmarkError`."""
    async with _client() as http, asyncio.TaskGroup() as tasks:
        held = KINDS[kind](http, port)
        opened = 0

        async def open_more(number: int) -> None:
            nonlocal opened
            await held.open(tasks, number)
            opened += number
            if opened % 500 == 0:
                tell(f"{opened:,} of {most:,}: {held.name}")

        try:
            await held.open(tasks, 1)  # the first is not counted: it has one-time costs
            await asyncio.sleep(AT_REST)
            before = await _settled_memory(pid)
            began = time.monotonic()
            await _all([partial(open_more, held.each)] * (most // held.each))
            took = time.monotonic() - began
            await asyncio.sleep(AT_REST)
            kib = (await _settled_memory(pid) - before) / most
            answers = await _all(held.checks())
        finally:
            await held.close()
    return Held(held.name, most, kib, took, sum(answers) - 1)


@asynccontextmanager
async def _client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        yield http


def _person(number: int) -> str:
    return f"person{number % PERSONS}"


async def _reaches_page(http: aiohttp.ClientSession, url: str, person: str, view: str) -> bool:
    """Return whether a model's call reaches the page of a view; if that takes long, collect it, as models are told."""
    arguments: dict[str, object] = {"view": view, "tool": "tool0", "arguments": {}}
    for _ in range(GLANCES):
        told = await call(http, url, person, "call_view_tool", arguments)
        if told.get("structuredContent", {}).get("status") != "running":
            return "the page answered" in json.dumps(told)
        arguments = {"call": told["structuredContent"]["call"]}
    return False


async def call(
    http: aiohttp.ClientSession, url: str, person: str, tool: str, arguments: Mapping[str, object]
) -> dict[str, Any]:
    """Return the result of a `tools/call` in protocol 2026-07-28. Raises `BenchmarkError`."""
    body, fields = message_of(tool, arguments, person)
    async with http.post(url, data=body, headers={**fields, "content-type": "application/json"}) as answer:
        text = await answer.text()
    if answer.content_type == "text/event-stream":  # an answer that took long
        text = next((line[6:] for line in text.splitlines() if line.startswith("data: {")), text)
    result: dict[str, Any] = json.loads(text).get("result", {}) if answer.status == 200 else {}
    if not result or result.get("isError"):
        raise BenchmarkError(f"{tool} was answered {answer.status}: {text[:500]}")
    return result


def message_of(tool: str, arguments: Mapping[str, object], person: str) -> tuple[bytes, dict[str, str]]:
    """Return the body of a `tools/call` in protocol 2026-07-28, and its header fields."""
    params = {"name": tool, "arguments": arguments, "_meta": _META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    fields = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool, "x-user": person}
    return json.dumps(message).encode(), {**_ACCEPT, **fields}


async def _all(jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Run all jobs, `AT_ONCE` at a time, and return their results."""
    free = asyncio.Semaphore(AT_ONCE)

    async def run(job: Callable[[], Awaitable[T]]) -> T:
        async with free:
            return await job()

    async with asyncio.TaskGroup() as tasks:  # if one fails, the others end before their connections do
        running = [tasks.create_task(run(job)) for job in jobs]
    return [task.result() for task in running]


async def _settled_memory(pid: int) -> float:
    """Return the KiB of resident memory once it no longer grows, after at most `GLANCES` checks.

    Raises `BenchmarkError` if it still grows.
    """
    last = 0.0
    for _ in range(GLANCES):
        now = resident(pid)
        if now <= last + 64:
            return now
        last = now
        await asyncio.sleep(0.5)
    raise BenchmarkError(f"The gateway's memory still grows after {GLANCES} glances: {last:.0f} KiB.")


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


async def _read_member(answer: aiohttp.ClientResponse, name: str) -> str:
    """Return a member of a JSON response. Raises `BenchmarkError` with the whole text for another status."""
    text = await answer.text()
    if answer.status != 200:
        raise BenchmarkError(f"{answer.url.path} was answered {answer.status}: {text}")
    return str(json.loads(text)[name])


async def _flush(socket: aiohttp.ClientWebSocketResponse, connection: mux.ClientConnection) -> None:
    for text in connection.pending_output():
        await socket.send_str(text)


def start(processes: Processes, folder: Path, most: int) -> tuple[int, int]:
    """Start a gateway with limits for `most` sessions or views; return its process and its port."""
    os.environ.setdefault("BENCH_SECRET", "bench")
    port = free_port()
    more = "auth: [{type: proxy, name: bench, header: X-User, proxies: [127.0.0.1]}]\n"
    more += f"mcp: {{sessions: {most}, sessions_each: {most}, views_each: {most}}}\n"
    room = {name: str(2 * most + 1000) for name in ("connections", "connections_each", "requests_each")}
    config = gateway_files.write(folder, port=port, backend="http://127.0.0.1:9", routes=10, more=more, server=room)
    with (folder / "policy.yaml").open("a") as policy:
        policy.write("tools: {" + ", ".join(f"tool{number}: {{}}" for number in range(TOOLS)) + "}\n")
    running = processes.start("gateway", [sys.executable, "-c", SERVE, "serve", "--config", str(config)], port=port)
    return running.pid, port
