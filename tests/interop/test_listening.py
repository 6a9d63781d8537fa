"""The stream on which an upstream sends changes: resumed for a while, reopened, and closed without followers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from mcp import Client
from mcp.shared.exceptions import MCPError

from gateway.mcp.upstreams.changes import feed
from gateway.mcp.upstreams.transport import http, requests
from gateway.mcp.upstreams.transport.http import RESUMES
from tests.interop.raw import Raw, raw
from tests.interop.serving import gateway

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


STORM = 100
"""The number of changes that the upstream sends at once."""


async def begin_stream(request: web.Request, message: dict[str, Any], times: int = 1) -> web.StreamResponse:
    """Send a stream's head, and the acknowledgment of the subscription so many times."""
    stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await stream.prepare(request)
    params = {"notifications": message["params"]["notifications"], "_meta": {SUBSCRIPTION: message["id"]}}
    told = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
    await stream.write(f"id: 1\nretry: 50\ndata: {json.dumps(told)}\n\n".encode() * times)
    return stream


@asynccontextmanager
async def mounted(folder: Path) -> AsyncIterator[tuple[Raw, str]]:
    """Yield an upstream, and a gateway in front of it."""

    async def refuse(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=500)

    async with raw(refuse) as up, gateway(folder, f'up: {{url: "{up.url}", network: private}}') as mcp:
        yield up, f"{mcp}/up"


