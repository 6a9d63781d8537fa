"""A gateway with apps and upstreams that are for some callers only, behind a proxy that names each caller."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from aiohttp import web

from gateway import mux
from gateway.app import RELOAD, build_app
from gateway.cli.attack.cases import answer_in
from gateway.config import load_config, read_config
from gateway.model import Channel, Json
from tests.attacks.calls import META, MODERN
from tests.doors.upstream_view import shop
from tests.interop.serving import over_http
from tests.world import Server, local_client, serving

PAY = """
version: 1
backends:
  main: {url: "http://127.0.0.1:%d", network: private}
  bank: {url: "http://127.0.0.1:9", network: private, credential: bank}
routes:
  - {path: /api/pay, methods: [GET], backend: main}
  - {path: /api/feed, methods: [GET], backend: main, stream: true}
  - {path: /api/pay, methods: [POST], backend: main, confirm: {when: [person, page, model], grant: 10m}}
  - {path: /api/bank, methods: [GET], backend: bank}
tools: {raise_pay: {}}
mode: {report: {until: %s}}
"""

BOOKS = """
version: 1
tools:
  both: {}
  page: {}
  model: {when: '"boss" in principal.roles'}
  http_request: {when: '"boss" in principal.roles || arguments.url == "/"'}
"""

CONFIG = """
server: {{listen: "127.0.0.1:{port}"}}
auth: [{auth}{{type: proxy, name: front, header: X-User, roles_header: X-Groups, proxies: [127.0.0.1]}}]
credentials:
  bank: {{type: authorization_code, issuer: "http://127.0.0.1:9", client_id: us, network: private}}
roles: {{approver: [boss], auditor: [audit], admin: [root]}}
apps:
  pay: {{source: pay, policy: pay.yaml, access: {pay}}}
  notes: {{source: notes, policy: notes.yaml}}
  board: {{source: {{upstream: books, resource: "ui://shop/app.html"}}, policy: notes.yaml}}
upstreams:
  books: {{url: "{books}", network: private, policy: books.yaml, access: {books_access}}}
