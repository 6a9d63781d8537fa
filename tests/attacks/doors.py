"""The doors through which every request case is tried.

Add a door here (stdio, the fast path) and the whole corpus runs at it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import io
import json
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp

from gateway import mux
from gateway.contract.bodies import encode_body
from gateway.model import BodyType, Channel
from tests.attacks.wire import WireAnswer, exchange
from tests.attacks.world import APP, CSRF
from tests.leaks.watch import environment
from tests.world import local_client

UI = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
WAIT = 60.0
"""Seconds after which an answer is given up: a machine that is busy is no failure."""
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "attack", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": UI,
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the HTTP answer inside, and all bytes of the door's own answer.

    `status` 0 means that there is no HTTP answer: `error` says what the door said instead.
    """

    status: int
    reason: str | None
    headers: dict[str, str]
    body: Any
    raw: bytes
    error: str | None = None


class Place(Protocol):
    """Where a gateway with the app `target` listens."""

    @property
    def port(self) -> int: ...

    @property
    def hosts(self) -> dict[str, str]:
        """The `Host` of each site."""
        ...


class AttackedDoor(Protocol):
    """One way into the gateway."""

    async def ask(self, case: dict[str, Any]) -> Answer:
        """Carry the request of a case in, as far as this door can say it."""
        ...


def arguments_text(case: dict[str, Any]) -> str:
    """The arguments of `http_request` as JSON text: verbatim where the case says `text`."""
    return str(case["text"]) if "text" in case else json.dumps(request_of(case))


