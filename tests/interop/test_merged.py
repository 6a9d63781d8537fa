"""Upstreams side by side on `/mcp`: names, clashes, apps, and one that is dead or slow."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client import advertise
from mcp.shared.exceptions import MCPError

from gateway.config import UpstreamSettings
from gateway.mcp.tools import APP_MIME_TYPE, UI_EXTENSION
from gateway.mcp.upstreams.catalog import merging
from gateway.mcp.upstreams.catalog.merging import best_name
from tests.interop.clocks import inside
from tests.interop.everything import Everything
from tests.interop.probe import text
from tests.interop.serving import gateway, over_http

MODES = ["legacy", "2026-07-28"]
UI = [advertise(UI_EXTENSION, {"mimeTypes": [APP_MIME_TYPE]})]


@pytest.mark.parametrize("mode", MODES)
async def test_no_merged_list_has_a_further_page(tmp_path: Path, mode: str) -> None:
    """All pages of the upstreams are in the first one."""
    async with gateway(tmp_path, inside("two", ", prefix: clock")) as mcp, Client(mcp, mode=mode) as client:
        lists: list[Callable[..., Awaitable[Any]]] = [client.list_tools, client.list_prompts, client.list_resources]
        for listed in lists:
            with pytest.raises(MCPError, match="this list has one page"):
                await listed(cursor="2")


@pytest.mark.parametrize("mode", MODES)
async def test_names_carry_the_prefix_of_their_upstream(tmp_path: Path, mode: str) -> None:
    """Each tool and prompt of `/mcp` leads to its own upstream, and to no other."""
    async with over_http(Everything().server) as url:
        lines = f'e: {{url: "{url}", network: private}}\n{inside("two", ", prefix: clock")}'
        async with gateway(tmp_path, lines) as mcp, Client(mcp, mode=mode) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"e_test_simple_text", "clock_show"} <= names
            assert text(await client.call_tool("clock_show")) == "clock show"
            assert "simple text" in text(await client.call_tool("e_test_simple_text"))
            prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
            assert "e_test_simple_prompt" in prompts
            assert (await client.get_prompt("e_test_simple_prompt")).messages
            read = await client.read_resource("test://static-text")
            assert isinstance(read.contents[0], types.TextResourceContents)
            with pytest.raises(MCPError):
                await client.call_tool("test_simple_text")


async def test_names_are_made_once_of_the_same_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upstream may list thousands of items."""
    made: list[str] = []

    def counted(spec: UpstreamSettings, name: str) -> str:
        made.append(name)
        return best_name(spec, name)

    monkeypatch.setattr(merging, "best_name", counted)
    spec = '{server: "tests.interop.everything:server"}'
    async with gateway(tmp_path, f"e: {spec}") as mcp, Client(mcp, cache=None) as client:
        prompts, tools = (await client.list_prompts()).prompts, (await client.list_tools()).tools
        assert {"test_simple_prompt", "test_simple_text"} <= set(made)
        before = len(made)
        assert (await client.list_prompts()).prompts == prompts
        assert (await client.get_prompt("e_test_simple_prompt")).messages
        assert (await client.list_tools()).tools == tools
        assert "simple text" in text(await client.call_tool("e_test_simple_text"))
        assert len(made) == before


async def test_who_comes_first_keeps_a_name_that_two_have(tmp_path: Path) -> None:
    """Without prefixes the second of two equal servers gets its own name before its tools."""
    lines = inside("a", ", prefix: null") + "\n" + inside("b", ", prefix: null")
    async with gateway(tmp_path, lines) as mcp:
        for _ in range(2):
            async with Client(mcp) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
                assert [name for name in names if name.endswith("show")] == ["show", "b_show"]


async def test_the_older_words_of_apps_mean_the_same(tmp_path: Path) -> None:
    """`mcp-app://`, and the flat key alone: the app has a separate URI on `/mcp`, and is read there."""
    lines = 'old: {server: "tests.interop.clocks:older"}'
    async with gateway(tmp_path, lines) as mcp, Client(mcp, extensions=UI) as client:
        [tool] = [tool for tool in (await client.list_tools()).tools if tool.name == "old_show"]
        meta = tool.meta or {}
        assert meta["ui/resourceUri"] == meta["ui"]["resourceUri"] == "mcp-app://old/older/app.html"
        read = (await client.read_resource("mcp-app://old/older/app.html")).contents[0]
        assert isinstance(read, types.TextResourceContents)
        assert read.text == "<p>older</p>"


