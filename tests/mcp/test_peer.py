"""The gateway's end of a view's ui channel."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace

from gateway.errors import Reason, Refusal
from gateway.mcp import UiPeer
from gateway.mcp.view_server import GatewayAnswers
from gateway.model import LOCAL, Caller, Door, Initiator
from tests.mcp.fakes import ADD
from tests.mcp.mounts import Mount, Served

VIEW = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PERSON, "gesture", "view-1", proven=True)


class Wire:
    """The view's end: it sends messages, and receives answers by id."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.received: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.gone = False
        self.writing: dict[Any, asyncio.Event] = {}
        self.ready = asyncio.Event()
        self.ready.set()
        self.peer = UiPeer(GatewayAnswers(served.face.catalog), self.caller, self.receive)

    def caller(self, reported_model: bool) -> Caller:
        if self.gone:
            raise Refusal(Reason.CONNECTION_LOST, "The view is closed.")
        return replace(VIEW, initiator=Initiator.MODEL) if reported_model else VIEW

    async def receive(
        self, message: dict[str, Any], *, own: bool = False, leaving: Callable[[], object] = lambda: None
    ) -> None:
        """Accept a message like a bridge whose writes take until `ready` is set."""
        self.writing.setdefault(message.get("id"), asyncio.Event()).set()
        await self.ready.wait()
        leaving()
        await self.received.put(message)

    async def ask(self, method: str, params: Any = None, id: Any = 1) -> dict[str, Any]:
        """Send a request and wait for the next message."""
        request = {"jsonrpc": "2.0", "id": id, "method": method}
        await self.peer.receive(request if params is None else {**request, "params": params})
        async with asyncio.timeout(60):
            return await self.received.get()

    async def call(self, name: str, arguments: Any, id: Any = 1) -> dict[str, Any]:
        """Call a tool."""
        return await self.ask("tools/call", {"name": name, "arguments": arguments}, id)


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    """Return a view of the cart."""
    async with Mount(app="cart").face() as served:
        wire = Wire(served)
        async with wire.peer:
            yield wire


async def test_a_request_runs_as_the_view_that_the_connection_proves(wire: Wire) -> None:
    """The WebSocket is the proof: a `_view` in the arguments changes nothing, and no call waits in itself."""
    answer = await wire.call("http_request", {"url": "/api/cart", "_view": "nonsense"}, "x-1")
    assert answer["id"] == "x-1"
    body = answer["result"]["structuredContent"]["body"]
    assert (body["initiator"], body["door"], body["wait"], body["nothing"]) == ("person", "bridge", 0.0, None)


async def test_the_runtime_may_only_raise_the_initiator(wire: Wire) -> None:
    """`_initiator: model` makes a person's request the model's; no other value lowers it."""
    raised = await wire.call("http_request", {"url": "/a", "_initiator": "model"})
    other = await wire.call("http_request", {"url": "/a", "_initiator": "person"})
    assert raised["result"]["structuredContent"]["body"]["initiator"] == "model"
    assert other["result"]["structuredContent"]["body"]["initiator"] == "person"


@pytest.mark.parametrize("name", ["open_cart", "list_view_tools", "call_view_tool", ADD.name, "shop_x", "open_todo"])
async def test_tools_that_are_not_for_apps_are_refused_to_a_view(wire: Wire, name: str) -> None:
    """A page can neither act as the model, nor launch itself again to lose its taint."""
    wire.served.views.offer(LOCAL, ADD)
    assert (await wire.call(name, {}))["error"]["code"] == -32602


async def test_a_view_on_a_socket_does_not_attach(wire: Wire) -> None:
    """A second proof for the same page would be a second view without its taint."""
    assert (await wire.call("webmcp_attach", {"launch": "launch-value"}))["result"]["isError"]


async def test_a_large_answer_is_not_sent_twice(wire: Wire) -> None:
    """Over 64 KiB the text contains only the size: on the bridge structured content arrives."""
    result = (await wire.call("http_request", {"url": "/big"}))["result"]
    assert len(result["structuredContent"]["body"]) == 100_000
    assert len(result["content"][0]["text"]) < 200


async def test_http_stream_asks_again_and_gives_up(wire: Wire) -> None:
    """The pending answer is repeated, and `cancel` reaches the exchange; a missing id is a 400."""
    again = await wire.call("http_stream", {"id": "q"})
    await wire.call("http_stream", {"id": "q", "cancel": True})
    missing = await wire.call("http_stream", {})
    assert again["result"]["structuredContent"]["status"] == 202
    assert wire.served.exchange.cancels == ["q"]
    assert missing["result"]["structuredContent"]["status"] == 400