def request_of(case: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `http_request`."""
    if "ask" in case:
        return dict(case["ask"])
    named = ("url", "method", "headers", "body", "bodyType", "redirect", "credentials", "timeoutMs", "stream")
    return {name: case[name] for name in named if name in case}


def with_proof(text: str, proof: str) -> str:
    """The arguments with a view proof as their first member; what is no object stays as it is."""
    if not text.startswith("{"):
        return text
    rest = text[1:].lstrip()
    return f'{{"_view":{json.dumps(proof)}{"" if rest.startswith("}") else ","}{rest}'


def of_call(message: dict[str, Any], raw: bytes) -> Answer:
    """The answer in a JSON-RPC message."""
    if "error" in message:
        return Answer(0, None, {}, None, raw, f"{message['error']['code']}: {message['error']['message']}")
    content = message["result"].get("structuredContent")
    if not isinstance(content, dict) or "status" not in content:
        return Answer(0, None, {}, content, raw, "a tool result that is no HTTP answer")
    headers = content["headers"]
    return Answer(content["status"], headers.get("gateway-reason"), headers, content.get("body"), raw)


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
    """Streamable HTTP in either era; `session` is that of the handshake protocols."""

    world: Place
    client: aiohttp.ClientSession
    modern: bool
    session: str = ""
    proof: Proof | None = None
    app: str = APP
    more: dict[str, str] = field(default_factory=dict)

    async def ask(self, case: dict[str, Any]) -> Answer:
        text = arguments_text(case)
        if self.proof is not None and case.get("proof", True):
            text = with_proof(text, self.proof.next())
        status, raw = await self.call("http_request", text)
        message = message_of(raw)
        if message is None:
            return Answer(0, None, {}, None, raw, f"HTTP {status}")
        return of_call(message, raw)

    async def call(self, tool: str, arguments: str) -> tuple[int, bytes]:
        """`tools/call`; the status and the bytes of the answer."""
        params = f'"name":{json.dumps(tool)},"arguments":{arguments}'
        return await self.post("tools/call", params, tool)

    async def post(self, method: str, params: str, name: str = "", id: int | None = 7) -> tuple[int, bytes]:
        """One message of the client; `params` are the members of its params."""
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream", **self.more}
        if self.modern:
            params = f'{params}{"," if params else ""}"_meta":{json.dumps(META)}'
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": method, "mcp-name": name}
        elif self.session:
            headers |= {"mcp-protocol-version": LEGACY, "mcp-session-id": self.session}
        numbered = f'"id":{id},' if id is not None else ""
        text = f'{{"jsonrpc":"2.0",{numbered}"method":{json.dumps(method)},"params":{{{params}}}}}'
        url = f"http://localhost:{self.world.port}/mcp/{self.app}"
        body = text.encode("utf-8", "surrogatepass")
        async with self.client.post(url, data=io.BytesIO(body), headers=headers) as answer:
            self.session = answer.headers.get("mcp-session-id", self.session)
            return answer.status, await answer.read()

    async def open(self) -> None:
        """Shake hands where the era asks for it, open the app, and prove the view."""
        if not self.modern:
            client = {"protocolVersion": LEGACY, "capabilities": UI, "clientInfo": {"name": "attack", "version": "1"}}
            await self.post("initialize", json.dumps(client)[1:-1])
            await self.post("notifications/initialized", "", id=None)
        opened = message_of((await self.call(f"open_{self.app}", "{}"))[1])
        assert opened is not None
        launch = opened["result"]["_meta"]["webmcp-gateway/launch"]
        attached = message_of((await self.call("webmcp_attach", json.dumps({"launch": launch})))[1])
        assert attached is not None
        content = attached["result"]["structuredContent"]
        assert content["proven"] is True
        self.proof = Proof(content["view"], base64.urlsafe_b64decode(content["key"] + "="))


@dataclass(slots=True)
class StdioDoor(HttpDoor):
    """The same messages as lines, through the pipe that desktop clients start."""

    process: asyncio.subprocess.Process | None = None
    count: int = 100
    strict: bool = False
    """Pass over what has no id: refusals of lines before."""

    async def post(self, method: str, params: str, name: str = "", id: int | None = 7) -> tuple[int, bytes]:
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.count += 1
        head = f'{{"jsonrpc":"2.0","id":{self.count},"method":{json.dumps(method)},"params":{{'
        text = f'{head}{params},"_meta":{json.dumps(META)}}}}}'
        # A line end can stand in no line; a tab is a blank or an error in JSON wherever that is.
        self.process.stdin.write(text.replace("\n", "\t").encode("utf-8", "surrogatepass") + b"\n")
        async with asyncio.timeout(WAIT):
            while True:
                raw = await self.process.stdout.readline()
                id = json.loads(raw).get("id")
                if id == self.count or (id is None and not self.strict):
                    return 200, raw


def message_of(raw: bytes) -> dict[str, Any] | None:
    """The JSON-RPC answer in a body, which is JSON or an event stream."""
    for line in (raw, *raw.splitlines()):
        text = line.removeprefix(b"data:").strip()
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict) and ("result" in value or "error" in value):
            return value
    return None


@dataclass(slots=True)
class BridgeDoor:
    """The bridge, spoken by the host's end of the mux."""

    world: Place
    client: aiohttp.ClientSession
    apps: tuple[str, ...] = (APP,)
    connection: mux.ClientConnection = field(default_factory=mux.ClientConnection)
    socket: aiohttp.ClientWebSocketResponse | None = None
    view: str = ""
    token: str = ""
    calls: int = 0

    @property
    def origin(self) -> str:
        """The console's origin."""
        return f"http://{self.world.hosts['console']}"

    @property
    def own(self) -> dict[str, str]:
        """What a browser sends from the console's page."""
        return {"origin": self.origin, "sec-fetch-site": "same-origin"}

    async def ticket(self) -> str:
        """A ticket of the console."""
        async with self.client.get(f"{self.origin}/api/state", headers=self.own) as answer:
            csrf = (await answer.json())["csrf"]
        headers = {**self.own, CSRF: csrf}
        body = {"apps": list(self.apps)}
        async with self.client.post(f"{self.origin}/bridge/tickets", json=body, headers=headers) as answer:
            return str((await answer.json())["ticket"])

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        """A WebSocket without a word on it."""
        url = f"{self.origin}/bridge"
        return await self.client.ws_connect(url, headers=self.own, protocols=("webmcp-gateway.v1",), max_msg_size=0)

    async def open(self) -> None:
        """Greet, and open a view."""
        self.connection = mux.ClientConnection()
        self.socket = await self.connect()
        self.connection.send(mux.Hello(await self.ticket()))
        self.connection.send(mux.Open("1", self.apps[0]))
        await self._flush()
        opened = await self._next(lambda event: isinstance(event, mux.Opened))
        assert isinstance(opened, mux.Opened)
        self.view, self.token = opened.view, opened.resume

    async def ask(self, case: dict[str, Any]) -> Answer:
        if self.socket is None or self.socket.closed:
            await self.open()
        self.calls += 1
        id = f"c{self.calls}"
        text = arguments_text(case)
        if "text" in case:
            return await self._say_verbatim(id, text)
        message: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": id,
            "method": "tools/call",
            "params": {"name": "http_request", "arguments": json.loads(text)},
        }
        if mux.is_large(message):
            message = await self._split(message)
        for own in self.connection.send(mux.Message(self.view, Channel.UI, message)):
            assert isinstance(own, mux.Message)
            return of_call(own.message, b"")  # the host's end says itself that this cannot be sent
        await self._flush()
        return await self._answer(id)

    async def close(self) -> None:
        """End the view, and the connection."""
        if self.socket is None:
            return
        if self.socket.closed and self.view:  # its view waits to be taken up again, and counts until then
            self.socket = await self.connect()
            await self.socket.send_str(json.dumps({"hello": {"ticket": await self.ticket()}}))
            await self.socket.send_str(json.dumps({"resume": {"view": self.view, "token": self.token}}))
            await self.socket.receive_str()
        if self.view:
            with suppress(ConnectionError):
                await self.socket.send_str(json.dumps({"close": {"view": self.view, "reason": "over"}}))
        await self.socket.close()

    async def _say_verbatim(self, id: str, text: str) -> Answer:
        """A frame that no host's end would write."""
        assert self.socket is not None
        frame = (
            f'{{"view":"{self.view}","channel":"ui","message":{{"jsonrpc":"2.0","id":"{id}","method":"tools/call",'
            f'"params":{{"name":"http_request","arguments":{text}}}}}}}'
        )
        # The host's end must know of the call, to let its answer pass.
        known: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {}}
        self.connection.send(mux.Message(self.view, Channel.UI, known))
        self.connection.pending_output()
        await self.socket.send_str(frame)
        return await self._answer(id)

    async def _split(self, message: dict[str, Any]) -> dict[str, Any]:
        id = secrets.token_urlsafe(24)
        named, text = mux.split_body(message, id)
        headers = {**self.own, "content-type": "application/json"}
        async with self.client.put(
            f"{self.origin}/bridge/bodies/{id}", data=io.BytesIO(text.encode()), headers=headers
        ) as answer:
            assert answer.status == 204, answer.status
        return dict(named)

    async def _answer(self, id: str) -> Answer:
        event = await self._next(
            lambda event: (
                isinstance(event, mux.ErrorFrame) or (isinstance(event, mux.Message) and event.message.get("id") == id)
            )
        )
        if isinstance(event, mux.ErrorFrame):
            if event.view is None and self.socket is not None:
                await self.socket.close()
            return Answer(0, None, {}, None, event.detail.encode(), event.code)
        assert isinstance(event, mux.Message)
        message: dict[str, Any] = event.message
        body = mux.body_named(message)
        if body is not None:
            url = f"{self.origin}/bridge/bodies/{body}"
            async with self.client.get(url, headers=self.own) as answer:
                message = mux.join_body(message, await answer.text())
        message = await self._whole(message)
        return of_call(message, json.dumps(message).encode())

    async def _whole(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer with the bytes of its body, if these go beside it."""
        result = dict(message.get("result") or {})
        if "$bytes" not in result:
            return message
        async with self.client.get(f"{self.origin}/bridge/bodies/{result.pop('$bytes')}", headers=self.own) as answer:
            body = base64.b64encode(await answer.read()).decode()
        return {**message, "result": {**result, "structuredContent": {**result["structuredContent"], "body": body}}}

    async def _next(self, wanted: Callable[[mux.Frame], bool]) -> mux.Frame:
        assert self.socket is not None
        async with asyncio.timeout(WAIT):
            while True:
                received = await self.socket.receive()
                if received.type is not aiohttp.WSMsgType.TEXT:
                    return mux.ErrorFrame("closed", f"the gateway closed the connection: {received.data}")
                for event in self.connection.receive_data(received.data):
                    if wanted(event):
                        return event
                await self._flush()

    async def _flush(self) -> None:
        assert self.socket is not None
        for text in self.connection.pending_output():
            await self.socket.send_str(text)


@dataclass(slots=True)
class SiteDoor:
    """The app's own site, spoken over a bare socket, for what HTTP clients cannot say."""

    world: Place

    async def ask(self, case: dict[str, Any]) -> Answer:
        said = case.get("site", {})
        given = request_of(case)
        body, media_type = _encoded(given)
        if "body" in said:
            body = said["body"].encode("utf-8", "surrogateescape")
        fields = [(name, value) for name, value in given.get("headers", {}).items()]
        fields += [(name, value) for name, value in said.get("headers", [])]
        if media_type is not None and not any(name.lower() == "content-type" for name, _ in fields):
            fields.append(("content-type", media_type))
        host = self.world.hosts["app"]
        own = [("host", host), ("origin", f"http://{host}"), ("sec-fetch-site", "same-origin")]
        answer = await exchange(
            self.world.port,
            said.get("method", given.get("method", "GET")),
            said.get("target", given.get("url", "/")),
            [*own, *fields],
            body,
        )
        return _of_wire(answer)


def _encoded(given: dict[str, Any]) -> tuple[bytes, str | None]:
    if given.get("body") is None:
        return b"", None
    default = BodyType.TEXT if isinstance(given["body"], str) else BodyType.JSON
    encoded = encode_body(BodyType(given.get("bodyType", default)), given["body"])
    return encoded.data, encoded.content_type


def _of_wire(answer: WireAnswer) -> Answer:
    return Answer(answer.status, answer.headers.get("gateway-reason"), answer.headers, answer.text, answer.raw)


@asynccontextmanager
async def http_door(world: Place, *, modern: bool, app: str = APP) -> AsyncIterator[HttpDoor]:
    """A client with a proven view."""
    async with local_client() as client:
        door = HttpDoor(world, client, modern, app=app)
        await door.open()
        yield door


@asynccontextmanager
async def bridge_door(world: Place) -> AsyncIterator[BridgeDoor]:
    """A host page with a view."""
    async with local_client() as client:
        door = BridgeDoor(world, client)
        await door.open()
        yield door
        await door.close()


@asynccontextmanager
async def site_door(world: Place) -> AsyncIterator[SiteDoor]:
    """A browser on the app's site."""
    yield SiteDoor(world)


@asynccontextmanager
async def _modern(world: Place) -> AsyncIterator[HttpDoor]:
    async with http_door(world, modern=True) as door:
        yield door


@asynccontextmanager
async def _modern_sdk(world: Place) -> AsyncIterator[HttpDoor]:
    """With a header field for which the fast path steps aside."""
    async with http_door(world, modern=True) as door:
        door.more = {"last-event-id": "0"}
        yield door


@asynccontextmanager
async def _stdio(world: Place) -> AsyncIterator[StdioDoor]:
    """A desktop client behind the pipe."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from gateway.cli import main; main()",
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


@asynccontextmanager
async def _legacy(world: Place) -> AsyncIterator[HttpDoor]:
    async with http_door(world, modern=False) as door:
        yield door


DOORS: dict[str, Callable[[Place], AbstractAsyncContextManager[AttackedDoor]]] = {
    "modern": _modern,
    "modern-sdk": _modern_sdk,
    "legacy": _legacy,
    "stdio": _stdio,
    "bridge": bridge_door,
    "site": site_door,
}
"""Every door that there is; at `modern` the fast path takes what it can, at `modern-sdk` nothing."""
