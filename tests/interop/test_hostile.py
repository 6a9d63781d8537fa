"""Upstreams that send garbage, flood, lie, hang or die: their calls end with a reason, and others continue."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from gateway.mcp.upstreams.catalog.listing import pin_of
from tests.interop.probe import TOOLS, Probe
from tests.interop.serving import gateway, over_http
from tests.world import local_client

MODES = ["legacy", "2026-07-28"]


def hostile(*modes: str, **more: Any) -> str:
    """Return one upstream for each mode, named after it, and an ordinary one."""
    lines = []
    for mode in (*modes, "good"):
        spec = {"command": [sys.executable, str(Path(__file__).with_name("hostile.py")), mode], **more}
        lines.append(f"{mode}: {json.dumps(spec)}")
    return "\n".join(lines)


def text(result: types.CallToolResult) -> str:
    """Return the text of a result."""
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["garbage", "asking", "surrogate", "lies", "loop"])
async def test_a_good_answer_is_found_among_bad_ones(tmp_path: Path, way: str, mode: str) -> None:
    """Invalid messages are skipped."""
    async with gateway(tmp_path, hostile(way)) as mcp, Client(f"{mcp}/{way}", mode=mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "ok" in names
        assert names <= {"ok", "t", "deep"}
        assert "fine" in text(await client.call_tool("ok"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("flood", "unsolicited"),
        ("never", "did not answer within"),
        ("torn", "status 3"),
        ("huge", "more than 1048576 bytes"),
        ("heavy", "unsolicited bytes"),
        ("noresult", "not a JSON-RPC response"),
        ("nested", "its response is invalid"),
        ("nan", "its response is invalid: NaN is not JSON"),
        ("nan-first", "its response is invalid: NaN is not JSON"),
    ],
)
async def test_a_call_that_cannot_be_answered_says_why(tmp_path: Path, way: str, why: str, mode: str) -> None:
    """The call ends with a reason, and the other upstream is not affected."""
    lines = hostile(way, timeout="1s" if way == "never" else "20s", message="1MiB")
    async with (
        gateway(tmp_path, lines) as mcp,
        Client(f"{mcp}/{way}", mode=mode) as client,
        Client(f"{mcp}/good", mode=mode) as other,
    ):
        bad, good = await asyncio.gather(_call_outcome(client), other.call_tool("ok"))
        assert why in bad
        assert text(good) == "fine"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("mount", "tool"), [("/nolist", "ok"), ("", "nolist_ok")])
async def test_what_is_wrong_with_a_list_is_said_to_who_calls(tmp_path: Path, mount: str, tool: str, mode: str) -> None:
    """Without the list the visibility of its tools is unknown: none is called."""
    async with gateway(tmp_path, hostile("nolist")) as mcp, Client(mcp + mount, mode=mode) as client:
        refused = await client.call_tool(tool)
        assert refused.is_error
        assert "The upstream nolist answered tools/list with an invalid result: tools: no list." in text(refused)


@pytest.mark.parametrize("mode", MODES)
async def test_a_process_that_died_is_started_anew(tmp_path: Path, mode: str) -> None:
    """After a short pause the upstream answers again, to a client that stayed connected."""
    async with gateway(tmp_path, hostile("torn")) as mcp, Client(f"{mcp}/torn", mode=mode, cache=None) as client:
        for _ in range(2):
            assert "status 3" in await _call_outcome(client)
            assert await _back(client) == ["ok"]


async def _back(client: Client) -> list[str]:
    """Return the tools, once the upstream lists them again; until then each call fails at once."""
    async with asyncio.timeout(60):
        while True:
            try:
                return [tool.name for tool in (await client.list_tools()).tools]
            except MCPError:
                await asyncio.sleep(0.1)


async def _call_outcome(client: Client) -> str:
    try:
        return text(await client.call_tool("ok"))
    except Exception as error:  # noqa: BLE001  # any exception will do, if it has a reason
        return str(error)


async def test_one_hundred_thousand_tools_are_cut(tmp_path: Path) -> None:
    """The list stays readable for a client."""
    async with gateway(tmp_path, hostile("many")) as mcp, Client(f"{mcp}/many") as client:
        assert len((await client.list_tools()).tools) == 5000
        assert text(await client.call_tool("tool_7")) == "fine"


@asynccontextmanager
async def pinned(folder: Path, way: str, why: str) -> AsyncIterator[str]:
    """Yield the gateway's URL once a tool differs from its pin: neither offered nor called, for this reason."""
    pin = pin_of({"name": "ok", "description": "Does it.", "inputSchema": {"type": "object"}})
    (folder / "policy.yaml").write_text(f'version: 1\ntools:\n  ok: {{pin: "{pin}"}}\n', "utf-8")
    async with (
        gateway(folder, hostile(way, policy="policy.yaml")) as mcp,
        Client(f"{mcp}/{way}", cache=None) as client,
    ):
        assert [tool.name for tool in (await client.list_tools()).tools] == ["ok"]
        assert text(await client.call_tool("ok")) == "fine"
        assert not (await client.list_tools()).tools
        refused = await client.call_tool("ok")
        assert refused.is_error
        assert why in text(refused)
        yield mcp