async def listed_with(client: Client, *names: str) -> dict[str, types.Tool]:
    """Return the tools by their names, once these are among them: a list does not wait long for an upstream."""
    async with asyncio.timeout(60):
        while not set(names) <= (tools := {tool.name: tool for tool in (await client.list_tools()).tools}).keys():
            await asyncio.sleep(0.1)
    return tools


async def test_two_upstreams_with_apps_need_a_trust_group(tmp_path: Path) -> None:
    """Apps of different owners are not shown side by side; a tool without visibility is for the model only."""
    lines = inside("a") + "\n" + inside("b")
    async with gateway(tmp_path, lines) as mcp, Client(mcp, extensions=UI) as client:
        tools = await listed_with(client, "a_show", "b_show")
        assert not any("resourceUri" in (tool.meta or {}).get("ui", {}) for n, tool in tools.items() if n[0] in "ab")
        assert "a_tick" not in tools
        assert (tools["a_show"].meta or {})["ui"]["visibility"] == ["model"]
        with pytest.raises(MCPError):
            await client.read_resource("ui://a/clock/app.html")
    trusted = inside("a", ", trust: us") + "\n" + inside("b", ", trust: us")
    async with gateway(tmp_path, trusted) as mcp, Client(mcp, extensions=UI) as client:
        tools = await listed_with(client, "a_show", "b_show")
        assert (tools["b_show"].meta or {})["ui/resourceUri"] == "ui://b/clock/app.html"
        assert "a_tick" in tools
        listed = {str(resource.uri) for resource in (await client.list_resources()).resources}
        assert {"ui://a/clock/app.html", "ui://b/clock/app.html"} <= listed
        read = (await client.read_resource("ui://b/clock/app.html")).contents[0]
        assert str(read.uri) == "ui://b/clock/app.html"


@pytest.mark.parametrize("mode", MODES)
async def test_a_page_calls_tools_by_the_names_of_its_own_server(tmp_path: Path, mode: str) -> None:
    """Its host sends them unchanged; they reach the only upstream with such a tool for apps, or fail."""
    lines = inside("a", ", trust: us") + '\nold: {server: "tests.interop.clocks:older", trust: %s}'
    async with gateway(tmp_path, inside("a")) as mcp:
        async with Client(mcp, mode=mode, extensions=UI) as host:
            assert text(await host.call_tool("both")) == "clock both"
            assert text(await host.call_tool("tick")) == "clock tick"
            with pytest.raises(MCPError, match=r"does not say that it is for apps \(a\)"):
                await host.call_tool("show")
        async with Client(mcp, mode=mode) as model:
            with pytest.raises(MCPError, match="Unknown tool: both"):
                await model.call_tool("both")
    for trust, said in (("us", r"several upstreams have it for apps \(a, old\)"), ("them", "Unknown tool: tick")):
        async with gateway(tmp_path, lines % trust) as mcp, Client(mcp, mode=mode, extensions=UI) as host:
            with pytest.raises(MCPError, match=said):
                await host.call_tool("tick")
            assert text(await host.call_tool("old_both")) == "older both"


async def test_a_page_s_call_waits_for_an_upstream_that_had_the_tool(tmp_path: Path) -> None:
    """The page may belong to it: no other upstream is called instead."""
    second = inside("b", ", trust: us")
    async with gateway(tmp_path, f"{inside('a', ', trust: us')}\n{second}") as mcp, Client(mcp) as client:
        await client.list_tools()
    silent = f'a: {{command: ["{sys.executable}", "-c", "import sys; sys.stdin.read()"], trust: us, timeout: 1s}}'
    async with gateway(tmp_path, f"{silent}\n{second}") as mcp, Client(mcp, extensions=UI) as host:
        await host.list_tools()
        assert "The upstream a cannot be reached" in text(await host.call_tool("tick"))
        assert text(await host.call_tool("b_tick")) == "clock tick"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mount", ["/a", ""])
