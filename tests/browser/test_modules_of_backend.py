"""Modules that no packer has linked: those of a backend in its pages, and imports of computed names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from playwright.async_api import Browser, FrameLocator, Page

from tests.browser.test_pages_of_backend import page_of
from tests.world import running, serving

FILES: Final = Path(__file__).parent / "modules"
POLICY: Final = """version: 1
backends: {pages: {url: "http://127.0.0.1:PORT", network: private, cookies: jar}}
limits: {timeout: 60s, request: 4MiB, rate: 10000/second per view}
routes: [{path: "/**", methods: [GET, HEAD, POST]}]
"""
KINDS: Final = {".js": "text/javascript", ".json": "application/json", ".css": "text/css"}


@asynccontextmanager
async def module_server(arrived: list[str]) -> AsyncIterator[int]:
    """A server with the page and its modules; `arrived` receives the paths that are requested."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=(FILES / "backend" / "index.html").read_text("utf-8"), content_type="text/html")

    async def module(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        arrived.append(name)
        path = FILES / "backend" / name
        if not path.is_file():
            return web.Response(status=404)
        kind = "text/plain" if name == "text.js" else KINDS[path.suffix]
        return web.Response(text=path.read_text("utf-8"), content_type=kind)

    app = web.Application()
    app.router.add_get("/modules", page)
    app.router.add_get("/modules/{name:.+}", module)
    async with serving(app) as port:
        yield port


async def observe(place: Page | FrameLocator) -> Any:
    """What the page saw, once it has finished."""
    body = place.locator("body")
    await place.locator("h1").wait_for()
    look = "async () => { while (!window.over) await new Promise(requestAnimationFrame); await over; return seen; }"
    async with asyncio.timeout(60):
        return await body.evaluate(look)


async def test_modules_of_a_page_run_as_natively(browser: Browser, tmp_path: Path) -> None:
    """Import maps, cycles, live bindings, failures, order and events are the same in a view and at the backend."""
    arrived: list[str] = []
    found: list[tuple[Any, list[str]]] = []
    async with module_server(arrived) as port:
        policy, source = POLICY.replace("PORT", str(port)), "{backend: pages, start: /modules}"
        async with running(tmp_path, policy=policy, source=source) as world:
            for url in (f"http://127.0.0.1:{port}/modules", world.url):
                async with await browser.new_context() as context:
                    page = await context.new_page()
                    await page.goto(url)
                    seen = await observe(page_of(page) if url == world.url else page)
                    found.append((seen, sorted(arrived)))
                    arrived.clear()
    native, view = found
    assert view[0] == native[0]
    assert view[1] == native[1]


async def test_imports_of_computed_names_work_as_natively(browser: Browser, tmp_path: Path) -> None:
    """In a packed app they are fetched from its folder, and share the modules that are linked in the page."""
    source, found = FILES / "app", []
    policy = POLICY.replace("PORT", "1").partition("routes")[0] + "routes: []\n"
    async with running(tmp_path, policy=policy, source=source) as world:
        for url in (world.site, world.url):
            async with await browser.new_context() as context:
                page = await context.new_page()
                await page.goto(url)
                shown = page.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
                found.append(await observe(shown if url == world.url else page))
    native, view = found
    assert view == native
    assert native[0] == "hello"
