"""WebSockets on an app's own site: the opening under the policy, messages, and every way in which they end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType

from tests.exchange.socket_backend import SocketWorld, frame, socket_world


@pytest.fixture(scope="module")
async def sockets(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SocketWorld]:
    """The gateway with its backend of sockets."""
    async with socket_world(tmp_path_factory.mktemp("world"), timeout="2s") as found:
        yield found


async def connected(client: aiohttp.ClientSession, sockets: SocketWorld, path: str, **options: Any) -> Any:
    """A WebSocket of a page of the site."""
    options.setdefault("headers", {"origin": sockets.world.site})
    return await client.ws_connect(f"{sockets.world.site}{path}", autoclose=False, **options)


async def refused(sockets: SocketWorld, path: str, **options: Any) -> int:
    """The status with which the opening is refused."""
    async with sockets.world.client() as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as error:
            await connected(client, sockets, path, **options)
    return error.value.status


async def closing(wire: Any) -> tuple[WSMsgType, Any, Any]:
    """The next message that is none, with its code and reason."""
    async with asyncio.timeout(60):
        while True:
            message = await wire.receive()
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return message.type, message.data, message.extra


async def test_messages_are_carried(sockets: SocketWorld) -> None:
    """Texts and bytes, empty ones and those of the largest size; the record counts them."""
    said: list[str | bytes] = ["hello", "", b"\x00\xff", "é😀", "x" * 65536]
    async with sockets.world.client() as client, await connected(client, sockets, "/echo?a=1") as wire:
        heard: list[str | bytes] = []
        for message in said:
            await (wire.send_str(message) if isinstance(message, str) else wire.send_bytes(message))
            heard.append((await wire.receive(60)).data)
        await wire.close(code=4001, message=b"bye")
    assert heard == said
    (outcome,) = await sockets.until("/echo?a=1")
    assert outcome["status"] == 101
    assert outcome["websocket"] == {
        "protocol": "",
        "code": 4001,
        "sent": 5,
        "sent_bytes": 65536 + 9,
        "received": 5,
        "received_bytes": 65536 + 9,
    }
    assert sockets.backend.closed[-1] == 4001


async def test_the_opening_is_sent_as_on_the_backends_own_site(sockets: SocketWorld) -> None:
    """Its origin and its cookies are those of the backend's site; nothing of the gateway's is sent."""
    async with sockets.world.client() as client:
        async with client.get(f"{sockets.world.site}/login", headers={"webmcp-gateway-client": "1"}) as answer:
            assert answer.status == 200
        wire = await connected(client, sockets, "/echo", headers={"origin": sockets.world.site, "cookie": "own=1"})
        await wire.send_str("who")
        assert (await wire.receive(60)).data == "None session=***"  # the jar's cookie is hidden from the page
        await wire.close()
    opened = sockets.backend.opened[-1]
    assert opened["origin"] == f"http://127.0.0.1:{sockets.port}"
    assert opened["cookie"] == 'session="of the backend"'
    assert "permessage" not in opened.get("sec-websocket-extensions", "")


async def test_subprotocols(sockets: SocketWorld) -> None:
    """The backend's choice reaches the page; what the policy does not list is refused."""
    async with sockets.world.client() as client:
        async with await connected(client, sockets, "/graph", protocols=("graphql-transport-ws",)) as wire:
            assert wire.protocol == "graphql-transport-ws"
        async with await connected(client, sockets, "/other", protocols=("x", "chat")) as wire:
            assert wire.protocol == "chat"
    assert await refused(sockets, "/graph") == 403
    assert await refused(sockets, "/graph", protocols=("chat", "soap")) == 403
    assert await refused(sockets, "/other", protocols=("x",)) == 502  # the backend chose none, as browsers refuse


async def test_refused_openings(sockets: SocketWorld) -> None:
    """By the policy, and by the backend."""
    assert await refused(sockets, "/plain") == 403
    assert await refused(sockets, "/refuse") == 403
    assert await refused(sockets, "/raw/silent") == 504
    sockets.backend.answers["/elsewhere"] = b"HTTP/1.1 302 Found\r\nLocation: /echo\r\nContent-Length: 0\r\n\r\n"
    assert await refused(sockets, "/raw/elsewhere") == 502
    sockets.backend.answers["/other"] = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
    )
    assert await refused(sockets, "/raw/other") == 502
    sockets.backend.answers["/page"] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    assert await refused(sockets, "/raw/page") == 502


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://gateway.localhost"},
        {"origin": "", "sec-fetch-site": "cross-site", "sec-fetch-mode": "websocket"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "websocket"},
        {},
    ],
)
async def test_other_sites_cannot_open_one(sockets: SocketWorld, headers: dict[str, str]) -> None:
    """Browsers let every page open a WebSocket to every site, with its cookies."""
    before = len(sockets.backend.opened)
    assert await refused(sockets, "/echo", headers=headers) == 403
    assert len(sockets.backend.opened) == before


