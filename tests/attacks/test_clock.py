"""A clock that jumps under a running gateway: quotas stay used up and no question lives longer, at every door."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import Reason
from tests.attacks.calls import Answer, AttackedDoor
from tests.attacks.doors import DOORS
from tests.attacks.world import KEYS, SECRET, AttackWorld, running_world
from tests.leaks.watch import environment
from tests.world import local_client

ROUTES = """
  - {{path: /api/open/DOOR/quota, methods: [GET], backend: main, quota: 1/month per principal}}
  - {{path: /api/open/DOOR/rate, methods: [GET], backend: main, rate: 1/day per principal}}
  - {{path: /api/open/DOOR/asked, methods: [POST], backend: main, confirm: always}}
  - {{path: /api/open/DOOR/free, methods: [GET], backend: main}}
"""
POLICY = """
version: 1
backends:
  main: {{url: "http://127.0.0.1:{main}/v1", credential: attack, network: [127.0.0.0/8]}}
routes:
""" + "".join(ROUTES.replace("DOOR", door) for door in DOORS)
SERVE = """
import sys, time
real, file = time.time, sys.argv.pop(1)
def jumping():
    with open(file) as offset:
        return real() + float(offset.read() or 0)
time.time = jumping
from gateway.cli import main
main()
"""
"""A gateway whose wall clock is shifted by the seconds in a file."""
HOUR, DAY = 3600.0, 86400.0


@dataclass(frozen=True, slots=True)
class Clocked:
    """A gateway in a separate process, and its clock."""

    world: AttackWorld
    file: Path
    noon: float

    def jump(self, seconds: float) -> None:
        """Set the clock to `seconds` after noon in the middle of this month; it runs on from there."""
        new = self.file.with_suffix(".new")
        new.write_text(str(self.noon + seconds), "utf-8")
        new.replace(self.file)


@pytest.fixture(scope="module")
async def clocked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Clocked]:
    """One gateway for all doors."""
    folder = tmp_path_factory.mktemp("clock")
    async with running_world(folder, POLICY, "approvals: {timeout: 3s}\n") as world:
        await world.stop()
        middle = datetime.now(UTC).replace(day=15, hour=12, minute=0).timestamp()
        clocked = Clocked(world, folder / "offset", middle - time.time())
        clocked.jump(0)
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                SERVE,
                str(clocked.file),
                "serve",
                "--config",
                str(node.folder / "gateway.yaml"),
                env={**environment(), "SECRET": SECRET, **KEYS},
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            for node in world.nodes
        ]
        try:
            for node in world.nodes:
                await ready(world, node.server.port)
            yield clocked
        finally:
            for process in processes:
                process.terminate()
                await process.wait()


async def ready(world: AttackWorld, port: int) -> None:
    """Wait until the gateway at a port is ready."""
    headers = {"host": world.hosts["plain"]}
    async with local_client() as client, asyncio.timeout(60):
        while True:
            try:
                async with client.get(f"http://127.0.0.1:{port}/readyz", headers=headers) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("door", DOORS)
async def test_a_jump_gives_nobody_more(clocked: Clocked, door: str) -> None:
    """Neither a quota nor a rate is reset by a jump back or ahead; unlimited requests still pass."""
    clocked.jump(0)
    async with DOORS[door](clocked.world) as way:
        for limited, reason in (("quota", Reason.QUOTA_EXCEEDED), ("rate", Reason.RATE_LIMITED)):
            url = f"/api/open/{door}/{limited}"
            assert (await way.ask({"url": url})).status == 200
            for jump in (0, -2 * DAY, -HOUR, DAY, 3 * DAY, 0):
                clocked.jump(jump)
                assert (await way.ask({"url": url})).reason == reason, (limited, jump)
                assert (await way.ask({"url": f"/api/open/{door}/free"})).status == 200


@pytest.mark.parametrize("jump", [-DAY, -HOUR, HOUR, DAY])
async def test_a_question_ends_in_its_time(clocked: Clocked, jump: float) -> None:
    """With a clock set back or ahead, an open question expires at the planned time or at once; nothing is sent."""
    clocked.jump(0)
    async with AsyncExitStack() as stack:
        ways = {name: await stack.enter_async_context(opened(clocked.world)) for name, opened in DOORS.items()}
        clocked.world.take_arrived()
        async with asyncio.TaskGroup() as tasks:
            asking = {name: tasks.create_task(final_answer(way, name)) for name, way in ways.items()}
            await wait_questions(clocked.world, len(ways))
            clocked.jump(jump)
    assert {name: task.result().reason for name, task in asking.items()} == dict.fromkeys(
        DOORS, Reason.APPROVAL_EXPIRED
    )
    assert clocked.world.take_arrived() == []


async def final_answer(way: AttackedDoor, door: str) -> Answer:
    """The final answer to a request that requires approval at a door."""
    return await final(way, await way.ask({"url": f"/api/open/{door}/asked", "method": "POST", "body": "x"}))


async def wait_questions(world: AttackWorld, count: int) -> None:
    """Wait until the console shows `count` questions."""
    own = {"webmcp-gateway-client": "1"}
    async with local_client() as client, asyncio.timeout(60):
        while True:
            async with client.get(f"http://{world.hosts['console']}/api/approvals", headers=own) as answer:
                if answer.status == 200 and len((await answer.json())["approvals"]) == count:
                    return
            await asyncio.sleep(0.02)


async def final(way: Any, answer: Answer) -> Answer:
    """Poll past the answers that only report a pending approval; return the final one."""
    async with asyncio.timeout(60):
        while answer.status == 202:
            answer = await way.tool("http_stream", f'{{"id":"{answer.headers["gateway-pending"]}"}}')
    return answer
