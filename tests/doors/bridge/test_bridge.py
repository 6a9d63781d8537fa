"""The bridge as a host page uses it: tickets, views, bodies, the taint across a reload, session resumption."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway import mux
from gateway.doors.bridge.bridge_state import Tickets
from gateway.doors.bridge.uploads import LIFE, Bodies
from gateway.eventloop.model_priority import ModelPriority
from gateway.exchange import approvals
from gateway.jsontext.sizes import AT_ONCE
from gateway.model import LOCAL, Channel
from gateway.stores.one_time import MemoryOneTimeValues
from tests.world import World, running

LOCAL_OTHER = replace(LOCAL, subject="other")
PROTOCOL = "webmcp-gateway.v1"


@dataclass
class Host:
    """The host page's end of one WebSocket."""

    world: World
    client: aiohttp.ClientSession
    socket: aiohttp.ClientWebSocketResponse
    connection: mux.ClientConnection = field(default_factory=mux.ClientConnection)
    number: int = 0

    async def say(self, frame: mux.Frame) -> None:
        """Send a frame."""
        self.connection.send(frame)
        for text in self.connection.pending_output():
            await self.socket.send_str(text)

    async def hear(self) -> mux.Frame:
        """Return the next frame from the gateway."""
        async with asyncio.timeout(10):
            while True:
                for frame in self.connection.receive_data(await self.socket.receive_str()):
                    return frame

    async def open(self, app: str = "cart") -> mux.Opened:
        """Open a view."""
        self.number += 1
        await self.say(mux.Open(f"r{self.number}", app))
        while not isinstance(frame := await self.hear(), mux.Opened):
            assert not isinstance(frame, mux.ErrorFrame), frame
        return frame

    async def call(self, view: str, **arguments: Any) -> dict[str, Any]:
        """Send one `http_request` of the view; return its structured result, or the JSON-RPC error."""
        self.number += 1
        params: dict[str, Any] = {"name": "http_request", "arguments": arguments}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params}
        if mux.is_large(message):
            id = secrets.token_urlsafe(24)
            message, text = mux.split_body(message, id)
            async with self.client.put(f"{self.world.console}/bridge/bodies/{id}", data=text) as answer:
                assert answer.status == 204
        await self.say(mux.Message(view, Channel.UI, message))
        return await self.answer(self.number)

    async def answer(self, id: int) -> dict[str, Any]:
        """The answer to a call on the ui channel."""
        while True:
            frame = await self.hear()
            if isinstance(frame, mux.Message) and frame.channel is Channel.UI and frame.message.get("id") == id:
                message: dict[str, Any] = frame.message
                return message["result"]["structuredContent"] if "result" in message else {"error": message["error"]}


@asynccontextmanager
async def console(world: World) -> AsyncIterator[aiohttp.ClientSession]:
    """The console's page as an HTTP client with its headers."""
    headers = {"origin": world.console, "sec-fetch-site": "same-origin"}
    async with world.client(headers=headers) as client:
        async with client.get(f"{world.console}/api/state") as answer:
            client.headers["webmcp-gateway-csrf"] = (await answer.json())["csrf"]
        yield client


async def ticket(world: World, client: aiohttp.ClientSession) -> str:
    """A ticket for the cart."""
    async with client.post(f"{world.console}/bridge/tickets", json={"apps": ["cart"]}) as answer:
        return str((await answer.json())["ticket"])


async def questions(world: World, client: aiohttp.ClientSession) -> str:
    """Return the open questions that the console's event stream shows."""
    async with client.get(f"{world.console}/api/events") as stream:
        async for line in stream.content:
            if line == b"event: approvals\n":
                return (await stream.content.readline()).decode().removeprefix("data: ").strip()
    raise AssertionError("the stream ended")


@asynccontextmanager
async def connected(world: World, client: aiohttp.ClientSession) -> AsyncIterator[Host]:
    """Yield a host page that has sent its greeting."""
    async with client.ws_connect(f"{world.console}/bridge", protocols=[PROTOCOL]) as socket:
        host = Host(world, client, socket)
        await host.say(mux.Hello(await ticket(world, client)))
        yield host