"""

F = TypeVar("F")

HR = {"x-user": "ann", "x-groups": "hr"}
OTHER = {"x-user": "bob", "x-groups": "sales"}


@dataclass
class Building:
    """The gateway with one client; `arrived` are the paths that reached the backend."""

    folder: Path
    port: int
    books: str
    client: aiohttp.ClientSession
    arrived: list[str]
    reread: Callable[[], None]
    app: web.Application
    auth: str = ""
    """Further ways to authenticate, before the proxy."""
    more: str = ""
    """Further sections of the configuration."""

    @property
    def console(self) -> str:
        """The console's origin."""
        return f"http://gateway.localhost:{self.port}"

    def configure(self, pay: str = "{roles: [hr]}", books_access: str = "{when: '\"hr\" in principal.roles'}") -> None:
        """Write the configuration with these access rules."""
        text = CONFIG.format(port=self.port, books=self.books, pay=pay, books_access=books_access, auth=self.auth)
        (self.folder / "gateway.yaml").write_text(text.replace(", access: none", "") + self.more, "utf-8")

    async def mcp(
        self, who: dict[str, str], path: str, method: str, params: dict[str, Any], name: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Send a request of a modern client at `path`; return the status, and the message or the body."""
        headers = {
            **who,
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": method,
            "mcp-name": name,
        }
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, "_meta": META}}
        url = f"http://localhost:{self.port}{path}"
        async with self.client.post(url, json=body, headers=headers) as answer:
            raw = await answer.read()
            return answer.status, answer_in(raw) or json.loads(raw)

    async def call(self, who: dict[str, str], tool: str, arguments: dict[str, Any], path: str = "/mcp") -> Any:
        """Call a tool; return the message."""
        return (await self.mcp(who, path, "tools/call", {"name": tool, "arguments": arguments}, tool))[1]

    async def listed(self, who: dict[str, str], kind: str, key: str, path: str = "/mcp") -> list[str]:
        """Return the names, or addresses, in a list."""
        _, message = await self.mcp(who, path, f"{kind}/list", {})
        found = message["result"][re.sub("_(.)", lambda letter: letter[1].upper(), key)]
        return [one.get("uri") or one.get("uriTemplate") or one["name"] for one in found]

    @asynccontextmanager
    async def listening(self, who: dict[str, str], path: str) -> AsyncIterator[aiohttp.StreamReader]:
        """Follow the changes of a mount's tools."""
        headers = {
            **who,
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": "subscriptions/listen",
        }
        params = {"notifications": {"toolsListChanged": True}, "_meta": META}
        body = {"jsonrpc": "2.0", "id": 8, "method": "subscriptions/listen", "params": params}
        async with self.client.post(f"http://localhost:{self.port}{path}", json=body, headers=headers) as stream:
            while b"acknowledged" not in await stream.content.readline():
                pass
            yield stream.content

    async def get(self, who: dict[str, str], path: str, host: str = "gateway") -> tuple[int, str]:
        """Get a path of the console, or of an app's site, as a browser's page does."""
        origin = f"http://{host}.localhost:{self.port}"
        headers = {**who, "origin": origin, "sec-fetch-site": "same-origin"}
        async with self.client.get(f"{origin}{path}", headers=headers, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def state(self, who: dict[str, str]) -> dict[str, Any]:
        """Return the state that the console's page reads first."""
        found: dict[str, Any] = json.loads((await self.get(who, "/api/state"))[1])
        return found

    async def post(self, who: dict[str, str], path: str, body: object) -> tuple[int, dict[str, Any]]:
        """Post to the REST API of the console."""
        own = {**who, "origin": self.console, "sec-fetch-site": "same-origin"}
        headers = {**own, "webmcp-gateway-csrf": (await self.state(who))["csrf"]}
        async with self.client.post(f"{self.console}{path}", json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    @asynccontextmanager
    async def bridge(self, who: dict[str, str], tickets: list[str], app: str) -> AsyncIterator[Bridge]:
        """Open a view of `app` with a ticket for the apps `tickets`."""
        _, ticket = await self.post(who, "/bridge/tickets", {"apps": tickets})
        own = {"origin": self.console, "sec-fetch-site": "same-origin"}
        url = f"{self.console}/bridge"
        async with self.client.ws_connect(url, headers=own, protocols=("webmcp-gateway.v1",)) as socket:
            bridge = Bridge(socket, mux.ClientConnection())
            await bridge.send(mux.Hello(ticket["ticket"]), mux.Open("1", app))
            bridge.first = await bridge.next()
            yield bridge

    async def events(self, who: dict[str, str], wanted: str) -> list[Any]:
        """Return the next list of this kind in the event stream of the console."""
        own = {**who, "origin": self.console, "sec-fetch-site": "same-origin"}
        async with self.client.get(f"{self.console}/api/events", headers=own) as stream:
            kind = ""
            async for line in stream.content:
                if line.startswith(b"event: "):
                    kind = line[7:].strip().decode()
                elif line.startswith(b"data: ") and kind == wanted:
                    found: list[Any] = json.loads(line[6:])
                    return found
        raise AssertionError("the stream ended")

    async def reload(self) -> None:
        """Reload, and return once the files are in effect."""
        before = len(self.reloads())
        self.reread()
        for _ in range(500):
            if len(self.reloads()) > before:
                return
            await self.client.get(f"http://localhost:{self.port}/healthz")
        raise AssertionError("nothing was reloaded")

    async def until(self, ask: Callable[[], Awaitable[object]], wanted: object) -> None:
        """Reload until `ask` returns the wanted value."""
        async with asyncio.timeout(60):
            while True:
                with suppress(aiohttp.ServerDisconnectedError):  # the access ended while it was asked
                    if await ask() == wanted:
                        return
                self.reread()
                await asyncio.sleep(0.1)

    def changes(self) -> list[dict[str, Any]]:
        """Return the fields of the lines of the journal that have a change of a policy."""
        lines = map(json.loads, (self.folder / "gateway.journal").read_text("utf-8").splitlines())
        return [one["fields"] for one in lines if "changes" in one.get("fields", {})]

    def reloads(self) -> list[str]:
        """Return the lines of the journal that close a change of the configuration."""
        lines = (self.folder / "gateway.journal").read_text("utf-8").splitlines()
        known = {one["id"] for one in map(json.loads, lines) if one.get("fields", {}).get("kind") == "policy"}
        return [one["id"] for one in map(json.loads, lines) if one["phase"] == "outcome" and one["id"] in known]


@dataclass
class Bridge:
    """A host page's connection with one view; `first` is the answer to its opening."""

    socket: aiohttp.ClientWebSocketResponse
    connection: mux.ClientConnection
    first: mux.Frame | None = None

    async def send(self, *frames: mux.Frame) -> None:
        """Send frames."""
        for frame in frames:
            self.connection.send(frame)
        for text in self.connection.pending_output():
            await self.socket.send_str(text)

    async def call(self, view: str, tool: str, arguments: dict[str, Any]) -> Any:
        """Return the result of a call of the view."""
        params: dict[str, Json] = {"name": tool, "arguments": arguments}
        message: dict[str, Json] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        await self.send(mux.Message(view, Channel.UI, message))
        while (answer := await self.until(mux.Message)).channel is not Channel.UI:
            pass
        return answer.message["result"]

    async def until(self, kind: type[F]) -> F:
        """Return the next frame of this kind."""
        while True:
            frame = await self.next()
            if isinstance(frame, kind):
                return frame

    async def next(self) -> mux.Frame:
        """Return the next frame."""
        while True:
            found = self.connection.receive_data(await self.socket.receive_str(timeout=60))
            if found:
                return found[0]


@asynccontextmanager
async def building(folder: Path, until: str, auth: str = "", more: str = "") -> AsyncIterator[Building]:
    """Run the gateway with its backend and its upstream."""
    arrived: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        arrived.append(f"{request.method} {request.path}")
        if request.path != "/api/feed":
            return web.json_response({"paid": True})
        stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await stream.prepare(request)
        await stream.write(b"data: 1\n\n")
        while request.transport is not None and not request.transport.is_closing():
            await stream.write(b": alive\n\n")
            await asyncio.sleep(0.05)
        return stream

    backend = web.Application()
    backend.router.add_route("*", "/{path:.*}", answer)
    for name in ("pay", "notes"):
        (folder / name).mkdir()
        (folder / name / "index.html").write_text(f"<!doctype html><title>{name}</title>", "utf-8")
    (folder / "books.yaml").write_text(BOOKS, "utf-8")
    (folder / "notes.yaml").write_text("version: 1\ntools: {jot: {}}\n", "utf-8")
    door = Server()
    async with serving(backend) as port, over_http(shop()) as books, local_client() as client:
        (folder / "pay.yaml").write_text(PAY % (port, until), "utf-8")
        found = Building(folder, door.port, books, client, arrived, lambda: None, web.Application(), auth, more)
        found.configure()
        path = folder / "gateway.yaml"
        found.app = app = build_app(load_config(path, {}), lambda: read_config(path, {}))
        found.reread = app[RELOAD]
        await door.start(app)
        try:
            yield found
        finally:
            await door.stop()
