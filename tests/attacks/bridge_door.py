"""The bridge as a door, with the host's end of the mux as the client."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

import tests.world
from gateway import mux
from gateway.doors.bridge import bridge
from gateway.model import Channel
from tests.attacks.calls import WAIT, Answer, Place, arguments_text, of_call
from tests.attacks.world import APP, CSRF
from tests.world import local_client

MOVES = 8
"""Calls after which a view moves to the other node, if there are two."""


@dataclass(slots=True)
class BridgeDoor:
    """The bridge, with the host's end of the mux as the client."""

    world: Place
    client: aiohttp.ClientSession
    apps: tuple[str, ...] = (APP,)
    connection: mux.ClientConnection = field(default_factory=mux.ClientConnection)
    socket: aiohttp.ClientWebSocketResponse | None = None
    view: str = ""
    resource: str = ""
    token: str = ""
    calls: int = 0
    moves: bool = False
    """Whether the view moves to the other node every few calls, if there are two: its streams end then."""

    @property
    def origin(self) -> str:
        """The console's origin."""
        return f"http://{self.world.hosts['console']}"

    @property
    def own(self) -> dict[str, str]:
        """The headers that a browser sends from the console's page."""
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
        """Open a WebSocket, and send nothing."""
        url = f"{self.origin}/bridge"
        return await self.client.ws_connect(url, headers=self.own, protocols=("webmcp-gateway.v1",), max_msg_size=0)

    async def open(self) -> None:
        """Send a hello, and open a view."""
        self.connection = mux.ClientConnection()
        self.socket = await self.connect()
        self.connection.send(mux.Hello(await self.ticket()))
        self.connection.send(mux.Open("1", self.apps[0]))
        await self._flush()
        opened = await self._next(lambda event: isinstance(event, mux.Opened))
        assert isinstance(opened, mux.Opened)
        self.view, self.resource, self.token = opened.view, opened.resource, opened.resume

    async def move(self) -> None:
        """Close the connection, and resume the view on another one, which leads to the other node."""
        assert self.socket is not None
        await self.socket.close()
        self.connection = mux.ClientConnection()
        self.socket = await self.connect()
        self.connection.send(mux.Hello(await self.ticket()))
        self.connection.send(mux.Resume(self.view, self.token))
        await self._flush()
        resumed = await self._next(lambda event: isinstance(event, mux.Resume | mux.ErrorFrame))
        assert isinstance(resumed, mux.Resume), resumed
        self.token = resumed.token

    async def ask(self, case: dict[str, Any]) -> Answer:
        connected = self.socket is not None and not self.socket.closed
        if connected and self.moves and tests.world.ONE_REQUEST_EACH and self.calls % MOVES == MOVES - 1:
            await self.move()
        text = arguments_text(case)
        if "text" in case:
            return await self._say_verbatim(text)
        return await self.tool("http_request", text)

    async def tool(self, name: str, text: str) -> Answer:
        """Call a tool of apps with arguments as JSON text; return its HTTP answer."""
        id = await self._next_id()
        message: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": id,
            "method": "tools/call",
            "params": {"name": name, "arguments": json.loads(text)},
        }
        if mux.is_large(message):
            message = await self._split(message)
        for own in self.connection.send(mux.Message(self.view, Channel.UI, message)):
            assert isinstance(own, mux.Message)
            return of_call(own.message, b"")  # the host's end itself refuses to send this
        await self._flush()
        return await self._answer(id)

    async def shown(self) -> dict[str, Any]:
        """Ask for the page as the host page does that shows it; return its addresses on a dedicated origin."""
        id = await self._next_id()
        params = {"uri": self.resource, "_meta": {"webmcp-gateway/show": True}}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": params}
        self.connection.send(mux.Message(self.view, Channel.UI, message))
        await self._flush()
        found: dict[str, Any] = json.loads((await self._answer(id)).raw)["result"]["_meta"]["webmcp-gateway/shown"]
        return found

    async def close(self) -> None:
        """Close the view, and the connection."""
        if self.socket is None:
            return
        if self.socket.closed and self.view:  # the view waits for its resumption, and counts until then
            self.socket = await self.connect()
            await self.socket.send_str(json.dumps({"hello": {"ticket": await self.ticket()}}))
            await self.socket.send_str(json.dumps({"resume": {"view": self.view, "token": self.token}}))
            await self.socket.receive_str()
        if self.view:
            with suppress(ConnectionError):
                await self.socket.send_str(json.dumps({"close": {"view": self.view, "reason": "over"}}))
        await self.socket.close()

    async def _next_id(self) -> str:
        """The id of the next call, on an open connection."""
        if self.socket is None or self.socket.closed:
            await self.open()
        self.calls += 1
        return f"c{self.calls}"

    async def _say_verbatim(self, text: str) -> Answer:
        """Send a frame that the host's end of the mux would not write."""
        id = await self._next_id()
        assert self.socket is not None
        frame = (
            f'{{"view":"{self.view}","channel":"ui","message":{{"jsonrpc":"2.0","id":"{id}","method":"tools/call",'
            f'"params":{{"name":"http_request","arguments":{text}}}}}}}'
        )
        # The host's end must know the call, or it would drop its answer.
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
        body = mux.named_body(message)
        if body is not None:
            url = f"{self.origin}/bridge/bodies/{body}"
            async with self.client.get(url, headers=self.own) as answer:
                message = mux.join_body(message, await answer.text())
        message = await self._whole(message)
        return of_call(message, json.dumps(message).encode())

    async def _whole(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer with the bytes of its body, if they are transferred beside it."""
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


@asynccontextmanager
async def bridge_door(world: Place, apps: tuple[str, ...] = (APP,)) -> AsyncIterator[BridgeDoor]:
    """A host page with a view, which stays connected without heartbeats while other doors are tried."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bridge, "HEARTBEAT", 600.0)
        async with local_client() as client:
            door = BridgeDoor(world, client, apps)
            await door.open()
            yield door
            await door.close()