async def test_a_tool_that_changes_is_recorded_and_held_where_it_is_pinned(tmp_path: Path) -> None:
    """The change is recorded and counted."""
    headers = {"webmcp-gateway-client": "1"}
    async with (
        pinned(tmp_path, "changing", "pins the tool ok") as mcp,
        aiohttp.ClientSession() as session,
        session.get(f"{mcp[:-4]}/metrics", headers=headers) as answer,
    ):
        assert 'upstream_tool_changes_total{upstream="changing"} 1.0' in await answer.text()
    lines = [json.loads(line) for line in (tmp_path / "gateway.journal").read_text("utf-8").splitlines()]
    assert any("the tool changed" in json.dumps(line) for line in lines)


async def test_a_pinned_tool_that_is_listed_no_longer_is_not_called(tmp_path: Path) -> None:
    """The pinned form is gone: the same name may mean any tool now."""
    async with pinned(tmp_path, "dropping", "it is not listed now"):
        pass


async def test_a_change_is_known_after_a_restart(tmp_path: Path) -> None:
    """The first form seen counts: the console shows the difference until the policy pins the new one."""
    probe = Probe()
    async with over_http(probe.server) as url:
        line = f'up: {{url: "{url}", network: private}}'
        assert await looked_at(tmp_path, line) == []
        probe.description = "Does something else."
        changed = await looked_at(tmp_path, line, len(TOOLS))
        assert len(changed) == len(TOOLS)
        assert "up: the tool plain changed from sha256:" in " ".join(changed)
        assert await looked_at(tmp_path, line, len(TOOLS)) == changed
        assert len(changes(tmp_path)) == len(TOOLS)
        pins = {
            name: pin_of({"name": name, "description": probe.description, "inputSchema": {"type": "object"}})
            for name in TOOLS
        }
        tools = "".join(f'  {name}: {{pin: "{pin}"}}\n' for name, pin in pins.items())
        (tmp_path / "policy.yaml").write_text(f"version: 1\ntools:\n{tools}", "utf-8")
        assert await looked_at(tmp_path, f"{line[:-1]}, policy: policy.yaml}}") == []
        assert await looked_at(tmp_path, line) == []
        probe.description = "Does it."
        assert len(await looked_at(tmp_path, line, len(TOOLS))) == len(TOOLS)
    assert len(changes(tmp_path)) == 2 * len(TOOLS)


