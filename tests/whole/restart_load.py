"""Restarts a gateway under load, and counts the calls that were refused, cut or run twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp
import mcp_types as types
import yaml
from aiohttp import web
from mcp.server import Server as McpServer
from mcp.server import ServerRequestContext

from gateway.config import load_config
from gateway.stores.sessions import IssuedTokens
from gateway.stores.sql import Database
from tests.attacks.mcp_doors import HttpDoor
from tests.cli.test_serve import COMMAND, ready, wait_exit
from tests.cli.test_systemd import PASS
from tests.deploy.proxies import Ports, certify, server_settings, wait_listening
from tests.deploy.proxies import start_proxy as proxy
from tests.interop.serving import over_http
from tests.leaks.watch import environment
from tests.world import Loopback, free_port, serving

SLOW: Final = 0.3
"""Seconds that the backend takes for every fifth call, so that calls run whenever the gateway stops."""

THINK: Final = 0.02
"""Seconds between two calls of a client at most, so that idle connections exist, too."""

BODY: Final = b"x" * 100_000
"""A body that the fast path leaves to aiohttp."""

OWN: Final = {"webmcp-gateway-client": "1", "sec-fetch-site": "same-origin"}


class Refused(Exception):
    """No gateway took the call: a client may send it again without a second thought."""


class Cut(Exception):
    """A gateway may have taken the call, and did not answer it."""


@dataclass
class Tally:
    """What became of the calls; `ran` counts how often the backend has run each."""

    answered: list[tuple[float, float]] = field(default_factory=list)
    refused: list[tuple[float, str]] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)
    ran: Counter[str] = field(default_factory=Counter)
    gap: float = 0.0
    """Seconds from the last answer of a gateway to the first one of the next."""
    start: float = 0.0
    """Seconds of processor time of a start, which do not depend on what else the machine does."""

    @property
    def twice(self) -> list[str]:
        """The calls that the backend has run more than once."""
        return [number for number, times in self.ran.items() if times > 1]

    def after(self, moment: float) -> int:
        """How many calls that began after then were answered."""
        return sum(began > moment for began, _ in self.answered)


@dataclass
class Place:
    """A gateway that is restarted, behind the proxy `front` if that is not ""; `sock` is held by a supervisor."""

    folder: Path
    ports: Ports
    tally: Tally
    front: str
    sock: socket.socket | None
    headers: dict[str, str] = field(default_factory=dict)
    running: asyncio.subprocess.Process | None = None

    @property
    def port(self) -> int:
        """The port of `tests.attacks.calls.Place`."""
        return self.ports.gateway

    @property
    def hosts(self) -> dict[str, str]:
        """Unused by the doors of MCP."""
        return {}

    @property
    def site(self) -> str:
        """The origin of the app."""
        return f"https://page.apps.localhost:{self.ports.tls}" if self.front else f"http://page.localhost:{self.port}"

    @property
    def mcp(self) -> str:
        """The origin of the MCP servers."""
        return f"https://mcp.gw.localhost:{self.ports.tls}" if self.front else f"http://localhost:{self.port}"

    def client(self) -> aiohttp.ClientSession:
        """An HTTP client with connections of its own."""
        trusted = ssl.create_default_context(cafile=str(self.folder / "tls/fullchain.pem")) if self.front else False
        connector = aiohttp.TCPConnector(resolver=Loopback(), ssl=trusted)
        return aiohttp.ClientSession(connector=connector, headers={**OWN, **self.headers})

    async def start(self) -> None:
        """Start the gateway, as a supervisor does: with its socket, if it has one."""
        given = [] if self.sock is None else [self.sock.fileno()]
        passing = [sys.executable, "-c", PASS, ",".join(map(str, given))] if given else []
        pipe = asyncio.subprocess.PIPE
        self.running = await asyncio.create_subprocess_exec(
            *passing, *COMMAND, "serve", cwd=self.folder, env=environment(), pass_fds=given, stdout=pipe, stderr=pipe
        )

    async def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the gateway, start it at once when it has ended, and note the time between the answers of both."""
        assert self.running is not None
        self.running.send_signal(number)
        code, said = await wait_exit(self.running)
        assert (code, "Traceback" in said) == (0, False), said
        before = time.monotonic()
        await self.start()
        assert (await ready(self.running, 1))[0].startswith("webmcp-gateway"), await wait_exit(self.running)
        self.tally.start = max(self.tally.start, processor_time(self.running.pid))
        async with asyncio.timeout(300):
            while not any(at > before for _, at in self.tally.answered):
                await asyncio.sleep(0.01)
        last = max(at for _, at in self.tally.answered if at < before)
        first = min(at for _, at in self.tally.answered if at > before)
        self.tally.gap = max(self.tally.gap, first - last)


