"""Connections to upstreams that are cut: connected clients keep calling, and get their notifications."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mcp_types as types
import pytest
from aiohttp import web
from mcp import Client
from mcp.server.subscriptions import ResourceUpdated

from gateway.app import RELOAD, build_app
from gateway.config import load_config, read_config
from gateway.errors import Refusal
from gateway.mcp.upstreams.calls.client import UpstreamClient
from gateway.mcp.upstreams.changes import feed
from gateway.mcp.upstreams.changes.feed import ChangeListener
from gateway.mcp.upstreams.transport import http, link, requests
from gateway.mcp.upstreams.transport.conversation import UpstreamLost
from gateway.mcp.upstreams.transport.http import RESUMES
from gateway.mcp.upstreams.transport.link import LinkSession, LinkState
from gateway.mcp.upstreams.upstream import JoinedLink
from gateway.model import LOCAL
from tests.assembly.files import replace_file
from tests.interop.probe import Probe, text
from tests.interop.raw import raw
from tests.interop.serving import alone, gateway, over_http, over_sse, over_websocket
from tests.world import Server, local_client

MODES = ["legacy", "2026-07-28"]
OVER: dict[str, Callable[..., AbstractAsyncContextManager[str]]] = {
    "url": over_http,
    "sse": over_sse,
    "websocket": over_websocket,
}
WAYS = [("url", "legacy"), ("url", "2026-07-28"), ("sse", ""), ("websocket", "")]


class Wire:
    """A TCP proxy between the gateway and a server that can cut all its connections."""

    def __init__(self, port: int) -> None:
        self._far = port
        self._near = 0
        self._listening: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.said = b""
        """The server's bytes since the last cut."""

    async def listen(self) -> int:
        """Accept connections, always at one port; return that."""
        self._listening = await asyncio.start_server(self.carry, "127.0.0.1", self._near)
        self._near = self._listening.sockets[0].getsockname()[1]
        return self._near

    def leave(self) -> None:
        """Refuse new connections, and cut the open ones."""
        if self._listening is not None:
            self._listening.close()
        self.cut()

    def cut(self) -> int:
        """Cut every connection; return how many there were."""
        cut, self.said = len(self._open), b""
        for writer in self._open:
            writer.transport.abort()
        return cut

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until either end closes it."""
        far_reader, far_writer = await asyncio.open_connection("localhost", self._far)
        self._open |= {writer, far_writer}
        ways = (self._copied(reader, far_writer), self._copied(far_reader, writer, back=True))
        await asyncio.wait([asyncio.ensure_future(way) for way in ways], return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, far_writer):
            self._open.discard(end)
            end.transport.abort()

    async def _copied(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False) -> None:
        with suppress(OSError):
            while part := await reader.read(65536):
                writer.write(part)
                await writer.drain()
                self.said += part if back else b""


@asynccontextmanager
async def wired(url: str) -> AsyncIterator[tuple[str, Wire]]:
    """Yield another address of the server at `url`, and the proxy in between."""
    port = urlsplit(url).port
    assert port is not None
    wire = Wire(port)
    try:
        yield url.replace(f":{port}", f":{await wire.listen()}"), wire
    finally:
        wire.leave()


@asynccontextmanager
async def behind_a_wire(
    folder: Path, kind: str, era: str, more: str = "", probe: Probe | None = None
) -> AsyncIterator[tuple[str, Probe, Wire]]:
    """Yield a gateway in front of a probe, and the proxy between them."""
    probe = probe or Probe()
    options = {"only": era} if era else {}
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(OVER[kind](probe.server, **options))
        near, wire = await stack.enter_async_context(wired(url))
        mcp = await stack.enter_async_context(gateway(folder, f'up: {{{kind}: "{near}", network: private{more}}}'))
        yield mcp, probe, wire


@asynccontextmanager
async def following(mcp: str, uri: str, mode: str) -> AsyncIterator[tuple[Client, asyncio.Queue[str]]]:
    """Yield a client that follows a resource, and a queue of its updates."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.put_nowait(str(message.params.uri))

    async def take(changes: AsyncIterator[Any]) -> None:
        async for change in changes:
            if isinstance(change, ResourceUpdated):
                heard.put_nowait(change.uri)

    async with Client(mcp, mode=mode, message_handler=on_message) as client, AsyncExitStack() as stack:
        if mode == "legacy":
            params = types.SubscribeRequestParams(uri=uri)
            await client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)
        else:
            changes = await stack.enter_async_context(client.listen(resource_subscriptions=[uri]))
            taking = asyncio.ensure_future(take(aiter(changes)))
            stack.callback(taking.cancel)
        yield client, heard


