"""A gateway that is stopped during calls, at every door: the record is complete, and nothing delays the end."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gateway.stores.heads import key_in
from gateway.stores.records import Records
from gateway.stores.sql import Database
from gateway.stores.verify import found_in, verify_chain
from tests.attacks.bridge_door import BridgeDoor
from tests.attacks.calls import AttackedDoor
from tests.attacks.doors import DOORS
from tests.attacks.mcp_doors import http_door
from tests.attacks.world import APP
from tests.cli.test_serve import process, ready, wait_exit
from tests.world import Server, free_port, listen, local_client


@dataclass(slots=True)
class Backend:
    """Answers at `/api/held` on release, and everything else at once; records the paths of its changes."""

    server: Server = field(default_factory=Server)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    changed: set[str] = field(default_factory=set)

    async def start(self) -> None:
        """Start listening."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        await self.server.start(app)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            self.changed.add(request.path)
        if request.path.startswith("/api/held"):
            self.arrived.set()
            await self.go_on.wait()
        if request.path == "/api/events":
            stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await stream.prepare(request)
            await stream.write(b"data: 1\n\n")
            await self.go_on.wait()
            return stream
        return web.json_response({})


@dataclass(slots=True)
class Stopped:
    """A gateway in a separate process, and its backend."""

    folder: Path
    port: int
    backend: Backend
    process: asyncio.subprocess.Process

    @property
    def hosts(self) -> dict[str, str]:
        """The `Host` of each site."""
        return {"console": f"gateway.localhost:{self.port}", "app": f"{APP}.localhost:{self.port}"}

    async def stop(self) -> None:
        """Send SIGTERM; return once it has printed that it stops."""
        self.process.terminate()
        assert (await ready(self.process, 1))[0].startswith("Stopping")

    def lines(self) -> list[dict[str, Any]]:
        """Every line of the journal, which must verify and end with a head."""
        journal = self.folder / "gateway.journal"
        verdict = verify_chain(found_in(journal), [key_in(self.folder / "gateway.journal.key").public])
        assert verdict.sound, verdict.problems
        lines: list[dict[str, Any]] = [json.loads(line) for line in journal.read_text("utf-8").splitlines()]
        assert "signature" in lines[-1]["fields"]
        return lines

    def outcomes(self) -> dict[str, dict[str, Any]]:
        """The outcome of each request, by its URL; every intent has an outcome, every change had an intent."""
        lines = self.lines()
        intents = {line["id"]: line["fields"] for line in lines if line["phase"] == "intent"}
        closed = {line["id"]: line["fields"] for line in lines if line["phase"] == "outcome"}
        assert intents.keys() <= closed.keys()
        assert self.backend.changed <= {fields["url"] for fields in intents.values() if "url" in fields}
        return {fields["url"]: fields for fields in closed.values() if fields["kind"] == "http"}


@asynccontextmanager
async def serving(folder: Path, extra: str = "", *, server: str = "drain: {announce: 0s}") -> AsyncIterator[Stopped]:
    """A listening gateway, with these settings of `server`."""
    backend, port = Backend(), free_port()
    await backend.start()
    (folder / "index.html").write_text("<!doctype html><title>one page</title>")
    (folder / "policy.yaml").write_text(
        f"version: 1\nbackends: {{api: {{url: 'http://127.0.0.1:{backend.server.port}', network: private}}}}\n"
        "routes: [{path: /api/events, methods: [GET], stream: true},"
        '  {path: /api/asked, methods: [POST], confirm: always}, {path: "/api/**", methods: [GET, POST]}]\n'
    )
    (folder / "gateway.yaml").write_text(
        f"server: {{listen: 127.0.0.1:{port}, {server}}}\n"
        f"apps: {{{APP}: {{source: index.html, policy: policy.yaml}}}}\n{extra}"
    )
    try:
        async with process(folder) as running:
            lines = await ready(running, 5)
            assert lines[0].startswith("webmcp-gateway"), await wait_exit(running)
            yield Stopped(folder, port, backend, running)
    finally:
        backend.go_on.set()
        await backend.server.stop()


@asynccontextmanager
async def reach_door(gateway: Stopped, door: str) -> AsyncIterator[AttackedDoor]:
    """A client at a door, whose last message may come too late."""
    with suppress(aiohttp.ClientConnectorError):
        async with DOORS[door](gateway) as way:
            yield way


async def wait_for_question(gateway: Stopped, client: aiohttp.ClientSession) -> None:
    """Wait until a person is asked, as the console's stream of events says."""
    headers = {"host": gateway.hosts["console"], "webmcp-gateway-client": "1"}
    async with client.get(f"http://127.0.0.1:{gateway.port}/api/events", headers=headers) as stream:
        async for line in stream.content:
            if line.startswith(b"data: [{"):
                return


@pytest.mark.parametrize("door", ["modern-sdk", "stdio"])
async def test_what_runs_is_answered_and_recorded(tmp_path: Path, door: str) -> None:
    """One signal leaves calls the time."""
    async with serving(tmp_path) as gateway, reach_door(gateway, door) as way:
        call = asyncio.ensure_future(way.ask({"url": "/api/held", "method": "POST", "body": "{}"}))
        async with asyncio.timeout(60):
            await gateway.backend.arrived.wait()
        await gateway.stop()
        gateway.backend.go_on.set()
        assert (await call).status == 200
        code, output = await wait_exit(gateway.process)
        assert (code, "Traceback" in output) == (0, False), output
        assert gateway.outcomes()["/api/held"]["status"] == 200


