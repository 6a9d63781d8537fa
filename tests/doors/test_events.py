"""The event stream of the console's page."""

from __future__ import annotations

import asyncio

import pytest

from gateway.doors import events
from tests.world import World

REQUESTS = 20


async def test_lines_of_the_record_come_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once and in order, in fewer pieces than there are: a piece wakes the page, which carries a model's calls."""
    monkeypatch.setattr(events, "MOMENT", 0.5)  # a busy machine takes a while for so many requests
    told: list[str] = []
    pieces = 0
    headers = {"webmcp-gateway-client": "1"}
    async with world.client(headers=headers) as client, client.get(f"{world.console}/api/events") as stream:
        assert (await stream.content.readline()).startswith(b"event:")  # it follows by now

        async def ask(number: int) -> None:
            async with client.get(f"{world.site}/api/products?page={number}") as answer:
                assert answer.status == 200

        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            for number in range(REQUESTS):
                tasks.create_task(ask(number))
            while len(told) < REQUESTS:
                piece, _ = await anext(stream.content.iter_chunks())
                lines = [line for line in piece.split(b"\n") if b"/api/products" in line]
                told += [line.decode() for line in lines]
                pieces += bool(lines)
    assert len(set(told)) == REQUESTS
    assert pieces < REQUESTS // 2