async def metric(mcp: str) -> str:
    """Return the metrics of a gateway."""
    async with local_client() as http, http.get(f"{mcp[:-4]}/metrics") as answer:
        return await answer.text()


async def hears(probe: Probe, heard: asyncio.Queue[str]) -> None:
    """Change a resource again and again until a client is notified."""
    while not heard.empty():
        heard.get_nowait()
    while heard.empty():
        await probe.updated()
        await asyncio.sleep(0.05)
    assert heard.get_nowait() == probe.uri


async def call_tool(client: Client, name: str) -> str:
    """Return a tool's text, once its upstream is up again."""
    while (result := await client.call_tool(name, {})).is_error:
        assert "cannot be reached" in text(result)
        await asyncio.sleep(0.05)
    return text(result)


async def begin_held_call(client: Client, probe: Probe, wire: Wire) -> asyncio.Future[types.CallToolResult]:
    """Start a call that its upstream holds, and wait for an event id on its stream."""
    await client.list_tools()
    wire.said = b""
    calling = asyncio.ensure_future(client.call_tool("hold"))
    await probe.held.wait()
    await wait_event_id(wire)
    return calling


async def wait_event_id(wire: Wire) -> None:
    """Wait for an event id, from which the stream can be resumed; earlier bytes arrive although it breaks."""
    while b"\nid: " not in wire.said:
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_goes_on_where_its_stream_broke(tmp_path: Path, mode: str) -> None:
    """In sessions of the handshake, which can resume a stream, however often it breaks."""
    async with (
        behind_a_wire(tmp_path, "url", "legacy") as (mcp, probe, wire),
        Client(f"{mcp}/up", mode=mode) as client,
        asyncio.timeout(60),
    ):
        calling = await begin_held_call(client, probe, wire)
        for _ in range(RESUMES + 2):
            await wait_event_id(wire)
            wire.cut()
        probe.go.set()
        assert text(await calling) == "went on"


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_goes_on_once_its_upstream_is_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    """However often it cannot be reached meanwhile."""
    caplog.set_level("DEBUG", http.log.name)
    monkeypatch.setattr(http, "LONGEST_WAIT", 0.05)
    monkeypatch.setattr(requests, "RETRY", 0.05)
    async with (
        behind_a_wire(tmp_path, "url", "legacy") as (mcp, probe, wire),
        Client(f"{mcp}/up", mode=mode) as client,
        asyncio.timeout(60),
    ):
        calling = await begin_held_call(client, probe, wire)
        wire.leave()
        for said in ("cannot be taken up again yet", "the standing stream of an upstream"):
            while caplog.text.count(said) < 2 * RESUMES:
                await asyncio.sleep(0.02)
        probe.go.set()
        await wire.listen()
        assert text(await calling) == "went on"


