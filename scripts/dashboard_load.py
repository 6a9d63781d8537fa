"""Run a gateway under mixed load with a Prometheus, and draw its dashboard: `python scripts/dashboard_load.py FILE`.

Prometheus and Chromium are Debian's. The load takes some minutes: a person in the console, a model, the app's own
site, callers who are refused, a shop that fails, files that change, and a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import httpx2
import yaml
from aiohttp import web
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from playwright.async_api import Error, Page, async_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from scripts.dashboard_picture import SCRAPE, Span, draw  # noqa: E402  # scripts and tests are no installed packages
from tests.browser.conftest import launch  # noqa: E402
from tests.browser.test_main_job import app_of  # noqa: E402
from tests.callers.tokens import link, token  # noqa: E402
from tests.world import SECRET, World, free_port, running, serving  # noqa: E402

MINUTES = float(os.environ.get("MINUTES", "6"))
EVENTS = {"webmcp-gateway-client": "1"}


async def api(request: web.Request) -> web.StreamResponse:
    """Answer with the credential of the request, which is a fault, or with a stream."""
    if request.path == "/api/echo":
        return web.json_response({"debug": dict(request.headers)})
    answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await answer.prepare(request)
    for number in range(5):
        await answer.write(f"data: {number}\n\n".encode())
        await asyncio.sleep(2)
    return answer


def configure(world: World, port: int, admin: int) -> None:
    """Change the configuration of the cart: a second backend, an upstream, and the listener for operators."""
    file, policy = world.folder / "gateway.yaml", world.folder / "policy.yaml"
    told = yaml.safe_load(file.read_text("utf-8"))
    told["server"] |= {"admin_listen": f"127.0.0.1:{admin}", "drain": {"announce": "1s", "timeout": "5s"}}
    told["auth"] = [{"type": "token", "view_clients": ["model"]}]
    told["upstreams"] = {"everything": {"server": "tests.interop.everything:server"}}
    file.write_text(yaml.safe_dump(told, sort_keys=False), "utf-8")
    rules = yaml.safe_load(policy.read_text("utf-8"))
    for route in rules["routes"]:
        route.setdefault("backend", "shop")
    shop = rules["backends"]["shop"]
    shop["circuit"] = {"failures": 3, "reset": "15s"}
    rules["backends"]["api"] = {**copy.deepcopy(shop), "url": f"http://127.0.0.1:{port}"}
    rules["routes"][:0] = [
        {"path": "/api/echo", "methods": ["GET"], "backend": "api"},
        {"path": "/api/events", "methods": ["GET"], "backend": "api", "stream": True},
    ]
    policy.write_text(yaml.safe_dump(rules, sort_keys=False), "utf-8")


@asynccontextmanager
async def program(*command: str, cwd: Path | None = None) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program in the background, until the end of the block."""
    environment = {**os.environ, "SHOP_SECRET": SECRET, "PYTHONPATH": str(ROOT)}
    started = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=environment)
    try:
        yield started
    finally:
        if started.returncode is None:
            started.terminate()
        await started.wait()


@asynccontextmanager
async def prometheus(folder: Path, target: str) -> AsyncIterator[str]:
    """Run Prometheus, which scrapes the gateway; yield its address."""
    url = f"127.0.0.1:{free_port()}"
    job = {"job_name": "webmcp-gateway", "static_configs": [{"targets": [target]}]}
    settings = {"global": {"scrape_interval": f"{SCRAPE}s"}, "scrape_configs": [job]}
    settings["rule_files"] = [str(ROOT / "deploy" / "alerts.yaml")]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings), "utf-8")
    options = (f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data")
    async with program("prometheus", *options, f"--web.listen-address={url}") as running:
        await until(f"http://{url}/-/ready", running)
        yield f"http://{url}"


async def until(url: str, running: asyncio.subprocess.Process) -> None:
    """Wait until this address of a program answers 200."""
    async with aiohttp.ClientSession() as http:
        while running.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(url) as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.2)
    raise RuntimeError(f"what should answer at {url} has ended: see its output above")


async def again(seconds: float, act: Callable[[int], Awaitable[object]]) -> None:
    """Act every so many seconds, whatever fails."""
    number = 0
    while True:
        with contextlib.suppress(aiohttp.ClientError, httpx2.HTTPError, MCPError, Error, ExceptionGroup, OSError):
            await act(number)
        number += 1
        await asyncio.sleep(seconds)


async def visit(world: World, http: aiohttp.ClientSession, shown: dict[str, str], number: int) -> None:
    """Send a request to the app's own site, as its page would; some are refused."""
    paths = ("/api/products", "/api/cart", "/api/products", "/api/cart", "/api/admin/users", "/nowhere")
    path = "/api/echo" if number % 900 == 300 else paths[number % len(paths)]
    async with http.get(world.site + path, headers={**shown, **EVENTS}) as answer:
        await answer.read()


