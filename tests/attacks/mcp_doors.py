"""The doors of MCP: Streamable HTTP in both eras, and the stdio pipe of desktop clients."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import io
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

import tests.world
from gateway.cli.attack.cases import answer_in
from tests.attacks.calls import (
    LEGACY,
    META,
    MODERN,
    UI,
    WAIT,
    Answer,
    Place,
    arguments_text,
    of_call,
    with_proof,
)
from tests.attacks.world import APP
from tests.leaks.watch import environment
from tests.world import local_client

ONE_REQUEST_EACH = "import gateway.backends.connect as connect; connect.KEEP_ALIVE_SECONDS = 0.0; "
"""Python code that gives each request of the process a connection of its own, for a balancer of connections."""


@dataclass(slots=True)
class Proof:
    """The key of an attached view, which signs each call once."""

    view: str
    key: bytes
    sequence: int = 0

    def next(self) -> str:
        """The next proof."""
        self.sequence += 1
        number = str(self.sequence)
        signature = base64.urlsafe_b64encode(hmac.digest(self.key, number.encode(), hashlib.sha256)).rstrip(b"=")
        return f"{self.view}.{number}.{signature.decode()}"


@dataclass(slots=True)
class HttpDoor:
    """Streamable HTTP in either era; `session` is the session id of the handshake protocols."""

    world: Place
    client: aiohttp.ClientSession
    modern: bool
    session: str = ""
    proof: Proof | None = None
    app: str = APP
    more: dict[str, str] = field(default_factory=dict)
    origin: str = ""
    """Where the gateway is reached, if not at its port."""
    launch: str = ""
    id: int = 7
    """The id of the next call."""

    async def ask(self, case: dict[str, Any]) -> Answer:
        return await self.tool("http_request", arguments_text(case), proven=case.get("proof", True))

    async def tool(self, name: str, text: str, *, proven: bool = True) -> Answer:
        """Call a tool of apps with arguments as JSON text; return its HTTP answer."""
        if self.proof is not None and proven:
            text = with_proof(text, self.proof.next())
        status, raw = await self.call(name, text)
        message = answer_in(raw)
        if message is None:
            return Answer(0, None, {}, None, raw, f"HTTP {status}")
        return of_call(message, raw)

    async def call(self, tool: str, arguments: str) -> tuple[int, bytes]:
        """Send `tools/call`; return the status and the bytes of the answer."""
        params = f'"name":{json.dumps(tool)},"arguments":{arguments}'
        return await self.post("tools/call", params, tool, self.id)

    async def post(self, method: str, params: str, name: str = "", id: int | None = 7) -> tuple[int, bytes]:
        """Post one message of the client; `params` is the text of the members of its params."""
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream", **self.more}
        if self.modern:
            params = f'{params}{"," if params else ""}"_meta":{json.dumps(META)}'
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": method, "mcp-name": name}
        elif self.session:
            headers |= {"mcp-protocol-version": LEGACY, "mcp-session-id": self.session}
        numbered = f'"id":{id},' if id is not None else ""
        text = f'{{"jsonrpc":"2.0",{numbered}"method":{json.dumps(method)},"params":{{{params}}}}}'
        url = f"{self.origin or f'http://localhost:{self.world.port}'}/mcp/{self.app}"
        body = text.encode("utf-8", "surrogatepass")
        async with self.client.post(url, data=io.BytesIO(body), headers=headers) as answer:
            self.session = answer.headers.get("mcp-session-id", self.session)
            return answer.status, await answer.read()

    async def begin(self) -> None:
        """Initialize if the era requires it."""
        if not self.modern:
            client = {"protocolVersion": LEGACY, "capabilities": UI, "clientInfo": {"name": "attack", "version": "1"}}
            await self.post("initialize", json.dumps(client)[1:-1])
            await self.post("notifications/initialized", "", id=None)

    async def open(self) -> None:
        """Initialize if the era requires it, open the app, and attach a proven view."""
        await self.begin()
        opened = answer_in((await self.call(f"open_{self.app}", "{}"))[1])
        assert opened is not None
        self.launch = opened["result"]["_meta"]["webmcp-gateway/launch"]
        await self.attach()

    async def attach(self) -> None:
        """Attach the view with its launch value: the first time, or after it has moved."""
        status, raw = await self.call("webmcp_attach", json.dumps({"launch": self.launch}))
        attached = answer_in(raw)
        assert attached is not None, (status, raw)
        assert "result" in attached, attached
        content = attached["result"]["structuredContent"]
        assert content.get("proven") is True, attached
        self.proof = Proof(content["view"], base64.urlsafe_b64decode(content["key"] + "="))


@dataclass(slots=True)
class StdioDoor(HttpDoor):
    """The same messages as lines, through the stdio pipe that desktop clients start."""

    process: asyncio.subprocess.Process | None = None
    count: int = 100
    strict: bool = False
    """Skip messages without an id, which are refusals of earlier lines."""

    async def post(self, method: str, params: str, name: str = "", id: int | None = 7) -> tuple[int, bytes]:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.count += 1
        head = f'{{"jsonrpc":"2.0","id":{self.count},"method":{json.dumps(method)},"params":{{'
        text = f'{head}{params},"_meta":{json.dumps(META)}}}}}'
        # A message is one line; a tab is white space in JSON or an error wherever a line end is.
        self.process.stdin.write(text.replace("\n", "\t").encode("utf-8", "surrogatepass") + b"\n")
        async with asyncio.timeout(WAIT):
            while True:
                raw = await self.process.stdout.readline()
                id = json.loads(raw).get("id")
                if id == self.count or (id is None and not self.strict):
                    return 200, raw


@asynccontextmanager
async def http_door(world: Place, *, modern: bool, app: str = APP) -> AsyncIterator[HttpDoor]:
    """A client with a proven view."""
    async with local_client() as client:
        door = HttpDoor(world, client, modern, app=app)
        await door.open()
        yield door


@asynccontextmanager
async def stdio_door(world: Place) -> AsyncIterator[StdioDoor]:
    """A desktop client at the stdio pipe."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        (ONE_REQUEST_EACH if tests.world.ONE_REQUEST_EACH else "") + "from gateway.cli import main; main()",
        "stdio",
        "--url",
        f"http://localhost:{world.port}/mcp/{APP}",
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=64 * 1024 * 1024,
    )
    try:
        async with local_client() as client:
            door = StdioDoor(world, client, modern=True, process=process)
            await door.open()
            yield door
    finally:
        process.kill()
        await process.wait()
