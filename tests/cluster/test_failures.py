"""Nodes that are killed or stopped, stores that are down, clocks and versions that differ: what must hold then.

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
import asyncpg  # type: ignore[import-untyped]  # it has no types
import pytest
from aiohttp import web

from tests.cli.test_serve import COMMAND
from tests.cluster.cluster import Cluster, Node, Page, client, cluster
from tests.cluster.deployment import deployment
from tests.cluster.machines import Machines
from tests.cluster.test_shared_state import ASKS, Console, until
from tests.cluster.test_tls import settings
from tests.postgresql import PostgreSQL
from tests.redis_server import RedisServer
from tests.world import serving

STOPPED: Final = 15.0
"""Seconds for which a process is stopped: longer than its lease."""

FAKETIME: Final = next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)
"""The library that changes a process's clock; scripts/proxies installs it."""

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
async def asking(folder: Path, database: str) -> AsyncIterator[tuple[Cluster, aiohttp.ClientSession, Page]]:
    """Yield three nodes, and a page at node `a` whose tool `add` asks a person."""
    async with cluster(folder, database, "a", "b", "c") as nodes, client() as http:
        for name in "abc":
            (nodes[name].folder / "policy.yaml").write_text(ASKS.format(backend=nodes.backend))
        await until(lambda: all("policy.yaml is in effect" in "".join(one.lines) for one in nodes.nodes.values()))
        page = await Page.open(http, nodes["a"])
        await page.offer("add")
        yield nodes, http, page


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("role", "step", "how"),
    [
        *((role, step, "killed") for role in ("owner", "edge", "console") for step in ("asked", "answered")),
        ("owner", "asked", "stopped"),
        ("owner", "answered", "stopped"),
        ("edge", "asked", "stopped"),
    ],
)
async def test_a_node_fails_within_an_approval(tmp_path: Path, database: str, role: str, step: str, how: str) -> None:
    """The view is at a, the call came to b, the console is at c: the page runs the call once at most."""
    async with asking(tmp_path, database) as (nodes, http, page):
        ran: list[Any] = []

        async def serve() -> None:
            while True:
                with suppress(aiohttp.ClientError, KeyError, TimeoutError, ValueError):
                    ran.append((await page.serve_one())["arguments"])
                await asyncio.sleep(0.2)

        arguments = {"view": page.view, "tool": "add", "arguments": {"n": 1}}
        console = Console(http, nodes["c"])
        serving_page = asyncio.create_task(serve())
        calling = asyncio.create_task(nodes["b"].call(http, "call_view_tool", app=False, **arguments))
        question = await console.question()
        struck = nodes[{"owner": "a", "edge": "b", "console": "c"}[role]]
        if step == "asked":
            waking = await strike(struck, how)
            answering = asyncio.create_task(console.answer(question["id"]))
        else:
            answering = asyncio.create_task(console.answer(question["id"]))
            await asyncio.sleep(0.01)
            waking = await strike(struck, how)
        with suppress(aiohttp.ClientError):
            async with asyncio.timeout(90):
                await answering
        if role == "console" and how == "killed":
            other = Console(http, nodes["b"])
            with suppress(TimeoutError):
                async with asyncio.timeout(5):  # it may have been answered before the node was killed
                    await other.answer((await other.question())["id"])
        await ended(calling)
        await waking
        await asyncio.sleep(3)
        serving_page.cancel()
        assert len(ran) <= 1
        survivor = Console(http, nodes["c" if role != "console" else "b"])
        async with asyncio.timeout(60):
            while (await survivor.send("GET", "/api/approvals"))[1]["approvals"]:
                await asyncio.sleep(0.2)


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


@pytest.mark.cluster
async def test_a_node_that_is_cut_off_acts_for_nobody(
    tmp_path: Path, places: Machines, database: str, redis: RedisServer
) -> None:
    """A request in the node's hands is not sent once its lease has ended; its view moves; then it joins again."""
    if not places.separate:
        pytest.skip("no network namespaces can be made here, and loopback cannot be cut")
    arrived: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        arrived.append(request.path)
        return web.json_response({})

    backend = web.Application()
    backend.router.add_route("*", "/{path:.*}", handle)
    async with (
        serving(backend) as port,
        places.exposed(port),
        client() as http,
        deployment(tmp_path, places, database, redis, settings(tmp_path, port)) as nodes,
    ):
        a, b, c = (nodes[name] for name in "abc")
        launch = (await a.call(http, "open_page"))["_meta"]["webmcp-gateway/launch"]
        page = await Page.attach(http, a, launch)
        assert (await page.fetch("/api/before", b))["status"] == 200
        places.cut("a")
        try:
            said = await ended(asyncio.create_task(page.call("http_request", b, url="/api/while")))
            assert "connection-lost" in said
            moved = await Page.attach(http, c, launch)
            assert (await moved.fetch("/api/moved", b))["status"] == 200
        finally:
            places.join("a")
        async with asyncio.timeout(90):
            while (await a.ready(http)) != 200:
                await asyncio.sleep(0.5)
        assert (await moved.fetch("/api/moved", a))["status"] == 200
        assert "connection-lost" not in await ended(asyncio.create_task(page.call("http_request", a, url="/api/old")))
        assert set(arrived) == {"/api/before", "/api/moved"}


