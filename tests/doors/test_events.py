"""The event stream of the console's page."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.doors import events
from tests.callers.tokens import token
from tests.world import World, running

REQUESTS = 20


async def test_lines_of_the_record_come_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line arrives once and in order, in batches: each one wakes the page, which also carries a model's calls."""
    monkeypatch.setattr(events, "MOMENT", 0.5)  # a busy machine needs a while for so many requests
    told: list[str] = []
    pieces = 0
    headers = {"webmcp-gateway-client": "1"}
    async with world.client(headers=headers) as client, client.get(f"{world.console}/api/events") as stream:
        assert (await stream.content.readline()).startswith(b"event:")  # now it follows the record

        async def ask(number: int) -> None:
            async with client.get(f"{world.site}/api/products?page={number}") as answer:
                assert answer.status == 200

        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            for number in range(REQUESTS):
                tasks.create_task(ask(number))
            while len(told) < REQUESTS:
                piece, _ = await anext(stream.content.iter_chunks())
                lines = [line for line in piece.split(b"\n") if b"/api/products" in line]
                told += [line.decode() for line in lines]
                pieces += bool(lines)
    assert len(set(told)) == REQUESTS
    assert pieces < REQUESTS // 2


@pytest.mark.bound("event streams of the console")
async def test_a_person_has_so_many_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted over all tokens of the person; others have separate bounds, and a closed stream frees its place."""
    monkeypatch.setattr(events, "EACH", 2)
    async with running(tmp_path, extra="auth: [token]\n") as world:
        mine = [await token(world, f"token {number}", "bridge", person="ada") for number in range(2)]
        other = await token(world, "other", "bridge", person="bob")
        async with world.client() as client, AsyncExitStack() as streams:

            async def opened(shown: dict[str, str]) -> int:
                stream = await streams.enter_async_context(client.get(f"{world.console}/api/events", headers=shown))
                return stream.status

            async with client.get(f"{world.console}/api/events", headers=mine[0]) as first:
                assert first.status == 200
                assert [await opened(shown) for shown in (mine[1], mine[0], mine[1], other)] == [200, 429, 429, 200]
            async with asyncio.timeout(60):
                while await opened(mine[0]) != 200:
                    await asyncio.sleep(0.05)
