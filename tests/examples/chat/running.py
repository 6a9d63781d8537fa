"""The demo chat's server on a free port, and its page as a program: it follows a conversation as the browser does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from examples.chat_host.server import build_app
from examples.chat_host.settings import Settings
from tests.examples.chat.endpoints import Endpoint
from tests.world import Server, local_client


def settings_for(folder: Path, port: int, gateway: str, server: Endpoint | None = None, **more: Any) -> Settings:
    """Return the settings of a chat at `port`, with the model of an endpoint, or the scripted one."""
    model = {} if server is None else {"provider": server.format, "base_url": server.base_url, "model": "m", "key": "k"}
    console = gateway.replace("localhost", "gateway.localhost")
    return Settings(
        folder / "chat", gateway=gateway, console=console, url=f"http://localhost:{port}", pace=0.0, **{**model, **more}
    )


@dataclass(slots=True)
class Page:
    """A page that shows one conversation: its items by id, as the changes of the stream leave them."""

    http: aiohttp.ClientSession
    url: str
    id: str
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    busy: bool = False
    status: dict[str, Any] = field(default_factory=dict)
    changes: list[dict[str, Any]] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def post(self, path: str, body: object | None = None) -> int:
        """Post to the conversation; return the status."""
        url = f"{self.url}/api/conversations/{self.id}/{path}"
        async with self.http.post(url, json=body or {}) as response:
            return response.status

    async def say(self, text: str, **more: str) -> None:
        """Send a message, and wait until the model has answered."""
        assert await self.post("messages", {"text": text, **more}) == 202
        await self.until(lambda: self.busy)
        await self.until(lambda: not self.busy)

    async def until(self, test: Callable[[], object]) -> None:
        """Wait until the page shows something."""
        async with asyncio.timeout(60):
            while not test():
                self._news.clear()
                await self._news.wait()

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the items of one kind, in order."""
        return [item for item in self.items.values() if item["kind"] == kind]

    def texts(self) -> list[str]:
        """Return what was said, in order."""
        return [item["text"] for item in self.of("message")]

    async def follow(self) -> None:
        """Take the changes until cancelled."""
        timeout = aiohttp.ClientTimeout(total=None)
        async with self.http.get(f"{self.url}/api/conversations/{self.id}/events", timeout=timeout) as stream:
            assert stream.status == 200
            async for line in stream.content:
                if line.startswith(b"data: "):
                    self._take(json.loads(line[6:]))

    def _take(self, change: dict[str, Any]) -> None:
        self.changes.append(change)
        if "items" in change:
            self.items = {item["id"]: item for item in change["items"]}
        if "item" in change:
            self.items[change["item"]["id"]] = change["item"]
        if "append" in change:
            item = self.items[change["append"]["id"]]
            item["text" if item["kind"] == "message" else "written"] += change["append"]["text"]
        self.items.pop(change.get("removed", ""), None)
        self.busy = change.get("busy", self.busy)
        self.status = change.get("status", self.status)
        self._news.set()


@dataclass(slots=True)
class ChatRun:
    """A running chat."""

    settings: Settings
    http: aiohttp.ClientSession

    async def create(self) -> str:
        """Return the id of a new conversation."""
        async with self.http.post(f"{self.settings.url}/api/conversations", json={}) as response:
            assert response.status == 201
            return str((await response.json())["id"])

    @asynccontextmanager
    async def page(self, id: str | None = None, *, connected: bool = True) -> AsyncIterator[Page]:
        """Show a conversation, by default a new one, once the gateway is connected, or is known not to be."""
        page = Page(self.http, self.settings.url, id or await self.create())
        following = asyncio.ensure_future(page.follow())
        try:
            await page.until(lambda: page.status.get("connected") is connected and len(page.changes) > 1)
            yield page
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


@asynccontextmanager
async def running_chat(
    folder: Path, gateway: str, server: Endpoint | None = None, door: Server | None = None, **more: Any
) -> AsyncIterator[ChatRun]:
    """Run the chat in front of the gateway at this plain address."""
    door = door or Server()
    settings = settings_for(folder, door.port, gateway, server, **more)
    try:
        await door.start(build_app(settings))
        async with local_client() as http:
            yield ChatRun(settings, http)
    finally:
        await door.stop()
