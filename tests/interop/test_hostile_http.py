"""Upstreams over Streamable HTTP that send garbage, flood, lie, hang or die; others are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from tests.interop.hostile_http import LONG, Hostile, hostile
from tests.interop.probe import Probe, text
from tests.interop.serving import gateway, over_http

MODES = ["legacy", "2026-07-28"]


@asynccontextmanager
async def behind(folder: Path, mode: str, more: str = "") -> AsyncIterator[tuple[str, Hostile, Probe]]:
    """Yield the `/mcp` of a gateway in front of the hostile server and of a good one."""
    probe = Probe("good")
    async with AsyncExitStack() as stack:
        bad_url, made = await stack.enter_async_context(hostile(mode))
        good_url = await stack.enter_async_context(over_http(probe.server))
        lines = f'bad: {{url: "{bad_url}", network: private{more}}}\ngood: {{url: "{good_url}", network: private}}'
        yield await stack.enter_async_context(gateway(folder, lines)), made, probe


async def call_outcome(client: Client, tool: str = "ok") -> str:
    """Return the answer to a call, or its failure."""
    try:
        return text(await client.call_tool(tool))
    except Exception as error:  # noqa: BLE001  # any exception will do, if it has a reason
        return str(error)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("garbage", "fine"),
        ("cut", "in the middle of its answer"),
        ("dead", "connection to the upstream broke"),
        ("unanswered", "before its answer"),
        ("broken", "the upstream sent"),
        ("flood", "unsolicited"),
        ("asks", "unsolicited"),
        ("fraction", "fine"),
        ("fraction event", "fine"),
        ("idle", "lines at once that are of no message"),
        ("huge", "1048576"),
        ("huge event", "1048576"),
        ("html", "text/html"),
        ("not json", "not valid JSON"),
        ("bulky", "with JSON that is too large: more than 100000 commas"),
        ("another id", "another request"),
        ("batch", "another request"),
        ("nested", "nested"),
        ("error 500", "HTTP status 500"),
        ("redirect", "the redirect 302"),
        ("empty", "not valid JSON"),
        ("no id", "mute"),
        ("no content", "The upstream bad answered tools/call with an invalid result: content: it is missing."),
        ("never", "did not answer within"),
    ],
)
async def test_a_call_ends_with_words(tmp_path: Path, way: str, why: str, mode: str) -> None:
    """For every kind of bad answer, in both eras; the next call, and the other upstream, are answered."""
    more = ", message: 1MiB" + (", timeout: 1s" if way == "never" else "")
    async with (
        behind(tmp_path, way, more) as (mcp, _, __),
        Client(f"{mcp}/bad", mode=mode) as client,
        Client(f"{mcp}/good", mode=mode) as other,
    ):
        bad, good = await asyncio.gather(call_outcome(client), other.call_tool("plain"))
        assert why in bad
        assert text(good).startswith("plain of good")
        assert {tool.name for tool in (await tools_again(client)).tools} == {"ok"}


@pytest.mark.parametrize("way", ["at once", "bit by bit"])
async def test_long_events_keep_their_place(tmp_path: Path, way: str) -> None:
    """They are read concurrently, but later events wait for them."""
    heard: list[Any] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params.data)

    async with (
        behind(tmp_path, way) as (mcp, _, __),
        Client(f"{mcp}/bad", mode="legacy", logging_callback=log) as client,
    ):
        await client.list_tools()
        for _number in range(2):
            heard.clear()
            assert await call_outcome(client) == "x" * 600_000
            assert heard == LONG


@pytest.mark.parametrize("mode", MODES)
async def test_progress_is_told_however_its_token_is_written(tmp_path: Path, mode: str) -> None:
    """`7.0` is the number 7: the call with that token receives it."""
    heard = asyncio.Queue[float]()

    async def told(progress: float, total: float | None, message: str | None) -> None:
        heard.put_nowait(progress)

    async with (
        behind(tmp_path, "fraction progress") as (mcp, _, __),
        Client(f"{mcp}/bad", mode=mode) as client,
        asyncio.timeout(60),
    ):
        assert text(await client.call_tool("ok", progress_callback=told)) == "fine"
        assert await heard.get() == 1


async def tools_again(client: Client) -> types.ListToolsResult:
    """Return the tools, once the gateway has reached the upstream again."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await client.list_tools()
            except Exception:  # noqa: BLE001  # it pauses for a moment after it was cut off
                await asyncio.sleep(0.1)


@pytest.mark.parametrize(("way", "most"), [("loop", 3), ("endless", 101), ("many", 5000), ("lies", 1)])
async def test_lists_come_to_an_end(tmp_path: Path, way: str, most: int) -> None:
    """On `/mcp`, which reads them whole, they are cut; invalid tools are left out."""
    async with behind(tmp_path, way) as (mcp, made, _), Client(mcp) as client:
        async with asyncio.timeout(60):
            while not (names := [tool.name for tool in (await client.list_tools()).tools if tool.name[:4] == "bad_"]):
                await asyncio.sleep(0.1)
        assert 1 <= len(names) <= most
        assert made.lists <= 110 * 2
        assert text(await client.call_tool("good_plain")).startswith("plain of good")


async def test_a_silent_upstream_holds_nobody_up(tmp_path: Path) -> None:
    """While its calls wait, everything else on the same mount and session is answered first."""
    order: list[str] = []

    async def bad(client: Client, tool: str) -> None:
        order.append(text(await client.call_tool(tool)))

    async with (
        behind(tmp_path, "never") as (mcp, made, _),
        Client(mcp) as client,
        Client(mcp, mode="legacy") as session,
        asyncio.TaskGroup() as tasks,
    ):
        await client.list_tools()
        for one in (client, session):
            for _number in range(20):
                tasks.create_task(bad(one, "bad_ok"))
        await made.called.wait()
        for one in (client, session):
            assert text(await one.call_tool("good_plain")).startswith("plain of good")
            assert {tool.name for tool in (await one.list_tools()).tools} >= {"bad_ok", "good_plain"}
            assert (await one.read_resource("good://doc")).contents
        assert order == []
        made.go.set()
    assert order == ["fine"] * 40


async def test_one_principal_leaves_calls_to_others(tmp_path: Path) -> None:
    """One principal gets half of an upstream's concurrent calls at most; the rest is refused at once."""
    async with behind(tmp_path, "never", ", calls: 4") as (mcp, made, _), Client(f"{mcp}/bad") as client:
        waiting = {asyncio.ensure_future(call_outcome(client)) for _ in range(5)}
        refused: list[str] = []
        while len(refused) < 3:
            done, waiting = await asyncio.wait(waiting, timeout=60, return_when=asyncio.FIRST_COMPLETED)
            refused += [task.result() for task in done]
        assert all("rate-limited" in one for one in refused)
        made.go.set()
        assert await asyncio.gather(*waiting) == ["fine", "fine"]
        assert await call_outcome(client) == "fine"
