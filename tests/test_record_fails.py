"""A record that cannot be kept: what is refused then, and that it is said in the log, the metrics and the console."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.stores import filler
from tests.world import Server, World, bound, running

CLIENT = {"webmcp-gateway-client": "1"}


POLICY = """
version: 1
backends: {shop: {url: "http://127.0.0.1:PORT", network: private}}
routes: [{path: /api/echo, methods: [GET, POST]}]
"""


def answering() -> web.Application:
    """A backend that says yes."""

    async def handle(request: web.Request) -> web.Response:
        return web.json_response({}, status=201 if request.method == "POST" else 200)

    app = web.Application()
    app.router.add_route("*", "/api/echo", handle)
    return app


async def asked(world: World, client: aiohttp.ClientSession, method: str) -> int:
    """The status of one request."""
    async with client.request(method, f"{world.site}/api/echo") as answer:
        return answer.status


@contextmanager
def full(path: Path) -> Iterator[None]:
    """No file grows beyond the size that `path` has, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def problems(world: World, client: aiohttp.ClientSession) -> list[str]:
    """What the console says of the record."""
    async with client.get(f"{world.console}/api/state") as answer:
        return [one["message"] for one in (await answer.json())["problems"] if one["kind"] == "record"]


async def scraped(world: World, client: aiohttp.ClientSession) -> str:
    """The metrics."""
    async with client.get(f"{world.url}/metrics") as answer:
        return await answer.text()


@pytest.mark.parametrize(
    ("on_failure", "statuses", "words"),
    [
        ("refuse-unsafe", (200, 503), "what changes something is refused"),
        ("refuse", (503, 503), "everything is refused"),
        ("continue", (200, 201), "everything goes on unrecorded"),
    ],
)
async def test_a_full_disk_is_said_aloud(
    tmp_path: Path, on_failure: str, statuses: tuple[int, int], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """While it lasts, and not after it."""
    backend = Server(bound())
    await backend.start(answering())
    policy = POLICY.replace("PORT", str(backend.port))
    try:
        async with (
            running(tmp_path, policy=policy, extra=f"audit: {{on_failure: {on_failure}}}\n") as world,
            world.client(headers=CLIENT) as client,
        ):
            for _ in range(30):  # the journal is longer than what else is written meanwhile
                assert await asked(world, client, "GET") == 200
            with full(world.config.journal):
                found = (await asked(world, client, "GET"), await asked(world, client, "POST"))
                told, metrics = await problems(world, client), await scraped(world, client)
            assert found == statuses
            assert any(words in one for one in told)
            assert "webmcp_gateway_journal_failures_total" in metrics
            assert "cannot be written" in caplog.text
            assert await asked(world, client, "GET") == 200
            assert not any(words in one for one in await problems(world, client))
            assert "can be written again" in caplog.text
    finally:
        await backend.stop()


async def test_a_database_that_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests go on, the console says so, and afterwards everything is there."""
    monkeypatch.setattr("gateway.stores.sql.SQLITE_BUSY_SECONDS", 0.1)
    monkeypatch.setattr(filler, "LINGER_SECONDS", 0.01)
    monkeypatch.setattr(filler, "LONGEST_PAUSE_SECONDS", 0.1)
    async with running(tmp_path) as world, world.client(headers=CLIENT) as client:
        path = world.config.database.reveal().removeprefix("sqlite:///")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        async with client.get(f"{world.site}/api/products") as answer:
            assert answer.status == 200
        async with asyncio.timeout(10):
            while not await problems(world, client):
                await asyncio.sleep(0.02)
        metrics = await scraped(world, client)
        other.execute("ROLLBACK")
        other.close()
        async with asyncio.timeout(10):
            while await problems(world, client):
                await asyncio.sleep(0.02)
        ids: list[str] = []
        async with asyncio.timeout(10):
            while not ids:
                async with client.get(f"{world.console}/api/audit") as answer:
                    ids = [one["id"] for one in (await answer.json())["records"]]
    assert 'sink_failures_total{sink="database"}' in metrics
    assert 'sink_lag_bytes{sink="database"}' in metrics
    assert ids
