"""Measures how long the event loop of a gateway pauses while it reloads many policies."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.at_rest import app_policy, write_apps
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Processes, free_port
from gateway.cli import main

TAKEN_WITHIN = 60.0

STEPS = "BENCH_STEPS"
"""The environment variable with the file to which a gateway writes its longest steps."""

LONG = 0.005
"""Seconds of a step that is written down."""

SERVE = "from benchmarks.reload import serve; serve()"

EVERY = 0.001
"""Seconds between an answer and the next request."""

AFTER = 1.0
"""Seconds of requests before the files change, and after the last policy is in effect."""


@dataclass(frozen=True, slots=True)
class Reload:
    """One reload: changed policies, the time until all were in effect, and the slowest answers in milliseconds.

    `step` is the longest step of the event loop, or garbage collection, in processor time of its thread, which neither
    other programs nor other threads lengthen. `idle` is the slowest answer of the second before, `bare` that of a
    server that has nothing else to do.
    """

    changed: int
    seconds: float
    step: float
    longest: float
    p99: float
    idle: float
    bare: float

    @property
    def times(self) -> tuple[float, ...]:
        """The columns of the table, in milliseconds."""
        return self.step, self.longest, self.p99, self.idle, self.bare


async def measure(
    processes: Processes, folder: Path, policies: int, tell: Callable[[str], None] = lambda _: None
) -> list[Reload]:
    """Change one policy, then all of them. Raises `BenchmarkError`."""
    port = free_port()
    config = write_apps(folder, port, policies)
    command = [sys.executable, "-c", SERVE, "serve", "--config", str(config)]
    tell(f"starting a gateway with {policies} policies")
    os.environ[STEPS] = str(_steps(folder))
    processes.start("reloading", command, port=port)
    found = []
    for changed in (1, policies):
        tell(f"reloading {changed} of {policies} policies")
        found.append(await _reload(folder, port, changed))
    return found


async def _reload(folder: Path, port: int, changed: int) -> Reload:
    effects = _effects(folder)
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    request = f"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n".encode()
    times, bare = list[float](), list[float]()
    tasks = [
        asyncio.create_task(_ask(port, request, times)),
        asyncio.create_task(_ask(server.sockets[0].getsockname()[1], request, bare)),
    ]
    try:
        while not times or not bare:
            await asyncio.sleep(AFTER)
        times.clear()
        await asyncio.sleep(AFTER)
        idle, before = max(times), len(times)
        bare.clear()
        _steps(folder).write_text("")
        for number in range(changed):
            route = f"  - {{path: /api/new{effects}, methods: [GET], when: \"request.query.page == '{number}'\"}}\n"
            (folder / f"policy{number}.yaml").write_text(app_policy(route), "utf-8")
        began = time.monotonic()
        while _effects(folder) < effects + changed:
            for task in tasks:
                if task.done():
                    task.result()
            if time.monotonic() > began + TAKEN_WITHIN:
                raise BenchmarkError(f"The policies are not in effect after {TAKEN_WITHIN:g} s")
            await asyncio.sleep(0.05)
        seconds = time.monotonic() - began
        await asyncio.sleep(AFTER)
        meanwhile = sorted(times[before:])
    finally:
        for task in tasks:
            task.cancel()
        server.close()
    p99 = meanwhile[int(len(meanwhile) * 0.99)]
    step = max((float(line.split()[0]) for line in _steps(folder).read_text().splitlines()), default=0.0)
    return Reload(changed, seconds, *(1000 * one for one in (step, meanwhile[-1], p99, idle, max(bare))))


def serve() -> None:
    """Run the command of the gateway; write down each long step of its event loop, and each long garbage collection."""
    steps, run = Path(os.environ[STEPS]), asyncio.Handle._run
    collecting = 0.0

    def note(began: float, what: str) -> None:
        if (took := time.thread_time() - began) > LONG:
            with steps.open("a") as file:
                file.write(f"{took} {what}\n")

    def measured(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        note(began, repr(handle))

    def collected(phase: str, found: dict[str, int]) -> None:  # stops every thread
        nonlocal collecting
        if phase == "start":
            collecting = time.thread_time()
        else:
            note(collecting, f"collection of generation {found['generation']}")

    gc.callbacks.append(collected)
    asyncio.Handle._run = measured  # type: ignore[method-assign,assignment]  # every step of a loop passes here
    main()


def _steps(folder: Path) -> Path:
    return folder / "steps.txt"


async def _ask(port: int, request: bytes, times: list[float]) -> None:
    """Send one request after the other on a connection, and note how long each answer takes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            sent = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            times.append(time.perf_counter() - sent)
            await asyncio.sleep(EVERY)
    finally:
        writer.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every request at once: how long this takes is the machine's part."""
    try:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.CancelledError):
        writer.close()


def _effects(folder: Path) -> int:
    """Return how many policies came into effect so far, by the lines of the record."""
    lines = (line for journal in folder.glob("gateway.journal") for line in journal.read_bytes().splitlines())
    return sum(b'"kind":"policy"' in line and b'"status":200' in line for line in lines)