@pytest.mark.parametrize(
    ("mode", "more"),
    [(mode, more) for mode in MODES for more in (", timeout: 1s", ", policy: policy.yaml")],
    ids=[f"{mode}, by {what}" for mode in MODES for what in ("its timeout", "a rule")],
)
async def test_a_call_of_an_upstream_that_stays_away_ends_with_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, mode: str
) -> None:
    """It timed out because the upstream was unreachable."""
    (tmp_path / "policy.yaml").write_text("version: 1\ntools: {hold: {timeout: 1s}}\n", "utf-8")
    monkeypatch.setattr(http, "LONGEST_WAIT", 0.05)
    monkeypatch.setattr(requests, "RETRY", 0.05)
    async with (
        behind_a_wire(tmp_path, "url", "legacy", more) as (mcp, probe, wire),
        Client(f"{mcp}/up", mode=mode) as client,
        asyncio.timeout(60),
    ):
        calling = await begin_held_call(client, probe, wire)
        wire.leave()
        said = text(await calling)
    assert "did not answer within 1 seconds" in said
    assert "its stream broke, and was not taken up again in" in said


@pytest.mark.parametrize(
    ("statuses", "why"),
    [([503, 502, 200], "went on"), ([404], "before its answer"), ([503, 405], "before its answer")],
)
async def test_a_stream_is_taken_up_where_its_upstream_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statuses: list[int], why: str
) -> None:
    """After a failure the upstream may still have it; if it answers that it does not, it is not asked again."""
    monkeypatch.setattr(http, "LONGEST_WAIT", 0.05)
    asked: dict[str, Any] = {}
    left = list(statuses)

    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        asked.update(message)
        return web.Response(body=b"id: 1\nretry: 50\ndata:\n\n", content_type="text/event-stream")

    async def again(request: web.Request) -> web.StreamResponse:
        assert request.headers["last-event-id"] == "1"
        status = left.pop(0)
        result = {"resultType": "complete", "content": [{"type": "text", "text": "went on"}]}
        data = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        return web.Response(status=status, text=f"data: {data}\n\n", content_type="text/event-stream")

    async with raw(answer) as up:
        up.again = again
        async with gateway(tmp_path, f'up: {{url: "{up.url}", network: private}}') as mcp, Client(f"{mcp}/up") as one:
            assert why in text(await one.call_tool("tool"))
    assert (left, up.asked["tools/call"]) == ([], 1)


@pytest.mark.parametrize("mount", ["", "/up"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "era"), WAYS)
async def test_a_client_goes_on_where_a_connection_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, era: str, mode: str, mount: str
) -> None:
    """It calls, and hears of its resource, after each cut, without doing anything for it."""
    for module in (feed, link):
        monkeypatch.setattr(module, "FIRST_WAIT", 0.05)
    async with (
        behind_a_wire(tmp_path, kind, era) as (mcp, probe, wire),
        following(f"{mcp}{mount}", probe.uri, mode) as (client, heard),
        asyncio.timeout(60),
    ):
        await client.list_tools()
        for _ in range(3):
            await hears(probe, heard)
            assert wire.cut() > 0
            name = "plain" if mount else "up_plain"
            assert await call_tool(client, name) == "plain of probe: {}"
        await hears(probe, heard)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("era", MODES)
async def test_an_upstream_at_a_url_is_known_to_be_gone_and_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, era: str, mode: str
) -> None:
    """Although no connection is open between two requests, and other kinds of clients sent none since."""
    monkeypatch.setattr(link, "FIRST_WAIT", 0.05)
    heard = asyncio.Event()

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            heard.set()

    async def up() -> float:
        return float((await metric(mcp)).partition('upstream_up{upstream="up"} ')[2].split()[0])

    async with (
        behind_a_wire(tmp_path, "url", era) as (mcp, _, wire),
        Client(f"{mcp}/up", mode="legacy", message_handler=on_message),
        Client(f"{mcp}/up", mode=mode) as client,
        Client(mcp, mode=mode) as other,
        asyncio.timeout(60),
    ):
        await other.list_tools()
        assert (await call_tool(client, "plain"), await up()) == ("plain of probe: {}", 1)
        wire.leave()
        while await up():
            assert "The upstream up " in text(await client.call_tool("plain"))
        heard.clear()
        await wire.listen()
        assert await call_tool(client, "plain") == "plain of probe: {}"
        assert await up()
        await heard.wait()


