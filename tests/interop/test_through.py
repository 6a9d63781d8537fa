"""Everything that accompanies a call reaches its upstream and back: cancellation, URL elicitation, traces, levels."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.callers.tokens import revoke, token
from tests.interop.everything import Everything
from tests.interop.probe import Probe, text
from tests.interop.serving import gateway, over_http, over_websocket
from tests.mcp.test_messages import open_session
from tests.mcp.test_resume import event, taken_up
from tests.world import running

MODES = ["legacy", "2026-07-28"]
CLIENTS = pytest.mark.parametrize("client", MODES)
UPSTREAMS = pytest.mark.parametrize("upstream", MODES)
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@asynccontextmanager
async def probed(folder: Path, upstream: str, more: str = "") -> AsyncIterator[tuple[str, Probe]]:
    """Yield the URL of the mount of a gateway in front of a probe that speaks one era."""
    probe = Probe()
    async with (
        over_http(probe.server, only=upstream) as url,
        gateway(folder, f'up: {{url: "{url}", network: private{more}}}') as mcp,
    ):
        yield f"{mcp}/up", probe


@CLIENTS
@UPSTREAMS
async def test_a_call_that_its_client_gives_up_ends_at_the_upstream(tmp_path: Path, client: str, upstream: str) -> None:
    """The upstream's own handler is cancelled, in each era's way."""
    async with probed(tmp_path, upstream) as (url, probe), Client(url, mode=client) as one:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.call_tool, "hold")
                await asyncio.wait_for(probe.held.wait(), 20)
                scope.cancel()
        await asyncio.wait_for(probe.given_up.wait(), 20)
        assert text(await one.call_tool("plain")).startswith("plain of probe")


@UPSTREAMS
@pytest.mark.parametrize(("mount", "tool"), [("/up", "hold"), ("", "up_hold")])
async def test_a_call_of_a_session_outlives_its_connection(
    tmp_path: Path, upstream: str, mount: str, tool: str
) -> None:
    """Its stream is resumed where it broke, and carries the answer (2025-11-25)."""
    call = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": tool, "arguments": {}}}
    listing = {"jsonrpc": "2.0", "id": 4, "method": "tools/list"}
    async with probed(tmp_path, upstream) as (up, probe), aiohttp.ClientSession() as http, asyncio.timeout(60):
        url = f"{up.removesuffix('/up')}{mount}"
        fields = await open_session(http, url, more={})
        async with http.post(url, json=listing, headers=fields) as answer:
            await answer.read()
        async with aiohttp.ClientSession() as breaking:
            answer = await breaking.post(url, json=call, headers=fields)
            first = await event(answer)
            await probe.held.wait()
            answer.close()
        found = await taken_up(http, url, {**fields, "last-event-id": first["id"]}, probe.go)
    assert (found["id"], found["result"]["content"][0]["text"]) == (5, "went on")


@UPSTREAMS
async def test_a_call_without_a_connection_ends_with_its_token(tmp_path: Path, upstream: str) -> None:
    """Revoking the token cancels the call, as everywhere."""
    probe = Probe()
    call = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "hold", "arguments": {}}}
    async with over_http(probe.server, only=upstream) as up:
        extra = f"auth: [token]\nupstreams:\n  up: {{url: '{up}', network: private}}\n"
        async with running(tmp_path, extra=extra) as world, asyncio.timeout(60):
            url = f"{world.url}/mcp/up"
            async with aiohttp.ClientSession() as breaking:
                fields = await open_session(breaking, url, more=await token(world, "caller", "mcp"))
                answer = await breaking.post(url, json=call, headers=fields)
                await probe.held.wait()
                answer.close()
            assert not probe.given_up.is_set()
            await revoke(world, "caller")
            await probe.given_up.wait()


async def test_a_cancellation_reaches_an_upstream_by_websocket(tmp_path: Path) -> None:
    """There it is a message."""
    probe = Probe()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(over_websocket(probe.server))
        mcp = await stack.enter_async_context(gateway(tmp_path, f'up: {{websocket: "{url}", network: private}}'))
        one = await stack.enter_async_context(Client(f"{mcp}/up", mode="legacy"))
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.call_tool, "hold")
                await asyncio.wait_for(probe.held.wait(), 20)
                scope.cancel()
        await asyncio.wait_for(probe.given_up.wait(), 20)


@CLIENTS
@UPSTREAMS
@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_a_person_is_sent_to_the_page_of_an_upstream(
    tmp_path: Path, client: str, upstream: str, action: str
) -> None:
    """URL elicitation in every pairing of eras; the answer comes back. Elicitation ids exist only before 2026-07-28."""
    asked: list[types.ElicitRequestURLParams] = []

    async def visit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        asked.append(params)
        return types.ElicitResult(action=action)  # type: ignore[arg-type]  # one of the two above

    async with (
        probed(tmp_path, upstream) as (url, _),
        Client(url, mode=client, elicitation_callback=visit) as one,
    ):
        assert text(await one.call_tool("visit")) == f"visit {action}"
    assert [(one.url, one.message) for one in asked] == [("https://pages.example/visit?id=1", "Go there")]
    if upstream == "legacy":
        assert asked[0].elicitation_id == "visit-1"


async def test_the_end_of_a_visit_is_told(tmp_path: Path) -> None:
    """`notifications/elicitation/complete` of the handshake era comes with the call."""
    told: asyncio.Queue[str] = asyncio.Queue()

    async def visit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept")

    async def hear(message: Any) -> None:
        if isinstance(message, types.ElicitCompleteNotification):
            told.put_nowait(message.params.elicitation_id)

    async with (
        probed(tmp_path, "legacy") as (url, _),
        Client(url, mode="legacy", elicitation_callback=visit, message_handler=hear) as one,
    ):
        await one.call_tool("visit")
        assert await asyncio.wait_for(told.get(), 20) == "visit-1"


@CLIENTS
@UPSTREAMS
@pytest.mark.parametrize("place", ["meta", "header"])
async def test_the_trace_of_a_call_goes_on_to_the_upstream(
    tmp_path: Path, client: str, upstream: str, place: str
) -> None:
    """As a child of the gateway's own span, whether the client sent it in `_meta` or in a header field."""
    headers = {"traceparent": PARENT, "tracestate": "a=b"} if place == "header" else {}
    meta: Any = {"traceparent": PARENT, "tracestate": "a=b", "kept": 1} if place == "meta" else None
    async with AsyncExitStack() as stack:
        url, probe = await stack.enter_async_context(probed(tmp_path, upstream))
        http = await stack.enter_async_context(create_mcp_http_client(headers=headers))
        one = await stack.enter_async_context(Client(streamable_http_client(url, http_client=http), mode=client))
        await one.call_tool("plain", meta=meta)
    found = probe.seen[-1]["meta"]
    version, trace, span, flags = found["traceparent"].split("-")
    assert (version, trace, flags, found["tracestate"]) == ("00", TRACE, "01", "a=b")
    assert span != PARENT.split("-")[2]
    assert found.get("kept") == (1 if place == "meta" else None)


