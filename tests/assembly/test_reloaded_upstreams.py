"""Upstreams and their policies change while the gateway runs; those that stay keep their connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from aiohttp import web
from mcp import Client
from mcp.server import Server as McpServer

from gateway.app import RELOAD, build_app
from gateway.config import load_config, read_config
from tests.interop.probe import Probe
from tests.interop.serving import over_http
from tests.world import Server


class Counted:
    """A server that counts its sessions."""

    def __init__(self) -> None:
        self.greeted = 0

    def made(self, name: str) -> McpServer[Any]:
        """The server, with two tools whose results contain its name."""

        async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
            tools = [types.Tool(name=tool, input_schema={"type": "object"}) for tool in ("look", "buy")]
            return types.ListToolsResult(tools=tools)

        async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            return types.CallToolResult(content=[types.TextContent(type="text", text=f"{params.name} of {name}")])

        async def count(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
            self.greeted += ctx.method == "initialize"
            return await call_next(ctx)

        server: McpServer[Any] = McpServer(name, on_list_tools=list_tools, on_call_tool=call_tool)
        server.middleware.insert(0, count)
        return server


class Running:
    """A gateway whose files change."""

    def __init__(self, folder: Path, urls: dict[str, str]) -> None:
        self.folder = folder
        self.door = Server()
        self.urls = urls

    @property
    def mcp(self) -> str:
        """The URL of its `/mcp`."""
        return f"http://localhost:{self.door.port}/mcp"

    def write(self, *names: str, policy: str | None = None) -> None:
        """Write the configuration with these upstreams; the policy is the first one's."""
        if policy is not None:
            (self.folder / "policy.yaml").write_text(policy, "utf-8")
        lines = [f"server: {{listen: 127.0.0.1:{self.door.port}}}", "upstreams:"]
        for number, name in enumerate(names):
            more = ", policy: policy.yaml" if number == 0 and (self.folder / "policy.yaml").exists() else ""
            lines.append(f"  {name}: {{url: '{self.urls[name]}', network: private{more}}}")
        (self.folder / "gateway.yaml").write_text("\n".join(lines) + "\n", "utf-8")

    def records(self) -> list[dict[str, Any]]:
        """The records about upstreams."""
        lines = (self.folder / "gateway.journal").read_text("utf-8").splitlines()
        return [f for f in (json.loads(line)["fields"] for line in lines) if f.get("method") == "upstream"]


@asynccontextmanager
async def running(folder: Path, *names: str, policy: str | None = None) -> AsyncIterator[tuple[Running, Any, Counted]]:
    """Run the gateway; yield it, its reload function, and the session counter of the first upstream."""
    counted = Counted()
    async with AsyncExitStack() as stack:
        urls = {"shop": await stack.enter_async_context(over_http(counted.made("shop"), only="legacy"))}
        urls["other"] = await stack.enter_async_context(over_http(Counted().made("other")))
        run = Running(folder, urls)
        run.write(*names, policy=policy)
        path = folder / "gateway.yaml"
        app = build_app(load_config(path, {}), lambda: read_config(path, {}))
        await run.door.start(app)
        stack.push_async_callback(run.door.stop)
        yield run, app[RELOAD], counted


async def until(true: Callable[[], Awaitable[bool]], again: Callable[[], None]) -> None:
    """Trigger `again`, and wait until the change of files has taken effect."""
    async with asyncio.timeout(60):
        again()
        while not await true():
            await asyncio.sleep(0.05)


async def names(client: Client) -> set[str]:
    """The tools that a client sees."""
    return {tool.name for tool in (await client.list_tools()).tools}


LOOK = "version: 1\ntools:\n  look: {}\n"
BOTH = "version: 1\ntools:\n  look: {}\n  buy: {}\n"


async def test_a_policy_takes_effect_on_the_connection_that_stands(tmp_path: Path) -> None:
    """Tools come and go; the upstream's session stays open, and the change is recorded."""
    async with (
        running(tmp_path, "shop", policy=LOOK) as (run, reload, counted),
        Client(f"{run.mcp}/shop", mode="legacy", cache=None) as client,
    ):
        assert await names(client) == {"look"}
        assert (await client.call_tool("buy")).is_error
        greeted = counted.greeted
        run.write("shop", policy=BOTH)

        async def offered() -> bool:
            return await names(client) == {"look", "buy"}

        await until(offered, reload)
        assert not (await client.call_tool("buy")).is_error
        run.write("shop", policy=LOOK)

        async def withdrawn() -> bool:
            return await names(client) == {"look"}

        await until(withdrawn, reload)
        assert (await client.call_tool("buy")).is_error
        assert counted.greeted == greeted
        records = run.records()  # the intent and the outcome of each change
        versions = [(record["policy_before"], record["policy_version"]) for record in records]
        look, both = versions[0]
        assert None not in (look, both)
        assert look != both
        assert versions == [(look, both)] * 2 + [(both, look)] * 2
        assert {record["message"] for record in records} == {"changed"}