async def test_resources_prompts_and_ping_are_answered(wire: Wire) -> None:
    """The rest of what the channel carries."""
    resources = (await wire.ask("resources/list"))["result"]["resources"]
    assert [resource["uri"] for resource in resources] == ["ui://cart/app.html"]
    contents = (await wire.ask("resources/read", {"uri": "ui://cart/app.html"}))["result"]["contents"]
    assert contents[0]["text"] == "<p>cart</p>"
    assert (await wire.ask("resources/read", {"uri": "ui://todo/app.html"}))["error"]["code"] == -32602
    assert (await wire.ask("resources/templates/list"))["result"] == {"resourceTemplates": []}
    assert (await wire.ask("prompts/list"))["result"] == {"prompts": []}
    assert (await wire.ask("prompts/get", {"name": "x"}))["error"]["code"] == -32602
    assert (await wire.ask("ping"))["result"] == {}
    assert (await wire.ask("logging/setLevel"))["error"]["code"] == -32601


async def test_what_a_version_does_not_have_is_no_method_of_it(wire: Wire) -> None:
    """Modern clients have no `ping`, those of the handshake no `server/discover`; both learn the supported versions."""
    modern = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    assert (await wire.ask("ping", modern))["error"]["code"] == -32601
    assert (await wire.ask("server/discover"))["error"]["code"] == -32601
    assert "2025-11-25" in (await wire.ask("server/discover", modern))["result"]["supportedVersions"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_view_is_told_what_clients_of_its_mount_are_told(mode: str) -> None:
    """Resources, templates, prompts and completions: the same lists, the same refusals."""
    ref: dict[str, Any] = {"type": "ref/prompt", "name": "x"}
    async with Mount(app="cart").serve() as served:
        wire = Wire(served)
        async with wire.peer, Client(served.url, mode=mode) as client:
            lists = {
                "resources/list": client.list_resources,
                "resources/templates/list": client.list_resource_templates,
                "prompts/list": client.list_prompts,
            }
            for method, listed in lists.items():
                told = (await listed()).model_dump(mode="json", by_alias=True, exclude_none=True)
                said = (await wire.ask(method))["result"]
                assert {key: told[key] for key in said} == said
            refused = {
                "prompts/get": ({"name": "x"}, client.get_prompt("x")),
                "completion/complete": (
                    {"ref": ref, "argument": {"name": "a", "value": "b"}},
                    client.complete(types.PromptReference(name="x"), {"name": "a", "value": "b"}),
                ),
            }
            for method, (params, asking) in refused.items():
                with pytest.raises(MCPError) as error:
                    await asking
                said = (await wire.ask(method, params))["error"]
                assert (error.value.error.code, error.value.error.message) == (said["code"], said["message"])


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_no_list_has_a_further_page(mode: str) -> None:
    """An unknown cursor is refused, as the protocol requires, for views as for clients."""
    async with Mount(app="cart").serve() as served:
        wire = Wire(served)
        async with wire.peer, Client(served.url, mode=mode) as client:
            lists: dict[str, Callable[..., Any]] = {
                "tools/list": client.list_tools,
                "resources/list": client.list_resources,
                "resources/templates/list": client.list_resource_templates,
                "prompts/list": client.list_prompts,
            }
            for method, listed in lists.items():
                with pytest.raises(MCPError, match="this list has one page") as error:
                    await listed(cursor="2")
                said = (await wire.ask(method, {"cursor": "2"}))["error"]
                assert (-32602, error.value.error.message) == (said["code"], said["message"])
                assert error.value.error.code == -32602


async def test_a_cancelled_call_ends_and_is_not_answered(wire: Wire) -> None:
    """`notifications/cancelled` reaches the exchange; one for another id has no effect."""
    await wire.peer.receive(_slow(7))
    await wire.served.exchange.started.wait()
    for id in ("7", 8, None, [7]):
        await wire.peer.receive(_cancellation(id))
    assert not wire.served.exchange.cancelled.is_set()
    await wire.peer.receive(_cancellation(7))
    async with asyncio.timeout(60):
        await wire.served.exchange.cancelled.wait()
    assert (await wire.ask("ping"))["result"] == {}
    assert wire.received.empty()


def _slow(id: int) -> dict[str, Any]:
    call = {"name": "http_request", "arguments": {"url": "/slow"}}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call}


