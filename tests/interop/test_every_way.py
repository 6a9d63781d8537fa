"""All that accompanies requests passes, over every transport of clients and servers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.interop.probe import CURSOR, Probe, text
from tests.interop.serving import gateway, over_http
from tests.leaks.watch import environment

ROOT = Path(__file__).parents[2]
MODES = ["legacy", "2026-07-28"]
TRACE = "0af7651916cd43dd8448eb211c80319c"
PIPE = ("-c", "from gateway.cli import main; main()", "stdio", "--url")


@asynccontextmanager
async def behind(folder: Path, upstream: str) -> AsyncIterator[str]:
    """Yield the mount's URL of a gateway in front of a probe, which is reached by `upstream`."""
    async with AsyncExitStack() as stack:
        if upstream == "command":
            line = json.dumps({"command": [sys.executable, "-m", "tests.interop.probe"], "cwd": str(ROOT)})
        else:
            url = await stack.enter_async_context(over_http(Probe().server, only=upstream))
            line = f'{{url: "{url}", network: private}}'
        yield f"{await stack.enter_async_context(gateway(folder, f'up: {line}'))}/up"


def client(way: str, url: str, mode: str, **more: Any) -> Client:
    """Yield a client over HTTP, or through the stdio pipe of desktop clients."""
    if way == "http":
        return Client(url, mode=mode, **more)
    return Client(
        stdio_client(StdioServerParameters(command=sys.executable, args=[*PIPE, url], env=environment())),
        mode=mode,
        **more,
    )


WAYS = pytest.mark.parametrize(
    ("way", "mode", "upstream"),
    [
        *(("http", mode, upstream) for mode in MODES for upstream in ("legacy", "modern", "command")),
        *(("stdio", mode, "command") for mode in MODES),
    ],
)


@WAYS
async def test_pages_completions_and_meta_pass(tmp_path: Path, way: str, mode: str, upstream: str) -> None:
    """Cursors unchanged, and `_meta` with the trace of the call."""
    async with behind(tmp_path, upstream) as url, client(way, url, mode) as one:
        first = await one.list_resources()
        second = await one.list_resources(cursor=first.next_cursor)
        reference = types.PromptReference(type="ref/prompt", name="greet")
        completed = await one.complete(reference, {"name": "city", "value": "Pa"})
        parent = f"00-{TRACE}-b7ad6b7169203331-01"
        meta: Any = {"traceparent": parent, "tracestate": "a=b", "example.org/kept": [1, None]}
        arrived = json.loads(text(await one.call_tool("meta", meta=meta)))
    assert first.next_cursor == CURSOR
    assert [str(one.uri) for page in (first, second) for one in page.resources] == ["probe://doc", "probe://second"]
    assert completed.completion.values == ["Paris"]
    assert (arrived["tracestate"], arrived["example.org/kept"]) == ("a=b", [1, None])
    assert arrived["traceparent"].split("-")[1] == TRACE
    assert arrived["traceparent"] != parent


@WAYS
async def test_progress_and_log_messages_pass(tmp_path: Path, way: str, mode: str, upstream: str) -> None:
    """In order, and before the answer."""
    told: list[Any] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        told.append(params.data)

    more = {"log_level": "info"} if mode != "legacy" else {}
    async with behind(tmp_path, upstream) as url, client(way, url, mode, logging_callback=log, **more) as one:
        if mode == "legacy":
            level = types.SetLevelRequest(params=types.SetLevelRequestParams(level="info"))
            await one.session.send_request(level, types.EmptyResult)
        await one.call_tool("tells", progress_callback=heard)
    assert told == [(1, 2, "step 1"), (2, 2, "step 2"), "told"]


@WAYS
async def test_a_cancellation_passes(tmp_path: Path, way: str, mode: str, upstream: str) -> None:
    """The upstream's handler ends, the connection stays open, and nothing waits in the gateway any more."""
    async with behind(tmp_path, upstream) as url, client(way, url, mode) as one, anyio.create_task_group() as tasks:
        with anyio.fail_after(60):
            given_up = anyio.CancelScope()
            before = waits()

            async def hold() -> None:
                with given_up:
                    await one.call_tool("hold")

            tasks.start_soon(hold)
            await one.call_tool("held")
            given_up.cancel()
            assert text(await one.call_tool("gave_up")) == "gave up"
            while waits() - before:
                await anyio.sleep(0.01)


def waits() -> set[asyncio.Task[Any]]:
    """Return the tasks that wait for an event."""
    return {task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") == "Event.wait"}
