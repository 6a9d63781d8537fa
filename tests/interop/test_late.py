"""Upstreams on `/mcp` that answer late, before or after a restart: names stay theirs, and calls wait for them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from gateway.mcp.upstreams.catalog import list_cache
from gateway.mcp.upstreams.transport import handshake, link
from gateway.stores.upstream_tools import KnownTool, UpstreamTools
from tests.interop.clocks import inside
from tests.interop.probe import Probe, text
from tests.interop.serving import gateway, over_http


async def test_a_name_that_was_told_stays_with_its_upstream(tmp_path: Path) -> None:
    """An upstream that comes first in the file, and answers late, does not take the name over."""
    late, go = tmp_path / "late.py", tmp_path / "go"
    late.write_text(LATE.format(path=repr(sys.path)), "utf-8")
    first = f'a: {{command: ["{sys.executable}", "{late}", "{go}"], prefix: null}}'
    second = inside("b", ", prefix: null")
    async with gateway(tmp_path, f"{first}\n{second}") as mcp, Client(mcp, cache=None) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "show" in names
        go.touch()
        async with asyncio.timeout(60):
            while "a_show" not in names:
                names = [tool.name for tool in (await client.list_tools()).tools]
        assert text(await client.call_tool("show")) == "clock show"
        assert text(await client.call_tool("a_show")) == "late show"


async def test_a_name_is_kept_for_who_had_it_before_a_restart(tmp_path: Path) -> None:
    """Until that upstream answers: a name that clients still know reaches no other server."""
    second = inside("b", ", prefix: null")
    async with gateway(tmp_path, f"{inside('a', ', prefix: null')}\n{second}") as mcp, Client(mcp) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert [name for name in names if name.endswith("show")] == ["show", "b_show"]
    silent = f'a: {{command: ["{sys.executable}", "-c", "import sys; sys.stdin.read()"], prefix: null, timeout: 1s}}'
    async with gateway(tmp_path, f"{silent}\n{second}") as mcp, Client(mcp) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert [name for name in names if name.endswith("show")] == ["b_show"]
        assert text(await client.call_tool("b_show")) == "clock show"
        result = await client.call_tool("show")
        assert result.is_error
        assert "The upstream a cannot be reached: it has not answered yet." in text(result)


async def test_a_name_that_had_to_be_changed_is_kept_too(tmp_path: Path) -> None:
    """A shortened or changed name does not contain the upstream's own name of the tool."""
    spec = '{server: "tests.interop.clocks:odd", prefix: p}'
    async with gateway(tmp_path, f"a: {spec}\nb: {spec}") as mcp, Client(mcp) as client:
        names = [tool.name for tool in (await client.list_tools()).tools if tool.name[:2] in ("p_", "b_")]
        assert [name[:-7] for name in names] == ["p_show_the_time", "b_show_the_time"]
    silent = f'a: {{command: ["{sys.executable}", "-c", "import sys; sys.stdin.read()"], prefix: p, timeout: 1s}}'
    async with gateway(tmp_path, f"{silent}\nb: {spec}") as mcp, Client(mcp) as client:
        left = [tool.name for tool in (await client.list_tools()).tools if tool.name[:2] in ("p_", "b_")]
        assert left == [names[1]]
        assert "The upstream a cannot be reached" in text(await client.call_tool(names[0]))


