"""Tools of an upstream that are new to the gateway, or that it could not list yet."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.server import Server as McpServer

from gateway.mcp.upstreams.catalog import offers
from gateway.policy import tool_pin
from tests.interop.probe import text, text_result
from tests.interop.serving import gateway, over_http

MODES = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
SCHEMA: dict[str, Any] = {"type": "object"}


@dataclass
class Changing:
    """A server whose list the test changes; `mute` makes listing fail."""

    names: list[str]
    visibility: list[str] | None = None
    mute: bool = False
    called: list[str] = field(default_factory=list)

    async def list_tools(self, _: Any, __: Any) -> types.ListToolsResult:
        """Return the current tools."""
        if self.mute:
            raise MCPError(types.INTERNAL_ERROR, "not now")
        meta = {"ui": {"visibility": self.visibility}} if self.visibility else None
        tools = [types.Tool(name=name, input_schema=SCHEMA, _meta=meta) for name in self.names]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, _: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Run any tool."""
        self.called.append(params.name)
        return text_result("ran")


@asynccontextmanager
async def behind(folder: Path, changing: Changing, mode: str, more: str = "") -> AsyncIterator[Client]:
    """Yield a client of it behind a gateway."""
    server: McpServer[Any] = McpServer("up", on_list_tools=changing.list_tools, on_call_tool=changing.call_tool)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(over_http(server))
        mcp = await stack.enter_async_context(gateway(folder, f'up: {{url: "{url}", network: private{more}}}'))
        yield await stack.enter_async_context(Client(f"{mcp}/up", mode=mode, cache=None))


@MODES
async def test_an_upstream_with_ever_new_tools_has_the_newest_held_back(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool whose changes could not be detected is neither listed nor called, unless the policy pins it."""
    monkeypatch.setattr(offers, "MOST_FINGERPRINTS", 2)
    pin = tool_pin("pinned", title="", description="", input_schema=SCHEMA, annotations={})
    rules = {"tools": {"a": {}, "b": {}, "c": {}, "pinned": {"pin": pin}}}
    (tmp_path / "policy.yaml").write_text(json.dumps({"version": 1, **rules}), "utf-8")
    changing = Changing(["a", "b"])
    async with behind(tmp_path, changing, mode, ", policy: policy.yaml") as one:
        assert {tool.name for tool in (await one.list_tools()).tools} == {"a", "b"}
        changing.names = ["b", "c", "pinned"]
        assert {tool.name for tool in (await one.list_tools()).tools} == {"b", "pinned"}
        refused = await one.call_tool("c")
        assert "pin it in its policy" in text(refused)
        assert [(await one.call_tool(name)).is_error for name in ("b", "pinned")] == [False, False]
    assert changing.called == ["b", "pinned"]
    lines = [json.loads(line)["fields"] for line in (tmp_path / "gateway.journal").read_text("utf-8").splitlines()]
    assert [line["tool"] for line in lines if line.get("reason") == "policy-denied"] == ["c"]


@MODES
async def test_a_tool_of_apps_stays_one_while_the_upstream_cannot_list_it(tmp_path: Path, mode: str) -> None:
    """Only apps reach it before its visibility is known."""
    changing = Changing(["page"], visibility=["app"], mute=True)
    async with behind(tmp_path, changing, mode) as one:
        for _ in range(2):
            with pytest.raises(MCPError, match="not now"):
                await one.call_tool("page")
        changing.mute = False
        assert (await one.call_tool("page")).is_error
    assert changing.called == []


@MODES
@pytest.mark.parametrize("mount", ["", "/up"])
async def test_of_tools_with_one_name_on_several_pages_the_first_counts(
    tmp_path: Path, mode: str, mount: str, caplog: pytest.LogCaptureFixture
) -> None:
    """However often they are listed, no change is reported."""

    async def list_tools(_: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        second = params is not None and params.cursor is not None
        told, schema = ("second", {**SCHEMA, "required": ["x"]}) if second else ("first", SCHEMA)
        names = ["twice", told]
        tools = [types.Tool(name=name, description=told, input_schema=schema) for name in names]
        return types.ListToolsResult(tools=tools, next_cursor=None if second else "more")

    server: McpServer[Any] = McpServer("up", on_list_tools=list_tools, on_call_tool=Changing([]).call_tool)
    async with (
        over_http(server) as url,
        gateway(tmp_path, f'up: {{url: "{url}", network: private}}') as mcp,
        Client(mcp + mount, mode=mode, cache=None) as client,
    ):
        for _ in range(2):
            listed = await client.list_tools()
            tools = listed.tools
            while listed.next_cursor is not None:
                listed = await client.list_tools(cursor=listed.next_cursor)
                tools += listed.tools
            told = [tool.description for tool in tools if tool.name.removeprefix("up_") in ("twice", "first", "second")]
            assert told == ["first", "first", "second"]
        assert text(await client.call_tool("twice" if mount else "up_twice", {})) == "ran"
    assert "has changed" not in caplog.text