async def test_upstreams_come_and_go_beside_one_that_stays(tmp_path: Path) -> None:
    """The change is visible on `/mcp` and at the mount of each upstream."""
    async with (
        running(tmp_path, "shop") as (run, reload, counted),
        Client(run.mcp, mode="legacy", cache=None) as client,
        Client(f"{run.mcp}/shop", mode="legacy", cache=None) as staying,
    ):
        assert await names(staying) == {"look", "buy"}
        greeted = counted.greeted
        run.write("shop", "other")

        async def there() -> bool:
            return "other_look" in await names(client)

        await until(there, reload)
        async with Client(f"{run.mcp}/other", mode="legacy", cache=None) as other:
            assert (await other.call_tool("look")).content[0].model_dump()["text"] == "look of other"
        run.write("shop")

        async def gone() -> bool:
            return "other_look" not in await names(client)

        await until(gone, reload)
        assert (await staying.call_tool("look")).content[0].model_dump()["text"] == "look of shop"
        assert "shop_look" in await names(client)
        assert counted.greeted - greeted <= 1  # one session for the kind of client that `/mcp` is


async def test_a_broken_policy_leaves_the_upstream_as_it_was(tmp_path: Path) -> None:
    """It keeps its policy, and its place before others, which decides conflicts of names on `/mcp`."""
    async with (
        running(tmp_path, "shop", policy=LOOK) as (run, reload, _),
        Client(f"{run.mcp}/shop", mode="legacy", cache=None) as client,
    ):
        run.write("shop", "other", policy="version: 1\ntools: [\n")

        async def other_there() -> bool:
            async with Client(run.mcp, mode="legacy", cache=None) as everything:
                return "other_look" in await names(everything)

        await until(other_there, reload)
        assert await names(client) == {"look"}
        async with Client(run.mcp, mode="legacy", cache=None) as everything:
            listed = [tool.name for tool in (await everything.list_tools()).tools]
        assert listed.index("shop_look") < listed.index("other_look")


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_follows_an_upstream_that_is_elsewhere_now(tmp_path: Path, mode: str) -> None:
    """Subscriptions on `/mcp` continue at the new URL, on the same stream, without a message of the client."""
    before, after = Probe(), Probe()
    updated: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            updated.put_nowait(str(message.params.uri))

    async def listen(changes: Any) -> None:
        async for change in changes:
            if type(change).__name__ == "ResourceUpdated":
                updated.put_nowait(str(change.uri))

    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(over_http(one.server)) for one in (before, after)]
        run = Running(tmp_path, {"up": urls[0]})
        run.write("up")
        path = tmp_path / "gateway.yaml"
        app = build_app(load_config(path, {}), lambda: read_config(path, {}))
        await run.door.start(app)
        stack.push_async_callback(run.door.stop)
        client = await stack.enter_async_context(Client(run.mcp, mode=mode, message_handler=hear))
        if mode == "legacy":
            params = types.SubscribeRequestParams(uri=before.uri)
            await client.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)
        else:
            changes = await stack.enter_async_context(client.listen(resource_subscriptions=[before.uri]))
            listening = asyncio.ensure_future(listen(changes))
            stack.callback(listening.cancel)
        await before.updated()
        assert await asyncio.wait_for(updated.get(), 20) == before.uri
        run.urls["up"] = urls[1]
        run.write("up")

        async def taken() -> bool:
            return any(record.get("status") == 200 for record in run.records())

        await until(taken, app[RELOAD])
        while not updated.empty():
            updated.get_nowait()  # the old server may have sent more than one
        following = asyncio.ensure_future(updated.get())
        async with asyncio.timeout(60):
            while not following.done():
                await after.updated()
                await asyncio.wait({following}, timeout=0.1)
        assert following.result() == after.uri


async def test_a_gateway_stops_while_an_upstream_leaves(tmp_path: Path) -> None:
    """A removed upstream that does not finish its session delays neither the reload nor the shutdown."""
    leaving, left = asyncio.Event(), asyncio.Event()

    async def slow_to_part(request: web.Request) -> None:
        if request.method == "DELETE":
            leaving.set()
            await left.wait()

    async with AsyncExitStack() as stack:
        server = Counted().made("shop")
        shop = await stack.enter_async_context(over_http(server, only="legacy", admit=slow_to_part))
        other = await stack.enter_async_context(over_http(Counted().made("other")))
        run = Running(tmp_path, {"shop": shop, "other": other})
        run.write("shop", "other")
        path = tmp_path / "gateway.yaml"
        app = build_app(load_config(path, {}), lambda: read_config(path, {}))
        await run.door.start(app)
        async with Client(f"{run.mcp}/shop", mode="legacy", cache=None) as client:
            assert await names(client) == {"look", "buy"}
        run.write("other")
        app[RELOAD]()
        await asyncio.wait_for(leaving.wait(), 20)
        async with asyncio.timeout(60):
            await run.door.stop()
        left.set()
    assert [record.get("status") for record in run.records()] == [None, 200]