def kind(name: str) -> UpstreamClient:
    """Return a handshake client of a separate kind, which has a separate connection."""
    return UpstreamClient(LOCAL, name, "2025-11-25", {"experimental": {name: {}}})


async def wait_lost(joined: tuple[JoinedLink, LinkSession]) -> None:
    """Send requests until the connection is found to be lost."""
    while joined[0].link.state is LinkState.READY:
        with pytest.raises(UpstreamLost):
            await joined[1].conversation.request("tools/list", {})
        await asyncio.sleep(0.01)


async def test_what_stands_is_believed_until_another_connection_finds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not know yet; a connection used or made later is better evidence."""
    monkeypatch.setattr(link, "FIRST_WAIT", 0.05)
    one, two, refused = kind("one"), kind("two"), asyncio.Semaphore(0)

    async def no_stream(request: web.Request) -> web.Response | None:
        if request.method == "GET":  # with a session's stream open, the gateway would notice that a server goes
            refused.release()
            return web.Response(status=405)
        return None

    async with (
        over_http(Probe().server, only="legacy", admit=no_stream) as url,
        wired(url) as (near, wire),
        alone(tmp_path, near, "connections: 8") as up,
        asyncio.timeout(60),
    ):

        def states() -> tuple[LinkState, str | None]:
            return up.state

        first, second = [await up.session(client) for client in (one, two)]
        for _ in (first, second):
            await refused.acquire()
        assert states() == (LinkState.READY, None)
        wire.leave()
        await wait_lost(first)
        assert (second[0].link.state, states()[0]) == (LinkState.READY, LinkState.FAILED)
        assert "no connection" in str(states()[1])
        await up.session(two)
        assert states() == (LinkState.READY, None)
        while states()[0] is LinkState.READY:
            with suppress(Refusal):
                await up.session(one)
        second[0].feed.add(ChangeListener(lambda _, __: None))
        await wait_lost(second)
        await wire.listen()
        while states()[0] is not LinkState.READY:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["websocket", "sse", "legacy url", "2026-07-28 url"])
async def test_open_connections_begin_again_when_their_credential_changes(tmp_path: Path, kind: str) -> None:
    """A reload changes the key: WebSockets and event streams that began with the old one are opened again, once."""
    shown: list[str | None] = []
    mode, _, transport = kind.rpartition(" ")

    async def admit(request: web.Request) -> web.Response | None:
        if request.method == "GET" or request.headers.get("mcp-method") == "subscriptions/listen":
            shown.append(request.headers.get("x-key"))
        return None

    door, file, keys = Server(), tmp_path / "gateway.yaml", {"OLD": "k-old", "NEW": "k-new"}
    servers: dict[str, Callable[..., AbstractAsyncContextManager[str]]]
    servers = {"websocket": over_websocket, "sse": over_sse, "url": partial(over_http, only=mode)}
    async with servers[transport](Probe().server, admit=admit) as url:

        def write(key: str) -> None:
            lines = [
                f"server: {{listen: 127.0.0.1:{door.port}}}",
                f'credentials: {{key: {{type: header, header: x-key, value: "${{env:{key}}}"}}}}',
                f'upstreams: {{up: {{{transport}: "{url}", network: private, credential: key}}}}',
            ]
            replace_file(file, "\n".join([*lines, ""]))

        write("OLD")
        app = build_app(load_config(file, keys), lambda: read_config(file, keys))
        await door.start(app)
        try:
            async with Client(f"http://localhost:{door.port}/mcp/up", mode="legacy") as client, asyncio.timeout(60):
                assert (await client.list_tools()).tools
                while not shown:
                    await asyncio.sleep(0.01)
                assert set(shown) == {"k-old"}
                write("NEW")
                while shown[-1] != "k-new":
                    app[RELOAD]()
                    assert (await client.list_tools()).tools
                    await asyncio.sleep(0.05)
                sockets = len(shown)
                assert (await client.list_tools()).tools
                assert len(shown) == sockets
        finally:
            await door.stop()