async def test_a_name_is_kept_also_until_it_is_known_who_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call during the database query waits for it, and does not reach the upstream that answers first."""
    second = inside("b", ", prefix: null")
    async with gateway(tmp_path, f"{inside('a', ', prefix: null')}\n{second}") as mcp, Client(mcp) as client:
        await client.list_tools()
    asked, go = asyncio.Event(), asyncio.Event()
    of = UpstreamTools.of

    async def reading(store: UpstreamTools, upstream: str) -> dict[str, KnownTool]:
        if upstream == "a":
            asked.set()
            await go.wait()
        return await of(store, upstream)

    monkeypatch.setattr(UpstreamTools, "of", reading)
    monkeypatch.setattr(list_cache, "FIRST", 0.1)
    silent = f'a: {{command: ["{sys.executable}", "-c", "import sys; sys.stdin.read()"], prefix: null, timeout: 1s}}'
    async with gateway(tmp_path, f"{silent}\n{second}") as mcp, Client(mcp, cache=None) as client, Client(mcp) as other:
        asking = asyncio.create_task(client.list_tools())
        await asked.wait()
        calling = asyncio.create_task(other.call_tool("show"))
        await asking  # by now it would have been refused
        assert not calling.done()
        go.set()
        assert "The upstream a cannot be reached" in text(await calling)
        async with asyncio.timeout(60):
            while "b_show" not in {tool.name for tool in (await client.list_tools()).tools}:
                await asyncio.sleep(0.05)
        assert text(await other.call_tool("b_show")) == "clock show"


async def test_prompts_and_addresses_are_kept_for_who_had_them_before_a_restart(tmp_path: Path) -> None:
    """Until that upstream answers: another server with the same one does not get the request, either."""
    greeting = types.PromptReference(type="ref/prompt", name="test_simple_prompt")
    asked: list[Callable[[Client], Awaitable[Any]]] = [
        lambda client: client.get_prompt("test_simple_prompt"),
        lambda client: client.complete(greeting, {"name": "arg1", "value": "par"}),
        lambda client: client.read_resource("test://static-text"),
        lambda client: client.read_resource("test://template/7/data"),
    ]
    spec = '{server: "tests.interop.everything:server", prefix: null}'
    async with gateway(tmp_path, f"a: {spec}\nb: {spec}") as mcp, Client(mcp) as client:
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert {"test_simple_prompt", "b_test_simple_prompt"} <= prompts
        for ask in asked:
            await ask(client)
    silent = f'{{command: ["{sys.executable}", "-c", "import sys; sys.stdin.read()"], prefix: null, timeout: 1s}}'
    async with gateway(tmp_path, f"a: {silent}\nb: {spec}") as mcp, Client(mcp) as client:
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert "b_test_simple_prompt" in prompts
        assert "test_simple_prompt" not in prompts
        assert (await client.get_prompt("b_test_simple_prompt")).messages
        assert not (await client.list_resources()).resources
        assert not (await client.list_resource_templates()).resource_templates
        for ask in asked:
            with pytest.raises(MCPError, match="The upstream a cannot be reached"):
                await ask(client)


@pytest.mark.parametrize(
    ("mode", "prefixes", "name"),
    [
        ("legacy", ["a"], "a_show"),
        ("2026-07-28", ["null"], "show"),
        ("2026-07-28", ["a", "a_b"], "a_b_show"),  # which either may have, by its prefix
    ],
)
async def test_a_call_waits_for_an_upstream_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, prefixes: list[str], name: str
) -> None:
    """After a restart clients call the tools that they know, and wait longer than for a list."""
    late = tmp_path / "late.py"
    late.write_text(LATE.format(path=repr(sys.path)), "utf-8")
    starts = {f"{prefix}_show" if prefix != "null" else "show": tmp_path / prefix for prefix in prefixes}
    lines = "\n".join(
        f'u{number}: {{command: ["{sys.executable}", "{late}", "{tmp_path / prefix}"], prefix: {prefix}}}'
        for number, prefix in enumerate(prefixes)
    )

    async def listed(client: Client, name: str) -> None:
        async with asyncio.timeout(60):
            while name not in {tool.name for tool in (await client.list_tools()).tools}:
                await asyncio.sleep(0.05)

    for start in starts.values():
        start.touch()
    async with gateway(tmp_path, lines) as mcp, Client(mcp, mode=mode, cache=None) as client:
        await listed(client, name)
    for start in starts.values():
        start.unlink()
    monkeypatch.setattr(list_cache, "FIRST", 0.1)
    async with gateway(tmp_path, lines) as mcp, Client(mcp, mode=mode, cache=None) as client:
        calls = [asyncio.ensure_future(client.call_tool(name)) for _ in range(2)]
        await client.list_tools()  # by now they would have been refused
        assert not any(call.done() for call in calls)
        for one, start in starts.items():
            start.touch()
            await listed(client, one)
        for call in calls:
            assert text(await call) == "late show"


@pytest.mark.parametrize("first", ["raise SystemExit(3)", "import sys; sys.stdin.read()"], ids=["dead", "silent"])
async def test_a_call_that_another_can_serve_waits_for_none_that_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Both may have the tool, by their prefixes, and the first one does not answer."""
    late, start = tmp_path / "late.py", tmp_path / "start"
    late.write_text(LATE.format(path=repr(sys.path)), "utf-8")
    lines = f"""
u0: {{command: ["{sys.executable}", "-c", "{first}"], prefix: a, timeout: 600s}}
u1: {{command: ["{sys.executable}", "{late}", "{start}"], prefix: a_b}}
"""
    monkeypatch.setattr(list_cache, "FIRST", 0.1)
    monkeypatch.setattr(handshake, "PROBE", 600.0)
    monkeypatch.setattr(link, "OPENING", 600.0)
    async with gateway(tmp_path, lines) as mcp, Client(mcp, cache=None) as client, asyncio.timeout(60):
        await client.list_tools()  # neither has answered
        calling = asyncio.ensure_future(client.call_tool("a_b_show"))
        start.touch()
        assert text(await calling) == "late show"


