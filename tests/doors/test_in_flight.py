"""Requests in flight: each person has a share of them over all doors, and a separate share of standing streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from tests.callers.tokens import token
from tests.doors.test_metrics import scrape, total
from tests.mcp.fast_cases import HEAD, message
from tests.world import World, running

BOUND = "requests in flight"
SETTING = "(`server.requests_each`: 2, or less under load)"
MODERN = "2026-07-28"


def configure(world: World, setting: str) -> None:
    """Add a line to `server` in gateway.yaml, for the next start."""
    file = world.folder / "gateway.yaml"
    text = file.read_text("utf-8")
    listen = next(line for line in text.splitlines() if line.strip().startswith("listen:"))
    indent = listen[: len(listen) - len(listen.lstrip())]
    file.write_text(text.replace(listen, f"{listen}\n{indent}{setting}"), "utf-8")


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[World]:
    """Yield a gateway with two requests in flight per person, in front of a shop that never answers."""
    async with running(tmp_path, extra="auth: [token]\n") as world:
        configure(world, "requests_each: 2")
        await world.gateway.stop()
        await world.start_gateway()
        await world.shop.stop()
        held: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", world.shop.port)
        yield world
        silent.close()
        for writer in held:
            writer.close()


@asynccontextmanager
async def holding(world: World, shown: dict[str, str]) -> AsyncIterator[None]:
    """Hold two requests of the site that wait for the shop."""
    async with world.client(headers=shown) as client:

        async def ask() -> None:
            async with client.get(f"{world.site}/api/products"):
                pass

        tasks = [asyncio.create_task(ask()) for _ in range(2)]
        before = total(await scrape(world), "bounds_exceeded_total", bound=BOUND)
        async with asyncio.timeout(60):
            while await _free(world, shown):
                await asyncio.sleep(0.01)
        assert total(await scrape(world), "bounds_exceeded_total", bound=BOUND) > before
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def _free(world: World, shown: dict[str, str]) -> bool:
    """Return whether the gateway admits one more request of this caller."""
    async with world.client(headers=shown) as client, client.get(f"{world.site}/") as answer:
        if answer.status == 200:
            return True
        problem = await answer.json()
        assert (answer.status, problem["type"]) == (429, "urn:webmcp-gateway:too-many-requests")
        assert SETTING in problem["detail"]
        assert answer.headers["retry-after"] == "1"
        return False


@pytest.mark.bound("requests in flight")
@pytest.mark.parametrize("fast", [True, False])
async def test_a_person_has_so_many_requests_in_flight(small: World, *, fast: bool) -> None:
    """Counted over all clients and doors; others are served, and so is the person once some requests have ended."""
    mine = await token(small, "site", "app", person="ada")
    client_of_ada = await token(small, "client", "mcp", person="ada")
    other = await token(small, "other", "mcp", "app", person="bob")
    body = message(arguments={"url": "/api/products"}) if fast else message(method="tools/list")
    head = {**HEAD, "host": f"localhost:{small.gateway.port}", "mcp-method": "tools/call" if fast else "tools/list"}

    async def called(shown: dict[str, str]) -> tuple[int, str]:
        async with small.client() as client, client.post(f"{small.url}/mcp", data=body, headers=head | shown) as answer:
            return answer.status, await answer.text()

    async with holding(small, mine):
        status, text = await called(client_of_ada)
        assert status == 429
        assert SETTING in json.loads(text)["error"]["message"]
        assert await _free(small, other)
        assert fast or (await called(other))[0] == 200
    async with asyncio.timeout(60):
        while not await _free(small, mine):
            await asyncio.sleep(0.01)
    assert fast or (await called(client_of_ada))[0] == 200
    await small.gateway.stop()
    sums = [line["fields"] for line in small.records() if line["fields"].get("bound") == BOUND]
    assert {said["principal"] for said in sums} == {"local|token:site|ada", "local|token:client|ada"}
    assert {(said["kind"], said["of"]) for said in sums} == {("refused", "bound")}


@pytest.mark.bound("standing streams of sessions and of change notifications")
async def test_a_person_has_so_many_standing_streams(small: World) -> None:
    """Counted over all mounts, apart from requests; another person has a separate bound."""
    mine = await token(small, "mine", "mcp", person="ada")
    other = await token(small, "other", "mcp", person="bob")

    @asynccontextmanager
    async def listening(mount: str, shown: dict[str, str]) -> AsyncIterator[None]:
        async with (
            httpx2.AsyncClient(headers=shown) as http,
            Client(streamable_http_client(f"{small.url}{mount}", http_client=http), mode=MODERN) as client,
            client.listen(tools_list_changed=True),
        ):
            await client.list_tools()
            yield

    async with AsyncExitStack() as streams:
        for mount in ("/mcp", "/mcp/cart"):
            await streams.enter_async_context(listening(mount, mine))
        with pytest.raises((MCPError, ExceptionGroup)):
            await streams.enter_async_context(listening("/mcp", mine))
        await streams.enter_async_context(listening("/mcp", other))
    async with asyncio.timeout(60), listening("/mcp", mine):
        pass
