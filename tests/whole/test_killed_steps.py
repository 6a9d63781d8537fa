"""A gateway killed at each step of its start and of its drain: the next one goes on with all that there was."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.attacks.mcp_doors import HttpDoor
from tests.cli.test_serve import process, ready, wait_closed, wait_exit, write
from tests.cli.test_stop import Stopped, serving
from tests.whole.test_kills import audit_verify
from tests.world import free_port, local_client

pytestmark = pytest.mark.slow

CREATED = ("gateway.lock", "gateway.journal.key", "gateway.key", "gateway.db", "gateway.db-wal", "gateway.journal")
"""What a first start creates."""


async def killed_when(running: asyncio.subprocess.Process, file: Path) -> None:
    """Kill a process as soon as the file exists."""
    while not file.exists():
        assert running.returncode is None, await wait_exit(running)
        await asyncio.sleep(0)
    running.kill()
    await running.communicate()


@pytest.mark.parametrize(
    "order", [CREATED[::2], *(pytest.param(CREATED, marks=pytest.mark.soak, id=f"each-{n}") for n in range(3))]
)
async def test_a_start_that_was_killed_is_repeated(tmp_path: Path, order: tuple[str, ...]) -> None:
    """When each of its files appears, at random moments, and when it is ready: the next start works."""
    write(tmp_path, free_port())
    for name in order:
        async with asyncio.timeout(60), process(tmp_path) as running:
            await killed_when(running, tmp_path / name)
    async with process(tmp_path) as running:
        await asyncio.sleep(random.uniform(0, 2))
    for _ in range(2):
        async with process(tmp_path) as running:
            assert (await ready(running, 1))[0].startswith("webmcp-gateway"), await wait_exit(running)
    async with process(tmp_path) as running:
        assert (await ready(running, 1))[0].startswith("webmcp-gateway"), await wait_exit(running)
        running.terminate()
        code, said = await wait_exit(running)
        assert (code, "Traceback" in said) == (0, False), said
    await audit_verify(tmp_path)


class Life:
    """One run of the gateway, and a client of it whose session and view began in the first one."""

    def __init__(self, gateway: Stopped, door: HttpDoor) -> None:
        self.gateway = gateway
        self.door = door

    async def change(self, path: str) -> int:
        """Send a change through the view; return its status."""
        self.door.id += 1
        return (await self.door.ask({"url": path, "method": "POST", "body": "{}"})).status

    async def begin_held(self) -> asyncio.Task[int]:
        """Send a change that the backend does not answer yet."""
        call = asyncio.create_task(self.change("/api/held"))
        async with asyncio.timeout(60):
            await self.gateway.backend.arrived.wait()
        return call


@asynccontextmanager
async def living(folder: Path, door: HttpDoor, server: str = "drain: {announce: 0s}") -> AsyncIterator[Life]:
    """Run the gateway of a folder; the client goes on without a handshake, and attaches its view again."""
    async with serving(folder, server=server) as gateway:
        door.world = gateway
        if door.session:
            door.id += 1
            await door.attach()
        else:
            await door.open()
        yield Life(gateway, door)


async def kill(life: Life) -> None:
    """End the gateway by SIGKILL."""
    life.gateway.process.kill()
    await life.gateway.process.communicate()


async def announced(folder: Path, door: HttpDoor) -> None:
    """Kill it while `/readyz` says that it stops."""
    async with living(folder, door, "drain: {announce: 60s}") as life:
        assert await life.change("/api/announced") == 200
        life.gateway.process.terminate()
        url = f"http://127.0.0.1:{life.gateway.port}/readyz"
        async with asyncio.timeout(60), aiohttp.ClientSession() as http:
            status = 200
            while status == 200:
                async with http.get(url, headers={"host": f"localhost:{life.gateway.port}"}) as answer:
                    status = answer.status
        assert await life.change("/api/announced") == 200
        await kill(life)


async def running_call(folder: Path, door: HttpDoor) -> None:
    """Kill it when it does not listen any more, while a call runs."""
    async with living(folder, door) as life:
        call = await life.begin_held()
        life.gateway.process.terminate()
        await wait_closed(life.gateway.port)
        await kill(life)
        with contextlib.suppress(aiohttp.ClientError):
            assert await call != 200


async def answered_call(folder: Path, door: HttpDoor) -> None:
    """Kill it right after the answer to its last call, while it copies the record and ends its parts."""
    async with living(folder, door) as life:
        call = await life.begin_held()
        life.gateway.process.terminate()
        await wait_closed(life.gateway.port)
        life.gateway.backend.go_on.set()
        assert await call == 200
        await kill(life)


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.soak)])
async def test_a_drain_that_was_killed_loses_nothing(tmp_path: Path, times: int) -> None:
    """The session and the view go on, each answered call is in the record, and one that was cut is `result-unknown`."""
    async with local_client() as client:
        door = HttpDoor(Stopped.__new__(Stopped), client, modern=False)
        for _ in range(times):
            for step in (announced, running_call, answered_call):
                await step(tmp_path, door)
        async with living(tmp_path, door) as life:
            assert await life.change("/api/last") == 200
            await life.gateway.stop()
            code, said = await wait_exit(life.gateway.process)
            assert (code, "Traceback" in said) == (0, False), said
            lines = life.gateway.lines()
    await audit_verify(tmp_path)
    ends = [line["fields"] for line in lines if line["phase"] == "outcome" and line["fields"].get("url")]
    found = [(one["url"], one.get("status"), one.get("reason")) for one in ends]
    assert found.count(("/api/announced", 200, None)) == 2 * times
    assert found.count(("/api/held", 200, None)) == times
    assert found.count(("/api/held", None, "result-unknown")) == times
