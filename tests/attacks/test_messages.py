"""Invalid messages at the doors without HTTP: the stdio pipe of desktop clients, and the bridge."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway import mux
from gateway.model import Channel
from tests.attacks.bridge_door import BridgeDoor, bridge_door
from tests.attacks.calls import WAIT
from tests.attacks.corpus import family
from tests.attacks.doors import DOORS
from tests.attacks.mcp_doors import StdioDoor
from tests.attacks.world import AttackWorld

HEALTHY = {"url": "/api/exact"}


def messages() -> list[tuple[str, str]]:
    """The bodies of the corpus that are invalid messages, or requests without a valid result."""
    found = []
    for case in family("mcp"):
        if "mcp" in case:
            body = case["mcp"]
            found.append((case["id"], body if isinstance(body, str) else json.dumps(body)))
        elif case["id"].startswith(("message-id", "params-type", "method-unknown", "cancel-of-another", "cursor-type")):
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}, **case["rpc"]}
            found.append((case["id"], json.dumps({name: one for name, one in message.items() if one != "$none"})))
    return found


def discloses_more(text: bytes) -> bool:
    """Whether an answer discloses more than a refusal."""
    return b"Traceback" in text or b'"status":200' in text


@asynccontextmanager
async def piped(world: AttackWorld) -> AsyncIterator[StdioDoor]:
    """A desktop client at the stdio pipe."""
    async with DOORS["stdio"](world) as door:
        assert isinstance(door, StdioDoor)
        door.strict = True
        yield door


async def test_lines_of_the_pipe(attacked_world: AttackWorld) -> None:
    """No line reaches a backend, and the next call is answered."""
    async with piped(attacked_world) as door:
        assert door.process is not None
        assert door.process.stdin is not None
        for id, text in messages():
            attacked_world.take_arrived()
            line = text.replace("\n", "\t").encode("utf-8", "surrogatepass")
            door.process.stdin.write(line + b"\n")
            answer = await door.ask(HEALTHY)
            assert answer.status == 200, f"{id}: {answer}"
            assert [one.line for one in attacked_world.take_arrived()] == ["GET /v1/api/exact"], id
            assert attacked_world.take_errors() == [], id


async def test_an_id_that_is_in_flight_in_the_pipe(attacked_world: AttackWorld) -> None:
    """The two calls with one id are answered or refused once each."""
    async with piped(attacked_world) as door:
        assert door.process is not None
        assert door.process.stdin is not None
        assert door.process.stdout is not None
        line = '{"jsonrpc":"2.0","id":"same","method":"ping"}\n'
        door.process.stdin.write((line * 2).encode())
        assert (await door.ask(HEALTHY)).status == 200


async def send_frame(door: BridgeDoor, message: str) -> None:
    """Send a frame with this text as its message."""
    assert door.socket is not None
    await door.socket.send_str(f'{{"view":"{door.view}","channel":"ui","message":{message}}}')


async def test_messages_of_the_bridge(attacked_world: AttackWorld) -> None:
    """An invalid message at most closes the connection; a new connection works."""
    async with bridge_door(attacked_world) as door:
        for id, text in messages():
            if not text.strip() or "\ud800" in text:
                continue
            attacked_world.take_arrived()
            await send_frame(door, text)
            answer = await door.ask(HEALTHY)
            if answer.status != 200:  # the frame was invalid: the connection is closed, as the protocol requires
                assert door.socket is not None
                await door.socket.close()
                await door.open()
                answer = await door.ask(HEALTHY)
            assert answer.status == 200, f"{id}: {answer}"
            assert {one.line for one in attacked_world.take_arrived()} == {"GET /v1/api/exact"}, id
            assert attacked_world.take_errors() == [], id


async def test_a_view_cancels_no_call_of_another(attacked_world: AttackWorld) -> None:
    """Ids are scoped to a view: the same id in another view is another call."""
    main = attacked_world.backends["main"]
    async with bridge_door(attacked_world) as one, bridge_door(attacked_world) as other:
        main.answers = ["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"]
        asking = asyncio.ensure_future(one.ask(HEALTHY))
        cancel: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c1"}}
        other.connection.send(mux.Message(other.view, Channel.UI, cancel))
        assert other.socket is not None
        for text in other.connection.pending_output():
            await other.socket.send_str(text)
        async with asyncio.timeout(WAIT):
            assert (await asking).status == 200


@pytest.mark.parametrize("name", ["view", "close"])
async def test_a_frame_names_a_view_of_another_connection(attacked_world: AttackWorld, name: str) -> None:
    """The view does not exist for another connection, and stays open."""
    async with bridge_door(attacked_world) as one, bridge_door(attacked_world) as other:
        assert other.socket is not None
        message = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"http_request","arguments":{}}}'
        frames = {
            "view": f'{{"view":"{one.view}","channel":"ui","message":{message}}}',
            "close": f'{{"close":{{"view":"{one.view}","reason":"EVIL"}}}}',
        }
        await other.socket.send_str(frames[name])
        received = await other.socket.receive(timeout=WAIT)
        while '"channel":"webmcp"' in str(received.data):  # requests of the gateway to the page
            received = await other.socket.receive(timeout=WAIT)
        assert "error" in str(received.data) or not isinstance(received.data, str)
        assert (await one.ask(HEALTHY)).status == 200