async def test_a_view_speaks_for_itself(world: World) -> None:
    """The WebSocket itself proves the view; without a gesture its requests count as the page's."""
    async with console(world) as client, connected(world, client) as host:
        view = (await host.open()).view
        answer = await host.call(view, url="/api/products")
    assert answer["status"] == 200
    fields = next(line["fields"] for line in world.records() if line["fields"].get("url") == "/api/products")
    assert (fields["door"], fields["view"], fields["initiator"]) == ("bridge", view, "page")


@pytest.mark.parametrize("used", [True, False])
async def test_a_ticket_is_good_once_and_only_if_it_was_issued(world: World, used: bool) -> None:
    """Any other ticket ends the connection before a view is opened."""
    async with console(world) as client:
        token = await ticket(world, client) if used else "made-up"
        for attempt in range(2):
            async with client.ws_connect(f"{world.console}/bridge", protocols=[PROTOCOL]) as socket:
                host = Host(world, client, socket)
                await host.say(mux.Hello(token))
                if used and attempt == 0:
                    await host.open()
                else:
                    frame = await host.hear()
                    assert isinstance(frame, mux.ErrorFrame)
                    assert frame.code == "bad-ticket"


async def test_an_app_that_is_gone_takes_no_other_with_it(world: World) -> None:
    """A page that showed both connects again, opens the one that is there, and is refused the other."""
    async with console(world) as client:
        apps = {"apps": ["gone", "cart"]}
        async with client.post(f"{world.console}/bridge/tickets", json=apps) as answer:
            assert answer.status == 200
            token = (await answer.json())["ticket"]
        async with client.ws_connect(f"{world.console}/bridge", protocols=[PROTOCOL]) as socket:
            host = Host(world, client, socket)
            await host.say(mux.Hello(token))
            assert (await host.call((await host.open()).view, url="/api/products"))["status"] == 200
            await host.say(mux.Open("r-9", "gone"))
            while not isinstance(frame := await host.hear(), mux.ErrorFrame):
                pass
            assert (frame.code, frame.ref) == ("unknown-app", "r-9")


async def test_html_that_a_page_has_is_one_that_the_gateway_gave(world: World) -> None:
    """Also if the data in it are others now; a byte more, and the view is not opened."""

    async def opens(host: Host, html: str) -> str:
        host.number += 1
        await host.say(mux.Open(f"r{host.number}", "cart", sha256=hashlib.sha256(html.encode()).hexdigest()))
        while isinstance(frame := await host.hear(), mux.Message):
            pass
        return frame.code if isinstance(frame, mux.ErrorFrame) else type(frame).__name__

    async with console(world) as client, connected(world, client) as host, asyncio.timeout(120):
        before = await read_page(host)
        assert [await opens(host, before), await opens(host, f"{before} ")] == ["Opened", "html-differs"]
        policy = world.folder / "policy.yaml"
        policy.write_text(policy.read_text().replace("  get_cart: {}\n", "  get_cart: {confirm: always}\n"))
        while (now := await read_page(host)) == before:
            await asyncio.sleep(0.2)
        assert [await opens(host, now), await opens(host, before)] == ["Opened", "Opened"]


async def read_page(host: Host) -> str:
    """The cart's page, as the gateway gives it to a view."""
    opened = await host.open()
    host.number += 1
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": host.number, "method": "resources/read"}
    await host.say(mux.Message(opened.view, Channel.UI, {**message, "params": {"uri": opened.resource}}))
    while True:
        frame = await host.hear()
        if isinstance(frame, mux.Message) and frame.message.get("id") == host.number:
            answer: Any = frame.message["result"]
            if "$body" in answer:
                async with host.client.get(f"{host.world.console}/bridge/bodies/{answer['$body']}") as got:
                    answer = await got.json()
            await host.say(mux.Close(opened.view, ""))
            return str(answer["contents"][0]["text"])