async def looked_at(folder: Path, line: str, count: int = 0) -> list[str]:
    """Return the changed tools in the console's state, once a gateway has listed them and there are `count`."""
    async with gateway(folder, line) as mcp, Client(f"{mcp}/up", cache=None) as client:
        await client.list_tools()
        console = mcp[:-4].replace("localhost", "gateway.localhost")
        own = {"origin": console, "sec-fetch-site": "same-origin"}
        async with local_client(headers=own) as person, asyncio.timeout(60):
            if not count:
                await asyncio.sleep(1.1)  # the console checks every second
            while True:
                async with person.get(f"{console}/api/state") as answer:
                    found = [str(one["message"]) for one in (await answer.json())["problems"]]
                if len(found) >= count:
                    return sorted(found)
                await asyncio.sleep(0.1)


def changes(folder: Path) -> list[str]:
    """Return the changes in the record."""
    lines = (folder / "gateway.journal").read_text("utf-8").splitlines()
    fields = [json.loads(line)["fields"] for line in lines]
    return [str(one["tool"]) for one in fields if one.get("message") == "the tool changed"]


async def test_an_approval_is_for_the_tool_that_was_shown(tmp_path: Path) -> None:
    """An upstream that changes its tool's description meanwhile does not get the call."""
    policy = 'version: 1\ntools:\n  ok: {confirm: {when: always, message: "Do it?"}}\n'
    (tmp_path / "policy.yaml").write_text(policy, "utf-8")
    async with (
        gateway(tmp_path, hostile("changing", policy="policy.yaml")) as mcp,
        Client(f"{mcp}/changing", cache=None) as client,
        local_client() as person,
        asyncio.TaskGroup() as tasks,
    ):
        console = mcp[:-4].replace("localhost", "gateway.localhost")
        own = {"origin": console, "sec-fetch-site": "same-origin"}
        assert [tool.description for tool in (await client.list_tools()).tools] == ["Does it."]
        calling = tasks.create_task(client.call_tool("ok"))
        async with asyncio.timeout(60):
            asked: list[dict[str, Any]] = []
            while not asked:
                async with person.get(f"{console}/api/approvals", headers=own) as answer:
                    asked = (await answer.json())["approvals"]
        assert [tool.description for tool in (await client.list_tools()).tools] != ["Does it."]
        async with person.get(f"{console}/api/state", headers=own) as answer:
            own["webmcp-gateway-csrf"] = (await answer.json())["csrf"]
        url = f"{console}/api/approvals/{asked[0]['id']}"
        async with person.post(url, json={"answer": "approve"}, headers=own) as answer:
            assert answer.status == 200
        refused = await calling
    assert refused.is_error
    assert "approval-expired" in text(refused)


async def test_the_policy_decides_on_arguments_and_counts(tmp_path: Path) -> None:
    """`when`, a quota and a missing rule refuse with reasons, which are recorded."""
    policy = 'version: 1\ntools:\n  ok: {when: "arguments.n < 3", quota: 2/day per principal}\n'
    (tmp_path / "policy.yaml").write_text(policy, "utf-8")
    async with gateway(tmp_path, hostile(policy="policy.yaml")) as mcp, Client(f"{mcp}/good") as client:
        said = [text(await client.call_tool("ok", {"n": n})) for n in (1, 5, 2, 1)]
        assert said[0] == said[2] == "fine"
        assert "policy-denied" in said[1]
        assert "quota-exceeded" in said[3]
        assert "policy-denied" in text(await client.call_tool("other"))
    lines = [json.loads(line) for line in (tmp_path / "gateway.journal").read_text("utf-8").splitlines()]
    kinds = [(line["phase"], line["fields"].get("tool")) for line in lines]
    assert kinds.count(("intent", "ok")) == 2
    assert kinds.count(("outcome", "ok")) == 4


async def test_include_and_exclude(tmp_path: Path) -> None:
    """Excluded tools are neither listed nor called."""
    async with gateway(tmp_path, hostile(exclude=["o*"])) as mcp, Client(f"{mcp}/good") as client:
        assert not (await client.list_tools()).tools
        assert (await client.call_tool("ok")).is_error
