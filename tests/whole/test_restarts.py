"""A gateway restarts, and the clients of the Python SDK go on: with their sessions, subscriptions and log levels."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client

from tests.interop.everything import Everything
from tests.interop.serving import over_http
from tests.whole.restarts import eventually, restartable


def text(result: types.CallToolResult) -> str:
    """Return the text of a result."""
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def until(wanted: Callable[[], bool]) -> None:
    """Wait for something that happens in the background."""
    async with asyncio.timeout(60):
        while not wanted():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("number", "mount"), [(signal.SIGTERM, "/up"), (signal.SIGKILL, "")])
async def test_a_session_goes_on_with_its_stream_subscriptions_and_level(
    tmp_path: Path, number: signal.Signals, mount: str
) -> None:
    """At the common mount and at an upstream's own, without another handshake."""
    everything, heard = Everything(), list[str]()
    level = types.SetLevelRequest(params=types.SetLevelRequestParams(level="warning"))
    watched = types.SubscribeRequest(params=types.SubscribeRequestParams(uri="test://watched-resource"))

    async def hear(message: object) -> None:
        heard.append(str(getattr(message, "method", "")))

    async with over_http(everything.server, only="legacy") as upstream:
        more = f'upstreams: {{up: {{url: "{upstream}", network: private}}}}'
        async with (
            restartable(tmp_path, more, waiting=True) as gateway,
            Client(gateway.url + mount, mode="legacy", message_handler=hear) as client,
        ):
            names = [tool.name for tool in (await client.list_tools()).tools]
            trigger, simple, logs = (
                next(name for name in names if name.endswith(end))
                for end in ("trigger_resource_change", "simple_text", "logging_tool")
            )
            await client.session.send_request(level, types.EmptyResult)
            await client.session.send_request(watched, types.EmptyResult)
            everything.subscribed.clear()
            everything.levels.clear()
            heard.clear()
            await gateway.restart(number)
            assert text(await eventually(lambda: client.call_tool(simple))).startswith("This is a simple")
            await until(lambda: everything.subscribed == {"test://watched-resource"})
            await until(lambda: "notifications/tools/list_changed" in heard)
            await client.call_tool(trigger)
            await until(lambda: "notifications/resources/updated" in heard)
            await client.call_tool(logs)
            assert "warning" in everything.levels
            assert "notifications/message" not in heard
