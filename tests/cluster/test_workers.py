"""`serve --workers`: one port, several processes, a dead one is started again, and a stop answers what runs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from gateway.stores.worker_metrics import EVERY
from tests.cli.test_serve import COMMAND
from tests.cluster.cluster import ENCRYPTION, KEY, Node, Page, client
from tests.leaks.watch import environment
from tests.world import free_port, serving


@dataclass
class Backend:
    """Counts what arrives; `/api/held` waits for `go_on`."""

    arrived: list[str] = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    held: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request."""
        self.arrived.append(request.path)
        if request.path == "/api/held":
            self.held.set()
            await self.go_on.wait()
        return web.json_response({})


@asynccontextmanager
async def workers(
    folder: Path, database: str, count: int, server: str = "drain: {announce: 0s}", wait: bool = True
) -> AsyncIterator[tuple[Node, Backend]]:
    """Run `serve --workers`; the yielded node is all of them."""
    backend, port = Backend(), free_port()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", backend.handle)
    async with serving(app) as behind:
        (folder / "index.html").write_text("<!doctype html><title>one page</title>")
        (folder / "policy.yaml").write_text(
            f"version: 1\nbackends: {{api: {{url: 'http://127.0.0.1:{behind}', network: private}}}}\n"
            "limits: {timeout: 60s}\nroutes: [{path: '/api/{name}', methods: [GET, POST]}]\ntools: {add: {}}\n"
        )
        (folder / "gateway.yaml").write_text(
            f"server: {{listen: 127.0.0.1:{port}, {server}}}\n"
            "apps: {page: {source: index.html, policy: policy.yaml}}\n"
            "stores: {database: '${env:DATABASE}', encryption_key: '${env:ENCRYPTION}'}\n"
            "cluster: {keys: ['${env:CLUSTER}']}\n"
        )
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "serve", "--workers", str(count), "-v",
            cwd=folder,
            env={**environment(), "DATABASE": database, "ENCRYPTION": ENCRYPTION, "CLUSTER": KEY},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        node = Node("all", folder, port, port, process)
        ready = asyncio.Event()

        async def read() -> None:
            assert process.stdout is not None
            async for line in process.stdout:
                node.lines.append(line.decode())
                if "workers share the port" in node.lines[-1]:
                    ready.set()
            ready.set()

        reading = asyncio.create_task(read())
        try:
            if wait:
                async with asyncio.timeout(120):
                    await ready.wait()
                assert process.returncode is None, "".join(node.lines)
            yield node, backend
        finally:
            backend.go_on.set()
            if process.returncode is None:
                process.terminate()
            async with asyncio.timeout(90):
                await process.wait()
            await reading


def pids(parent: int) -> list[int]:
    """Return the workers of a supervisor."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(pid) for pid in children if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def requests(node: Node) -> set[float]:
    """The count of requests of the app in scrapes, each by a connection of its own: those of all workers together."""
    counts, text = set(), ""
    await asyncio.sleep(EVERY)  # each has written what it counted
    for _ in range(8):
        async with client() as http, http.get(f"http://127.0.0.1:{node.port}/metrics") as answer:
            text = await answer.text()
        counts.add(sum(map(float, re.findall(r"^webmcp_gateway_requests_total\S* (\S+)$", text, re.MULTILINE))))
    assert re.search(r'^webmcp_gateway_cluster_nodes{state="serving"} 2.0$', text, re.MULTILINE)
    return counts


async def test_requests_of_a_view_reach_any_worker(tmp_path: Path, database: str) -> None:
    """Each request has a connection of its own; a killed worker is started again, and the others go on."""
    async with workers(tmp_path, database, 2) as (node, backend), client() as http:
        page = await Page.open(http, node)
        for number in range(12):
            async with client() as other:
                page.client = other
                assert (await page.fetch(f"/api/{number}"))["status"] == 200
        assert len(backend.arrived) == 12
        before = pids(node.process.pid)
        assert len(before) == 2
        assert await requests(node) == {12}
        os.kill(before[0], signal.SIGKILL)
        async with asyncio.timeout(90):
            while len(now := pids(node.process.pid)) < 2 or before[0] in now:
                await asyncio.sleep(0.1)
        assert before[1] in now
        async with asyncio.timeout(90):
            while (await (await Page.open(http, node)).fetch("/api/again"))["status"] != 200:
                await asyncio.sleep(0.2)
        assert await requests(node) == {len(backend.arrived)}
        folders = sorted(path.name for path in tmp_path.glob("worker-*"))
        assert folders == ["worker-1", "worker-2"]


async def test_a_stop_finishes_running_calls(tmp_path: Path, database: str) -> None:
    """SIGTERM to the supervisor drains all workers; a call that runs is answered, and the exit code is 0."""
    async with workers(tmp_path, database, 2) as (node, backend), client() as http:
        page = await Page.open(http, node)
        call = asyncio.create_task(page.fetch("/api/held"))
        async with asyncio.timeout(60):
            await backend.held.wait()
        node.process.terminate()
        await asyncio.sleep(0.5)
        assert not call.done()
        backend.go_on.set()
        assert (await call)["status"] == 200
        async with asyncio.timeout(90):
            assert await node.process.wait() == 0
    assert not re.search("Traceback", "".join(node.lines))


async def test_workers_end_with_their_supervisor(tmp_path: Path, database: str) -> None:
    """Also if it is killed: none goes on without one that could stop it."""
    async with workers(tmp_path, database, 2) as (node, _):
        mine = pids(node.process.pid)
        node.process.kill()
        async with asyncio.timeout(90):
            while any(Path(f"/proc/{pid}").exists() for pid in mine):
                await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ("", "SQLite is for one"),
        ("stores: {database: '${env:NOWHERE}'}\n", "cluster.keys"),
        (
            "stores: {database: '${env:NOWHERE}'}\ncluster: {listen: 'unix:a', keys: ['${env:CLUSTER}']}\n",
            "cluster.listen",
        ),
        ("stores: {database: '${env:NOWHERE}'}\ncluster: {keys: ['${env:CLUSTER}']}\n", "before it was ready"),
    ],
)
async def test_what_cannot_start_ends_with_a_reason(tmp_path: Path, more: str, word: str) -> None:
    """SQLite is refused at once; workers that cannot start end all."""
    (tmp_path / "index.html").write_text("<title>x</title>")
    (tmp_path / "policy.yaml").write_text("version: 1\n")
    (tmp_path / "gateway.yaml").write_text(
        f"server: {{listen: 127.0.0.1:{free_port()}}}\n{more}"
        "apps: {page: {source: index.html, policy: policy.yaml}}\n"
    )
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "serve", "--workers", "2",
        cwd=tmp_path,
        env={**environment(), "CLUSTER": KEY, "NOWHERE": f"postgresql://u@127.0.0.1:{free_port()}/db"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(120):
        output, _ = await process.communicate()
    assert (process.returncode, word in output.decode()) == (2, True), output.decode()
