"""Notifications to the view of an upstream's app, and upstream answers that must not pass for the gateway's."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import mcp_types as types
import pytest
from mcp import Client
from mcp.client import advertise
from mcp.server import Server as McpServer
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)

from gateway.mcp.results import BYTES
from gateway.mcp.tools import APP_MIME_TYPE, UI_EXTENSION
from tests.doors.upstream_view import UI, View, opened
from tests.interop.serving import over_http

EXTENSION = [advertise(UI_EXTENSION, {"mimeTypes": [APP_MIME_TYPE]})]
POLICY = "version: 1\ntools:\n  open: {}\n  quiet: {}\n  refused: {deny: not here}\n"


class App:
    """A server with an app, whose results the test sets."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.sessions: list[Any] = []
        self.result: dict[str, Any] = {"content": [{"type": "text", "text": "shown"}], "_meta": {"kept": 1}}
        self.arrived, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()
        self.calls: list[str] = []
        self.server = McpServer[Any](
            "shop",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_prompts=self._list_prompts,
            on_subscriptions_listen=ListenHandler(self.bus),
        )
        self.server.middleware.insert(0, self._remember)

    async def _remember(self, ctx: Any, call_next: Any) -> Any:
        """Keep the sessions of the handshake, and return results that the SDK's own types would refuse."""
        if ctx.method == "initialize":
            self.sessions.append(ctx.session)
        if ctx.method == "tools/call":
            self.calls.append(ctx.params["name"])
            self.arrived.set()
            await self.go.wait()
            modern = {"resultType": "complete"} if ctx.protocol_version.startswith("2026") else {}
            return {**self.result, **modern}
        return await call_next(ctx)

    async def changed(self, kind: str) -> None:
        """Notify clients of each supported era that a list changed."""
        events: dict[str, ServerEvent] = {
            "tools": ToolsListChanged(),
            "prompts": PromptsListChanged(),
            "resources": ResourcesListChanged(),
        }
        await self.bus.publish(events[kind])
        for session in self.sessions:
            await {
                "tools": session.send_tool_list_changed,
                "prompts": session.send_prompt_list_changed,
                "resources": session.send_resource_list_changed,
            }[kind]()

    async def _list_tools(self, _: Any, __: Any) -> types.ListToolsResult:
        shows = {"ui": {"resourceUri": UI}}
        tools = [
            types.Tool(name="open", input_schema={"type": "object"}, _meta=shows),
            types.Tool(name="refused", input_schema={"type": "object"}, _meta=shows),
            types.Tool(name="quiet", input_schema={"type": "object"}),
        ]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(self, _: Any, __: Any) -> types.CallToolResult:
        raise AssertionError("answered before this")

    async def _list_resources(self, _: Any, __: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri=UI, name="app")])

    async def _list_prompts(self, _: Any, __: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[])


async def wait_notified(view: View) -> None:
    """Let one of the view's calls reach the upstream, so that its notifications do, too."""
    await view.result("resources/list")


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_a_view_hears_when_lists_of_its_upstream_change(tmp_path: Path, era: str) -> None:
    """Of tools, prompts and resources, without a subscription."""
    app = App()
    async with opened(tmp_path, era, server=app.server, policy=POLICY) as view:
        await wait_notified(view)
        for kind in ("tools", "prompts", "resources"):
            hearing = asyncio.ensure_future(view.hears(f"notifications/{kind}/list_changed"))
            while not hearing.done():  # the stream of a modern upstream may still be opening
                await app.changed(kind)
                await asyncio.wait({hearing}, timeout=0.1)
            assert hearing.result() == {}


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_an_open_view_follows_its_upstream_to_another_place(tmp_path: Path, era: str) -> None:
    """It is notified that all lists may differ, calls reach the new address, and changes there are forwarded."""
    app, after = App(), App()
    kinds = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]
    async with (
        over_http(after.server, only=era) as url,
        opened(tmp_path, era, server=app.server, policy=POLICY) as view,
    ):
        await wait_notified(view)
        path = tmp_path / "gateway.yaml"
        path.write_text(re.sub("url: '[^']*'", f"url: '{url}'", path.read_text("utf-8")), "utf-8")
        view.reload()
        for kind in kinds:
            assert await view.hears(kind) == {}
        await view.result("tools/call", name="quiet", arguments={})
        assert (app.calls, after.calls) == ([], ["quiet"])
        hearing = asyncio.ensure_future(view.hears(kinds[0]))
        while not hearing.done():  # the stream of a modern upstream may still be opening
            await after.changed("tools")
            await asyncio.wait({hearing}, timeout=0.1)
        assert hearing.result() == {}


