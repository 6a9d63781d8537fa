"""Open WebSockets in the exchange: rules for their messages, how views read and send them, and what ends them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.errors import Reason, Refusal
from gateway.exchange import sockets as rules
from gateway.exchange.sockets import CloseRequest, OpenSocket, read_messages
from gateway.model import WEBSOCKET, Caller, Outbound, Principal, Request, Response, SocketEnd, Upgraded
from gateway.policy import parse_policy
from tests.exchange.house import MODEL, PAGE, House, Shop, building, reason

POLICY = """
version: 1
backends: {shop: {url: "http://shop.test", credential: shop-service}}
routes:
  - {path: /chat, methods: [GET], websocket: {message: 10B}}
  - {path: /trusting, methods: [GET], websocket: {model: allow}}
  - {path: /paced, methods: [GET], websocket: {rate: 1/minute per principal}}
  - {path: /guarded, methods: [GET], websocket: true, confirm: always}
"""


@dataclass
class Line:
    """The backend's end of a WebSocket: the test puts messages into `to_page`; `heard` are those of the page."""

    protocol: str = ""
    to_page: asyncio.Queue[str | bytes | SocketEnd] = field(default_factory=asyncio.Queue)
    heard: list[str | bytes | CloseRequest] = field(default_factory=list)

    async def receive(self) -> str | bytes | SocketEnd:
        """Return what the test has put."""
        return await self.to_page.get()

    async def send(self, message: str | bytes) -> None:
        """Keep it."""
        self.heard.append(message)

    async def close(self, code: int | None, reason: str) -> None:
        """Answer with the same code."""
        self.heard.append(CloseRequest(code, reason))
        self.to_page.put_nowait(SocketEnd(code or 1005, reason))

    def abort(self) -> None:
        """End the connection."""
        self.to_page.put_nowait(SocketEnd(1006, clean=False))


@dataclass
class SocketShop(Shop):
    """A shop that opens WebSockets."""

    lines: list[Line] = field(default_factory=list)
    open: int = 0

    @asynccontextmanager
    async def upgrade(self, request: Outbound, protocols: Sequence[str], message: int) -> AsyncIterator[Upgraded]:
        """Open one, until the context ends."""
        self.sent.append(request)
        self.lines.append(Line(protocols[0] if protocols else ""))
        self.open += 1
        try:
            yield Upgraded(Response(101), self.lines[-1])
        finally:
            self.open -= 1


@asynccontextmanager
async def sockets(folder: Path, **options: Any) -> AsyncIterator[tuple[House, SocketShop]]:
    """The exchange, with a shop of WebSockets."""
    shop = SocketShop()
    async with building(folder, POLICY, shop=shop, **options) as house:
        yield house, shop


async def opened(house: House, url: str = "/chat", caller: Caller = PAGE) -> OpenSocket:
    """A WebSocket that its caller reads and closes itself."""
    socket = await house.exchange.open(Request(WEBSOCKET, url, protocols=("a",)), caller)
    assert isinstance(socket, OpenSocket), socket
    return socket


async def events(house: House, id: str, caller: Caller = PAGE) -> list[dict[str, Any]]:
    """The next events of a view's WebSocket."""
    part = await house.exchange.resume(id, caller, wait=60)
    return [json.loads(line) for line in part.body.splitlines()]