@asynccontextmanager
async def placed(folder: Path, front: str, *, held: bool, announce: str = "0s") -> AsyncIterator[Place]:
    """A gateway with a page and an upstream, behind `front` if any; a supervisor holds its socket, or does not."""
    tally = Tally()
    async with AsyncExitStack() as stack:
        backend = await stack.enter_async_context(serving(counting_backend(tally)))
        upstream = await stack.enter_async_context(over_http(counting_upstream(tally)))
        ports = Ports(free_port(), free_port(), free_port())
        sock = stack.enter_context(socket.create_server(("127.0.0.1", ports.gateway), backlog=1024)) if held else None
        place = Place(folder, ports, tally, front, sock)
        await _configure(place, backend, upstream, announce)
        await place.start()
        assert place.running is not None
        try:
            assert (await ready(place.running, 1))[0].startswith("webmcp-gateway"), await wait_exit(place.running)
            with proxy(folder, front, ports) if front else nullcontext():
                if front:
                    await wait_listening(ports.tls)
                yield place
        finally:
            if place.running.returncode is None:
                place.running.kill()
            await place.running.communicate()


async def _configure(place: Place, backend: int, upstream: str, announce: str) -> None:
    folder, port = place.folder, place.ports.gateway
    (folder / "index.html").write_text("<!doctype html><title>one page</title>")
    (folder / "policy.yaml").write_text(
        f"version: 1\nbackends: {{api: {{url: 'http://127.0.0.1:{backend}', network: private}}}}\n"
        'limits: {timeout: 120s}\nroutes: [{path: "/api/{number}", methods: [GET, POST]}]\n'
    )
    server: dict[str, Any] = {"listen": f"127.0.0.1:{port}"}
    if place.front:
        server = server_settings(folder, place.ports)
    server["drain"] = {"announce": announce}
    written: dict[str, Any] = {
        "server": server,
        "apps": {"page": {"source": "index.html", "policy": "policy.yaml"}},
        "upstreams": {"up": {"url": upstream, "network": "private"}},
    }
    if place.front:
        written["auth"] = ["token"]
        certify(folder / "tls")
    (folder / "gateway.yaml").write_text(yaml.safe_dump(written))
    if place.front:
        config = load_config(folder / "gateway.yaml", {})
        async with Database(config.database.reveal()) as database:
            rights, now = ["app:page", "mcp"], time.time()
            made = await IssuedTokens(database).create("load", rights, "local", now=now, expires=now + 3600)
        place.headers = {"authorization": f"Bearer {made.reveal()}"}


def counting_backend(tally: Tally) -> web.Application:
    """Return a backend that counts how often it runs each call."""

    async def handle(request: web.Request) -> web.Response:
        tally.ran[request.path] += 1
        await request.read()
        if int(request.path.rpartition("/")[2]) % 5 == 0:
            await asyncio.sleep(SLOW)
        return web.json_response({"n": request.path})

    app = web.Application(client_max_size=2**22)
    app.router.add_route("*", "/{path:.*}", handle)
    return app