@pytest.mark.parametrize("size", [200_000, 300_000, 900_000])
async def test_large_bodies_arrive_whole(world: World, size: int) -> None:
    """Outside the frames, byte for byte."""
    async with console(world) as client, connected(world, client) as host:
        view = (await host.open()).view
        answer = await host.call(view, url="/api/cart", method="POST", body="x" * size, bodyType="text")
    assert answer["headers"]["gateway-reason"] == "request-too-large"
    sizes = [line["fields"]["request_size"] for line in world.records() if line["fields"].get("method") == "POST"]
    assert sizes[0] == size


async def test_a_body_that_is_not_there_fails_its_call_alone(world: World) -> None:
    """A missing body fails only the call that names it; the connection and its views stay open."""
    async with console(world) as client, connected(world, client) as host:
        view = (await host.open()).view
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": {"$body": "A" * 22}}
        await host.say(mux.Message(view, Channel.UI, message))
        assert "unknown-body" in str(await host.answer(99))
        assert (await host.call(view, url="/api/products"))["status"] == 200


@pytest.mark.parametrize("named", ["A" * 22, "short", 7])
async def test_bytes_that_were_not_put_fail_alone(world: World, named: str | int) -> None:
    """A call that names bytes which were never uploaded is refused; the view stays open."""
    async with console(world) as client, connected(world, client) as host:
        view = (await host.open()).view
        params: dict[str, Any] = {"name": "http_request", "arguments": {"url": "/x"}, "$bytes": named}
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": params}
        await host.say(mux.Message(view, Channel.UI, message))
        assert "unknown-body" in str(await host.answer(99))
        assert (await host.call(view, url="/api/products"))["status"] == 200


async def test_bytes_are_no_text_and_text_is_no_bytes(world: World) -> None:
    """A body uploaded as bytes cannot be named as text, nor a text as bytes."""
    async with console(world) as client, connected(world, client) as host:
        view = (await host.open()).view
        id, headers = secrets.token_urlsafe(24), {"content-type": "application/octet-stream"}
        async with client.put(f"{world.console}/bridge/bodies/{id}", data=b"{}", headers=headers) as answer:
            assert answer.status == 204
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": {"$body": id}}
        await host.say(mux.Message(view, Channel.UI, message))
        assert "unknown-body" in str(await host.answer(99))


