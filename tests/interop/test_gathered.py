"""Subscriptions of clients of `/mcp`: lists of all upstreams, and single resources of any of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.subscriptions import PromptsListChanged, ResourceUpdated
from mcp.shared.exceptions import MCPError

from tests.interop.probe import Probe
from tests.interop.serving import gateway, over_http

MODES = ["legacy", "2026-07-28"]


@asynccontextmanager
async def two(folder: Path, era: str) -> AsyncIterator[tuple[str, Probe, Probe]]:
    """Yield the `/mcp` of a gateway in front of two probes of one era."""
    a, b = Probe("a"), Probe("b")
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(over_http(probe.server, only=era)) for probe in (a, b)]
        lines = "\n".join(f'{name}: {{url: "{url}", network: private}}' for name, url in zip("ab", urls, strict=True))
        yield await stack.enter_async_context(gateway(folder, lines)), a, b


@pytest.mark.parametrize("upstream", MODES)
async def test_a_modern_client_follows_resources_of_several_upstreams(tmp_path: Path, upstream: str) -> None:
    """Each update names the resource that changed."""
    async with (
        two(tmp_path, upstream) as (mcp, a, b),
        Client(mcp, mode="2026-07-28") as client,
        client.listen(resources_list_changed=True, resource_subscriptions=[a.uri, b.uri]) as changes,
    ):
        found = aiter(changes)
        for probe in (b, a):
            await probe.updated()
            event = await asyncio.wait_for(anext(found), 20)
            assert getattr(event, "uri", None) == probe.uri


@pytest.mark.parametrize("upstream", MODES)
async def test_a_session_follows_resources_of_several_upstreams(tmp_path: Path, upstream: str) -> None:
    """Until it unsubscribes."""
    heard: asyncio.Queue[Any] = asyncio.Queue()

    async def heard_of(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.put_nowait(str(message.params.uri))

    async with two(tmp_path, upstream) as (mcp, a, b), Client(mcp, mode="legacy", message_handler=heard_of) as client:
        for probe in (a, b):
            params = types.SubscribeRequestParams(uri=probe.uri)
            await client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)
        for probe in (a, b):
            await probe.updated()
            assert await asyncio.wait_for(heard.get(), 20) == probe.uri
        gone = types.UnsubscribeRequestParams(uri=a.uri)
        await client.session.send_request(types.UnsubscribeRequest(params=gone), types.EmptyResult)
        await a.updated()
        await b.updated()
        assert await asyncio.wait_for(heard.get(), 20) == b.uri


@pytest.mark.parametrize("client", MODES)
async def test_a_resource_that_nobody_has_is_named(tmp_path: Path, client: str) -> None:
    """The error names it, and the session continues."""
    async with two(tmp_path, "legacy") as (mcp, a, _), Client(mcp, mode=client) as one:
        with pytest.raises((MCPError, ExceptionGroup), match=r"Unknown resource|unhandled"):
            await _follow(one, "none://here", modern=client != "legacy")
        assert (await one.read_resource(a.uri)).contents


async def _follow(client: Client, uri: str, *, modern: bool) -> None:
    if modern:
        async with client.listen(resource_subscriptions=[uri]):
            return
    params = types.SubscribeRequestParams(uri=uri)
    await client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)


async def test_a_client_of_mcp_hears_of_other_resources(tmp_path: Path) -> None:
    """`notifications/resources/list_changed` of any upstream."""
    async with two(tmp_path, "2026-07-28") as (mcp, _, b), Client(mcp, mode="2026-07-28") as client:
        await client.list_resources()
        async with client.listen(resources_list_changed=True) as changes:
            waiting = asyncio.ensure_future(anext(aiter(changes)))
            while not waiting.done():  # the stream to the upstream opens concurrently
                await b.listed_anew()
                await asyncio.wait({waiting}, timeout=0.05)
            assert type(waiting.result()).__name__ == "ResourcesListChanged"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("upstream", MODES)
async def test_a_client_of_mcp_hears_of_other_prompts(tmp_path: Path, upstream: str, mode: str) -> None:
    """`notifications/prompts/list_changed` of any upstream, in every pairing of eras."""
    heard = asyncio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, types.PromptListChangedNotification):
            heard.set()

    async with AsyncExitStack() as stack:
        mcp, _, b = await stack.enter_async_context(two(tmp_path, upstream))
        client = await stack.enter_async_context(Client(mcp, mode=mode, message_handler=hear))
        await client.read_resource(b.uri)
        if mode == "legacy":
            params = types.SubscribeRequestParams(uri=b.uri)
            await client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)
            waiting: asyncio.Future[bool] = asyncio.ensure_future(heard.wait())
        else:
            wanted = client.listen(prompts_list_changed=True, resource_subscriptions=[b.uri])
            changes = await stack.enter_async_context(wanted)
            waiting = asyncio.ensure_future(_next_change(changes, "PromptsListChanged"))
        async with asyncio.timeout(60):
            while not waiting.done():  # the stream to the upstream opens concurrently
                await b.bus.publish(PromptsListChanged())
                for session in b.sessions:
                    await session.send_prompt_list_changed()
                await asyncio.wait({waiting}, timeout=0.05)
        assert waiting.result()


async def _next_change(changes: Any, name: str) -> bool:
    async for change in changes:
        if type(change).__name__ == name:
            return True
    return False


async def test_each_client_hears_of_its_own_resources_alone(tmp_path: Path) -> None:
    """Two clients share a connection to their upstream, each with a separate resource."""
    async with (
        two(tmp_path, "2026-07-28") as (mcp, _, b),
        Client(f"{mcp}/b", mode="2026-07-28") as one,
        Client(f"{mcp}/b", mode="2026-07-28") as other,
        one.listen(resource_subscriptions=[b.uri]) as mine,
        other.listen(resource_subscriptions=["b://other"]) as theirs,
    ):
        await b.bus.publish(ResourceUpdated("b://other"))
        assert getattr(await asyncio.wait_for(anext(aiter(theirs)), 20), "uri", None) == "b://other"
        await b.updated()
        assert getattr(await asyncio.wait_for(anext(aiter(mine)), 20), "uri", None) == b.uri
