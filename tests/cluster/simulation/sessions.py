"""MCP clients with a handshake: their sessions are served by any node, and by no one else's credential."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, Final

import aiohttp

from gateway.stores.mcp_sessions import _key
from tests.cluster.simulation.node import APP
from tests.cluster.simulation.world import World

VERSION: Final = "2025-11-25"

AWAY: Final = (aiohttp.ClientError, OSError, TimeoutError)
"""The errors that a client meets when its node is gone."""

WAITS: Final = 20.0
"""Seconds for which a client waits for an answer."""

SERVED: Final = 40.0
"""Seconds after all is healed in which a stored session must be served: longer than leases and failed statements."""


class SessionClient:
    """A client of one person, which uses a session at any node, ends it, and begins another one."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self._ids = 0

    async def work(self) -> None:
        """Begin sessions, use and end them; after all is healed, the last one must be served."""
        world, chance = self.world, self.world.chance
        session: str | None = None
        while world.loop.now < world.seconds:
            await asyncio.sleep(chance.expovariate(1.0))
            if session is None:
                session = await self._begin()
            elif chance.random() < 0.15:
                await self._end(session)
                session = None
            elif chance.random() < 0.2:
                status, _ = await self._send(f"{self.name}'s thief", {"method": "tools/list"}, session)
                if status == 200:
                    world.judge.problem(f"the session of {self.name} serves another person")
            else:
                status, _ = await self._send(self.name, {"method": "tools/list"}, session)
                if status == 404:
                    if self._is_stored(session):  # only one that was never stored may be lost
                        world.judge.problem(f"a stored session of {self.name} is not found")
                    session = None
        if session is not None and self._is_stored(session):
            await self._wait_until_served(session)

    def _is_stored(self, session: str) -> bool:
        return bool(self.world.server.read("SELECT 1 FROM mcp_sessions WHERE key = ?", _key(session)))

    async def _begin(self) -> str | None:
        info = {"name": "client", "version": "1"}
        asked = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info}
        status, session = await self._send(self.name, {"method": "initialize", "params": asked}, None)
        self.world.note(f"a client of {self.name} begins a session: {status}")
        if session is not None:
            await self._send(self.name, {"method": "notifications/initialized"}, session, notice=True)
        return session

    async def _end(self, session: str) -> None:
        status, _ = await self._send(self.name, None, session)
        stored = self._is_stored(session)
        self.world.note(f"a client of {self.name} ends its session: {status}, {'still' if stored else 'not'} stored")
        if status != 200 or stored:
            return
        for _ in range(2):
            await asyncio.sleep(self.world.chance.choice((0.0, 1.0)))
            status, _ = await self._send(self.name, {"method": "tools/list"}, session)
            if status == 200:
                self.world.judge.problem(f"a session of {self.name} that has ended is served")

    async def _wait_until_served(self, session: str) -> None:
        status: int | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(self.world.seconds + SERVED - self.world.loop.now):
                while status not in (200, 404):
                    status, _ = await self._send(self.name, {"method": "tools/list"}, session)
                    await asyncio.sleep(0.5)
        if status != 200 and self._is_stored(session):
            self.world.judge.problem(f"a stored session of {self.name} is not served: {status}")

    async def _send(
        self, name: str, message: dict[str, Any] | None, session: str | None, *, notice: bool = False
    ) -> tuple[int | None, str | None]:
        """Send a message at some node, or DELETE; return its status, and the id of a new session."""
        self._ids += 1
        headers = {"accept": "application/json, text/event-stream", "x-user": name, "webmcp-gateway-client": "1"}
        if session is not None:
            headers |= {"mcp-session-id": session, "mcp-protocol-version": VERSION}
        body = None if message is None else {"jsonrpc": "2.0", **message, **({} if notice else {"id": self._ids})}
        at = self.world.ready()
        connector = aiohttp.UnixConnector(f"public-{at}")
        try:
            async with (
                asyncio.timeout(WAITS),
                aiohttp.ClientSession(connector=connector) as http,
                http.request(
                    "DELETE" if body is None else "POST", f"http://node/mcp/{APP}", json=body, headers=headers
                ) as got,
            ):
                said = await got.text()
                status = 404 if got.status == 200 and '"error"' in said and body is not None else got.status
                self.world.note(f"{name} at {at}: {(message or {}).get('method', 'DELETE')} {got.status} {said[:90]!r}")
                return status, got.headers.get("mcp-session-id")
        except AWAY as error:
            self.world.note(f"{name} at {at}: {json.dumps(message)[:40]} {error!r}")
            return None, None
