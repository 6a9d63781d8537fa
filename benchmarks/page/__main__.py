"""The command `python -m benchmarks.page`: Chromium shows a page in a view, and measures what it gets."""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from mcp import Client
from playwright.async_api import Frame, async_playwright

from benchmarks.backend import PATH
from benchmarks.errors import BenchmarkError
from benchmarks.page.backend import POLICY, SOURCE
from benchmarks.page.busy import CATEGORIES, MARKS, Call, Trace, worked_ms
from benchmarks.processes import ROOT, Processes, Running, free_port
from benchmarks.targets import SERVE

CHROMIUM = Path("/usr/bin/chromium")
CHUNKS = 50 * 16
"""How many pieces of 64 KiB are 50 MiB."""

BETWEEN = 0.01
"""Seconds between two requests to the idle server."""

_WORK = (
    ("a model's call, nothing else", "rest", 3000),
    ("a model's call, 50 MiB up", "upFile", CHUNKS),
    ("a model's call, 50 MiB down", "downOnly", CHUNKS),
    ("a model's call, 1,000 fetches at once", "many", 1000),
)
"""What the page does meanwhile, and how much of it."""

_HEAD = """\
| what | calls | median ms | p99 ms | longest ms | busy ms | seconds | bare ms |
|---|--:|--:|--:|--:|--:|--:|--:|"""

_CONFIG = """\
server:
  listen: 127.0.0.1:{port}
apps:
  bulk:
    source: {source}
    policy: policy.yaml
"""


@dataclass(slots=True)
class Pings:
    """A model's calls of the page's tool at the process `gateway`, one after the other.

    `bare` are requests to the server at `idle`, with which nobody else has to do: what they take is the machine's, in
    milliseconds.
    """

    client: Client
    http: aiohttp.ClientSession
    idle: str
    gateway: int
    calls: list[Call] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    over: bool = False

    async def run(self) -> None:
        """Call until it is over."""
        self.calls = []
        self.over = False
        while not self.over:
            began, worked = time.perf_counter(), worked_ms(self.gateway)
            result = await self.client.call_tool("bulk_ping", {})
            if result.is_error:
                raise BenchmarkError(f"The page's tool failed: {result}")
            ended = time.perf_counter()
            self.calls.append(Call(began * 1000, ended * 1000, worked_ms(self.gateway) - worked))

    async def run_bare(self) -> None:
        """Ask the idle server until it is over."""
        self.bare.clear()
        while not self.over:
            began = time.perf_counter()
            async with self.http.get(self.idle) as answer:
                await answer.read()
            self.bare.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(BETWEEN)

    async def beside(self, work: Awaitable[Any]) -> Any:
        """What `work` gives, with calls for as long as it takes."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.run())
            tasks.create_task(self.run_bare())
            try:
                return await work
            finally:
                self.over = True

    async def during(self, label: str, work: str, frame: Frame, argument: int) -> Phase:
        """The calls while the page does `work`."""
        began = time.perf_counter()
        answer = await self.beside(frame.evaluate(work, argument))
        seconds = time.perf_counter() - began
        if isinstance(answer, dict) and answer.get("status") != 200:
            raise BenchmarkError(f"The page got {answer}")
        return Phase(label, self.calls, seconds, max(self.bare))


@dataclass(frozen=True, slots=True)
class Phase:
    """The calls beside one kind of work; `bare` is the longest request to the idle server, in milliseconds."""

    label: str
    calls: Sequence[Call]
    seconds: float
    bare: float

    def line(self, trace: Trace) -> str:
        """A line of the table."""
        ordered = sorted(call.taken for call in self.calls)
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        longest = max(trace.busy(call) for call in self.calls)
        figures = [
            f"{ms:.1f}" for ms in (statistics.median(ordered), p99, ordered[-1], longest, self.seconds, self.bare)
        ]
        return " | ".join(["", self.label, str(len(ordered)), *figures, ""]).strip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; exit code 1 with a reason where that fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description="Measure a page in a view.")
    parser.add_argument("--rounds", type=int, default=300, help="fetches, and calls by hand, that are timed")
    given = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="benchmark-") as folder, Processes(Path(folder)) as processes:
            print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
            idle = processes.start("idle", [sys.executable, "-m", "benchmarks.backend"])
            asyncio.run(_measure(start(Path(folder), processes), idle.port, given.rounds, Path(folder)))
    except BenchmarkError as error:
        sys.exit(str(error))


def start(folder: Path, processes: Processes) -> Running:
    """A gateway in front of the backend."""
    backend = processes.start("backend", [sys.executable, "-m", "benchmarks.page.backend"])
    port = free_port()
    config = folder / "gateway.yaml"
    config.write_text(_CONFIG.format(port=port, source=SOURCE), "utf-8")
    (folder / "policy.yaml").write_text(POLICY.format(port=backend.port), "utf-8")
    command = [sys.executable, "-c", SERVE, "serve", "--config", str(config)]
    return processes.start("gateway", command, port=port)


async def _measure(gateway: Running, idle: int, rounds: int, folder: Path) -> None:
    async with async_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        browser = await playwright.chromium.launch(
            executable_path=None if own.exists() else CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = await browser.new_page()
        await page.add_init_script(MARKS)
        site = f"http://localhost:{gateway.port}"
        await page.goto(site)
        app = page.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
        await app.locator("#ready").wait_for()
        frame = page.frames[-1]
        async with Client(f"{site}/mcp", mode="2026-07-28") as client, aiohttp.ClientSession() as http:
            pings = Pings(client, http, f"http://127.0.0.1:{idle}{PATH}", gateway.pid)
            await _ready(client)
            await browser.start_tracing(page=page, path=folder / "trace.json", categories=CATEGORIES)
            for each in page.frames:
                await each.evaluate("() => dispatchEvent(new Event('busy'))")
            phases = [await pings.during(label, work, frame, argument) for label, work, argument in _WORK]
            await browser.stop_tracing()
            trace = Trace.read(folder / "trace.json")
            print("\n".join([_HEAD, *(phase.line(trace) for phase in phases)]))
            await _latency(pings, frame, rounds)
        await browser.close()


async def _latency(pings: Pings, frame: Frame, rounds: int) -> None:
    """A fetch beside the same call by hand, turn by turn, both channels busy."""
    times = await pings.beside(frame.evaluate("compare", rounds))
    fetched, by_hand = (statistics.median(times[name]) for name in ("fetch", "hand"))
    print(f"\nfetch {fetched:.2f} ms, the same call by hand {by_hand:.2f} ms (medians of {rounds}): ", end="")
    print(f"{fetched - by_hand:+.2f} ms, {fetched / by_hand:.2f} times")


async def _ready(client: Client) -> None:
    for _ in range(200):
        if any(tool.name == "bulk_ping" for tool in (await client.list_tools()).tools):
            return
        await asyncio.sleep(0.05)
    raise BenchmarkError(f"The page's tool was not listed; {ROOT}/gateway/static may be older than the sources.")


if __name__ == "__main__":
    main()