async def test_an_address_is_waited_for_with_each_that_had_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the first one no longer has it, the next one is asked, although it starts later."""
    late = tmp_path / "late.py"
    late.write_text(LATE.format(path=repr(sys.path)), "utf-8")
    uri = "test://static-text"
    had = '{server: "tests.interop.everything:server", prefix: null}'
    async with gateway(tmp_path, f"a: {had}\nb: {had}") as mcp, Client(mcp, cache=None) as client:
        await client.read_resource(uri)
    starts = [tmp_path / name for name in ("one", "everything")]
    now = (f'{{command: ["{sys.executable}", "{late}", "{start}"], prefix: null}}' for start in starts)
    monkeypatch.setattr(list_cache, "FIRST", 0.1)
    lines = "\n".join(map("{}: {}".format, "ab", now))
    async with gateway(tmp_path, lines) as mcp, Client(mcp, cache=None) as client, asyncio.timeout(60):
        reading = asyncio.ensure_future(client.read_resource(uri))
        await client.list_resources()  # by now it would have been refused
        assert not reading.done()
        starts[0].touch()
        while not (await client.list_resources()).resources:
            await asyncio.sleep(0.05)
        await client.list_resource_templates()
        starts[1].touch()
        assert str((await reading).contents[0].uri) == uri


@pytest.mark.parametrize("slow", ["resources/list", "resources/templates/list"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_address_is_waited_for_with_each_that_never_said_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, slow: str
) -> None:
    """Its tools are known, and its list of resources is slower than lists are waited for."""
    monkeypatch.setattr(list_cache, "NEW", 0.1)
    b = Probe("b")
    asked, go = asyncio.Event(), asyncio.Event()

    async def answers(context: Any, params: Any) -> Any:
        asked.set()
        await go.wait()
        if slow == "resources/list":
            return types.ListResourcesResult(resources=[types.Resource(uri="b://other", name="b")])
        covering = types.ResourceTemplate(uri_template="b://{name}", name="b")
        return types.ListResourceTemplatesResult(resource_templates=[covering])

    b.server.add_request_handler(slow, types.PaginatedRequestParams, answers)
    async with (
        over_http(Probe("a").server) as one,
        over_http(b.server) as other,
        gateway(tmp_path, f'a: {{url: "{one}", network: private}}\nb: {{url: "{other}", network: private}}') as mcp,
        Client(mcp, mode=mode, cache=None) as client,
        asyncio.timeout(60),
    ):
        await client.list_tools()
        reading = asyncio.ensure_future(client.read_resource("b://other"))
        await asked.wait()
        await asyncio.sleep(0.5)  # by now it would have been refused
        go.set()
        assert (await reading).contents


async def test_one_that_starts_is_on_the_first_list(tmp_path: Path) -> None:
    """For clients that never list again."""
    server = tmp_path / "slow.py"
    server.write_text(MODERN, "utf-8")
    lines = f'u: {{command: ["{sys.executable}", "{server}", "{tmp_path / "starts"}"]}}'
    async with gateway(tmp_path, lines) as mcp, Client(mcp) as client, asyncio.timeout(60):
        assert "u_ok" in {tool.name for tool in (await client.list_tools()).tools}


async def test_clients_are_told_of_prompts_that_come_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the upstream sends no notification: for it nothing changed."""
    late, start = tmp_path / "late.py", tmp_path / "everything"
    late.write_text(LATE.format(path=repr(sys.path)), "utf-8")
    monkeypatch.setattr(list_cache, "FIRST", 0.1)
    lines = f'u: {{command: ["{sys.executable}", "{late}", "{start}"]}}'
    async with gateway(tmp_path, lines) as mcp, Client(mcp, cache=None) as client, asyncio.timeout(60):
        async with client.listen(prompts_list_changed=True) as changes:
            assert not (await client.list_prompts()).prompts
            start.touch()
            await anext(changes)
        assert (await client.list_prompts()).prompts


async def test_one_that_takes_long_to_start_is_started_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although a probe for an older protocol, which it does not speak, runs meanwhile."""
    server, starts = tmp_path / "slow.py", tmp_path / "starts"
    server.write_text(MODERN, "utf-8")
    monkeypatch.setattr(handshake, "PROBE", 0.2)
    lines = f'u: {{command: ["{sys.executable}", "{server}", "{starts}"]}}'
    async with gateway(tmp_path, lines) as mcp, Client(f"{mcp}/u") as client, asyncio.timeout(60):
        assert [tool.name for tool in (await client.list_tools()).tools] == ["ok"]
    assert starts.read_text() == "started\n"


MODERN = """
import json, sys, time
with open(sys.argv[1], "a") as starts:
    starts.write("started\\n")
time.sleep(1)
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if asked["method"] == "server/discover":
        answer |= {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif asked["method"] == "tools/list":
        answer |= {"tools": [{"name": "ok", "inputSchema": {"type": "object"}}]}
    else:
        answer = None
    if "id" in asked:
        said = {"error": {"code": -32601, "message": "no"}} if answer is None else {"result": answer}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
"""

LATE = """
import sys, time
from pathlib import Path
sys.path[:] = {path}
import anyio
from tests.interop.standard_streams import on_standard_streams
from tests.interop.everything import Everything
from tests.interop.clocks import clock
while not Path(sys.argv[1]).exists():
    time.sleep(0.05)
anyio.run(on_standard_streams, Everything().server if sys.argv[1].endswith("everything") else clock("late"))
"""