async def test_a_call_without_a_trace_is_sent_as_it_came(tmp_path: Path) -> None:
    """Nothing is added to `_meta`."""
    async with probed(tmp_path, "legacy") as (url, probe), Client(url, mode="legacy") as one:
        await one.call_tool("plain")
    assert probe.seen[-1]["meta"] == {}


@UPSTREAMS
async def test_tasks_are_not_carried_and_said_so(tmp_path: Path, upstream: str) -> None:
    """A call with a task is refused at once, and the methods of tasks do not exist."""
    arrived: list[dict[str, Any]] = []

    async def note(ctx: Any, call_next: Any) -> Any:
        arrived.append(dict(ctx.params or {}))
        return await call_next(ctx)

    async with probed(tmp_path, upstream) as (url, probe), aiohttp.ClientSession() as http:
        probe.server.middleware.insert(0, note)
        accept = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}

        async def post(message: dict[str, Any], **more: str) -> tuple[str, str]:
            async with http.post(url, json={"jsonrpc": "2.0", **message}, headers={**accept, **more}) as answer:
                return answer.headers.get("mcp-session-id", ""), await answer.text()

        hello = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tasks": {"requests": {"elicitation": {"create": {}}}}},
            "clientInfo": {"name": "c", "version": "1"},
        }
        session, said = await post({"id": 1, "method": "initialize", "params": hello})
        assert '"tasks"' not in said
        own = {"mcp-session-id": session}
        await post({"method": "notifications/initialized"}, **own)
        call = {"name": "plain", "arguments": {}, "task": {"ttl": 1000}}
        assert "plain of probe" in (await post({"id": 2, "method": "tools/call", "params": call}, **own))[1]
        assert "-32601" in (await post({"id": 3, "method": "tasks/list", "params": {}}, **own))[1]
        assert [one["name"] for one in arrived if "name" in one] == ["plain"]
        assert not any("task" in one for one in arrived)


@pytest.mark.parametrize("mount", ["", "/up"])
async def test_log_messages_pass_beside_a_stream_of_changes(tmp_path: Path, mount: str) -> None:
    """On one connection with an upstream of 2026-07-28, where messages do not name their call."""
    heard: list[Any] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params.data)

    async with (
        over_websocket(Probe().server) as url,
        gateway(tmp_path, f'up: {{websocket: "{url}", network: private}}') as mcp,
        Client(mcp + mount, mode="2026-07-28", logging_callback=log, log_level="info") as one,
        one.listen(tools_list_changed=True),
    ):
        await one.list_tools()
        await one.call_tool("tells" if mount else "up_tells")
    assert heard == ["told"]


async def test_sessions_of_one_upstream_hear_as_much_as_each_wants(tmp_path: Path) -> None:
    """A session with a higher level takes nothing from one with a lower level."""
    everything = Everything()
    heard: dict[str, list[Any]] = {"debug": [], "error": []}

    def hearing(level: str) -> Any:
        async def log(params: types.LoggingMessageNotificationParams) -> None:
            heard[level].append(params.data)

        return log

    async with (
        over_http(everything.server, only="legacy") as url,
        gateway(tmp_path, f'up: {{url: "{url}", network: private}}') as mcp,
        Client(f"{mcp}/up", mode="legacy", logging_callback=hearing("debug")) as first,
        Client(f"{mcp}/up", mode="legacy", logging_callback=hearing("error")) as second,
    ):
        for client, level in ((first, "debug"), (second, "error")):
            params = types.SetLevelRequestParams(level=level)  # type: ignore[arg-type]  # one of the two
            await client.session.send_request(types.SetLevelRequest(params=params), types.EmptyResult)
        await first.call_tool("test_logging_tool")
        await second.call_tool("test_logging_tool")
    assert everything.levels == ["debug", "debug"]
    assert heard == {"debug": ["Logged"], "error": []}
