"""Messages that name bodies of another process wait for them beside the others, and few at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway import mux
from gateway.assembly import doors
from gateway.doors.bridge.bridge_state import BridgeState
from gateway.doors.bridge.host_page import BYTES, FETCHES
from gateway.model import Channel, Principal
from tests.doors.bridge.test_bridge import connected, console
from tests.world import running


class SlowNodes:
    """Other processes, which answer once `answering` is set, and have no body."""

    def __init__(self) -> None:
        self.answering = asyncio.Event()
        self.begun = 0

    async def fetch_body(self, id: str, principal: Principal) -> None:
        """Wait until they answer."""
        del id, principal
        self.begun += 1
        await self.answering.wait()


async def test_few_messages_wait_at_once_for_bodies_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the limit, other calls are answered meanwhile; beyond it the connection waits, and loses nothing."""
    nodes, asked = SlowNodes(), 3 * FETCHES
    monkeypatch.setattr(
        doors, "BridgeState", lambda *args, **named: BridgeState(*args, **{**named, "elsewhere": nodes})
    )
    async with running(tmp_path) as world, console(world) as client, connected(world, client) as host:
        view = (await host.open()).view

        async def ask(id: int) -> None:
            params: dict[str, Any] = {
                "name": "http_request",
                "arguments": {"url": "/api/products"},
                BYTES: f"made-up-{id}",
            }
            call: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
            await host.say(mux.Message(view, Channel.UI, call))

        await ask(1001)
        assert (await host.call(view, url="/api/products"))["status"] == 200
        for id in range(1002, 1001 + asked):
            await ask(id)
        async with asyncio.timeout(60):
            while nodes.begun < FETCHES:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        assert nodes.begun == FETCHES
        nodes.answering.set()
        answers = [await host.hear() for _ in range(asked)]
        assert {one.message["id"] for one in answers if isinstance(one, mux.Message)} == set(range(1001, 1001 + asked))
        assert (await host.call(view, url="/api/products"))["status"] == 200
