"""Real gateway processes as nodes of one cluster, on one PostgreSQL; a view and a model, each at a node of choice."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.cli.test_serve import COMMAND
from tests.leaks.watch import environment
from tests.world import free_port, local_client, serving

KEY = "Zr4vKq8mT1xWb6yNc3pLs9dHf2gJa7uEo5iRtY0wQzM="
ENCRYPTION = "hV2nBx7cZl4kQw9eRt6yUi1oPa3sDf8gJm5vNb0xCzE="
VERSION = "2026-07-28"
APP = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}


@dataclass(slots=True)
class Door:
    """The address of an MCP server: `url` is the origin, `headers` are fields of each request."""

    url: str
    headers: dict[str, str]
    mount: str = "/mcp/page"

    async def rpc(
        self,
        client: aiohttp.ClientSession,
        method: str,
        params: Mapping[str, Any],
        *,
        app: bool = True,
        mount: str | None = None,
        capabilities: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send a request of the protocol without sessions, and return the whole message that answers it."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": capabilities or (APP if app else {}),
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": VERSION,
            "mcp-method": method,
            **({"mcp-name": str(params["name"])} if "name" in params else {}),
            "webmcp-gateway-client": "1",
            **self.headers,
        }
        async with client.post(f"{self.url}{mount or self.mount}", json=message, headers=headers) as answer:
            text = await answer.text()
        if "data: " in text:
            text = text.split("data: ")[-1]
        found: dict[str, Any] = json.loads(text)
        return found

    async def call(self, client: aiohttp.ClientSession, tool: str, /, *, app: bool = True, **arguments: Any) -> Any:
        """Call a tool, and return its result."""
        answer = await self.rpc(client, "tools/call", {"name": tool, "arguments": arguments}, app=app)
        return answer.get("result", answer)

    async def ready(self, client: aiohttp.ClientSession) -> int:
        """Return the status of `/readyz`."""
        async with client.get(f"{self.url}/readyz", headers=dict(self.headers)) as answer:
            return answer.status


class Node(Door):
    """One process; `port` is where it listens, `public` the one in its URL, which all nodes share."""

    def __init__(
        self,
        name: str,
        folder: Path,
        port: int,
        public: int,
        process: asyncio.subprocess.Process,
        *,
        address: str = "127.0.0.1",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"http://{address}:{port}", {"host": f"localhost:{public}", **(headers or {})})
        self.name = name
        self.folder = folder
        self.port = port
        self.public = public
        self.process = process
        self.lines: list[str] = []


@dataclass(slots=True)
class Page:
    """The page of a view over MCP: it signs its calls, sends them to a node, and runs the tools that it lists."""

    client: aiohttp.ClientSession
    at: Door
    view: str
    key: bytes
    sent: int = 0
    after: int = 0

    @classmethod
    async def open(cls, client: aiohttp.ClientSession, at: Door) -> Page:
        """Open the app at a node, and attach there."""
        opened = await at.call(client, "open_page")
        return await cls.attach(client, at, opened["_meta"]["webmcp-gateway/launch"])

    @classmethod
    async def attach(cls, client: aiohttp.ClientSession, at: Door, launch: str) -> Page:
        """Attach with a launch value."""
        answer = await at.call(client, "webmcp_attach", launch=launch)
        values = answer.get("structuredContent") or {}
        if "key" not in values:
            raise ValueError(json.dumps(answer))
        return cls(client, at, values["view"], base64.urlsafe_b64decode(values["key"] + "="))

    def proof(self) -> str:
        """Return the proof of the next call."""
        self.sent += 1
        mac = hmac.digest(self.key, str(self.sent).encode(), hashlib.sha256)
        return f"{self.view}.{self.sent}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"

    async def call(self, tool: str, at: Door | None = None, **arguments: Any) -> Any:
        """Call a tool of the gateway as the view."""
        return await (at or self.at).call(self.client, tool, _view=self.proof(), **arguments)

    async def fetch(self, url: str, at: Door | None = None) -> Any:
        """Send a request to the backend."""
        return (await self.call("http_request", at, url=url))["structuredContent"]

    async def offer(self, *names: str, at: Door | None = None) -> None:
        """List these tools."""
        tools = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in names]
        await self.call("webmcp_poll", at, after=0, wait=0, tools=tools)

    async def serve_one(self, at: Door | None = None) -> dict[str, Any]:
        """Wait for a call of the model, answer it with its arguments, and return the event."""
        async with asyncio.timeout(60):
            while True:
                polled = (await self.call("webmcp_poll", at, after=self.after, wait=5000))["structuredContent"]
                for event in polled["events"]:
                    self.after = event["number"]
                    result = {"content": [{"type": "text", "text": json.dumps(event["arguments"])}]}
                    await self.call("webmcp_result", at, call=event["call"], result=result)
                    return dict(event)


@dataclass(slots=True)
class Cluster:
    """The nodes by name, and a backend that counts what reaches it."""

    folder: Path
    database: str
    public: int
    backend: int
    arrived: list[str] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    more: str = ""
    redis: str = ""
    environ: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    async def start(
        self, name: str, *, wait: bool = True, more: str = "", command: Sequence[str] = COMMAND, **environ: str
    ) -> Node:
        """Start a node, and wait until it is ready; `environ` are further variables of its environment."""
        folder, port = self.folder / name, free_port()
        folder.mkdir(exist_ok=True)
        (folder / "index.html").write_text("<!doctype html><title>one page</title>")
        (folder / "policy.yaml").write_text(
            f"version: 1\nbackends: {{api: {{url: 'http://127.0.0.1:{self.backend}', network: private}}}}\n"
            "routes: [{path: '/api/{name}', methods: [GET, POST]}]\ntools: {add: {}}\n"
        )
        origins = ", ".join(
            f"{key}: 'http://{host}.localhost:{self.public}'"
            for key, host in (("console", "gateway"), ("sandbox", "sandbox"), ("apps", "{app}"), ("dedicated", "{id}"))
        )
        (folder / "gateway.yaml").write_text(
            f"server: {{listen: 127.0.0.1:{port}, public_url: 'http://localhost:{self.public}', "
            f"origins: {{{origins}}}, drain: {{announce: 0s}}}}\n"
            "apps: {page: {source: index.html, policy: policy.yaml}}\n"
            f"stores: {{database: '${{env:DATABASE}}', encryption_key: '${{env:ENCRYPTION}}'{self.redis}}}\n"
            f"cluster: {{name: {name}, listen: 'unix:node.sock', keys: ['${{env:CLUSTER}}']}}\n{self.more}{more}"
        )
        process = await asyncio.create_subprocess_exec(
            *command, "serve", "-v",
            cwd=folder,
            env={
                **environment(), "DATABASE": self.database, "ENCRYPTION": ENCRYPTION, "CLUSTER": KEY,
                **self.environ, **environ,
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        node = self.nodes[name] = Node(name, folder, port, self.public, process)
        started = asyncio.Event()
        reading = asyncio.create_task(self._read(node, started))
        self._reading.append(reading)
        if wait:
            with suppress(TimeoutError):
                async with asyncio.timeout(300):
                    await started.wait()
            ready = started.is_set() and process.returncode is None
            assert ready, f"{name} did not start: {''.join(node.lines)}"
        return node

    _reading: list[asyncio.Task[None]] = field(default_factory=list)

    async def _read(self, node: Node, started: asyncio.Event) -> None:
        assert node.process.stdout is not None
        async for line in node.process.stdout:
            node.lines.append(line.decode())
            if "is ready" in node.lines[-1]:
                started.set()
        await node.process.wait()
        started.set()

    async def close(self) -> None:
        """Kill the nodes that still run."""
        for node in self.nodes.values():
            if node.process.returncode is None:
                node.process.send_signal(signal.SIGCONT)
                node.process.kill()
            await node.process.wait()
        await asyncio.gather(*self._reading)


@asynccontextmanager
async def cluster(folder: Path, database: str, *names: str, more: str = "", redis: str = "") -> AsyncIterator[Cluster]:
    """Yield a cluster of running nodes; `more` is appended to each configuration, `redis` is the URL of their Redis."""
    arrived: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        arrived.append(f"{request.method} {request.path}")
        if request.path == "/api/long":
            return web.json_response({"text": "long " * 80_000})
        size = len(await request.read())
        answer = web.json_response({"path": request.path, "cookies": [*request.cookies], "size": size})
        if "set" in request.query:
            answer.set_cookie(request.query["set"], "value-of-a-cookie")
        return answer

    backend = web.Application(client_max_size=8 * 1024 * 1024)
    backend.router.add_route("*", "/{path:.*}", handle)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(backend))
        made = Cluster(folder, database, free_port(), port, arrived, more=more)
        made.redis = f", redis: '{redis}'" if redis else ""
        stack.push_async_callback(made.close)
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(made.start(name))
        yield made


def client() -> aiohttp.ClientSession:
    """Return a client for all nodes."""
    return local_client()
