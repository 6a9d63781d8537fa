"""Processes that a gateway started end with it, even if it is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.backends.reaper import Reaper, lease_clock
from tests.cli.test_serve import process, ready, wait_exit, write
from tests.world import free_port

STUBBORN = """
import json, os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
with open(sys.argv[1] + ".new", "w") as file:
    json.dump([os.getpid(), child.pid], file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""
"""Reads nothing, ignores the end of its input and SIGTERM, and has a child."""


async def wait_gone(pids: list[int]) -> None:
    """Wait until none of them runs; zombies count as ended."""
    async with asyncio.timeout(60):
        for pid in pids:
            while is_running(pid):
                await asyncio.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether the process exists, and is not a zombie."""
    try:
        state = subprocess.run(["/bin/ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError:
        return False
    return not state.stdout.strip().startswith("Z")


async def read_pids(place: Path) -> list[int]:
    """The process ids that a stubborn process has written."""
    async with asyncio.timeout(60):
        while not place.exists():
            await asyncio.sleep(0.02)
    found: list[int] = json.loads(place.read_text())
    return found


async def test_an_upstream_ends_with_a_killed_gateway(tmp_path: Path) -> None:
    """Its child processes end, too, even if they ignore signals."""
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    write(tmp_path, free_port())
    with (tmp_path / "gateway.yaml").open("a") as file:
        file.write(f"upstreams: {{up: {{command: ['{sys.executable}', stubborn.py, pids], lazy: false}}}}\n")
    async with process(tmp_path) as running:
        lines = await ready(running, 1)
        assert lines[0].startswith("webmcp-gateway"), await wait_exit(running)
        pids = await read_pids(tmp_path / "pids")
        assert all(map(is_running, pids))
        running.kill()
        await wait_gone(pids)


@pytest.mark.parametrize("end", ["close", "watcher killed"])
async def test_what_is_watched_over_ends(tmp_path: Path, end: str) -> None:
    """They end with the gateway; a watcher that was killed is replaced by one that knows all of them."""
    reaper = Reaper()
    places = [tmp_path / "one", tmp_path / "two"]
    started = [
        subprocess.Popen([sys.executable, "-c", STUBBORN, str(place)], start_new_session=True) for place in places
    ]
    pids = [await read_pids(place) for place in places]
    reaper.watch(pids[0][0])
    if end == "watcher killed":
        assert reaper._process is not None
        reaper._process.kill()
        reaper._process.wait()
    reaper.watch(pids[1][0])
    await asyncio.to_thread(reaper.close)
    for one in started:
        assert one.wait(30) == -signal.SIGKILL
    await wait_gone([*pids[0], *pids[1]])


async def test_what_was_forgotten_is_left_alone(tmp_path: Path) -> None:
    """The pid may belong to another process by then."""
    reaper = Reaper()
    started = subprocess.Popen([sys.executable, "-c", STUBBORN, str(tmp_path / "pids")], start_new_session=True)
    pids = await read_pids(tmp_path / "pids")
    reaper.watch(pids[0])
    reaper.forget(pids[0])
    await asyncio.to_thread(reaper.close)
    assert started.poll() is None
    with suppress(ProcessLookupError):
        os.killpg(pids[0], signal.SIGKILL)
    started.wait(30)


async def test_a_leased_process_ends_with_the_lease(tmp_path: Path) -> None:
    """An extended lease keeps it; the end of the lease kills it with its child, and no other process."""
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    reaper = Reaper()
    started: list[subprocess.Popen[bytes]] = []
    try:
        reaper.extend(lease_clock() + 3600)
        for name, leased in (("leased.json", True), ("free.json", False)):
            command = [sys.executable, str(tmp_path / "stubborn.py"), str(tmp_path / name)]
            started.append(subprocess.Popen(command, start_new_session=True))
            reaper.watch(started[-1].pid, leased=leased)
        kept, others = [await read_pids(tmp_path / name) for name in ("leased.json", "free.json")]
        reaper.extend(lease_clock() + 1800)
        await asyncio.sleep(0.5)
        assert all(map(is_running, [*kept, *others]))
        reaper.extend(lease_clock())
        await wait_gone(kept)
        assert all(map(is_running, others))
    finally:
        reaper.close()
        for one in started:
            one.kill()
            one.wait()
