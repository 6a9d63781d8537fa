"""WebSockets at every door that carries them: openings, frames and messages that must not pass, and who may send."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.attack.cases import answer_in
from gateway.stores.sessions import IssuedTokens
from gateway.stores.sql import Database
from tests.attacks.bridge_door import bridge_door
from tests.attacks.calls import WAIT
from tests.attacks.corpus import family
from tests.attacks.doors import DOORS
from tests.attacks.mcp_doors import HttpDoor
from tests.attacks.test_relay import RIGHT, Town, begin_call
from tests.attacks.wire import exchange, request_bytes
from tests.attacks.world import POLICY, AttackWorld, running_world
from tests.exchange.socket_backend import SocketBackend
from tests.world import local_client, serving

ROUTES = """routes:
  - {{path: /sockets/trusting, backend: chat, methods: [GET], websocket: {{model: allow}}}}
  - {{path: /listed, backend: chat, methods: [GET], websocket: {{protocols: [chat]}}}}
  - {{path: "/sockets/**", backend: chat, methods: [GET], websocket: {{message: 1KiB}}}}
"""
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
PROTOCOLS = {"app": None, "console": "webmcp-gateway.v1"}
PLACES = {"app": "/sockets/echo", "console": "/bridge"}


@dataclass(frozen=True, slots=True)
class SocketAttacks:
    """The attacked gateway, and the backend of its sockets."""

    world: AttackWorld
    backend: SocketBackend

    def take_heard(self) -> list[str | bytes]:
        """Return the messages that the backend received since the last call."""
        heard, self.backend.heard[:] = list(self.backend.heard), []
        return heard


@asynccontextmanager
async def attacked_sockets(folder: Path, extra: str = "") -> AsyncIterator[SocketAttacks]:
    """Run both; the policy has the routes of sockets."""
    backend = SocketBackend()
    async with serving(backend.app()) as port:
        chat = f"backends:\n  chat: {{{{url: 'http://127.0.0.1:{port}', network: private}}}}\n"
        policy = POLICY.replace("backends:\n", chat).replace("routes:\n", ROUTES) + "tools:\n  add: {{}}\n"
        async with running_world(folder, policy, extra) as world:
            yield SocketAttacks(world, backend)


@pytest.fixture(scope="module")
async def attacked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketAttacks]:
    """Both, for callers of this machine."""
    async with attacked_sockets(tmp_path_factory.mktemp("sockets")) as found:
        yield found


def opening(world: AttackWorld, at: str, given: dict[str, Any]) -> tuple[str, str, list[tuple[str, str]]]:
    """Method, target and fields of a browser's opening, changed as the case says."""
    host = world.hosts[given.get("at", at)]
    fields: dict[str, Any] = {
        "host": host,
        "origin": f"http://{host}",
        "sec-fetch-site": "same-origin",
        "sec-fetch-mode": "websocket",
        "sec-fetch-dest": "websocket",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": KEY,
        "sec-websocket-protocol": PROTOCOLS.get(at),
        **given.get("headers", {}),
    }
    listed = [("connection", "Upgrade"), *((name, str(value)) for name, value in fields.items() if value is not None)]
    return given.get("method", "GET"), given.get("target", PLACES[at]), listed


async def test_no_other_opening_reaches_a_backend(attacked: SocketAttacks) -> None:
    """Of another origin, at another place, or of another form; the page's own one does."""
    world, problems = attacked.world, []
    for case in [case for case in family("sockets") if "opening" in case]:
        world.take_errors()
        answer = await exchange(world.port, *opening(world, case["at"], world.placed(case["opening"])))
        found = [] if answer.status in case["expect"] else [f"expected {case['expect']}, got {answer.raw[:300]!r}"]
        found += [f"reached the backend: {one}" for one in attacked.backend.opened]
        found += [f"logged as an error: {line}" for line in world.take_errors()]
        attacked.backend.opened.clear()
        problems += [f"{case['id']} ({case['why']}): {one}" for one in found]
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems)
    assert await closing(world, "app", [b"\x88\x80\0\0\0\0"]) == 1000
    assert len(attacked.backend.opened) == 1