async def listen(world: World, http: aiohttp.ClientSession, shown: dict[str, str]) -> None:
    """Read a stream to its end."""
    async with http.get(f"{world.site}/api/events", headers={**shown, **EVENTS}) as answer:
        await answer.read()


async def intrude(world: World, http: aiohttp.ClientSession, number: int) -> None:
    """Come with a wrong token, without one, and under a foreign name."""
    odd: tuple[dict[str, str], ...] = ({"authorization": "Bearer wrong"}, {}, {"host": "evil.example"})
    async with http.post(f"{world.url}/mcp", json={}, headers=odd[number % 3]) as answer:
        await answer.read()


async def converse(world: World, shown: dict[str, str], number: int) -> None:
    """Call tools as a model does: of the page that the person has open, and of the upstream."""
    async with (
        httpx2.AsyncClient(headers=shown, timeout=30) as http,
        Client(streamable_http_client(f"{world.url}/mcp", http_client=http), mode="legacy") as client,
    ):
        for turn in range(8):
            listed = (await client.call_tool("list_view_tools", {})).structured_content or {"views": []}
            for view in listed["views"][:1]:
                called = {"tool": "add_to_cart", "arguments": {"item_id": ("mug", "oil", "nothing")[turn % 3]}}
                if turn % 4 == 3:
                    called = {"tool": "remove_from_cart", "arguments": {"item_id": "mug"}}
                await client.call_tool("call_view_tool", {"view": view["view"], **called})
            await client.call_tool("everything_test_simple_text", {})
            if number % 3 == 1:
                await client.call_tool("everything_test_error_handling", {})


async def look_and_click(page: Page, number: int) -> None:
    """Add to the cart as a person does."""
    await app_of(page).locator("[data-add]").nth(number % 5).click(timeout=5000)


async def reply(page: Page, answers: Iterator[str]) -> None:
    """Answer the next question."""
    card = page.get_by_test_id("approval").first
    await card.wait_for(timeout=5000)
    await asyncio.sleep(2)
    await card.get_by_test_id(next(answers)).click(timeout=5000)


async def happen(world: World, start: Callable[[], Awaitable[None]]) -> None:
    """Let the shop fail for a while, change a file, break and mend it, and restart the gateway."""
    part = 60 * MINUTES / 12
    policy = world.folder / "policy.yaml"
    await asyncio.sleep(3 * part)
    await world.shop.stop()
    await asyncio.sleep(part)
    await world.start_shop()
    await asyncio.sleep(part)
    good = policy.read_text("utf-8")
    policy.write_text(good.replace("20/second", "30/second"), "utf-8")
    await asyncio.sleep(part / 2)
    policy.write_text(good + "routs: []\n", "utf-8")
    await asyncio.sleep(part)
    policy.write_text(good, "utf-8")
    await asyncio.sleep(part / 2)
    await start()


async def main(file: Path) -> None:
    """Run everything, and write the picture."""
    admin = free_port()
    app = web.Application()
    app.router.add_get("/api/{what}", api)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        world = await stack.enter_async_context(running(folder, extra="auth: [token]\n", token_lifetime=20))
        port = await stack.enter_async_context(serving(app))
        visitor, model = [await token(world, name, "mcp", "bridge", "app:cart") for name in ("visitor", "model")]
        login = await link(world)
        await world.gateway.stop()
        configure(world, port, admin)
        gateway = AsyncExitStack()
        stack.push_async_callback(gateway.aclose)

        async def start() -> None:
            await gateway.aclose()
            command = (sys.executable, "-c", "from gateway.cli import main; main()", "serve")
            serving = await gateway.enter_async_context(program(*command, cwd=folder))
            await until(f"http://127.0.0.1:{admin}/readyz", serving)

        await start()
        url = await stack.enter_async_context(prometheus(folder, f"127.0.0.1:{admin}"))
        chromium = await launch(await stack.enter_async_context(async_playwright()))
        stack.push_async_callback(chromium.close)
        page = await chromium.new_page()
        await page.goto(login)
        await page.goto(f"{world.console}/#/apps/cart")
        http = await stack.enter_async_context(world.client())
        answers = itertools.cycle(("approve", "approve", "decline"))
        begun = time.time()
        loads = (
            again(0.1, lambda number: visit(world, http, visitor, number)),
            again(1, lambda _: listen(world, http, visitor)),
            again(0.5, lambda number: intrude(world, http, number)),
            again(1, lambda number: converse(world, model, number)),
            again(1.5, lambda number: look_and_click(page, number)),
            again(0.1, lambda _: reply(page, answers)),
            happen(world, start),
        )
        tasks = [asyncio.create_task(load) for load in loads]
        await asyncio.sleep(60 * MINUTES)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        picture, missing = await asyncio.to_thread(draw, url, Span(begun, time.time()))
        await asyncio.to_thread(file.write_text, picture, "utf-8")
        print(f"No data: {', '.join(missing)}" if missing else "Every panel has data.")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
