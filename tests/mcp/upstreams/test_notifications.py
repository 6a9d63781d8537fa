"""A client reads the notifications of its call at its own pace."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.mcp.upstreams.transport import notifications
from gateway.mcp.upstreams.transport.notifications import BESIDE, MOST, CallNotifier

METHOD = "notifications/message"


async def test_who_reads_slowly_has_all_of_it_before_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long that takes, as long as it makes progress."""
    monkeypatch.setattr(notifications, "DRAIN", 0.0)
    heard: list[int] = []

    async def tell(_: str, params: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        heard.append(params["data"])

    async with asyncio.TaskGroup() as tasks:
        one = CallNotifier(tasks, tell)
        for number in range(500):
            one.add(METHOD, {"data": number}, 10)
        await one.drain()
        one.close()
    assert heard == list(range(500))


@pytest.mark.bound("queued notifications of a call")
async def test_who_does_not_read_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue is bounded, and no answer waits for it for ever."""
    monkeypatch.setattr(notifications, "DRAIN", 0.0)
    heard: list[int] = []
    go = asyncio.Event()

    async def tell(_: str, params: dict[str, Any]) -> None:
        await go.wait()
        heard.append(params["data"])

    async with asyncio.TaskGroup() as tasks, asyncio.timeout(60):
        one = CallNotifier(tasks, tell)
        for number in range(64):
            one.add(METHOD, {"data": number}, MOST // 32 - BESIDE)
        await one.drain()
        go.set()
        await one.drain()
        one.close()
    assert heard == list(range(32))
