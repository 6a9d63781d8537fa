"""What clients follow at an upstream that refuses some of it, or goes away: the rest is told of all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from gateway.mcp.upstreams import feed, link
from tests.interop.probe import Context, Probe
from tests.interop.serving import gateway, over_http
from tests.interop.test_reconnecting import behind_a_wire, following, hears

KINDS = ["sse", "websocket"]
OTHER = "probe://other"


class Choosy(Probe):
    """Refuses what is in `refused`, and keeps what it was asked for; whoever asks `first` waits, and is refused."""

    def __init__(self, *, first: bool = False) -> None:
        super().__init__()
        self.refused: set[str] = set()
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self._first = first

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
        return types.EmptyResult()


async def asks(client: Client, request: Any) -> None:
    """A request that is answered with nothing."""
    await client.session.send_request(request, types.EmptyResult)


def subscribe(uri: str) -> types.SubscribeRequest:
    """To follow `uri`."""
    return types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))


async def test_who_follows_what_another_was_just_refused_is_told(tmp_path: Path) -> None:
    """Two on one connection: the second asks for itself."""
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
    """What else a session follows is told of, and it may ask again for the rest."""
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
    """It forgot what it was asked for; the session asks once."""
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
        assert wire.cut() > 0
        assert await probe.asked.get() == "debug"