async def test_a_view_reads_and_sends(tmp_path: Path) -> None:
    """As lines of a stream; its messages have numbers, and none is sent twice."""
    async with sockets(tmp_path) as (house, shop):
        head = await house.exchange.run(Request(WEBSOCKET, "/chat", protocols=("chat",)), PAGE)
        assert head.part is not None
        id = head.part.stream
        assert await events(house, id) == [{"open": "chat", "id": id}]
        (line,) = shop.lines
        await house.exchange.send(id, PAGE, 0, ["one", b"two"])
        await house.exchange.send(id, PAGE, 1, [b"two", "three"])
        with pytest.raises(Refusal, match="message 3 is missing"):
            await house.exchange.send(id, PAGE, 4, ["five"])
        assert line.heard == ["one", b"two", "three"]
        line.to_page.put_nowait("é")
        assert await events(house, id) == [{"text": "é"}]
        line.to_page.put_nowait(b"\x00")
        assert await events(house, id) == [{"bytes": "AA=="}]
        await house.exchange.send(id, PAGE, 3, [CloseRequest(4000, "bye")])
        assert await events(house, id) == [{"close": [4000, "bye", True]}]
        with pytest.raises(Refusal) as gone:
            await house.exchange.send(id, PAGE, 4, ["late"])
        assert gone.value.reason is Reason.CONNECTION_LOST
        fields = house.outcome()
    assert (fields["method"], fields["status"], fields["protocols"]) == ("WEBSOCKET", 101, ["chat"])
    assert (fields["websocket"]["code"], fields["websocket"]["sent"], fields["websocket"]["received"]) == (4000, 3, 2)
    assert [line["phase"] for line in house.lines()] == ["intent", "outcome"]
    assert shop.sent[0].headers[-1] == ("authorization", "Bearer token-number-1")


async def test_another_caller_cannot_send_or_read(tmp_path: Path) -> None:
    """Even with the id."""
    async with sockets(tmp_path) as (house, shop):
        head = await house.exchange.run(Request(WEBSOCKET, "/chat"), PAGE)
        assert head.part is not None
        other = structs.replace(PAGE, view="v2")
        with pytest.raises(Refusal):
            await house.exchange.send(head.part.stream, other, 0, ["x"])
        assert reason(await house.exchange.resume(head.part.stream, other, wait=0)) == "connection-lost"
        assert shop.lines[0].heard == []


async def test_messages_of_a_model_are_refused(tmp_path: Path) -> None:
    """The WebSocket is closed with 1008, unless its route allows them."""
    async with sockets(tmp_path) as (house, shop):
        denied, allowed = await opened(house), await opened(house, "/trusting")
        await denied.send("x", MODEL)
        await allowed.send("x", MODEL)
        assert await denied.receive() == SocketEnd(1008, "policy-denied")
        assert [line.heard for line in shop.lines] == [[], ["x"]]
        assert house.outcome()["reason"] == "policy-denied"
        await allowed.aclose()


@pytest.mark.bound("messages of WebSockets")
async def test_a_message_that_is_too_large(tmp_path: Path) -> None:
    """It is counted in bytes, and not sent."""
    async with sockets(tmp_path) as (house, shop):
        socket = await opened(house)
        await socket.send("é" * 5, PAGE)
        await socket.send("é" * 6, PAGE)
        assert (await socket.receive()) == SocketEnd(1009, "a message is larger than `websocket.message` allows")
        assert shop.lines[0].heard == ["é" * 5]


async def test_further_messages_wait_for_their_rate(tmp_path: Path) -> None:
    """They are not refused."""
    async with sockets(tmp_path) as (house, shop):
        socket = await opened(house, "/paced")
        await socket.send("one", PAGE)
        waiting = asyncio.create_task(socket.send("two", PAGE))
        await asyncio.sleep(0.01)
        assert shop.lines[0].heard == ["one"]
        waiting.cancel()
        await socket.aclose()


