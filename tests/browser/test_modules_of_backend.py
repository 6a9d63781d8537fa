"""Modules that no packer has linked: those of a backend in its pages, and imports of computed names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from playwright.async_api import Browser, FrameLocator, Page

from tests.browser.test_main_job import app_of
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


ADDS = """<!doctype html><html><head><title>Adds</title><script>window.seen = []</script>
<script type="module">import { state } from "./js/shared.js"; state.count += 1;</script></head><body><h1>Adds</h1>
<script>
const add = (name, write) => new Promise((go) => {
  const script = document.createElement("script");
  write(script, "./js/" + name + ".js");
  for (const kind of ["load", "error"]) script.addEventListener(kind, () => go(`${name} ${kind}`));
  document.head.appendChild(script);
});
const byAttribute = (script, url) => { script.setAttribute("type", "module"); script.setAttribute("src", url); };
const byProperty = (script, url) => { script.src = url; script.type = "module"; };
addEventListener("load", () => {
  window.over = (async () => {
    const added = [
      ["first", byAttribute], ["second", byProperty], ["first", byProperty],
      ["lost", byAttribute], ["lacks", byProperty],
    ];
    for (const [name, write] of added) seen.push(await add(name, write));
    const { state } = await import(["./js/shared", "js"].join("."));
    seen.push(state.count, location.pathname);
  })();
});
</script></body></html>"""
ADDED = {
    "shared.js": "export const state = { count: 0 };",
    "first.js": (
        'import { state } from "./shared.js"; import { more } from "./more.js"; state.count += 10; seen.push(more);'
    ),
    "more.js": 'export const more = import.meta.url.split("/").at(-1);',
    "second.js": 'export default 1; const { more } = await import("./more.js"); seen.push(`second ${more}`);',
    "lacks.js": 'import "./nothing.js";',
}


async def test_module_scripts_that_a_script_adds_work_as_natively(browser: Browser, tmp_path: Path) -> None:
    """With all that they import, each module once, also one that is linked in the page; events tell of missing ones."""
    source, found = tmp_path / "adds", []
    (source / "js").mkdir(parents=True)
    (source / "index.html").write_text(ADDS, "utf-8")
    for name, code in ADDED.items():
        (source / "js" / name).write_text(code, "utf-8")
    policy = POLICY.replace("PORT", "1").partition("routes")[0] + "routes: []\n"
    async with running(tmp_path, policy=policy, source=source) as world:
        for url in (world.site, world.url):
            async with await browser.new_context() as context:
                page = await context.new_page()
                await page.goto(url)
                found.append(await observe(app_of(page) if url == world.url else page))
    native, view = found
    assert view == native
    assert native[:2] == ["more.js", "first load"]
    assert native[-2:] == [11, "/"]
