"""Connections to upstreams: when they are made, retried, and reported."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.server import Server as McpServer
from pydantic import FileUrl

from gateway.errors import Reason, Refusal
from gateway.mcp.upstreams.registry import Upstreams
from gateway.mcp.upstreams.transport import link
from gateway.mcp.upstreams.transport.conversation import Carrier, Message, Receive, UpstreamLost
from gateway.mcp.upstreams.transport.link import Link
from tests.interop.probe import text, text_result
from tests.interop.serving import gateway, over_http
from tests.world import local_client

ROOT = Path(__file__).parents[2]
MARKED = (
    "import pathlib, runpy, sys; pathlib.Path(sys.argv[1]).touch(); runpy.run_module({module!r}, run_name='__main__')"
)


def marking_probe(file: Path, more: dict[str, Any] | None = None) -> str:
    """Return a probe that writes a file when it starts, as an upstream in gateway.yaml."""
    command = [sys.executable, "-c", MARKED.format(module="tests.interop.probe"), str(file)]
    return json.dumps({"command": command, "cwd": str(ROOT), **(more or {})})


async def test_an_upstream_is_started_when_it_is_needed(tmp_path: Path) -> None:
    """Or with the gateway, if it is not lazy."""
    needed, eager = tmp_path / "needed", tmp_path / "eager"
    lines = f"needed: {marking_probe(needed)}\neager: {marking_probe(eager, {'lazy': False})}"
    async with gateway(tmp_path, lines) as mcp:
        async with asyncio.timeout(60):
            while not eager.exists():
                await asyncio.sleep(0.05)
        assert not needed.exists()
        async with Client(f"{mcp}/needed") as client:
            assert text(await client.call_tool("plain")).startswith("plain of probe")
        assert needed.exists()


async def nothing(_: link.LinkSession) -> None:
    """Does nothing, for a callback."""


NOBODY = UpstreamLost.of_refusal(Refusal(Reason.BACKEND_UNREACHABLE, "nobody is there"))


@pytest.mark.parametrize(("lost", "longest"), [(UpstreamLost("it fails"), 30), (NOBODY, 5)])
async def test_an_upstream_that_fails_is_left_alone_longer_each_time(
    monkeypatch: pytest.MonkeyPatch, lost: UpstreamLost, longest: int
) -> None:
    """From half a second to half a minute while a caller wants it; it is found soon once it is up."""
    waits: list[float] = []
    enough = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 9:
            enough.set()
            await asyncio.Event().wait()

    def dial() -> Carrier:
        raise lost

    monkeypatch.setattr(link, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    one = Link(
        "up", dial, {}, modern=True, start=1, timeout=1, most=1,
        on_notification=lambda *_: None, prepare=nothing, on_reconnect=lambda _: None, is_wanted=lambda: True,
    )  # fmt: skip
    running = asyncio.ensure_future(one.run())
    await enough.wait()
    running.cancel()
    assert waits == [min(wait, longest) for wait in (0.5, 1, 2, 4, 8, 16, 30, 30, 30)]


class Flooding:
    """A transport to an upstream that floods every client after the greeting."""

    def __init__(self) -> None:
        self._asked = asyncio.Queue[int]()

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        """Accept a message."""
        self._asked.put_nowait(message["id"])

    async def abandon(self, id: int) -> bool:
        """Cancel nothing."""
        return False

    async def run(self, receive: Receive) -> None:
        """Greet, then send endless messages."""
        greeting = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
        receive({"jsonrpc": "2.0", "id": await self._asked.get(), "result": greeting}, None, 0)
        await asyncio.sleep(0.05)
        while True:
            receive(None, None, 0)


async def test_an_upstream_that_floods_is_left_alone_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the flood took to be detected."""
    waits = []
    failed = Link._note_failure

    def noted(self: Link, *arguments: Any) -> float:
        waits.append(failed(self, *arguments))
        return waits[-1]

    monkeypatch.setattr(Link, "_note_failure", noted)
    monkeypatch.setattr(link, "STEADY", 0.0)
    monkeypatch.setattr(link, "FIRST_WAIT", 0.02)
    one = Link(
        "up", Flooding, {}, modern=True, start=5, timeout=1, most=1,
        on_notification=lambda *_: None, prepare=nothing, on_reconnect=lambda _: None, is_wanted=lambda: True,
    )  # fmt: skip
    running = asyncio.ensure_future(one.run())
    told = set()
    while one.attempts < 6:
        await asyncio.sleep(0.01)
        told.add(one.problem)  # None while a connection is established
    running.cancel()
    assert waits[:5] == [0.02, 0.04, 0.08, 0.16, 0.32]
    assert told - {None} == {"the upstream sent too many unsolicited messages"}


async def test_the_console_and_the_metrics_tell_which_upstream_fails(tmp_path: Path) -> None:
    """With the cause; an upstream that is connected is shown as such."""
    dead = json.dumps({"command": [sys.executable, "-c", "raise SystemExit(3)"], "lazy": False})
    async with (
        gateway(tmp_path, f"dead: {dead}\ngood: {marking_probe(tmp_path / 'good')}") as mcp,
        Client(f"{mcp}/good"),
    ):
        async with asyncio.timeout(60):
            while not (told := await problems(mcp)):
                await asyncio.sleep(0.05)
        url, own = f"{mcp[:-4]}/metrics", {"webmcp-gateway-client": "1"}
        async with local_client() as http, http.get(url, headers=own) as answer:
            metrics = await answer.text()
    assert ["status 3" in one and one.startswith("dead: ") for one in told] == [True]
    assert 'upstream_up{upstream="dead"} 0.0' in metrics
    assert 'upstream_up{upstream="good"} 1.0' in metrics


