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
from benchmarks.processes import ROOT, Processes, free_port
from benchmarks.targets import SERVE

CHROMIUM = Path("/usr/bin/chromium")
CHUNKS = 50 * 16
"""How many pieces of 64 KiB are 50 MiB."""

BETWEEN = 0.01
"""Seconds between two requests to the idle server."""

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
    """A model's calls of the page's tool, one after the other, and how long each took, in milliseconds.

    `bare` are requests to the server at `idle`, with which nobody else has to do: what they take is the machine's.
    """

    client: Client
    http: aiohttp.ClientSession
    idle: str
    taken: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    over: bool = False

    async def run(self) -> None:
        """Call until it is over."""
        self.taken.clear()
        self.over = False
        while not self.over:
            began = time.perf_counter()
            result = await self.client.call_tool("bulk_ping", {})
            if result.is_error:
                raise BenchmarkError(f"The page's tool failed: {result}")
            self.taken.append((time.perf_counter() - began) * 1000)

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

    async def during(self, work: str, frame: Frame, argument: int) -> str:
        """One line on the calls while the page does `work`."""
        began = time.perf_counter()
        answer = await self.beside(frame.evaluate(work, argument))
        seconds = time.perf_counter() - began
        if isinstance(answer, dict) and answer.get("status") != 200:
            raise BenchmarkError(f"The page got {answer}")
        return f"{_line(self.taken)} | {seconds:.1f} | {max(self.bare):.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; exit code 1 with a reason where that fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description="Measure a page in a view.")
    parser.add_argument("--rounds", type=int, default=300, help="fetches, and calls by hand, that are timed")
    given = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="benchmark-") as folder, Processes(Path(folder)) as processes:
            print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
            idle = processes.start("idle", [sys.executable, "-m", "benchmarks.backend"])
            asyncio.run(_measure(start(Path(folder), processes), idle.port, given.rounds))
    except BenchmarkError as error:
        sys.exit(str(error))


def start(folder: Path, processes: Processes) -> int:
    """The port of a gateway in front of the backend."""
    backend = processes.start("backend", [sys.executable, "-m", "benchmarks.page.backend"])
    port = free_port()
    config = folder / "gateway.yaml"
    config.write_text(_CONFIG.format(port=port, source=SOURCE), "utf-8")
    (folder / "policy.yaml").write_text(POLICY.format(port=backend.port), "utf-8")
    command = [sys.executable, "-c", SERVE, "serve", "--config", str(config)]
    processes.start("gateway", command, port=port)
    return port


async def _measure(port: int, idle: int, rounds: int) -> None:
    async with async_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        browser = await playwright.chromium.launch(
            executable_path=None if own.exists() else CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = await browser.new_page()
        await page.goto(f"http://localhost:{port}")
        app = page.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
        await app.locator("#ready").wait_for()
        frame = page.frames[-1]
        async with (
            Client(f"http://localhost:{port}/mcp", mode="2026-07-28") as client,
            aiohttp.ClientSession() as http,
        ):
            pings = Pings(client, http, f"http://127.0.0.1:{idle}{PATH}")
            await _ready(client)
            print(
                "| what | calls | median ms | p99 ms | longest ms | seconds | bare ms |\n|---|--:|--:|--:|--:|--:|--:|"
            )
            print(f"| a model's call, nothing else | {await pings.during('rest', frame, 3000)} |")
            for label, work in (("up", "upFile"), ("down", "downOnly")):
                print(f"| a model's call, 50 MiB {label} | {await pings.during(work, frame, CHUNKS)} |")
            print(f"| a model's call, 1,000 fetches at once | {await pings.during('many', frame, 1000)} |")
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


def _line(taken: Sequence[float]) -> str:
    ordered = sorted(taken)
    if not ordered:
        return "0 | | | "
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"{len(ordered)} | {statistics.median(ordered):.1f} | {p99:.1f} | {ordered[-1]:.1f}"


if __name__ == "__main__":
    main()
