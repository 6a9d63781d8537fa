"""Persons with separate accounts at an upstream: each is offered, and may call, what their account offers."""

from __future__ import annotations

import asyncio
import gc
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server as McpServer
from mcp.shared._httpx_utils import create_mcp_http_client

from gateway.mcp.upstreams.catalog import list_cache, merging, offers
from gateway.mcp.upstreams.catalog.listing import pin_of
from tests.callers.tokens import token
from tests.interop.probe import text, text_result
from tests.interop.serving import over_http
from tests.world import World, local_client, running

MODES = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
MOUNTS = pytest.mark.parametrize("mount", ["", "/up"])
PEOPLE = ("ann", "bob")
SCHEMA = {"type": "object"}
CREDENTIAL = """
from gateway.hookspecs import hookimpl

class OwnName:
    def __init__(self, name, options):
        pass

    async def headers(self, principal, method, url):
        return (("x-person", principal.subject),)

@hookimpl
def register_credential_types():
    return {"own-name": OwnName}
"""


@dataclass
class Shop:
    """A server whose tool `shared` differs by person, and for bob is for apps only if `hidden`.

    Its other tools are each person's own.
    """

    said: dict[str, str] = field(default_factory=lambda: dict.fromkeys(PEOPLE, "Does it."))
    hidden: bool = True
    called: list[tuple[str, str]] = field(default_factory=list)

    async def list_tools(self, context: Any, __: Any) -> types.ListToolsResult:
        """Return this person's tools."""
        person = context.request.headers["x-person"]
        meta = {"ui": {"visibility": ["app"]}} if person == "bob" and self.hidden else None
        shared = types.Tool(name="shared", description=self.said[person], input_schema=SCHEMA, _meta=meta)
        return types.ListToolsResult(tools=[shared, types.Tool(name=f"of_{person}", input_schema=SCHEMA)])

    async def call_tool(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Run any tool."""
        self.called.append((context.request.headers["x-person"], params.name))
        return text_result("ran")


@dataclass
class Place:
    """A gateway in front of it, and a client of each person at one of its mounts."""

    world: World
    shop: Shop
    clients: dict[str, Client]
    prefix: str

    async def names(self, person: str) -> set[str]:
        """Return the tools of the shop that a person is offered."""
        tools = {tool.name for tool in (await self.clients[person].list_tools()).tools}
        return {f"{self.prefix}{name}" for name in ("shared", "of_ann", "of_bob")} & tools

    async def runs(self, person: str, name: str) -> bool:
        """Return whether a call of this person runs."""
        try:
            return text(await self.clients[person].call_tool(self.prefix + name)) == "ran"
        except MCPError:
            return False

    def changes(self) -> list[str]:
        """Return the persons whose tools changed, by the record."""
        fields = [record["fields"] for record in self.world.records()]
        return [str(one["principal"]).rpartition("|")[2] for one in fields if one.get("message") == "the tool changed"]


@asynccontextmanager
async def placed(
    folder: Path, mode: str, mount: str, policy: str = "", shop: Shop | None = None, again: str = ""
) -> AsyncIterator[Place]:
    """Yield ann and bob, each with a separate token."""
    shop = shop or Shop()
    server: McpServer[Any] = McpServer("up", on_list_tools=shop.list_tools, on_call_tool=shop.call_tool)
    (folder / "own_name.py").write_text(CREDENTIAL, "utf-8")
    (folder / "up.yaml").write_text(policy, "utf-8")
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(over_http(server))
        line = f"up: {{url: '{url}', network: private, credential: own{', policy: up.yaml' if policy else ''}}}"
        other = 'other: {server: "tests.interop.clocks:one"}'
        extra = f"auth: [token]\nplugins: [own_name.py]\nupstreams:\n  {other}\n  {line}\n"
        own = "  own: {type: own-name}\n"
        world = await stack.enter_async_context(running(folder, extra=extra, credentials=own))
        clients = {}
        for person in PEOPLE:
            headers = await token(world, f"of {person}{again}", "mcp", person=person)
            http = await stack.enter_async_context(create_mcp_http_client(headers=headers))
            transport = streamable_http_client(f"{world.url}/mcp{mount}", http_client=http)
            clients[person] = await stack.enter_async_context(Client(transport, mode=mode, cache=None))
        yield Place(world, shop, clients, "" if mount else "up_")


@MODES
@MOUNTS
async def test_each_is_offered_their_own_tools(tmp_path: Path, mode: str, mount: str) -> None:
    """In any order of listing; a tool may be for apps for one of them, and for the model for the other."""
    async with placed(tmp_path, mode, mount) as place:
        for _ in range(2):
            assert await place.names("ann") == {f"{place.prefix}shared", f"{place.prefix}of_ann"}
            assert [await place.runs(person, "shared") for person in PEOPLE] == [True, False]
            assert await place.names("bob") == {f"{place.prefix}of_bob"}
            assert [await place.runs(person, "shared") for person in PEOPLE] == [True, False]
    assert place.shop.called == [("ann", "shared")] * 4


@MODES
@MOUNTS
async def test_a_tool_changes_for_the_one_whom_it_is_told(tmp_path: Path, mode: str, mount: str) -> None:
    """Another form for another person is no change; a changed form is recorded for its person, also after a restart."""
    shop, turns = Shop({"ann": "Does it.", "bob": "Does it for bob."}), (*PEOPLE, *PEOPLE)
    async with placed(tmp_path, mode, mount, shop=shop) as place:
        for person in turns:
            await place.names(person)
        shop.said["bob"] = "Does it for ann."
        for person in turns:
            await place.names(person)
    assert place.changes() == ["bob"]
    shop.said["ann"] = "Does it for bob."
    async with placed(tmp_path, mode, mount, shop=shop, again=" again") as place:
        for person in turns:
            await place.names(person)
    assert place.changes() == ["bob", "ann"]


@MODES
@MOUNTS
async def test_a_pin_is_for_the_form_that_each_is_told(tmp_path: Path, mode: str, mount: str) -> None:
    """A person with another form is neither offered the pinned one nor can call it."""
    shop = Shop({"ann": "Does it.", "bob": "Does something else."}, hidden=False)
    pin = pin_of({"name": "shared", "description": "Does it.", "inputSchema": SCHEMA})
    policy = json.dumps({"version": 1, "tools": {"shared": {"pin": pin}, "of_ann": {}, "of_bob": {}}})
    async with placed(tmp_path, mode, mount, policy, shop) as place:
        for person in (*PEOPLE, *PEOPLE):
            await place.names(person)
            assert [await place.runs(one, "shared") for one in PEOPLE] == [True, False]
        assert await place.names("bob") == {f"{place.prefix}of_bob"}


@MODES
@MOUNTS
async def test_a_call_needs_no_list_of_its_own(tmp_path: Path, mode: str, mount: str) -> None:
    """For a person whose list is unknown, or was evicted, the upstream is asked."""
    async with placed(tmp_path, mode, mount) as place:
        assert [await place.runs(person, "shared") for person in PEOPLE] == [True, False]
        assert await place.runs("bob", "of_bob")


@MODES
async def test_only_so_many_persons_are_remembered(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used entry is evicted and asked for again; whom a tool is for stays known."""
    monkeypatch.setattr(offers, "MOST", 1)
    async with placed(tmp_path, mode, "/up") as place:
        for _ in range(2):
            assert [await place.runs(person, "shared") for person in PEOPLE] == [True, False]


@MODES
@MOUNTS
async def test_the_lists_of_all_persons_have_an_end_in_bytes(
    tmp_path: Path, mode: str, mount: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The least recently used lists are evicted everywhere, and asked for again; log and console report it once."""
    room = offers.ROOM
    monkeypatch.setattr(offers, "ROOM", 1)
    before = cached_lists()
    async with placed(tmp_path, mode, mount) as place:
        for _ in range(2):
            assert await place.names("ann") == {f"{place.prefix}shared", f"{place.prefix}of_ann"}
            assert await place.names("bob") == {f"{place.prefix}of_bob"}
            assert [await place.runs(person, "shared") for person in PEOPLE] == [True, False]
        now = Counter(type(one).__name__ for one in cached_lists() if not any(one is old for old in before))
        assert now == ({"OfferedTools": 1} if mount else {"OfferedTools": 2, "KnownLists": 2, "_MergedList": 1})
        assert await console_problems(place.world) == [
            f"up: its lists for all persons have more than {room} bytes: it is requested again more often"
        ]
    assert [one.message for one in caplog.records if "lists for all persons" in one.message] == [
        "upstream up: its lists for all persons have more than 1 bytes"
    ]


async def console_problems(world: World) -> list[str]:
    """Return the problems in the console's state, once there are any."""
    looks = await token(world, "looks", "mcp", "admin")
    async with local_client(headers={**looks, "webmcp-gateway-client": "1"}) as person, asyncio.timeout(60):
        while True:
            async with person.get(f"{world.console}/api/state") as answer:
                if said := [str(one["message"]) for one in (await answer.json())["problems"]]:
                    return said
            await asyncio.sleep(0.1)


def cached_lists() -> list[object]:
    """Return the objects that cache lists, of all gateways so far."""
    gc.collect()
    return [
        one
        for one in gc.get_objects()
        if isinstance(one, offers.OfferedTools | list_cache.KnownLists | merging._MergedList)
    ]
