"""Subscriptions at an upstream that refuses some, or restarts: the others still get their notifications."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError

from gateway.mcp.upstreams.changes import feed
from gateway.mcp.upstreams.transport import link
from tests.interop.probe import Context, Probe, Result
from tests.interop.serving import gateway, over_http
from tests.interop.test_reconnecting import MODES, behind_a_wire, call_tool, following, hears

KINDS = ["sse", "websocket"]
OTHER = "probe://other"


class Choosy(Probe):
    """Refuses what is in `refused`, and keeps the requests; with `first`, the first one waits and is refused.

    While it is `slow` it takes a level only once `go` is set.
    """

    def __init__(self, *, first: bool = False) -> None:
        super().__init__()
        self.refused: set[str] = set()
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self._first = first
        self.slow = asyncio.Event()

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        first, self._first = self._first, False
        self.asked.put_nowait(str(params.uri))
        if first:
            await self.go.wait()
        if first or str(params.uri) in self.refused:
            raise MCPError(-32002, "Not now")
        return await super()._subscribe(context, params)

    async def _set_level(self, _: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.asked.put_nowait(params.level)
        if self.slow.is_set():
            await self.go.wait()
            self.asked.put_nowait("done")
        return types.EmptyResult()

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> Result:
        self.asked.put_nowait(params.name)
        return await super()._call_tool(context, params)


async def asks(client: Client, request: Any) -> None:
    """Send a request with an empty result."""
    await client.session.send_request(request, types.EmptyResult)


def subscribe(uri: str) -> types.SubscribeRequest:
    """Return a request to subscribe to `uri`."""
    return types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))


async def test_who_follows_what_another_was_just_refused_is_told(tmp_path: Path) -> None:
    """Two clients on one connection: the second's subscription is requested again."""
    probe = Choosy(first=True)
    async with (
        over_http(probe.server, only="legacy") as url,
        gateway(tmp_path, f'up: {{url: "{url}", network: private}}') as mcp,
        Client(f"{mcp}/up", mode="legacy") as other,
        asyncio.timeout(60),
    ):
        refused = asyncio.ensure_future(asks(other, subscribe(probe.uri)))
        assert await probe.asked.get() == probe.uri
        asyncio.get_running_loop().call_later(1, probe.go.set)
        async with following(f"{mcp}/up", probe.uri, "legacy") as (_, heard):
            with pytest.raises(MCPError, match="Not now"):
                await refused
            await hears(probe, heard)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_refused_after_a_cut_takes_nothing_else_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The session's other subscriptions stay, and it may request the refused one again."""
    for module in (feed, link):
        monkeypatch.setattr(module, "FIRST_WAIT", 0.05)
    probe = Choosy()
    async with (
        behind_a_wire(tmp_path, kind, "", probe=probe) as (mcp, _, wire),
        Client(f"{mcp}/up", mode="legacy") as first,
        asyncio.timeout(60),
    ):
        await asks(first, subscribe(OTHER))
        async with following(f"{mcp}/up", probe.uri, "legacy") as (client, heard):
            await hears(probe, heard)
            probe.refused.add(OTHER)
            probe.sessions.clear()
            assert wire.cut() > 0
            await hears(probe, heard)
            with pytest.raises(MCPError, match="Not now"):
                await asks(client, subscribe(OTHER))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_upstream_logs_after_a_cut_what_it_did_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It lost the level; the session sends it once, and no call overtakes that."""
    for module in (feed, link):
        monkeypatch.setattr(module, "FIRST_WAIT", 0.05)
    probe = Choosy()
    async with (
        behind_a_wire(tmp_path, kind, "", probe=probe) as (mcp, _, wire),
        Client(f"{mcp}/up", mode="legacy") as client,
        asyncio.timeout(60),
    ):
        await asks(client, types.SetLevelRequest(params=types.SetLevelRequestParams(level="debug")))
        assert await probe.asked.get() == "debug"
        probe.slow.set()
        assert wire.cut() > 0
        calling = asyncio.ensure_future(call_tool(client, "plain"))
        assert await probe.asked.get() == "debug"
        asyncio.get_running_loop().call_later(0.5, probe.go.set)
        await calling
        assert [await probe.asked.get() for _ in range(2)] == ["done", "plain"]


@pytest.mark.parametrize("mount", ["", "/up"])
async def test_what_an_upstream_refuses_is_left_out_of_a_stream(tmp_path: Path, mount: str) -> None:
    """A modern client hears of the rest; one that wants nothing else gets the reason."""
    probe = Choosy()
    second = f"{probe.name}://second"
    probe.refused.add(second)
    async with (
        over_http(probe.server, only="legacy") as url,
        gateway(tmp_path, f'up: {{url: "{url}", network: private}}') as mcp,
        Client(f"{mcp}{mount}", mode="2026-07-28") as client,
        asyncio.timeout(60),
    ):
        async with client.listen(resource_subscriptions=[second, probe.uri]) as changes:
            assert changes.honored.resource_subscriptions == [probe.uri]
            await probe.updated()
            assert await anext(changes) == ResourceUpdated(probe.uri)
        async with client.listen(resources_list_changed=True, resource_subscriptions=[second]) as changes:
            assert changes.honored == types.SubscriptionFilter(resources_list_changed=True)
        with pytest.raises(MCPError, match="Not now"):
            async with client.listen(resource_subscriptions=[second]):
                pass


@pytest.mark.parametrize("mount", ["", "/up"])
@pytest.mark.parametrize("mode", MODES)
async def test_who_follows_a_whole_is_told_of_its_parts(tmp_path: Path, mode: str, mount: str) -> None:
    """An upstream may name a sub-resource that changed; a URI with the same prefix alone is none."""
    probe = Probe()
    async with (
        over_http(probe.server, only="legacy") as url,
        gateway(tmp_path, f'up: {{url: "{url}", network: private}}') as mcp,
        following(f"{mcp}{mount}", probe.uri, mode) as (_, heard),
        asyncio.timeout(60),
    ):
        for told in ("s", "/part", "#part"):
            for session in probe.sessions:
                await session.send_resource_updated(probe.uri + told)
        told_of = {await heard.get()}
        while f"{probe.uri}#part" not in told_of:
            told_of.add(await heard.get())
        assert told_of == {f"{probe.uri}/part", f"{probe.uri}#part"}