async def test_the_console_names_tools_of_a_policy_that_the_upstream_does_not_have(tmp_path: Path) -> None:
    """A misspelt rule, or pin, would otherwise deny silently."""
    (tmp_path / "up.yaml").write_text(
        "version: 1\ntools: {show: {}, shwo: {}, thick: {rate: 1/day per view}}\n", "utf-8"
    )
    async with gateway(tmp_path, 'up: {server: "tests.interop.clocks:one", policy: up.yaml}') as mcp:
        async with Client(mcp) as client:
            assert "up_show" in {tool.name for tool in (await client.list_tools()).tools}
        async with asyncio.timeout(60):
            while not (told := await problems(mcp)):
                await asyncio.sleep(0.05)
    assert told == ["up: its policy names tools that it does not have: shwo, thick"]


async def problems(mcp: str) -> list[str]:
    """Return the problems in the console's state."""
    origin = mcp[:-4].replace("localhost", "gateway.localhost")
    own = {"origin": origin, "sec-fetch-site": "same-origin"}
    async with local_client() as http, http.get(f"{origin}/api/state", headers=own) as answer:
        return [one["message"] for one in (await answer.json())["problems"]]


TELLING = """
import os, sys
word = os.environ["WORD"]
print("on its output:", word, flush=True)
for part in ("bad token: " + word[:9], word[9:] + " is over\\n"):
    os.write(2, part.encode())
raise SystemExit(3)
"""


async def test_what_a_process_was_given_is_said_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its error output may quote its environment: the values appear neither in the answer nor in the log."""
    caplog.set_level(logging.DEBUG, "gateway")
    word = "a-word-of-the-environment"
    telling = json.dumps({"command": [sys.executable, "-c", TELLING], "env": {"WORD": word}})
    async with gateway(tmp_path, f"up: {telling}") as mcp, Client(f"{mcp}/up", mode="2026-07-28") as client:
        told = text(await client.call_tool("any"))
    assert "status 3; it said: bad token: " in told
    assert "*** is over" in told
    assert "on its output: ***" in caplog.text
    assert word[:9] not in caplog.text + told


class Rooted:
    """A server of the handshake that requests its client's roots, and hears when they change."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.server: McpServer[Any] = McpServer("rooted", on_list_tools=self._list_tools, on_call_tool=self._call_tool)
        self.server.middleware.insert(0, self._hear)

    async def _hear(self, ctx: Any, call_next: Any) -> Any:
        if ctx.method == "notifications/roots/list_changed":
            self.heard.set()
        return await call_next(ctx)

    async def _list_tools(self, _: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="folders", input_schema={"type": "object"})])

    async def _call_tool(self, context: Any, _: Any) -> types.CallToolResult:
        with warnings.catch_warnings(action="ignore"):  # the SDK warns that roots are deprecated
            found = await context.session.list_roots()
        return text_result(" ".join(str(root.uri) for root in found.roots))


@pytest.mark.parametrize("mount", ["/up", ""])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_upstream_asks_for_the_folders_of_its_client(tmp_path: Path, mode: str, mount: str) -> None:
    """And is notified by a session that they changed."""
    folders = ["file:///one"]

    async def roots(context: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(folder)) for folder in folders])

    rooted = Rooted()
    async with (
        over_http(rooted.server, only="legacy") as url,
        gateway(tmp_path, f'up: {{url: "{url}", network: private}}') as mcp,
        Client(mcp + mount, mode=mode, list_roots_callback=roots) as client,
    ):
        name = "folders" if mount else "up_folders"
        await client.list_tools()
        assert text(await client.call_tool(name)) == "file:///one"
        folders.append("file:///two")
        if mode == "legacy":
            await client.session.send_notification(types.RootsListChangedNotification())
            async with asyncio.timeout(60):
                await rooted.heard.wait()
        assert text(await client.call_tool(name)) == "file:///one file:///two"


async def test_an_upstream_that_does_not_end_keeps_no_other_one_open(caplog: pytest.LogCaptureFixture) -> None:
    """When the gateway stops, one hangs for a while, one raises, and the next one is closed all the same."""
    hung, closed = asyncio.Event(), asyncio.Event()

    async def fails() -> None:
        raise RuntimeError("a fault of ours")

    async def closes() -> None:
        closed.set()

    ways = {"slow": hung.wait, "broken": fails, "well": closes}
    mounted = {
        name: SimpleNamespace(proxy=SimpleNamespace(close=way), upstream=SimpleNamespace(close=way))
        for name, way in ways.items()
    }
    room: Any = SimpleNamespace(mounts=mounted)
    ending = asyncio.create_task(Upstreams.close(room))
    async with asyncio.timeout(60):
        await closed.wait()
        assert not ending.done()
        hung.set()
        await ending
    assert "upstream broken did not end" in caplog.text
