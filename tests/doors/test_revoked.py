"""A caller's credential ends while a person is asked about its call: approval comes too late, and nothing is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.callers.doors import Knock, answer, mcp_call
from tests.callers.people import NAVIGATION, OWN, Town, get, town
from tests.callers.tokens import link, revoke, token
from tests.doors.login.test_login import approve_status, questions
from tests.world import World, running

DELETE = {"url": "/api/cart/mug", "method": "DELETE"}
ASKED = "DELETE"


@pytest.fixture(params=[True, False], ids=["fast", "slow"])
def fast_path(request: pytest.FixtureRequest) -> bool:
    """`server.fast_path`."""
    return bool(request.param)


@pytest.fixture
async def guarded(tmp_path: Path, fast_path: bool) -> AsyncIterator[World]:
    """Yield the cart behind a gateway that requires tokens."""
    async with running(tmp_path, extra="auth: [token]\n", fast_path=fast_path) as world:
        yield world


@pytest.fixture
async def place(tmp_path: Path, fast_path: bool) -> AsyncIterator[Town]:
    """Yield a gateway with a real issuer."""
    async with town(tmp_path, fast_path=fast_path) as started:
        yield started


def waiting_call(world: World) -> Knock:
    """Return a call that a person must approve."""
    params = {"name": "http_request", "arguments": DELETE}
    return mcp_call(f"{world.url}/mcp/cart", "tools/call", params, "http_request")


async def open_question(browser: aiohttp.ClientSession, console: str) -> str:
    """Return the id of the one open question."""
    async with browser.get(f"{console}/api/events", headers=OWN) as stream:
        async for line in stream.content:
            if line.startswith(b"data: [{") and ASKED.encode() in line:
                return str(json.loads(line[6:])[0]["id"])
    raise AssertionError("the stream ended")


def received_requests(world: World) -> list[dict[str, Any]]:
    """Return the requests of that kind that reached the shop."""
    return [one for one in world.arrived() if one["method"] == "DELETE"]


async def wait_refusal(waiting: asyncio.Future[tuple[int, dict[str, str], bytes]]) -> bool:
    """Return whether the caller was disconnected, or received that the approval expired."""
    try:
        _, _, body = await waiting
    except aiohttp.ClientError:
        return True
    return b"approval-expired" in body


async def test_a_token_of_the_gateway(guarded: World) -> None:
    """Revoked right before the approval."""
    shown = await token(guarded, "claude", "mcp")
    async with guarded.client() as browser, asyncio.TaskGroup() as tasks:
        async with browser.get(await link(guarded), headers=NAVIGATION):
            pass
        waiting = tasks.create_task(answer(waiting_call(guarded), shown))
        id = await open_question(browser, guarded.console)
        await revoke(guarded, "claude")
        assert await said_yes(browser, guarded, id) == 200
        assert await wait_refusal(waiting)
    assert received_requests(guarded) == []


async def said_yes(browser: aiohttp.ClientSession, world: World, id: str) -> int:
    """Return the status of approving."""
    _, state = await get(browser, f"{world.console}/api/state")
    headers = {**OWN, "origin": world.console, "webmcp-gateway-csrf": state["csrf"]}
    async with browser.post(f"{world.console}/api/approvals/{id}", json={"answer": "approve"}, headers=headers) as got:
        return got.status


@pytest.mark.parametrize("how", ["revoked", "down", "good"])
async def test_a_token_of_an_issuer(place: Town, how: str) -> None:
    """An opaque one: its issuer is queried again, and no answer counts as revoked."""
    world = place.world
    shown = await place.token("alice", world.url)
    async with world.client() as alice, asyncio.TaskGroup() as tasks:
        await place.log_in(alice, "alice")
        waiting = tasks.create_task(answer(waiting_call(world), shown))
        async with asyncio.timeout(60):
            while not (found := await questions(alice, place)):
                await asyncio.sleep(0.05)
        if how == "revoked":
            await place.revoke("desktop", shown)
        elif how == "down":
            await place.provider.set_down(True)
        assert await approve_status(alice, place, found[0]["id"]) == 200
        assert await wait_refusal(waiting) is (how != "good")
    assert len(received_requests(world)) == (how == "good")


async def test_a_login(place: Town) -> None:
    """Alice's page waits at the app's site; she logs out; the approval has no effect."""
    world = place.world
    async with world.client() as alice, world.client() as olga, asyncio.TaskGroup() as tasks:
        await place.log_in(alice, "alice")
        await place.log_in(olga, "olga")
        async with alice.get(f"{world.site}/", headers=NAVIGATION) as got:
            there = str(got.url)
            text = await got.text()
        assert there
        assert text
        waiting = tasks.create_task(post_status(alice, f"{world.site}/api/checkout"))
        async with asyncio.timeout(60):
            while not (found := await questions(olga, place)):
                await asyncio.sleep(0.05)
        _, state = await get(alice, f"{world.console}/api/state")
        headers = {**OWN, "origin": world.console, "webmcp-gateway-csrf": state["csrf"]}
        async with alice.post(f"{world.console}/api/logout", headers=headers) as out:
            assert (await out.json())["to"].startswith(f"{place.provider.issuer}/session/end?id_token_hint=")
        await approve_status(olga, place, found[0]["id"])
        assert await waiting != 200
    assert [one for one in world.arrived() if one["path"] == "/api/checkout"] == []


async def post_status(browser: aiohttp.ClientSession, url: str) -> int:
    """Return the status of a POST, 0 if the connection was cut."""
    try:
        async with browser.post(url, json={}, headers=OWN) as got:
            return got.status
    except aiohttp.ClientError:
        return 0