def _cancellation(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


async def test_calls_run_side_by_side_and_end_with_the_peer() -> None:
    """A slow call delays no other, and closing the channel cancels it."""
    async with Mount(app="cart").face() as served:
        wire = Wire(served)
        async with wire.peer:
            await wire.peer.receive(_slow(7))
            await served.exchange.started.wait()
            assert (await wire.call("http_request", {"url": "/fast"}, 8))["id"] == 8
        assert served.exchange.cancelled.is_set()
        assert wire.received.empty()


async def test_an_answer_that_is_written_when_its_call_is_cancelled_is_not_sent(wire: Wire) -> None:
    """Another call may have its id by then, and only that is answered."""
    wire.ready.clear()
    written = wire.writing.setdefault(5, asyncio.Event())
    await wire.peer.receive({"jsonrpc": "2.0", "id": 5, "method": "resources/list"})
    async with asyncio.timeout(60):
        await written.wait()
    await wire.peer.receive(_cancellation(5))
    await wire.peer.receive({"jsonrpc": "2.0", "id": 5, "method": "prompts/list"})
    wire.ready.set()
    async with asyncio.timeout(60):
        assert await wire.received.get() == {"jsonrpc": "2.0", "id": 5, "result": {"prompts": []}}
    assert (await wire.ask("ping", id=6))["id"] == 6


@pytest.mark.bound("concurrent calls of a view over the bridge")
async def test_one_call_too_many_is_busy(wire: Wire) -> None:
    """The sixty-fifth call in flight is refused; the same id twice is too."""
    for id in range(64):
        await wire.peer.receive(_slow(id))
    assert (await wire.ask("ping", id=3))["error"]["code"] == -32600
    assert (await wire.ask("ping", id=64))["error"] == {"code": -32000, "message": "busy"}
    wire.peer.cancel_all()
    async with asyncio.timeout(60):
        while "error" in (answer := await wire.ask("ping", id=64)):
            await asyncio.sleep(0)
    assert answer["result"] == {}


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": True, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "ping"},
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": [1], "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": 5},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 5}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "http_request", "arguments": []}},
        {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "ui/initialize"},
    ],
)
async def test_bad_messages_are_answered_and_the_peer_lives_on(wire: Wire, message: dict[str, Any]) -> None:
    """Each gets an error; the next request is answered as usual."""
    await wire.peer.receive(message)
    assert "error" in await wire.received.get()
    assert (await wire.ask("ping"))["result"] == {}


async def test_answers_and_unknown_notifications_are_passed_over(wire: Wire) -> None:
    """The gateway sends no requests here, so no answer can match one."""
    await wire.peer.receive({"jsonrpc": "2.0", "id": 1, "result": {}})
    await wire.peer.receive({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}})
    await wire.peer.receive({"jsonrpc": "2.0", "method": "notifications/initialized"})
    await wire.peer.receive({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": 5})
    assert (await wire.ask("ping"))["result"] == {}
    assert wire.received.empty()


async def test_a_call_waits_for_its_turn() -> None:
    """The gateway may be handling a model's call."""
    turn = asyncio.Event()
    async with Mount(app="cart").face() as served:
        wire = Wire(served)
        wire.peer = UiPeer(GatewayAnswers(served.face.catalog), wire.caller, wire.receive, turn=turn_of(turn))
        async with wire.peer:
            await wire.peer.receive({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            for _ in range(20):
                await asyncio.sleep(0)
            assert wire.received.empty()
            turn.set()
            async with asyncio.timeout(60):
                assert (await wire.received.get())["id"] == 1


def turn_of(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
    """Return a turn that comes once `event` is set."""

    async def turn() -> None:
        await event.wait()

    return turn


async def test_what_breaks_inside_is_told_without_its_words(wire: Wire) -> None:
    """A fault of the gateway is an `internal` result, and other calls continue."""
    broken = (await wire.call("http_request", {"url": "/bug"}))["result"]
    assert broken["isError"]
    assert "Zero" not in json.dumps(broken)


async def test_a_view_that_is_gone_gets_no_further(wire: Wire) -> None:
    """Once the connection proves no view, its calls fail."""
    wire.gone = True
    assert "error" in await wire.call("http_request", {"url": "/api/cart"})
