"""A question stays open for exactly the time that its person was shown, at every door and for every way to wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from tests.approvals.page import CartPage, show_cart
from tests.doors.upstream_view import shop
from tests.interop.serving import over_http
from tests.mcp.mounts import result_text
from tests.whole.test_main_job import UI, answer_next, person, questions
from tests.world import World, running

POLICY = """
version: 1
backends: {{shop: {{url: "http://127.0.0.1:9401", network: private, credential: shop-service}}}}
routes:
  - {{path: "/api/cart/{{item}}", methods: [DELETE], confirm: {{timeout: {timeout}}}}}
  - {{path: /api/cart, methods: [GET]}}
tools: {{get_cart: {{confirm: {{timeout: {timeout}}}}}}}
"""
UPSTREAM = "version: 1\ntools: {{both: {{confirm: {{timeout: {timeout}}}}}}}\n"
DELETE = {"url": "/api/cart/tea", "method": "DELETE"}


class Room:
    """A gateway, a person at its console, and a page that is open there."""

    def __init__(self, world: World, ann: aiohttp.ClientSession, page: CartPage) -> None:
        self.world = world
        self.ann = ann
        self.page = page

    @asynccontextmanager
    async def client(self, mount: str, mode: str) -> AsyncIterator[Client]:
        """A client that opens pages if `mode` names an era for that."""
        url, asked = f"{self.world.url}{mount}", mode != "plain"
        era = {"mode": mode} if asked else {}
        callback = {"elicitation_callback": open_page} if asked else {}
        async with Client(url, extensions=UI, cache=None, **era, **callback) as client:  # type: ignore[arg-type]  # by name
            yield client


async def open_page(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """The client opens the page; the person answers elsewhere."""
    return ElicitResult(action="accept")


@asynccontextmanager
async def room(folder: Path, default: str, timeout: str) -> AsyncIterator[Room]:
    """Run a gateway whose timeout is `default` in gateway.yaml, and `timeout` in the rules."""
    async with over_http(shop(print)) as url, AsyncExitStack() as stack:
        (folder / "up.yaml").write_text(UPSTREAM.format(timeout=timeout))
        extra = f"approvals: {{timeout: {default}}}\n"
        extra += f"upstreams: {{other: {{url: '{url}', network: private, policy: up.yaml}}}}\n"
        world = await stack.enter_async_context(running(folder, policy=POLICY.format(timeout=timeout), extra=extra))
        ann = await stack.enter_async_context(person(world))
        yield Room(world, ann, await stack.enter_async_context(show_cart(world, ann)))


async def of_page(room: Room, _: str) -> str:
    """A page in our host, which polls until there is an answer."""
    answer = await room.page.fetch(**DELETE)
    return str(answer["headers"].get("gateway-reason", "sent"))


async def of_site(room: Room, _: str) -> str:
    """The app's site, whose request stays open."""
    origin = {"origin": room.world.site, "sec-fetch-site": "same-origin"}
    async with (
        room.world.client() as browser,
        browser.delete(f"{room.world.site}/api/cart/tea", headers=origin) as got,
    ):
        return got.headers.get("gateway-reason", "sent")


async def unproven(room: Room, mode: str) -> str:
    """A request without view proof."""
    async with room.client("/mcp/cart", mode) as client:
        result = await client.call_tool("http_request", DELETE)
        assert result.structured_content is not None
        return str(result.structured_content["headers"].get("gateway-reason", "sent"))


async def of_view(room: Room, mode: str) -> str:
    """A model's call of a tool of the page."""
    async with room.client("/mcp", mode) as client:
        result = await client.call_tool("cart_get_cart", {})
        return result_text(result) if result.is_error else "sent"


async def of_upstream(room: Room, mode: str) -> str:
    """A model's call of a tool of an upstream."""
    async with room.client("/mcp/other", mode) as client:
        await client.list_tools()
        result = await client.call_tool("both")
        return result_text(result) if result.is_error else "sent"


Call = Callable[[Room, str], Awaitable[str]]
MODES = ("plain", "legacy", "2026-07-28")
CALLS: list[tuple[Call, str]] = [
    (of_page, "plain"),
    (of_site, "plain"),
    *((call, mode) for call in (unproven, of_view, of_upstream) for mode in MODES),
]


async def open_questions(place: Room, calling: asyncio.Future[str]) -> list[dict[str, Any]]:
    """The open questions, as soon as there is one."""
    asking = asyncio.ensure_future(questions(place.ann, place.world))
    either: set[asyncio.Future[Any]] = {asking, calling}
    async with asyncio.timeout(60):
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    assert asking.done(), f"nobody was asked: {calling.result()}"
    return asking.result()


async def test_a_rule_gives_more_time_than_the_configuration(tmp_path: Path) -> None:
    """An answer after the default timeout still counts, and the person was shown the rule's timeout."""
    async with room(tmp_path, "1s", "7m") as place:
        for call, mode in CALLS:
            calling = asyncio.ensure_future(call(place, mode))
            (question,) = await open_questions(place, calling)
            assert question["expires"] - question["created"] == 420, (call, mode)
            await asyncio.sleep(1.2)  # the timeout of a question without a rule of its own, and a sweep
            await answer_next(place.ann, place.world, "approve")
            assert await calling == "sent", (call, mode)


async def test_a_rule_gives_less_time_than_the_configuration(tmp_path: Path) -> None:
    """The call ends at the time that its person was shown, though the default timeout is longer."""
    async with room(tmp_path, "24h", "1s") as place:
        for call, mode in CALLS:
            calling = asyncio.ensure_future(call(place, mode))
            (question,) = await open_questions(place, calling)
            assert question["expires"] - question["created"] == 1, (call, mode)
            assert "approval-expired" in await calling, (call, mode)
            async with place.ann.get(f"{place.world.console}/api/approvals") as listed:
                assert (await listed.json())["approvals"] == []
    assert not [line for line in place.world.arrived() if line["method"] == "DELETE"]


async def test_a_request_that_is_repeated_goes_on_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client with an unknown deadline is told in time to repeat the call; one question is asked, one request sent."""
    monkeypatch.setattr("gateway.mcp.catalog.CALLER_WAIT", 0.2)
    async with room(tmp_path, "2m", "7m") as place, place.client("/mcp/cart", "plain") as client:
        first = await client.call_tool("http_request", DELETE)
        assert first.structured_content is not None
        assert first.structured_content["headers"]["gateway-reason"] == "approval-unavailable"
        assert "Repeat the very same call" in str(first.structured_content["body"])
        (question,) = await questions(place.ann, place.world)
        assert question["expires"] - question["created"] == 420
        await answer_next(place.ann, place.world, "approve")
        assert await unproven(place, "plain") == "sent"
    assert len([line for line in place.world.arrived() if line["method"] == "DELETE"]) == 1