async def test_the_exchanges_name_is_no_method_of_a_client(sockets: SocketWorld) -> None:
    """Nor do other openings than those of RFC 6455, 4.1, reach the backend."""
    before = len(sockets.backend.opened)
    own = {"origin": sockets.world.site}
    upgrade = {"connection": "upgrade", "upgrade": "websocket"}
    asked: list[tuple[str, dict[str, str]]] = [
        ("WEBSOCKET", own),
        ("websocket", {**own, **upgrade}),
        ("GET", {**own, **upgrade, "sec-websocket-version": "13", "sec-websocket-key": "short"}),
        ("GET", {**own, **upgrade, "sec-websocket-version": "12", "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}),
    ]
    async with sockets.world.client() as client:
        for method, headers in asked:
            async with client.request(method, f"{sockets.world.site}/echo", headers=headers) as answer:
                assert answer.status in (400, 405, 426), (method, headers, answer.status)
    assert len(sockets.backend.opened) == before


CODES = [1000, 1001, 1008, 1011, 1012, 3000, 4999]


@pytest.mark.parametrize("code", CODES)
async def test_the_backends_close_code_reaches_the_page(sockets: SocketWorld, code: int) -> None:
    """With its reason."""
    async with sockets.world.client() as client:
        wire = await connected(client, sockets, f"/closes/{code}")
        await wire.send_str(f"close {code} because é")
        assert await closing(wire) == (WSMsgType.CLOSE, code, "because é")
        await wire.close(code=code)
    (outcome,) = await sockets.until(f"/closes/{code}")
    assert (outcome["status"], outcome["websocket"]["code"]) == (101, code)


HOSTILE = {
    "utf8": frame(1, b"\xff\xfe"),
    "reserved": frame(1, b"x", first=0xC1),
    "opcode": frame(3, b"x"),
    "long-control": frame(9, b"x" * 126),
    "fragmented-control": frame(9, b"x", first=0x09),
    "continuation": frame(0, b"x"),
    "bad-close": frame(8, b"\x03"),
    "bad-code": frame(8, (999).to_bytes(2)),
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_backend_that_breaks_the_protocol(sockets: SocketWorld, kind: str) -> None:
    """The page's connection ends without a close frame, as natively (RFC 6455, 7.1.7)."""
    sockets.backend.answers[f"/{kind}"] = frame(1, b"before") + HOSTILE[kind]
    async with sockets.world.client() as client:
        wire = await connected(client, sockets, f"/raw/{kind}")
        assert (await wire.receive(60)).data == "before"
        assert (await closing(wire))[0] in (WSMsgType.CLOSED, WSMsgType.ERROR)
        await wire.close()
    (outcome,) = await sockets.until(f"/raw/{kind}")
    assert outcome["websocket"]["code"] == 1006


async def test_fragments_are_joined_and_pings_answered(sockets: SocketWorld) -> None:
    """Control frames may come between fragments."""
    parts = frame(1, b"a", first=0x01) + frame(9, b"ping") + frame(0, b"b", first=0x00) + frame(0, b"c")
    sockets.backend.answers["/parts"] = parts
    async with sockets.world.client() as client, await connected(client, sockets, "/raw/parts") as wire:
        assert (await wire.receive(60)).data == "abc"


async def test_a_connection_that_breaks_off(sockets: SocketWorld) -> None:
    """At either end."""
    async with sockets.world.client() as client:
        wire = await connected(client, sockets, "/breaks")
        await wire.send_str("leave")
        assert (await closing(wire))[0] in (WSMsgType.CLOSED, WSMsgType.ERROR)
        await wire.close()
        wire = await connected(client, sockets, "/breaks")
        assert wire._response.connection is not None
        assert wire._response.connection.transport is not None
        wire._response.connection.transport.abort()
        found = await sockets.until("/breaks", 2)
        await wire.close()
    assert [outcome["websocket"]["code"] for outcome in found] == [1006, 1001]


@pytest.mark.bound("messages of WebSockets")
async def test_messages_that_are_too_large(sockets: SocketWorld) -> None:
    """In either direction: 1009, and none is passed on."""
    async with sockets.world.client() as client:
        wire = await connected(client, sockets, "/echo")
        await wire.send_str("x" * 65537)
        assert (await closing(wire))[1] == 1009
        await wire.close()
        wire = await connected(client, sockets, "/echo")
        await wire.send_str("large 65537")
        assert (await closing(wire))[1] == 1009
        await wire.close()
    assert "x" * 65537 not in sockets.backend.heard


async def test_what_ends_an_open_one(tmp_path: Path) -> None:
    """A policy that carries it no more: 1008, for this route alone. A gateway that stops: 1001."""
    async with socket_world(tmp_path) as sockets, sockets.world.client() as client:
        closed, kept = await connected(client, sockets, "/echo"), await connected(client, sockets, "/other")
        file = tmp_path / "policy.yaml"
        text = file.read_text("utf-8")
        file.write_text(text.replace("websocket: {message: 64KiB}", "stream: true"), "utf-8")
        assert await closing(closed) == (WSMsgType.CLOSE, 1008, "policy-denied")
        await kept.send_str("still here")
        assert (await kept.receive(60)).data == "still here"
        stopping = asyncio.create_task(sockets.world.gateway.stop())
        assert await closing(kept) == (WSMsgType.CLOSE, 1001, "the gateway stops")
        for wire in (closed, kept):
            await wire.close()
        await stopping
        (ended,) = sockets.outcomes("/echo")
    assert (ended["status"], ended["reason"]) == (403, "policy-denied")