async def test_bytes_of_unknown_length_are_not_taken(world: World) -> None:
    """Without a length the gateway cannot check whether the body fits."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b"x"

    async with console(world) as client:
        url, headers = f"{world.console}/bridge/bodies/{'a' * 22}", {"content-type": "application/octet-stream"}
        async with client.put(url, data=chunks(), headers=headers) as answer:
            assert answer.status == 411


async def test_a_text_of_too_many_parts_is_not_taken(world: World) -> None:
    """It would be parsed as JSON; the same body sent as bytes is never parsed."""
    many = b"[" + b"[]," * AT_ONCE + b"1]"
    async with console(world) as client:
        for kind, status in (("application/json", 413), ("application/octet-stream", 204)):
            url, headers = f"{world.console}/bridge/bodies/{'a' * 22}", {"content-type": kind}
            async with client.put(url, data=io.BytesIO(many), headers=headers) as answer:
                assert answer.status == status


async def test_a_frame_of_too_many_parts_is_not_read(world: World) -> None:
    """It gets no answer, and the views of its connection stay open; a text of the same size is read."""
    async with console(world) as client, connected(world, client) as host:
        view = (await host.open()).view
        assert (await host.call(view, url="/api/products", other="[]," * AT_ONCE))["status"] == 200
        arguments = {"name": "http_request", "arguments": {"url": "/api/products?bulky", "other": "HERE"}}
        message = {"jsonrpc": "2.0", "id": "bulky", "method": "tools/call", "params": arguments}
        frame = json.dumps({"view": view, "channel": "ui", "message": message})
        await host.socket.send_str(frame.replace('"HERE"', "[" + "[]," * mux.BODY_LIMIT + "1]"))
        assert (await host.call(view, url="/api/products"))["status"] == 200
        # Content that host pages do not detach from their frames is read, however many parts it has.
        assert (await host.call(view, url="/api/products", other=[1] * 120_000))["status"] == 200
    assert "/api/products?bulky" not in [record["fields"].get("url") for record in world.records()]


async def test_the_models_messages_go_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their priority lasts from their arrival at the gateway until they leave it, to the page and back."""
    told: list[str] = []
    for name in ("note_arrival", "note_sent"):
        monkeypatch.setattr(ModelPriority, name, lambda _, principal, name=name: told.append(f"{name} {principal}"))
    async with world.client() as model, model.post(f"{world.url}/mcp/cart", json={}):
        assert told == [f"note_arrival {LOCAL.id}", f"note_sent {LOCAL.id}"]
        told.clear()
    async with console(world) as client, connected(world, client) as host:
        view = (await host.open()).view
        asked = await host.hear()
        assert isinstance(asked, mux.Message)
        assert (asked.channel, asked.message["method"]) == (Channel.WEBMCP, "initialize")
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "page", "version": "1"}}
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.message["id"], "result": result}
        await host.say(mux.Message(view, Channel.WEBMCP, answer))
        assert isinstance(await host.hear(), mux.Message)
        assert told[:2] == [f"note_sent {LOCAL.id}", f"note_arrival {LOCAL.id}"]