@pytest.mark.parametrize("door", DOORS)
async def test_a_second_signal_ends_what_runs(tmp_path: Path, door: str) -> None:
    """A request that was sent is answered with an error and recorded so; one that was answered, with its answer."""
    async with serving(tmp_path) as gateway:
        async with reach_door(gateway, door) as way:
            assert (await way.ask({"url": "/api/before", "method": "POST", "body": "{}"})).status == 200
            call = asyncio.ensure_future(way.ask({"url": "/api/held", "method": "POST", "body": "{}"}))
            async with asyncio.timeout(60):
                await gateway.backend.arrived.wait()
            await gateway.stop()
            gateway.process.terminate()
            async with asyncio.timeout(60):
                answer = await call
            assert (answer.status, answer.reason) == (503, "gateway-stopping")
            code, output = await wait_exit(gateway.process)
        assert (code, "Traceback" in output) == (0, False), output
        outcomes = gateway.outcomes()
    assert outcomes["/api/before"]["status"] == 200
    assert outcomes["/api/held"]["reason"] == "gateway-stopping"


async def test_a_question_that_nobody_can_answer_holds_the_end_up_for_nobody(tmp_path: Path) -> None:
    """Its call is answered when the listener closes, and was not sent."""
    async with serving(tmp_path, server="drain: {announce: 0s, timeout: 1h}") as gateway, local_client() as client:
        async with reach_door(gateway, "site") as way:
            call = asyncio.ensure_future(way.ask({"url": "/api/asked", "method": "POST", "body": "{}"}))
            async with asyncio.timeout(60):
                await wait_for_question(gateway, client)
            await gateway.stop()
            async with asyncio.timeout(60):
                answer = await call
            assert (answer.status, answer.reason) == (503, "gateway-stopping")
            code, output = await wait_exit(gateway.process)
        assert (code, "Traceback" in output) == (0, False), output
        assert gateway.backend.changed == set()


async def test_the_database_has_the_whole_record_at_the_end(tmp_path: Path) -> None:
    """The filler rests between lines, but not at the end."""
    async with serving(tmp_path) as gateway, reach_door(gateway, "modern") as way:
        for number in range(20):
            assert (await way.ask({"url": f"/api/{number}", "method": "POST", "body": "{}"})).status == 200
        await gateway.stop()
        code, output = await wait_exit(gateway.process)
        assert (code, "Traceback" in output) == (0, False), output
        last = gateway.lines()[-1]
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        position = await Records(database).position(last["fields"]["chain"])
    assert position is not None
    assert position.end == (tmp_path / "gateway.journal").stat().st_size


HANGING = """
upstreams:
  deaf:
    command: ["%s", "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]
telemetry: {otlp: "http://127.0.0.1:%d", network: private}
audit: {sinks: [database, otlp]}
"""


async def test_nothing_that_is_open_holds_the_end_up(tmp_path: Path) -> None:
    """Streams, sockets, partial requests, an upstream that ignores signals, and a silent collector are open."""
    silent = listen()  # the system accepts connections, and no process answers
    extra = HANGING % (sys.executable, silent.getsockname()[1])
    async with AsyncExitStack() as held, serving(tmp_path, extra) as gateway:
        held.callback(silent.close)
        client = await held.enter_async_context(local_client())
        bridge = BridgeDoor(gateway, client)
        await bridge.open()
        assert bridge.socket is not None
        held.push_async_callback(bridge.socket.close)
        events = await client.get(f"{bridge.origin}/api/events", headers=bridge.own)
        assert events.status == 200
        legacy = await held.enter_async_context(http_door(gateway, modern=False))
        session = {"mcp-session-id": legacy.session, "mcp-protocol-version": "2025-11-25"}
        url = f"http://localhost:{gateway.port}/mcp/{APP}"
        standing = await client.get(url, headers={**session, "accept": "text/event-stream"})
        assert standing.status == 200
        modern = await held.enter_async_context(http_door(gateway, modern=True))
        subscribing = asyncio.ensure_future(
            modern.post("subscriptions/listen", '"notifications":{"toolsListChanged":true}')
        )
        assert (await modern.ask({"url": "/api/before", "method": "POST", "body": "{}"})).status == 200
        halves: list[asyncio.StreamWriter] = []
        for half in ("", "GET /api", f"POST /api/x HTTP/1.1\r\nhost: {gateway.hosts['app']}\r\n"):
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(half.encode())
            halves.append(writer)
        await gateway.stop()
        code, output = await wait_exit(gateway.process)
        subscribing.cancel()
        for stream in (events, standing):
            stream.close()
        assert bridge.socket is not None
        await bridge.socket.close()
        for writer in halves:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        assert (code, "Traceback" in output) == (0, False), output
        assert gateway.outcomes()["/api/before"]["status"] == 200