@pytest.mark.cluster
@pytest.mark.parametrize("fault", ["paused", "restarted", "stale"])
async def test_redis_fails(tmp_path: Path, database: str, redis: RedisServer, fault: str) -> None:
    """Requests and calls by handle go on without it; after it is back the model finds the page at the other node."""
    async with cluster(tmp_path, database, "a", "b", redis=redis.url) as nodes, client() as http:
        page = await Page.open(http, nodes["a"])
        await page.offer("add")
        if fault == "paused":
            redis.freeze()
        elif fault == "restarted":
            redis.stop()
        else:
            redis.ask("FLUSHALL")  # what a replica has that was promoted before it had anything
        for name in "ab":
            assert (await page.fetch("/api/x", nodes[name]))["status"] == 200
        arguments = {"view": page.view, "tool": "add", "arguments": {"n": 1}}
        calling = asyncio.create_task(nodes["b"].call(http, "call_view_tool", app=False, **arguments))
        assert (await page.serve_one())["arguments"] == {"n": 1}
        assert "isError" not in await calling or not (await calling)["isError"]
        if fault == "paused":
            redis.thaw()
        elif fault == "restarted":
            redis.start()
        async with asyncio.timeout(90):
            while page.view not in json.dumps(await nodes["b"].call(http, "list_view_tools", app=False)):
                await page.offer("add")
                await asyncio.sleep(1)


@pytest.mark.cluster
async def test_postgresql_has_no_connection_left(tmp_path: Path, database: str, server: PostgreSQL) -> None:
    """Nodes whose connections were ended refuse what needs it, close their views, and join again when there is room."""
    async with cluster(tmp_path, database, "a", "b") as nodes, client() as http:
        page = await Page.open(http, nodes["a"])
        assert (await page.fetch("/api/before"))["status"] == 200
        taken = [await asyncpg.connect(database) for _ in range(3)]
        try:
            await taken[0].execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> ALL($1::int[])",
                [one.get_server_pid() for one in taken],
            )
            with suppress(asyncpg.TooManyConnectionsError, asyncpg.PostgresError):
                while True:
                    taken.append(await asyncpg.connect(database))
            async with asyncio.timeout(60):
                while all([await nodes[name].ready(http) == 200 for name in "ab"]):
                    await asyncio.sleep(0.5)
                    with suppress(asyncpg.PostgresError):
                        taken.append(await asyncpg.connect(database))
        finally:
            for one in taken:
                await one.close()
        async with asyncio.timeout(90):
            while not all([await nodes[name].ready(http) == 200 for name in "ab"]):
                await asyncio.sleep(0.5)
        again = await Page.open(http, nodes["b"])
        assert (await again.fetch("/api/after", nodes["a"]))["status"] == 200
        assert nodes.arrived == ["GET /api/before", "GET /api/after"]


@pytest.mark.cluster
@pytest.mark.parametrize("off", ["+60s", "-60s"])
async def test_a_clock_is_off_by_a_minute(tmp_path: Path, database: str, off: str) -> None:
    """Tickets, launch values, questions, sessions and forwards made by either node count at the other."""
    if FAKETIME is None:
        pytest.skip("libfaketime is not installed: run scripts/proxies")
    async with cluster(tmp_path, database, "a") as nodes, client() as http:
        await nodes.start("b", LD_PRELOAD=str(FAKETIME), FAKETIME=off, FAKETIME_DONT_FAKE_MONOTONIC="1")
        for name in "ab":
            (nodes[name].folder / "policy.yaml").write_text(ASKS.format(backend=nodes.backend))
        await until(lambda: all("policy.yaml is in effect" in "".join(one.lines) for one in nodes.nodes.values()))
        for one, other in (("a", "b"), ("b", "a")):
            here, there = nodes[one], nodes[other]
            launch = (await here.call(http, "open_page"))["_meta"]["webmcp-gateway/launch"]
            page = await Page.attach(http, there, launch)
            assert (await page.fetch("/api/x", here))["status"] == 200
            await page.offer("add")
            arguments = {"view": page.view, "tool": "add", "arguments": {"n": 1}}
            calling = asyncio.create_task(here.call(http, "call_view_tool", app=False, **arguments))
            console = Console(http, here)
            serving_page = asyncio.create_task(page.serve_one())
            assert (await console.answer((await console.question())["id"]))[0] == 200
            assert (await serving_page)["arguments"] == {"n": 1}
            assert json.loads((await calling)["content"][0]["text"]) == {"n": 1}
            status, given = await console.change("/bridge/tickets", {"apps": ["page"]})
            assert status == 200
            assert await redeems(http, there, given["ticket"])
            session = await handshake(http, here)
            for node in (there, here):
                status, text = await listed(http, node, session)
                assert status == 200, text
        assert nodes.arrived == ["GET /api/x"] * 2


async def redeems(http: aiohttp.ClientSession, node: Node, ticket: str) -> bool:
    """Return whether a ticket opens a view at the bridge of a node."""
    host = f"gateway.localhost:{node.public}"
    headers = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
    url = f"{node.url}/bridge"
    async with http.ws_connect(url, headers=headers, protocols=["webmcp-gateway.v1"]) as socket:
        await socket.send_str(json.dumps({"hello": {"ticket": ticket}}))
        await socket.send_str(json.dumps({"open": {"ref": "1", "app": "page"}}))
        return "opened" in json.loads((await socket.receive(30)).data)


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