async def test_a_large_body_is_read_with_rests(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read pauses after each half MiB to leave CPU time to others; the body arrives whole."""
    rested: list[str] = []

    async def rest(_: ModelPriority, principal: str) -> None:
        rested.append(principal)

    monkeypatch.setattr(ModelPriority, "rest", rest)
    headers = {"content-type": "application/octet-stream"}
    async with console(world) as client:
        for size, least, most in ((2**10, 0, 0), (3 * 2**20, 3, 6)):
            url, body = f"{world.console}/bridge/bodies/{secrets.token_urlsafe(24)}", secrets.token_bytes(size)
            async with client.put(url, data=io.BytesIO(body), headers=headers) as answer:
                assert answer.status == 204
            assert least <= len(rested) <= most
            async with client.get(url) as kept:
                assert await kept.read() == body
    assert set(rested) == {LOCAL.id}


async def test_a_reload_does_not_wash_the_model_off(world: World) -> None:
    """A view that replaces one in which a model acted has the same taint."""
    async with console(world) as client, connected(world, client) as host:
        view = (await host.open()).view
        reported = await host.call(view, url="/api/products", _initiator="model")
        assert reported["status"] == 200
        await host.say(mux.Close(view, "reload"))
        again = (await host.open()).view
        answer = await host.call(again, url="/api/cart/tea", method="DELETE")
    assert answer["status"] == 202
    assert [line for line in world.arrived() if line["method"] == "DELETE"] == []


async def test_a_question_dies_with_its_connection(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No caller is left to receive the answer."""
    monkeypatch.setattr(approvals, "SILENCE", 3600.0)  # no silent caller counts as gone
    async with console(world) as client:
        async with connected(world, client) as host:
            view = (await host.open()).view
            answer = await host.call(view, url="/api/cart/tea", method="DELETE", _initiator="model")
            assert answer["status"] == 202
        url = f"{world.console}/api/approvals/{answer['headers']['gateway-pending']}"
        async with asyncio.timeout(60):
            while await questions(world, client) != "[]":
                await asyncio.sleep(0.01)
        async with client.post(url, json={"answer": "approve"}) as said:
            assert said.status == 410
    assert [line for line in world.arrived() if line["method"] == "DELETE"] == []


async def test_a_lost_view_is_taken_up_once_with_its_token(world: World) -> None:
    """The token changes at each use; an old token, or another view's token, is refused."""
    async with console(world) as client:
        async with connected(world, client) as host:
            opened = await host.open()
        async with connected(world, client) as host:
            await host.say(mux.Resume(opened.view, "made-up"))
            frame = await host.hear()
            assert isinstance(frame, mux.ErrorFrame)
            await host.say(mux.Resume(opened.view, opened.resume))
            resumed = await host.hear()
            assert isinstance(resumed, mux.Resume)
            assert resumed.token != opened.resume
            assert (await host.call(opened.view, url="/api/products"))["status"] == 200


async def test_gestures_make_it_the_persons(world: World) -> None:
    """The console attests gestures."""
    async with console(world) as client, connected(world, client) as host:
        view = (await host.open()).view
        await host.say(mux.Gesture(view, 10))
        assert (await host.call(view, url="/api/cart/no-such-item", method="DELETE"))["status"] == 404
    (fields,) = [
        line["fields"]
        for line in world.records()
        if line["fields"].get("method") == "DELETE" and line["phase"] == "outcome"
    ]
    assert (fields["initiator"], fields["evidence"]) == ("person", "attested-gesture")


@pytest.mark.bound("large bodies of the bridge, sent beside its frames", "bridge tickets")
async def test_nobody_takes_the_room_of_others() -> None:
    """However many tickets and bodies one principal has, they evict none of another's."""
    tickets, bodies = Tickets(MemoryOneTimeValues()), Bodies()
    kept = await tickets.issue("o", LOCAL_OTHER, frozenset(), attest=False)
    for _ in range(2000):
        last = await tickets.issue("o", LOCAL, frozenset(), attest=False)
    assert await tickets.redeem(last, "o") is not None
    assert await tickets.redeem(kept, "o") is not None
    assert not all(bodies.put(f"{number:032}", LOCAL.id, "{}") for number in range(2000))
    assert bodies.put("a" * 32, LOCAL_OTHER.id, "{}")


@pytest.mark.bound("bytes of request bodies in memory")
def test_all_together_have_so_much_room() -> None:
    """The total is bounded for any number of principals and any size; a body that was taken frees its space."""
    bodies = Bodies(room=640, each=320)
    assert bodies.put("a" * 32, "ada", b"x" * 320)
    assert not bodies.put("b" * 32, "ada", b"x")
    assert not bodies.put("c" * 32, "bob", b"x" * 11)  # of the second half each principal gets little
    assert all(bodies.put(f"{number:032}", f"other {number}", b"x" * 10) for number in range(32))
    assert not bodies.put("d" * 32, "bob", b"x")
    bodies.take("a" * 32, "ada")
    assert not bodies.put("d" * 32, "bob", b"x")  # the call that took the body still holds it
    bodies.release("a" * 32)
    assert bodies.put("d" * 32, "bob", b"x" * 10)


async def test_a_body_without_room_is_refused_with_words(tmp_path: Path) -> None:
    """The refusal names the setting and when to retry."""
    headers = {"content-type": "application/octet-stream"}
    async with running(tmp_path, extra="mcp: {bodies: 64MiB}") as world, console(world) as client:
        for letter, status in (("a", 204), ("b", 503)):
            url, body = f"{world.console}/bridge/bodies/{letter * 22}", io.BytesIO(bytes(40 * 1024 * 1024))
            async with client.put(url, data=body, headers=headers) as answer:
                assert answer.status == status
                said = await answer.text()
        assert "`mcp.bodies`" in said
        assert answer.headers["retry-after"] == "1"


def test_a_body_that_nobody_takes_is_forgotten() -> None:
    """Otherwise a page that fetches none of its bodies would fill the space of all."""
    now = 0.0
    bodies = Bodies(lambda: now)
    assert bodies.put("a" * 32, LOCAL.id, "{}")
    now = LIFE + 1
    assert bodies.take("a" * 32, LOCAL.id) is None
    assert bodies.put("a" * 32, LOCAL.id, "{}")
