"""Nodes that are killed or stopped within a request or a move, and versions that differ: what must hold then.

Each call ends with an answer or a clear error, no side effect happens twice, and nobody gets what a policy denies.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web

from tests.cli.test_serve import COMMAND
from tests.cluster.cluster import Cluster, Node, Page, client, cluster
from tests.cluster.test_shared_state import ASKS, until
from tests.world import serving

STOPPED: Final = 15.0
"""Seconds for which a process is stopped: longer than its lease."""

HOWS: Final = ["killed", "stopped"]


async def strike(node: Node, how: str) -> asyncio.Task[None]:
    """Kill a node, or stop it for a while; return the task that lets it go on."""
    node.process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)

    async def go_on() -> None:
        if how == "stopped":
            await asyncio.sleep(STOPPED)
            node.process.send_signal(signal.SIGCONT)

    return asyncio.create_task(go_on())


async def ended(call: asyncio.Task[Any]) -> str:
    """Return the text of a call's result, or of its client's error: it has one within the time of a lease and more."""
    async with asyncio.timeout(90):
        try:
            return json.dumps(await call)
        except (aiohttp.ClientError, ValueError) as error:
            return repr(error)


@asynccontextmanager
async def held(folder: Path, database: str) -> AsyncIterator[tuple[Cluster, list[str], asyncio.Event]]:
    """Yield three nodes, what arrived at a backend that answers `/api/held` when the event is set, and that event."""
    arrived, go_on = list[str](), asyncio.Event()

    async def handle(request: web.Request) -> web.Response:
        arrived.append(request.path)
        if request.path == "/api/held":
            await go_on.wait()
        return web.json_response({})

    backend = web.Application()
    backend.router.add_route("*", "/{path:.*}", handle)
    async with serving(backend) as port, cluster(folder, database, "a", "b", "c") as nodes:
        policy = ASKS.format(backend=port) + "limits: {timeout: 120s}\n"
        for name in "abc":
            (nodes[name].folder / "policy.yaml").write_text(policy)
        await until(lambda: all("policy.yaml is in effect" in "".join(one.lines) for one in nodes.nodes.values()))
        try:
            yield nodes, arrived, go_on
        finally:
            go_on.set()


@pytest.mark.cluster
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("role", ["owner", "edge"])
async def test_a_node_fails_within_a_forward(tmp_path: Path, database: str, role: str, how: str) -> None:
    """A request that waits for its backend ends with an error, and is never sent again; the others go on."""
    async with held(tmp_path, database) as (nodes, arrived, go_on), client() as http:
        page = await Page.open(http, nodes["a"])
        calling = asyncio.create_task(page.call("http_request", nodes["b"], url="/api/held"))
        await until(lambda: arrived == ["/api/held"])
        waking = await strike(nodes["a" if role == "owner" else "b"], how)
        if role == "edge" and how == "stopped":
            await waking
            go_on.set()
        said = await ended(calling)
        assert '"status": 200' not in said or (role, how) == ("edge", "stopped")
        await waking
        go_on.set()
        again = await Page.open(http, nodes["c"])
        assert (await again.fetch("/api/again"))["status"] == 200
        await asyncio.sleep(2)
        assert arrived == ["/api/held", "/api/again"]


@pytest.mark.cluster
@pytest.mark.parametrize("how", HOWS)
async def test_a_view_moves_away_from_a_node_that_fails(tmp_path: Path, database: str, how: str) -> None:
    """The page attaches at another node at once, whatever the former one does; that one runs nothing more."""
    async with cluster(tmp_path, database, "a", "b", "c") as nodes, client() as http:
        launch = (await nodes["a"].call(http, "open_page"))["_meta"]["webmcp-gateway/launch"]
        old = await Page.attach(http, nodes["a"], launch)
        waking = await strike(nodes["a"], how)
        new = await Page.attach(http, nodes["b"], launch)
        for name in "bc":
            assert (await new.fetch("/api/new", nodes[name]))["status"] == 200
        await waking
        for name in "bc" if how == "killed" else "abc":
            with suppress(KeyError):
                assert (await old.fetch("/api/old", nodes[name]))["status"] != 200
        assert (await new.fetch("/api/new", nodes["c"]))["status"] == 200
        assert set(nodes.arrived) == {"GET /api/new"}


def handshake_fields(node: Node, session: str = "") -> dict[str, str]:
    """Return the header fields of a client of the handshake protocols."""
    fields = {**node.headers, "accept": "application/json, text/event-stream", "webmcp-gateway-client": "1"}
    return fields | ({"mcp-session-id": session, "mcp-protocol-version": "2025-06-18"} if session else {})


async def handshake(http: aiohttp.ClientSession, node: Node) -> str:
    """Begin a session, and return its id."""
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with http.post(f"{node.url}/mcp", json=message, headers=handshake_fields(node)) as answer:
        await answer.read()
        return answer.headers["mcp-session-id"]


async def listed(http: aiohttp.ClientSession, node: Node, session: str) -> tuple[int, str]:
    """List the tools in a session; return status and text."""
    message = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    fields = handshake_fields(node, session)
    async with http.post(f"{node.url}/mcp", json=message, headers=fields) as answer:
        return answer.status, await answer.text()


@pytest.mark.cluster
async def test_two_versions_serve_beside_each_other(tmp_path: Path, database: str) -> None:
    """Nothing is forwarded between them, and the error says why; each serves what it has, and the same version all."""
    other = (COMMAND[0], "-c", "import gateway; gateway.__version__ = '99.0.0'; " + COMMAND[2])
    async with cluster(tmp_path, database, "a", "b") as nodes, client() as http:
        await nodes.start("c", command=other)
        a, b, c = (nodes[name] for name in "abc")
        launch = (await a.call(http, "open_page"))["_meta"]["webmcp-gateway/launch"]
        page = await Page.attach(http, a, launch)
        assert (await page.fetch("/api/x", b))["status"] == 200
        refused = await page.call("http_request", c, url="/api/never")
        assert "state-unavailable" in json.dumps(refused)
        session = await handshake(http, a)
        assert (await listed(http, b, session))[0] == 200
        status, text = await listed(http, c, session)
        assert (status, "state-unavailable" in text) == (503, True)
        assert (await (await Page.open(http, c)).fetch("/api/own"))["status"] == 200
        moved = await Page.attach(http, c, launch)  # a page that attaches where it is sent is served there
        assert (await moved.fetch("/api/moved"))["status"] == 200
        assert nodes.arrived == [f"GET /api/{name}" for name in ("x", "own", "moved")]
        former = await Page.open(http, a)  # a node of another version cannot be told of it
        opened = await c.call(http, "open_page")
        launch = opened["_meta"]["webmcp-gateway/launch"]
        values = await c.call(http, "webmcp_attach", launch=launch, former=former.proof())
        assert values["structuredContent"]["proven"] is True
        assert "was not told that it attached again" in "".join(c.lines)