@pytest.mark.parametrize("at", list(PLACES))
async def test_broken_frames_end_their_websocket_alone(attacked: SocketAttacks, at: str) -> None:
    """With the code of RFC 6455, 7.4.1, or without one; nothing reaches the backend, and a next one works."""
    world, problems = attacked.world, []
    async with bridge_door(world) as other:
        for case in [case for case in family("sockets") if "frames" in case]:
            world.take_errors()
            frames = [frame for one in world.placed(case["frames"]) for frame in written(one)]
            code = await closing(world, at, frames, leaves=bool(case.get("leaves")))
            found = [] if (code or "end") in case["expect"] else [f"expected {case['expect']}, closed with {code}"]
            found += [f"the backend heard {one!r}" for one in attacked.take_heard() if "EVIL" in str(one)]
            found += [f"logged as an error: {line}" for line in world.take_errors()]
            problems += [f"{case['id']} ({case['why']}): {one}" for one in found]
        assert (await other.ask({"url": "/api/exact"})).status == 200
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems)


def written(frame: Any) -> Iterator[bytes]:
    """The bytes of a client's frame, of several, or bytes as they are."""
    if isinstance(frame, str):
        yield frame.encode("latin-1")
    elif isinstance(frame, dict):
        again, times = frame["$times"]
        yield b"".join(written(again)) * times
    else:
        first, payload = frame[0], frame[1].encode("latin-1")
        length = len(payload)
        size = bytes([length | 0x80]) if length < 126 else b"\xfe" + length.to_bytes(2) if length < 2**16 else b""
        yield bytes([first]) + (size or b"\xff" + length.to_bytes(8)) + b"\0\0\0\0" + payload


@pytest.mark.parametrize("at", list(PLACES))
async def test_an_unmasked_frame_beside_the_opening_is_refused(attacked: SocketAttacks, at: str) -> None:
    """It arrives before the WebSocket is open, and in pieces."""
    assert await closing(attacked.world, at, [b"\x04EVIL"], early=b"\x81") == 1002
    assert not attacked.take_heard()


async def closing(
    world: AttackWorld, at: str, frames: list[bytes], *, leaves: bool = False, early: bytes = b""
) -> int | None:
    """Open a WebSocket, send bytes; return the code of the answered close frame, None if there is none.

    `leaves`: the client disconnects without an answer. `early` is sent with the opening request.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    came = b""
    try:
        method, target, fields = opening(world, at, {})
        request = request_bytes(method, target, fields, b"").replace(b"connection: close\r\n", b"")
        writer.write(request + early)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT)
        assert head.startswith(b"HTTP/1.1 101 "), head
        with suppress(ConnectionError):
            writer.write(b"".join(frames))
            await writer.drain()
            if leaves:
                writer.write_eof()
            async with asyncio.timeout(WAIT):
                while part := await reader.read(65536):
                    came += part
                    assert b"HTTP/" not in came, came[:300]
    finally:
        writer.close()
    return close_code(came)


def close_code(came: bytes) -> int | None:
    """The code of the close frame among a server's frames."""
    while len(came) >= 2:
        length, at = came[1], 2
        if length >= 126:
            at += 2 if length == 126 else 8
            length = int.from_bytes(came[2:at])
        if came[0] == 0x88:
            return int.from_bytes(came[at : at + 2]) if length else 1005
        came = came[at + length :]
    return None


@pytest.mark.parametrize("name", ["modern", "legacy", "bridge"])
async def test_messages_of_another_form_are_refused(attacked: SocketAttacks, name: str) -> None:
    """At each door that has the tool: nothing reaches the backend, and the next right message does."""
    problems = []
    async with DOORS[name](attacked.world) as door:
        way: Any = door
        for case in [case for case in family("sockets") if "send" in case]:
            socket = await opened(way)
            sent = await send(way, text_of(case["send"], socket))
            found = [] if sent in case["expect"] else [f"expected {case['expect']}, got {sent}"]
            if "closes" in case:
                ends = [event for event in await events(way, socket) if "close" in event]
                found += [] if ends and ends[-1]["close"][0] == case["closes"] else [f"it ended with {ends}"]
            else:
                found += [
                    f"the next message: {reason}" for reason in [await say(way, socket, "works")] if reason != "ok"
                ]
                await until_heard(attacked, "works")
            found += [f"the backend heard {one!r}" for one in attacked.take_heard() if "EVIL" in str(one)]
            found += [f"logged as an error: {line}" for line in attacked.world.take_errors()]
            problems += [f"{case['id']} ({case['why']}): {one}" for one in found]
            await way.tool("http_stream", json.dumps({"id": socket, "cancel": True}))
    assert not problems, f"{len(problems)} problems at {name}:\n" + "\n".join(problems)