def counting_upstream(tally: Tally) -> McpServer[Any]:
    """Return an upstream that counts how often it runs each call."""

    schema = {"type": "object", "properties": {"url": {"type": "string"}}}

    async def tools(_: ServerRequestContext[Any], __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="count", input_schema=schema)])

    async def call(_: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        number = str((params.arguments or {})["url"])
        tally.ran[number] += 1
        if int(number.rpartition("/")[2]) % 5 == 0:
            await asyncio.sleep(SLOW)
        return types.CallToolResult(content=[types.TextContent(type="text", text=number)])

    return McpServer("count", on_list_tools=tools, on_call_tool=call)


class Loaded(Protocol):
    """What is under load: one gateway, or several behind one proxy; fields are as in `Place`."""

    tally: Tally
    front: str

    @property
    def port(self) -> int: ...

    @property
    def hosts(self) -> dict[str, str]: ...

    @property
    def site(self) -> str: ...

    @property
    def mcp(self) -> str: ...

    def client(self) -> aiohttp.ClientSession: ...


Call = Callable[[str], Awaitable[None]]
"""Makes the call with this number; raises `Refused` or `Cut`."""


Kind = Callable[[], Coroutine[Any, Any, None]]
"""The clients of one kind."""


class Load:
    """`times` clients of every kind, each of which makes one call after the other; `more` are further kinds."""

    def __init__(self, place: Loaded, times: int, *more: Callable[[Load], Coroutine[Any, Any, None]]) -> None:
        self._place = place
        own: list[Kind] = [self._pages, self._large, self._strangers, self._modern, self._legacy, self._views]
        further: list[Kind] = [partial(one, self) for one in more]
        self._kinds = (own + further) * times
        self._number = 0
        self._stopped = False
        self._begun = asyncio.Semaphore(0)

    async def run(self) -> None:
        """Run the clients until `stop`; returns when their last calls are over."""
        async with asyncio.TaskGroup() as tasks:
            for kind in self._kinds:
                tasks.create_task(kind())

    async def begin(self) -> None:
        """Wait until every client has its session and its view."""
        for _ in self._kinds:
            await self._begun.acquire()

    def stop(self) -> None:
        """Begin no more calls."""
        self._stopped = True

    async def _pages(self) -> None:
        async with self._place.client() as http:
            await self.repeat("page", lambda number: self._page(http, number))

    async def _large(self) -> None:
        async with self._place.client() as http:
            await self.repeat("large page", lambda number: self._page(http, number, data=BODY))

    async def _strangers(self) -> None:
        """Clients that open a connection for each call."""

        async def call(number: str) -> None:
            async with self._place.client() as http:
                await self._page(http, number)

        await self.repeat("new connection", call)

    async def _modern(self) -> None:
        async with self._place.client() as http:
            door = HttpDoor(self._place, http, modern=True, app="up", origin=self._place.mcp)
            await self.repeat("modern", lambda number: self._tool(door, "count", number))

    async def _legacy(self) -> None:
        async with self._place.client() as http:
            door = HttpDoor(self._place, http, modern=False, app="up", origin=self._place.mcp)
            await door.begin()
            await self.repeat("handshake", lambda number: self._tool(door, "count", number))

    async def _views(self) -> None:
        async with self._place.client() as http:
            door = HttpDoor(self._place, http, modern=False, app="page", origin=self._place.mcp)
            await door.open()

            async def call(number: str) -> None:
                async def ask() -> None:
                    door.id += 1
                    answer = await door.ask({"url": number, "method": "POST", "body": "{}"})
                    if b"view-moved: " in answer.raw:  # it has not run
                        door.id += 1
                        await door.attach()
                        door.id += 1
                        answer = await door.ask({"url": number, "method": "POST", "body": "{}"})
                    self._judge(number, answer.status, answer.raw, answer.error)

                await self._sent(number, ask)

            await self.repeat("view", call)

    async def repeat(self, kind: str, call: Call) -> None:
        """Make calls of a kind until `stop`; one that was refused is made again."""
        tally = self._place.tally
        self._begun.release()
        while not self._stopped:
            self._number += 1
            number = f"/api/{self._number}"
            while True:
                began = time.monotonic()
                try:
                    await call(number)
                except Refused:
                    tally.refused.append((began, kind))
                    await asyncio.sleep(0.05)
                    continue
                except Cut as failure:
                    tally.cut.append(f"{kind} {number}, run {tally.ran[number]} times: {failure}")
                else:
                    tally.answered.append((began, time.monotonic()))
                break
            await asyncio.sleep(random.uniform(0, THINK))

    async def _page(self, http: aiohttp.ClientSession, number: str, data: bytes = b"{}") -> None:
        async def ask() -> None:
            async with http.post(self._place.site + number, data=data) as answer:
                self._judge(number, answer.status, await answer.read(), None)

        await self._sent(number, ask)

    async def _tool(self, door: HttpDoor, tool: str, number: str) -> None:
        async def ask() -> None:
            door.id += 1
            status, raw = await door.call(tool, json.dumps({"url": number}))
            self._judge(number, status, raw, None)

        await self._sent(number, ask)

    async def _sent(self, number: str, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(90):
                await ask()
        except aiohttp.ClientConnectorError as error:
            raise Refused from error
        except (aiohttp.ClientError, ConnectionError, TimeoutError, AssertionError) as error:
            raise Cut(repr(error)) from error

    def _judge(self, number: str, status: int, raw: bytes, error: str | None) -> None:
        unreached = status == 502 or (error is not None and error.endswith("HTTP 502"))
        if self._place.front and unreached and not self._place.tally.ran[number]:
            raise Refused
        if status != 200 or number.encode() not in raw:
            raise Cut(f"{status} {error} {raw[:300]!r}")


async def measure(place: Place, times: int, wanted: int, restarts: int = 1) -> Tally:
    """Restart the gateway under the load of `times` clients of each kind; `wanted` calls begin after each restart."""
    load, tally = Load(place, times), place.tally
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load.run())
        await load.begin()
        for _ in range(restarts):
            await until_answered(tally, time.monotonic(), wanted)
            await place.restart()
        await until_answered(tally, time.monotonic(), wanted)
        load.stop()
    return tally


async def until_answered(tally: Tally, moment: float, wanted: int) -> None:
    """Wait until so many calls that began after `moment` are answered."""
    async with asyncio.timeout(300):
        while tally.after(moment) < wanted:
            await asyncio.sleep(0.01)


def cut_by_gateway(folder: Path) -> list[str]:
    """The lines of nginx about requests that the gateway accepted and did not answer."""
    lines = (folder / "nginx.log").read_text().splitlines()
    return [line for line in lines if "Connection refused" not in line]


def processor_time(pid: int) -> float:
    """Seconds of processor time that a process has used (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