@pytest.mark.parametrize("mount", ["/shop", ""])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_model_s_call_of_the_tool_that_opens_an_app_reaches_its_view(
    tmp_path: Path, mode: str, mount: str
) -> None:
    """With the model's arguments and the whole result; the page's next actions have the model as initiator."""
    app, name = App(), "open" if mount else "shop_open"
    async with opened(tmp_path, server=app.server, policy=POLICY) as view, Client(view.mcp + mount, mode=mode) as model:
        await model.list_tools()
        result = await model.call_tool(name, {"budget": 7})
        assert await view.hears("ui/notifications/tool-input") == {"arguments": {"budget": 7}}
        shown = await view.hears("ui/notifications/tool-result")
        assert (shown["content"], shown["_meta"]["kept"]) == ([{"type": "text", "text": "shown"}], 1)
        assert not result.is_error
        await model.call_tool(name.replace("open", "quiet"), {"budget": 8})
        await view.result("tools/call", name="quiet", arguments={})
        assert view.told == []
        lines = (tmp_path / "gateway.journal").read_text("utf-8").splitlines()
        fields = [json.loads(line)["fields"] for line in lines]
        own = next(line for line in fields if line.get("view") == view.id and line.get("tool") == "quiet")
        assert own["initiator"] == "model"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_call_that_is_given_up_is_told_to_its_view(tmp_path: Path, mode: str) -> None:
    """`tool-cancelled`, and nothing after it."""
    app = App()
    app.go.clear()
    async with (
        opened(tmp_path, server=app.server, policy=POLICY) as view,
        Client(f"{view.mcp}/shop", mode=mode) as model,
    ):
        await model.list_tools()
        calling = asyncio.ensure_future(model.call_tool("open", {"budget": 7}))
        await app.arrived.wait()
        calling.cancel()
        await view.hears("ui/notifications/tool-input")
        assert "reason" in await view.hears("ui/notifications/tool-cancelled")
        app.go.set()


async def test_a_view_hears_nothing_of_calls_that_are_not_let_through(tmp_path: Path) -> None:
    """Neither of a denied one, nor of one whose client shows apps itself."""
    app = App()
    async with opened(tmp_path, server=app.server, policy=POLICY) as view:
        async with Client(f"{view.mcp}/shop") as model, Client(f"{view.mcp}/shop", extensions=EXTENSION) as host:
            await model.list_tools()
            assert (await model.call_tool("refused", {"a": 1})).is_error
            await host.call_tool("open", {"a": 1})
        await view.result("tools/call", name="quiet", arguments={})
        assert view.told == []
        assert app.calls == ["open", "quiet"]


@pytest.mark.parametrize(
    "result",
    [
        {"structuredContent": {"bodyType": "base64", "body": base64.b64encode(b"x" * 200_000).decode()}},
        {"structuredContent": {"bodyType": "base64", "body": "QQ=="}, "_meta": {BYTES: "A" * 32}},
        {"_meta": {BYTES: "A" * 32}, "$body": "B" * 32},
    ],
    ids=["like-an-answer", "names-bytes", "names-both"],
)
async def test_an_upstream_s_answer_is_no_answer_of_the_gateway(tmp_path: Path, result: dict[str, Any]) -> None:
    """It reaches the page unchanged, except for reserved keys of the gateway: a detached body cannot be forged."""
    app = App()
    app.result = {"content": [], **result}
    async with opened(tmp_path, server=app.server, policy=POLICY) as view:
        answer = (await view.ask("tools/call", name="quiet", arguments={}))["result"]
        assert BYTES not in answer.get("_meta", {})
        if answer.keys() == {"$body"}:
            answer = await take_body(view, answer["$body"])
        assert BYTES not in answer.get("_meta", {})
        for name in result.keys() - {"_meta"}:
            assert answer[name] == result[name]


async def take_body(view: View, id: str) -> Any:
    """Return the body that a message names."""
    console = view.mcp.replace("localhost", "gateway.localhost").removesuffix("/mcp")
    async with view.http.get(f"{console}/bridge/bodies/{id}") as answer:
        assert isinstance(answer, aiohttp.ClientResponse)
        return await answer.json()
