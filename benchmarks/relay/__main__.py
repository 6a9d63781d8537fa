"""The command `python -m benchmarks.relay`: Chromium shows a page in two hosts that only forward `tools/call`."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from mcp import Client
from playwright.async_api import Browser, Frame, async_playwright

from benchmarks.chromium import CHROMIUM
from benchmarks.errors import BenchmarkError
from benchmarks.page.__main__ import start
from benchmarks.processes import Processes
from benchmarks.relay.host import bundle, show_page

HOSTS = {"side by side": False, "one at a time": True}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; exit code 1 with a reason on failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relay", description="Measure the relay.")
    parser.add_argument(
        "--rounds", type=int, default=60, help="calls of the model, and requests of the page, of a kind"
    )
    rounds = parser.parse_args(arguments).rounds
    try:
        with tempfile.TemporaryDirectory(prefix="benchmark-") as name, Processes(Path(name)) as processes:
            print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
            asyncio.run(_measure(Path(name), start(Path(name), processes).port, rounds))
    except BenchmarkError as error:
        sys.exit(str(error))


async def _measure(folder: Path, port: int, rounds: int) -> None:
    script = bundle(folder)
    async with async_playwright() as playwright:
        own = Path(playwright.chromium.executable_path)
        browser = await playwright.chromium.launch(
            executable_path=None if own.exists() else CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        async with Client(f"http://localhost:{port}/mcp/bulk", mode="2026-07-28") as model:
            print("| what | host | calls | median ms | p90 ms | longest ms |\n|---|---|--:|--:|--:|--:|")
            bridged = await _measure_bridge(browser, port, model, rounds)
            for host, one_at_a_time in HOSTS.items():
                context = await browser.new_context()
                url = f"http://localhost:{port}/mcp/bulk"
                async with show_page(await context.new_page(), url, script, one_at_a_time=one_at_a_time) as frame:
                    await _measure_relay(frame, model, host, bridged, rounds)
                await context.close()
        await browser.close()


async def _measure_bridge(browser: Browser, port: int, model: Client, rounds: int) -> float:
    """Return the median of a model's calls over the gateway's own bridge, the reference for those by relay."""
    page = await browser.new_page()
    await page.goto(f"http://localhost:{port}")
    await page.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe").locator("#ready").wait_for()
    await _wait_listed(model)
    taken = await _time_calls(model, rounds)
    _tell("a model's call", "the gateway's own", taken)
    await page.get_by_test_id("close").click()
    await _wait_listed(model, there=False)
    await page.close()
    return statistics.median(taken)


async def _measure_relay(frame: Frame, model: Client, host: str, bridged: float, rounds: int) -> None:
    await _wait_listed(model)
    taken = await _time_calls(model, rounds)
    _tell("a model's call, idle page", host, taken)
    extra = statistics.median(taken) - bridged
    working = asyncio.ensure_future(frame.evaluate("always()"))
    taken = await _time_calls(model, rounds)
    _tell("a model's call, page makes requests all the time", host, taken)
    busy = statistics.median(taken) - bridged
    await frame.evaluate("busy = false")
    await working
    _tell("a page's request, polling", host, await frame.evaluate("nowAndThen", rounds))
    await frame.evaluate("offered.abort()")
    await _wait_listed(model, there=False)
    _tell("a page's request, no polling", host, await frame.evaluate("nowAndThen", rounds))
    print(f"\n{host}: a model's call takes {extra:+.0f} ms as the median, {busy:+.0f} ms beside requests\n")


async def _time_calls(model: Client, rounds: int) -> list[float]:
    """Return the times of calls of the page's tool, with pauses in between."""
    listed = (await model.call_tool("list_view_tools", {})).structured_content or {}
    view = next(view["view"] for view in listed["views"] if view["tools"])
    taken = []
    for _ in range(rounds):
        await asyncio.sleep(random.uniform(0.04, 0.16))  # calls must not synchronise with polls
        began = time.perf_counter()
        result = await model.call_tool("call_view_tool", {"view": view, "tool": "ping", "arguments": {}})
        if result.is_error:
            raise BenchmarkError(f"The page's tool failed: {result}")
        taken.append((time.perf_counter() - began) * 1000)
    return taken


async def _wait_listed(model: Client, *, there: bool = True) -> None:
    for _ in range(400):
        if any(tool.name == "bulk_ping" for tool in (await model.list_tools()).tools) is there:
            return
        await asyncio.sleep(0.05)
    raise BenchmarkError(f"The page's tool was {'not ' if there else ''}listed.")


def _tell(what: str, host: str, taken: Sequence[float]) -> None:
    ordered = sorted(taken)
    p90 = ordered[int(len(ordered) * 0.9)]
    print(f"| {what} | {host} | {len(ordered)} | {statistics.median(ordered):.1f} | {p90:.1f} | {ordered[-1]:.1f} |")


if __name__ == "__main__":
    main()