@pytest.mark.parametrize(("place", "server"), [("one", "clock"), ("older", "older")])
async def test_tools_of_apps_are_not_for_clients_that_show_none(
    tmp_path: Path, place: str, server: str, mount: str, mode: str
) -> None:
    """On its own mount, too, and with flat keys: the default is model and app; `app` alone is hidden."""
    prefix = "" if mount else "a_"
    async with gateway(tmp_path, f'a: {{server: "tests.interop.clocks:{place}"}}') as mcp:
        async with Client(mcp + mount, mode=mode) as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert {f"{prefix}show", f"{prefix}both"} <= listed
            assert f"{prefix}tick" not in listed
            for name in ("show", "both"):
                assert text(await client.call_tool(prefix + name)) == f"{server} {name}"
            refused = await client.call_tool(f"{prefix}tick")
            assert refused.is_error
            assert "not-an-app" in text(refused)
        async with Client(mcp + mount, mode=mode, extensions=UI) as client:
            tools = {tool.name: tool.meta or {} for tool in (await client.list_tools()).tools}
            assert tools[f"{prefix}tick"].get("ui", {}).get("visibility") == ["app"]
            assert text(await client.call_tool(f"{prefix}tick")) == f"{server} tick"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mount", ["/a", ""])
@pytest.mark.parametrize("runtime", [True, False])
async def test_the_runtime_is_added_where_the_configuration_says_so(
    tmp_path: Path, runtime: bool, mount: str, mode: str
) -> None:
    """First in the page, at every mount; without the option the page is unchanged."""
    async with (
        gateway(tmp_path, inside("a", f", runtime: {str(runtime).lower()}")) as mcp,
        Client(mcp + mount, mode=mode, extensions=UI) as client,
    ):
        await client.list_tools()
        [content] = (await client.read_resource("ui://clock/app.html" if mount else "ui://a/clock/app.html")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text.endswith("<p>clock</p>")
        assert content.text.startswith("<script>") is runtime
        assert ("modelContext" in content.text) is runtime


async def test_an_upstream_that_is_slow_is_waited_for_once(tmp_path: Path) -> None:
    """Later lists do not wait for it, whatever the first one did."""
    silent = f'{{command: ["{sys.executable}", "-c", "import sys; sys.stdin.read()"]}}'
    async with gateway(tmp_path, f"silent: {silent}\n{inside('a')}") as mcp, Client(mcp, cache=None) as client:
        await client.list_tools()
        async with asyncio.timeout(120):  # 600 lists that waited would need three minutes
            for _ in range(600):
                assert "a_show" in {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.parametrize("mode", MODES)
async def test_a_dead_and_a_silent_upstream_delay_nobody(tmp_path: Path, mode: str) -> None:
    """The others' tools are listed; its own are left out, and a call of one gets the reason."""
    silent = f'{{command: ["{sys.executable}", "-c", "import sys; sys.stdin.read()"], timeout: 1s}}'
    dead = f'{{command: ["{sys.executable}", "-c", "raise SystemExit(3)"]}}'
    async with gateway(tmp_path, f"dead: {dead}\nsilent: {silent}\n{inside('a')}") as mcp:
        async with Client(f"{mcp}/a", mode=mode) as client:
            await client.list_tools()  # it has begun, however busy the machine is
        async with Client(mcp, mode=mode) as client:
            assert "a_show" in {tool.name for tool in (await client.list_tools()).tools}
            assert text(await client.call_tool("a_show")) == "clock show"
            for name, why in (("dead_x", "The upstream dead cannot be reached: "), ("silent_x", "not answered yet")):
                result = await client.call_tool(name)  # a name that it may know from before a restart
                assert result.is_error
                assert why in text(result)
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("deadly")
        with pytest.raises((MCPError, ExceptionGroup), match=r"status 3|unhandled"):
            async with Client(f"{mcp}/dead", mode="legacy"):
                pass