def text_of(arguments: Any, socket: str) -> str:
    return json.dumps(arguments).replace("@socket@", socket)


async def opened(door: Any, url: str = "/sockets/echo") -> str:
    """Open a WebSocket of the view; return its id."""
    answer = await door.tool("http_request", json.dumps({"url": url, "method": "WEBSOCKET", "stream": True}))
    message = answer_in(answer.raw)
    assert message is not None
    return str(message["result"]["structuredContent"]["stream"])


async def send(door: Any, arguments: str) -> str:
    """Call `webmcp_send`; return the reason of a refusal, or `ok`."""
    message = answer_in((await door.tool("webmcp_send", arguments)).raw) or {}
    content = message.get("result", {}).get("structuredContent", {})
    return "ok" if content == {"sent": True} else str(content.get("reason", message))


async def say(door: Any, socket: str, text: str, number: int = 0) -> str:
    """Send one text; return the reason of a refusal, or `ok`."""
    return await send(door, json.dumps({"id": socket, "number": number, "messages": [{"text": text}]}))


async def events(door: Any, socket: str) -> list[dict[str, Any]]:
    """The events of a WebSocket until its end."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(WAIT):
        while not any("close" in event for event in found):
            message = answer_in((await door.tool("http_stream", json.dumps({"id": socket}))).raw)
            assert message is not None
            content = message["result"]["structuredContent"]
            body = content.get("body") or ""
            text = base64.b64decode(body).decode() if content.get("bodyType") == "bytes" else str(body)
            found += [json.loads(line) for line in text.splitlines()]
            if "stream" not in content:
                break
    return found


async def until_heard(attacked: SocketAttacks, text: str) -> None:
    """Wait until the backend has received this message."""
    async with asyncio.timeout(WAIT):
        while text not in attacked.backend.heard:
            await asyncio.sleep(0.01)


async def test_whose_websocket_it_is(tmp_path: Path) -> None:
    """No other view, person or app sends or reads; nor does a tainted view, or a token that was revoked."""
    async with attacked_sockets(tmp_path, "auth: [token]\n") as attacked, local_client(limit=0) as http:
        town = Town(attacked.world, http)
        ann, model = await town.view("ann"), await town.door("ann")
        socket, trusting = await opened(ann.door), await opened(ann.door, "/sockets/trusting")
        for other in (await town.door("ann"), await town.door("bob"), await town.door("ann", "neighbour")):
            assert await say(other, socket, "EVIL") == "connection-lost"
            assert "connection-lost" in str((await other.tool("http_stream", json.dumps({"id": socket}))).raw)
        assert await unproven(ann.door, socket) == "connection-lost"
        assert await say(ann.door, socket, "person") == await say(ann.door, trusting, "trusted") == "ok"
        async with begin_call(model, ann) as task:
            call = await ann.next()
            assert await say(ann.door, socket, "EVIL", 1) == "ok"
            assert await say(ann.door, trusting, "model", 1) == "ok"
            assert [event["close"] for event in await events(ann.door, socket) if "close" in event] == [
                [1008, "policy-denied", True]
            ]
            assert await ann.answer(call, RIGHT) == ""
            await task
        await until_heard(attacked, "model")
        async with Database(attacked.world.config.database.reveal()) as database:
            await IssuedTokens(database).revoke("ann", time.time())
        async with asyncio.timeout(WAIT):
            while attacked.backend.rooms:
                await asyncio.sleep(0.02)
        assert attacked.take_heard() == ["person", "trusted", "model"]


async def unproven(door: HttpDoor, socket: str) -> str:
    """Send without the view's proof."""
    arguments = json.dumps({"id": socket, "number": 0, "messages": [{"text": "EVIL"}]})
    message = answer_in((await door.tool("webmcp_send", arguments, proven=False)).raw) or {}
    return str(message.get("result", {}).get("structuredContent", {}).get("reason"))