async def test_a_stream_that_cannot_be_taken_up_again_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With backoff, since no call waits for it."""
    monkeypatch.setattr(http, "LONGEST_WAIT", 0.05)
    monkeypatch.setattr(requests, "RETRY", 0.05)
    monkeypatch.setattr(feed, "FIRST_WAIT", 0.05)
    again, before = [0], list[int]()
    anew = asyncio.Event()

    async def listen(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        before.append(again[0])
        if len(before) == 3:
            anew.set()
        return await begin_stream(request, message)

    async def refuse(_: web.Request) -> web.Response:
        again[0] += 1
        return web.Response(status=503)

    async with mounted(tmp_path) as (up, url):
        up.listen, up.again = listen, refuse
        async with Client(url) as client, client.listen(tools_list_changed=True), asyncio.timeout(60):
            await anew.wait()
    assert before[:3] == [0, RESUMES, 2 * RESUMES]


@pytest.mark.parametrize(
    ("wanted", "uris"), [({"tools_list_changed": True}, None), ({"resource_subscriptions": ["a://b"]}, ["a://b"])]
)
async def test_nothing_is_listened_to_for_nobody(
    tmp_path: Path, wanted: dict[str, Any], uris: list[str] | None
) -> None:
    """The stream to the upstream ends with its last follower, and begins with the next one."""
    opened, closed = asyncio.Queue[None](), asyncio.Queue[None]()
    asked: list[object] = []

    async def listen(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        asked.append(message["params"]["notifications"].get("resourceSubscriptions"))
        stream = await begin_stream(request, message)
        if asked[-1] == uris:
            opened.put_nowait(None)
        try:
            await asyncio.sleep(600)
        finally:
            closed.put_nowait(None)
        return stream

    async with mounted(tmp_path) as (up, url), Client(url) as client, asyncio.timeout(60):
        up.listen = listen
        for _ in range(2):
            async with client.listen(**wanted):
                await opened.get()
                assert closed.empty()
            await closed.get()
    assert asked == [uris, uris]


async def test_a_storm_of_changes_is_told_as_few(tmp_path: Path) -> None:
    """Each client would list again at each; the last one is sent, and a repeated acknowledgment does no harm."""
    heard: list[str] = []

    async def listen(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        stream = await begin_stream(request, message, times=2)
        told = {"jsonrpc": "2.0", "params": {"_meta": {SUBSCRIPTION: message["id"]}}}
        for kind, count in (("resources", STORM), ("prompts", 1)):
            changed = {**told, "method": f"notifications/{kind}/list_changed"}
            await stream.write(f"data: {json.dumps(changed)}\n\n".encode() * count)
        await asyncio.sleep(600)
        return stream

    async with mounted(tmp_path) as (up, url), Client(url) as client, asyncio.timeout(60):
        up.listen = listen
        async with client.listen(resources_list_changed=True, prompts_list_changed=True) as changes:
            async for change in changes:
                heard.append(type(change).__name__)
                if heard.count("ResourcesListChanged") == 2:
                    break
    assert heard == ["ResourcesListChanged", "PromptsListChanged", "ResourcesListChanged"]


async def test_what_comes_after_a_storm_is_told_too(tmp_path: Path) -> None:
    """More changes of one list than a client's queue holds crowd out no other kind."""
    async with asyncio.timeout(60), mounted(tmp_path) as (up, url), Client(url) as client:

        async def listen(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
            stream = await begin_stream(request, message)
            told = {"jsonrpc": "2.0", "params": {"_meta": {SUBSCRIPTION: message["id"]}}}
            events = [
                f"data: {json.dumps({**told, 'method': f'notifications/{kind}/list_changed'})}\n\n" * count
                for kind, count in (("resources", 5 * STORM), ("prompts", 1))
            ]
            await stream.write("".join(events).encode())
            await asyncio.sleep(600)
            return stream

        up.listen = listen
        async with client.listen(resources_list_changed=True, prompts_list_changed=True) as changes:
            async for change in changes:
                if type(change).__name__ == "PromptsListChanged":
                    break


async def test_many_resources_are_followed_on_one_stream(tmp_path: Path) -> None:
    """It is reopened once for all that a client adds or removes, and not for a follower of the same ones."""
    asked: list[set[str]] = []
    over = asyncio.Event()
    uris = [f"test://{number}" for number in range(50)]
    every = [*uris, *(f"other://{number}" for number in range(50))]

    async def listen(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        asked.append(set(message["params"]["notifications"].get("resourceSubscriptions", [])))
        stream = await begin_stream(request, message)
        await over.wait()
        return stream

    async with mounted(tmp_path) as (up, mcp), asyncio.timeout(60):
        up.listen = listen
        async with (
            Client(mcp, mode="2026-07-28") as one,
            Client(mcp, mode="2026-07-28") as other,
            one.listen(resource_subscriptions=[*uris, uris[0]]),
            other.listen(resource_subscriptions=uris),
        ):
            assert asked == [set(uris)]
            async with Client(mcp, mode="2026-07-28") as third, third.listen(resource_subscriptions=every):
                pass
            while len(asked) < 3:
                await asyncio.sleep(0.02)
            assert asked == [set(uris), set(every), set(uris)]
        over.set()


async def test_what_an_upstream_does_not_tell_of_is_said_to_who_asks(tmp_path: Path) -> None:
    """It may refuse all because of one, or leave one out: followers of others still hear of them."""
    closed: list[set[str]] = []
    go = asyncio.Event()

    async def listen(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        wanted = message["params"]["notifications"]
        uris = wanted["resourceSubscriptions"]
        if "bad://" in uris:
            error = {"code": -32602, "message": "No such thing"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        wanted["resourceSubscriptions"] = [uri for uri in uris if uri != "mute://"]
        stream = await begin_stream(request, message)
        try:
            await go.wait()
            meta = {"_meta": {SUBSCRIPTION: message["id"]}}
            told = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "good://", **meta}}
            await stream.write(f"data: {json.dumps(told)}\n\n".encode())
            await asyncio.sleep(600)
        finally:
            closed.append(set(uris))
        return stream

    async with mounted(tmp_path) as (up, mcp), asyncio.timeout(60):
        up.listen = listen
        async with Client(mcp) as one, Client(mcp) as other, one.listen(resource_subscriptions=["good://"]) as mine:
            with pytest.raises(MCPError, match="No such thing"):
                async with other.listen(resource_subscriptions=["bad://"]):
                    pass
            async with other.listen(resource_subscriptions=["mute://", "good://"]) as theirs:
                assert theirs.honored.resource_subscriptions == ["good://"]
                assert closed == [{"good://"}]
                go.set()
                for stream in (mine, theirs):
                    assert getattr(await anext(stream), "uri", None) == "good://"


async def test_an_upstream_that_confirms_late_is_heard_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait for the acknowledgment is short, and a late one is accepted."""
    monkeypatch.setattr(feed, "ANSWER_TIMEOUT", 0.05)
    go = asyncio.Event()

    async def listen(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        await go.wait()
        stream = await begin_stream(request, message)
        meta = {"_meta": {SUBSCRIPTION: message["id"]}}
        told = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "a://b", **meta}}
        await stream.write(f"data: {json.dumps(told)}\n\n".encode())
        await asyncio.sleep(600)
        return stream

    async with mounted(tmp_path) as (up, mcp), Client(mcp) as client, asyncio.timeout(60):
        up.listen = listen
        async with client.listen(resource_subscriptions=["a://b"]) as changes:
            go.set()
            assert getattr(await anext(changes), "uri", None) == "a://b"
    assert up.asked["subscriptions/listen"] == 1
