"""A gateway killed under load: every answered request is in the record, every sent one has its intent."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.stores.heads import key_in
from gateway.stores.journal import UNKNOWN, Journal
from gateway.stores.segments import lines_from
from gateway.stores.verify import found_in, verify_chain
from tests.cli.test_serve import COMMAND, process, ready, wait_exit
from tests.leaks.watch import environment
from tests.world import Server, free_port, local_client

WORKERS = 8
CLIENT = {"webmcp-gateway-client": "1"}


def write(folder: Path, port: int, backend: int) -> None:
    """Write a configuration for one page, whose journal is rotated now and then."""
    (folder / "index.html").write_text("<!doctype html><title>one page</title>")
    (folder / "policy.yaml").write_text(
        f"version: 1\nbackends: {{api: {{url: 'http://127.0.0.1:{backend}', network: private}}}}\n"
        'routes: [{path: "/api/{number}", methods: [GET, POST]}]\n'
    )
    (folder / "gateway.yaml").write_text(
        f"server: {{listen: 127.0.0.1:{port}, drain: {{announce: 0s}}}}\n"
        f"apps: {{page: {{source: index.html, policy: policy.yaml}}}}\n"
        "audit: {rotate: {size: 100kB}}\n"
    )


class Load:
    """Sends requests without end, each with a unique number, and keeps those that were answered."""

    def __init__(self, port: int, life: int) -> None:
        self._life = life
        self._site = f"http://page.localhost:{port}"
        self.asked = 0
        self.answered: set[str] = set()
        self.enough = asyncio.Event()

    async def run(self, wanted: int) -> None:
        """Run until the gateway is gone."""
        async with (
            local_client(headers=CLIENT) as client,
            asyncio.TaskGroup() as tasks,
        ):
            for _ in range(WORKERS):
                tasks.create_task(self._work(client, wanted))

    async def _work(self, client: aiohttp.ClientSession, wanted: int) -> None:
        with suppress(aiohttp.ClientError, ConnectionError):
            while True:
                self.asked += 1
                number = f"/api/{self._life}-{self.asked}"
                method = "POST" if self.asked % 2 else "GET"
                async with client.request(method, self._site + number) as answer:
                    assert answer.status == 200
                    self.answered.add(number)
                if len(self.answered) >= wanted:
                    self.enough.set()


async def start_and_kill(folder: Path, life: int, wanted: int) -> None:
    """Start a gateway in `folder` and kill it; raises AssertionError if the record lacks something."""
    sent: set[str] = set()

    async def handle(request: web.Request) -> web.Response:
        if request.method == "POST":
            sent.add(request.path)
        return web.json_response({"n": request.path})

    backend, port = Server(), free_port()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    await backend.start(app)
    write(folder, port, backend.port)
    load = Load(port, life)
    try:
        async with process(folder) as running:
            assert (await ready(running, 3))[0].startswith("webmcp-gateway"), await wait_exit(running)
            async with asyncio.TaskGroup() as tasks:
                loading = tasks.create_task(load.run(wanted))
                async with asyncio.timeout(60):
                    await asyncio.wait(
                        (loading, tasks.create_task(load.enough.wait())), return_when=asyncio.FIRST_COMPLETED
                    )
                assert load.enough.is_set(), f"after {len(load.answered)} answers: {await wait_exit(running)}"
                running.kill()
    finally:
        await backend.stop()
    lines = [json.loads(raw) for _, raw in lines_from(folder / "gateway.journal")]
    outcomes = {line["fields"]["url"] for line in lines if line["phase"] == "outcome"}
    intents = {line["fields"]["url"] for line in lines if line["phase"] == "intent"}
    assert load.answered <= outcomes
    assert sent <= intents


async def check_report(folder: Path) -> None:
    """Check that the next start reports unfinished intents, and that the chain is whole."""
    key = key_in(folder / "gateway.journal.key")
    async with Journal(folder / "gateway.journal", key=key):
        pass
    lines = [json.loads(raw) for _, raw in lines_from(folder / "gateway.journal")]
    closed = [line["id"] for line in lines if line["phase"] == "outcome"]
    opened = [line["id"] for line in lines if line["phase"] == "intent"]
    assert set(opened) <= set(closed)
    assert len(closed) == len(set(closed))
    unknown = [line for line in lines if line["phase"] == "outcome" and line["fields"].get("reason") == UNKNOWN]
    assert len(unknown) <= WORKERS * 25
    verdict = verify_chain(found_in(folder / "gateway.journal"), [key.public])
    assert verdict.sound, verdict.problems


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.soak)])
async def test_killed_under_load(tmp_path: Path, times: int) -> None:
    """Repeatedly, on one journal."""
    for life in range(times):
        await start_and_kill(tmp_path, life, random.randint(50, 400))
    await check_report(tmp_path)


async def audit_verify(folder: Path) -> None:
    """Run `audit verify` on the journal and the database; raises AssertionError with its output if it fails."""
    run = await asyncio.create_subprocess_exec(
        *(*COMMAND, "audit", "verify", "--config", str(folder / "gateway.yaml")),
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await run.communicate())[0].decode()
    assert run.returncode == 0, said
    assert "database, journal " in said, said


@pytest.mark.parametrize("seconds", [3.5, pytest.param(30.0, marks=pytest.mark.soak)])
async def test_the_database_of_a_killed_gateway_is_proven(tmp_path: Path, seconds: float) -> None:
    """After each of three kills under load, while the next gateway fills it again, and after a clean stop."""
    backend, port = Server(), free_port()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _ok)
    await backend.start(app)
    write(tmp_path, port, backend.port)
    try:
        for life in range(4):
            async with process(tmp_path) as running:
                assert (await ready(running, 3))[0].startswith("webmcp-gateway"), await wait_exit(running)
                load = Load(port, life)
                loading = asyncio.create_task(load.run(1))
                await load.enough.wait()
                if life == 1:
                    await audit_verify(tmp_path)
                await asyncio.sleep(seconds)
                if life < 3:
                    running.kill()
                    await loading
                else:
                    loading.cancel()
                    running.terminate()
                    code, said = await wait_exit(running)
                    assert code == 0, said
                    assert "Traceback" not in said, said
            await audit_verify(tmp_path)
    finally:
        await backend.stop()


async def _ok(request: web.Request) -> web.Response:
    return web.json_response({"n": request.path})