@pytest.mark.bound("idle WebSockets")
async def test_an_idle_websocket_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1001."""
    monkeypatch.setattr(rules, "IDLE", 0.05)
    async with sockets(tmp_path) as (house, _):
        socket = await opened(house)
        assert await socket.receive() == SocketEnd(1001, "idle")


@pytest.mark.bound("messages of a WebSocket in one call")
async def test_too_many_messages_in_one_call(tmp_path: Path) -> None:
    """None of them is sent."""
    async with sockets(tmp_path) as (house, shop):
        socket = await opened(house)
        with pytest.raises(Refusal, match="at most 256"):
            await socket.send_numbered(0, ["x"] * 257, PAGE)
        assert shop.lines[0].heard == []
        await socket.aclose()


async def test_an_approval_comes_first(tmp_path: Path) -> None:
    """Nothing is opened before a person agrees; then the view polls its WebSocket."""
    async with sockets(tmp_path) as (house, shop):
        pending = await house.exchange.run(Request(WEBSOCKET, "/guarded"), PAGE)
        id = pending.header("gateway-pending") or ""
        assert (pending.status, shop.lines) == (202, [])
        (question,) = [one.question for one in house.approvals.open()]
        assert question.method == "WEBSOCKET"
        await house.approvals.answer(question.id, True, "a person")
        head = await house.exchange.resume(id, PAGE, wait=60)
        assert head.part is not None
        assert (await events(house, head.part.stream))[0]["open"] == ""
        await house.exchange.resume(head.part.stream, PAGE, wait=0, cancel=True)
        assert shop.open == 0


async def test_a_policy_that_closes_the_route_ends_it(tmp_path: Path) -> None:
    """Others go on, with the rules of now."""
    async with sockets(tmp_path) as (house, _):
        ended, kept = await opened(house), await opened(house, "/trusting")
        app = house.exchange._apps["cart"]
        text = POLICY.replace(
            "{path: /chat, methods: [GET], websocket: {message: 10B}}", "{path: /chat, methods: [GET]}"
        )
        policy = parse_policy(text.replace("{model: allow}", "{model: deny}"), "policy.yaml")
        house.exchange._apps["cart"] = type(app)(policy, app.backends)  # type: ignore[index]  # a dict here
        house.exchange.recheck_sockets()
        assert await ended.receive() == SocketEnd(1008, "policy-denied")
        await kept.send("x", MODEL)
        assert await kept.receive() == SocketEnd(1008, "policy-denied")


async def test_a_credential_that_ends_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So does an access to the app that ends."""
    ends: list[Any] = []

    @contextmanager
    def hold(_: Principal, end: Callable[[], None], app: str) -> Iterator[None]:
        ends.append((app, end))
        yield

    async with sockets(tmp_path) as (house, shop):
        monkeypatch.setattr(house.exchange._sockets, "_hold", hold)
        socket = await opened(house)
        receiving = asyncio.create_task(socket.receive())
        await asyncio.sleep(0)
        ((app, end),) = ends
        end()
        assert (app, await receiving) == ("cart", SocketEnd(1008, "access has ended"))
        assert shop.open == 0


async def test_a_view_that_closes_ends_its_websocket(tmp_path: Path) -> None:
    """With the connection to the backend."""
    async with sockets(tmp_path) as (house, shop):
        await house.exchange.run(Request(WEBSOCKET, "/chat"), PAGE)
        house.streams.cancel_view("v1")
        async with asyncio.timeout(60):
            while shop.open:
                await asyncio.sleep(0)
        assert house.outcome()["websocket"]["code"] == 1001


async def test_the_backend_waits_for_a_view_that_does_not_read(tmp_path: Path) -> None:
    """One part is read ahead, and no more (backpressure)."""
    async with sockets(tmp_path) as (house, shop):
        head = await house.exchange.run(Request(WEBSOCKET, "/chat"), PAGE)
        assert head.part is not None
        await events(house, head.part.stream)
        line = shop.lines[0]
        for _ in range(40):
            line.to_page.put_nowait("x" * 100_000)
        async with asyncio.timeout(60):
            while (left := line.to_page.qsize()) == 40 or left != await _settled(line):
                await asyncio.sleep(0)
        assert line.to_page.qsize() >= 27


async def _settled(line: Line) -> int:
    await asyncio.sleep(0.02)
    return line.to_page.qsize()


@pytest.mark.parametrize(
    "given",
    [
        None,
        [{}],
        ["x"],
        [{"text": 1}],
        [{"bytes": "é"}],
        [{"bytes": "A"}],
        [{"text": "a", "bytes": "AA=="}],
        [{"close": {"code": 1001}}],
        [{"close": {"code": True}}],
        [{"close": {"code": 5000}}],
        [{"close": {"code": 1000, "reason": "é" * 62}}],
    ],
)
def test_messages_that_no_page_sends(given: object) -> None:
    """They are refused with the reason."""
    with pytest.raises(Refusal, match="messages:"):
        read_messages(given)


def test_messages_of_a_page() -> None:
    """Half a surrogate pair becomes a replacement character, as in browsers."""
    given = [{"text": "\ud83d"}, {"bytes": "AA=="}, {"close": {}}, {"close": {"code": 3000, "reason": "r"}}]
    assert read_messages(given) == ["\ufffd", b"\0", CloseRequest(), CloseRequest(3000, "r")]
