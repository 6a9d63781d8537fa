"""Restarts the nodes of a deployment one after the other under load, and counts the calls that were not answered."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from yarl import URL

from tests.cluster.cluster import Door, Page
from tests.cluster.deployment import Deployment, deployment
from tests.cluster.machines import NAMES, Machines
from tests.deploy.proxies import wait_listening
from tests.interop.serving import over_http
from tests.redis_server import RedisServer
from tests.whole.restart_load import (
    OWN,
    Cut,
    Load,
    Tally,
    counting_backend,
    counting_upstream,
    until_answered,
)  # fmt: skip
from tests.world import serving

ANNOUNCE: Final = "1s"
"""How long a node says that it stops before it stops listening: longer than two probes of the shipped Caddyfile."""


@dataclass
class Place:
    """A deployment under load."""

    deployment: Deployment
    tally: Tally
    front: str
    hosts: dict[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """Unused: clients know the proxy alone."""
        return 0

    @property
    def site(self) -> str:
        """The origin of the app."""
        return self.deployment.site("page")

    @property
    def mcp(self) -> str:
        """The origin of the MCP servers."""
        return self.deployment.mcp

    def client(self) -> aiohttp.ClientSession:
        """Return a client of the proxy."""
        return self.deployment.client(headers={**OWN, **self.deployment.headers})


@asynccontextmanager
async def placed(
    folder: Path, machines: Machines, database: str, redis: RedisServer, proxy: str, method: str = ""
) -> AsyncIterator[Place]:
    """Yield three nodes with a page and an upstream behind a proxy."""
    tally = Tally()
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(counting_backend(tally)))
        upstream = await stack.enter_async_context(over_http(counting_upstream(tally)))
        for each in (port, URL(upstream).port or 0):
            await stack.enter_async_context(machines.exposed(each))
        (folder / "index.html").write_text("<!doctype html><title>one page</title>")
        (folder / "policy.yaml").write_text(
            f"version: 1\nbackends: {{api: {{url: 'http://127.0.0.1:{port}', network: private}}}}\n"
            'limits: {timeout: 120s}\nroutes: [{path: "/api/{number}", methods: [GET, POST]}]\ntools: {add: {}}\n'
        )
        settings = {
            "apps": {"page": {"source": "../index.html", "policy": "../policy.yaml"}},
            "upstreams": {"up": {"url": upstream, "network": "private"}},
        }
        made = await stack.enter_async_context(
            deployment(folder, machines, database, redis, settings, announce=ANNOUNCE)
        )
        stack.enter_context(made.proxied(proxy, method))
        await wait_listening(made.ports.tls)
        yield Place(made, tally, proxy)


async def measure(place: Place, times: int, wanted: int, names: Sequence[str] = NAMES) -> Tally:
    """Restart these nodes one after the other under the load of `times` clients of each kind.

    `wanted` calls begin after each restart.
    """
    load, tally = Load(place, times, ModelsCalls(place)), place.tally
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load.run())
        await load.begin()
        for name in names:
            await until_answered(tally, time.monotonic(), wanted)
            await place.deployment.stop(name)
            await place.deployment.start(name)
        await until_answered(tally, time.monotonic(), wanted)
        load.stop()
    return tally


class ModelsCalls:
    """A model's calls of a tool of a page that attaches again whenever it is told to."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def __call__(self, load: Load) -> None:
        """Run the page, and make the calls one after the other."""
        async with self._place.client() as http:
            door = Door(self._place.mcp, {})
            served = ServedPage(http, door)
            await served.begin()
            serving = asyncio.create_task(served.run())

            async def call(number: str) -> None:
                arguments = {"view": served.page.view, "tool": "add", "arguments": {"n": number}}
                try:
                    async with asyncio.timeout(90):
                        answer = await door.call(http, "call_view_tool", app=False, **arguments)
                        while (answer.get("structuredContent") or {}).get("status") == "running":
                            parked = answer["structuredContent"]["call"]
                            answer = await door.call(http, "call_view_tool", app=False, call=parked)
                except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                    raise Cut(repr(error)) from error
                self._place.tally.ran.update(served.ran.pop(number, ()))
                if json.dumps({"n": number}) not in json.dumps(answer).replace('\\"', '"'):
                    raise Cut(f"{json.dumps(answer)[:200]}; its page: {served.refused[-2:]}")

            try:
                await load.repeat("model's call", call)
            finally:
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)


class ServedPage:
    """A page over MCP that offers a tool at a door; `ran` are the runs of each call by its number."""

    def __init__(self, http: aiohttp.ClientSession, door: Door) -> None:
        self._http = http
        self._door = door
        self.launch = ""
        self.page: Page
        self.ran: dict[str, list[str]] = {}
        self.refused: list[str] = []
        """What its polls and attachments were answered with, but for answers and `view-moved`."""

    async def begin(self, at: Door | None = None) -> None:
        """Open the view, at another door if one is given."""
        opened = await (at or self._door).call(self._http, "open_page")
        self.launch = opened["_meta"]["webmcp-gateway/launch"]
        await self._attach(at or self._door)

    async def run(self) -> None:
        """Run calls, as the runtime of views does."""
        while True:
            try:
                polled = await self.page.call("webmcp_poll", after=self.page.after, wait=5000)
                if polled.get("isError") or "structuredContent" not in polled:
                    if "view-moved" in json.dumps(polled):
                        await self._attach(self._door)
                    else:
                        self.refused.append(json.dumps(polled)[:300])
                        await asyncio.sleep(0.2)
                    continue
                for event in polled["structuredContent"]["events"]:
                    self.page.after = event["number"]
                    if "arguments" not in event:
                        continue
                    number = event["arguments"]["n"]
                    self.ran.setdefault(number, []).append(number)
                    result = {"content": [{"type": "text", "text": json.dumps(event["arguments"])}]}
                    await self.page.call("webmcp_result", call=event["call"], result=result)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                self.refused.append(repr(error)[:300])
                await asyncio.sleep(0.2)

    async def _attach(self, at: Door) -> None:
        self.page = await Page.attach(self._http, at, self.launch)
        self.page.at = self._door
        await self.page.offer("add")
