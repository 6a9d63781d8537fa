"""Servers that run in the gateway's process and misbehave, each in the way of its name."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import mcp_types as types
from mcp.server import Server

from tests.interop.probe import Context, text_result

LISTS: list[str] = []
"""The mode of the server for each list that was requested."""


def tool(name: str, schema: dict[str, Any] | None = None) -> types.Tool:
    """Return a tool."""
    return types.Tool(name=name, description="Does it.", input_schema=schema or {"type": "object"})


async def list_tools(way: str, _: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """Return the tools, in the way of the server."""
    LISTS.append(way)
    cursor = params.cursor if params is not None else None
    match way:
        case "loop":
            return types.ListToolsResult(tools=[tool("ok"), tool(f"t{cursor or ''}")], next_cursor="again")
        case "endless":
            number = int(cursor or 0) + 1
            return types.ListToolsResult(tools=[tool(f"t{number}")], next_cursor=str(number))
        case "many":
            return types.ListToolsResult(tools=[tool(f"tool_{number}") for number in range(100_000)])
        case "lies":
            return types.ListToolsResult(tools=[tool("z", {"type": "object", "properties": 7}), tool("ok")])
        case "no list":
            raise ValueError("no list today")
        case _:
            return types.ListToolsResult(tools=[tool("ok")])


async def answer_call(way: str, context: Context, _: types.CallToolRequestParams) -> Any:
    """Answer a call in the way of the server."""
    match way:
        case "never":
            await asyncio.Event().wait()
        case "raises":
            raise RuntimeError("no")
        case "exits":
            sys.exit(3)
        case "none":
            return None
        case "another":
            return types.ListToolsResult(tools=[])
        case "huge":
            return text_result("x" * 50_000_000)
        case "nested":
            value: Any = {}
            for _level in range(500):
                value = {"a": value}
            return types.CallToolResult(content=[], structured_content=value)
        case "bulky":
            return types.CallToolResult(content=[], structured_content={"n": [0] * 200_000})
        case "surrogate":
            return text_result("\ud800 fine")
        case "flood" | "heavy":
            count, said_each = (25_000, "x") if way == "flood" else (100, "x" * 900_000)
            for _number in range(count):
                progress = types.ProgressNotificationParams(progress_token="nobody", progress=1, message=said_each)
                await context.session.send_notification(types.ProgressNotification(params=progress))
        case "cancelled":
            raise asyncio.CancelledError
        case _:
            pass
    return text_result("fine")


@asynccontextmanager
async def lifespan(way: str, _: Server[Any]) -> AsyncIterator[None]:
    """Fail or die at the start or later, in the way of the server."""
    if way == "unborn":
        raise RuntimeError("cannot live")
    if way == "leaves":
        sys.exit("had enough")
    if way == "dies":
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(dying())
            yield
    else:
        yield


async def dying() -> None:
    """End the server after a while."""
    await asyncio.sleep(0.5)
    raise RuntimeError("died")


def make_server(way: str) -> Server[Any]:
    """Return a server of that mode."""
    if way == "unmade":
        sys.exit(2)
    return Server[Any](
        "hostile",
        lifespan=partial(lifespan, way),
        on_list_tools=partial(list_tools, way),
        on_call_tool=partial(answer_call, way),
    )


WAYS = (
    "loop", "endless", "many", "lies", "no list", "never", "raises", "none", "another", "huge", "nested", "bulky",
    "surrogate", "flood", "heavy", "cancelled", "unborn", "dies", "exits", "leaves", "unmade",
)  # fmt: skip
globals().update({way.replace(" ", "_"): partial(make_server, way) for way in WAYS})
