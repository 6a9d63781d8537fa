"""Runs an app of the corpus natively and in a view, and compares both."""

from __future__ import annotations

import asyncio
import difflib
import json
import mimetypes
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web
from playwright.async_api import Browser, ConsoleMessage, Error, Page, ViewportSize

from gateway.app import build_app
from gateway.config import load_config, read_config
from gateway.errors import DocumentError
from tests.browser.test_main_job import app_of
from tests.corpus.catalog import PICTURED, App
from tests.corpus.packages import locked
from tests.corpus.visit import Visit, blank, settle
from tests.world import Server, serving

ARGUMENTS = ("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE *.localhost, EXCLUDE 127.0.0.1",)
"""Arguments of Chromium with which no other site can be reached: results do not depend on the network."""

CONSOLE_SIZE: Final[ViewportSize] = {"width": 1500, "height": 1200}
VIEW_SIZE: Final[ViewportSize] = {"width": 947, "height": 1076}
"""The size of the console's page, and of the view in it: a tab of that size shows the same layout."""

PATIENCE = 60_000
"""Milliseconds that anything in a page may take."""

POLICY = """version: 1
backends:
  own: {{url: "{url}", network: private{backend}}}
limits: {{timeout: 60s, request: 64MiB, response: 64MiB}}
routes:
{routes}
{more}
"""


@dataclass(slots=True)
class Observed:
    """What one run of the script showed."""

    texts: list[str] = field(default_factory=list)
    page: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    failure: str = ""
    picture: bytes = b""
    """The last page as PNG, of the apps in the picture of the docs."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table."""

    app: App
    version: str
    native: Observed
    view: Observed
    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether the view showed the same."""
        return not self.differences

    @property
    def expected(self) -> bool:
        """Whether the result is the one that the catalog names."""
        return self.equal == (not self.app.limit) and not self.native.failure


async def run_app(browser: Browser, app: App, folder: Path) -> Row:
    """Run the app's script natively, then in a view."""
    package = locked()[app.package]
    source = folder / "app"
    await asyncio.to_thread(app.prepare, package.folder, source)
    native = await _run(browser, app, source, folder / "native", None)
    view = await _run(browser, app, source, folder / "view", native)
    return Row(app, package.version, native, view, tuple(_differences(native, view)))


def _differences(native: Observed, view: Observed) -> list[str]:
    found = [f"natively: {native.failure}"] if native.failure else []
    if view.failure:
        found.append(f"in a view: {view.failure}")
    for kind, one, other in (
        ("text", native.texts, view.texts),
        ("page", native.page.split(" "), view.page.split(" ")),
        ("requests", sorted(native.requests.elements()), sorted(view.requests.elements())),
        ("errors", sorted(set(native.errors)), sorted(set(view.errors))),
    ):
        if one != other:
            changes = [line for line in difflib.ndiff(one, other) if line[0] in "-+"]
            found.append(f"{kind}: " + " ".join(changes)[:600])
    return found


async def _run(browser: Browser, app: App, source: Path, folder: Path, native: Observed | None) -> Observed:
    observed = Observed()
    folder.mkdir()
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(app.behind(folder)) if app.behind else ""
        port = await stack.enter_async_context(serving(_site(app, source, behind, observed.requests)))
        context = await stack.enter_async_context(
            await browser.new_context(
                viewport=VIEW_SIZE if native is None else CONSOLE_SIZE, timezone_id="UTC", locale="en-US"
            )
        )
        page = await context.new_page()
        page.set_default_timeout(PATIENCE)
        stack.enter_context(_listening(page, observed.errors, folder.with_suffix(".log")))
        if native is None:
            visit = Visit(page, page)
            address = f"http://localhost:{port}{app.start}"
        else:
            try:
                address = await stack.enter_async_context(_gateway(app, source, folder, f"http://127.0.0.1:{port}"))
            except DocumentError as failure:
                observed.failure = str(failure)
                return observed
            frame = app_of(page)
            visit = Visit(page, frame.frame_locator("iframe") if app.rendered else frame, rendered=app.rendered)
        try:
            await page.goto(address, wait_until="commit")
            await app.script(visit)
            observed.texts = [blank(text, app.ignore) for text in visit.texts]
            size = await visit.frame.evaluate("({ width: innerWidth, height: innerHeight })")
            assert size == VIEW_SIZE, f"the view has the size {size}, not {VIEW_SIZE}"
            observed.page = await settle(visit, app.ignore, native.page if native else None)
            await _requests_arrive(observed, native)
            if app.name in PICTURED:
                observed.picture = await visit.picture()
        except (Error, AssertionError) as failure:
            observed.texts = [blank(text, app.ignore) for text in visit.texts]
            observed.failure = " ".join(_plain(line) for line in str(failure).splitlines()[:3])
            await page.screenshot(path=folder.with_suffix(".png"))
    return observed


async def _requests_arrive(observed: Observed, native: Observed | None) -> None:
    """Wait until requests like the native ones have arrived, if they do."""
    for _ in range(50):
        if native is None or observed.requests == native.requests:
            return
        await asyncio.sleep(0.1)


OF_THE_BROWSER = (
    "Failed to load resource",  # about an answer that is an error; what came is compared at the backend
    "Blocked autofocusing",  # a page in a frame does not take the focus from the page around it
)
"""Messages that Chromium writes on a page's console, and that are not compared."""


@contextmanager
def _listening(page: Page, errors: list[str], log: Path) -> Iterator[None]:
    """Note the errors of the page, and write all of its console into `log`."""
    lines: list[str] = []

    def note(said: ConsoleMessage) -> None:
        lines.append(f"{said.type}: {said.text}")
        if said.type == "error" and not said.text.startswith(OF_THE_BROWSER):
            errors.append(_plain(said.text))

    def note_uncaught(error: Error) -> None:
        lines.append(f"uncaught: {error.stack or error}")
        errors.append(_plain(f"uncaught {error}"))

    page.on("console", note)
    page.on("pageerror", note_uncaught)
    yield
    log.write_text("\n".join(lines), "utf-8")


def _plain(text: str) -> str:
    """Return a message without what depends on the place: addresses, lines, stacks."""
    text = re.sub(r"(https?|blob|about|webpack|data):\S+", "URL", text.partition("\n    at ")[0])
    return " ".join(text.split())[:300]


@asynccontextmanager
async def _gateway(app: App, source: Path, folder: Path, url: str) -> AsyncIterator[str]:
    """Run a gateway for the app, and yield the URL of its console."""
    server = Server()
    routes = "".join(f'  - {{path: "{path}", methods: [GET, HEAD, POST, PUT, PATCH, DELETE]}}\n' for path in app.paths)
    routes = routes or "  []"
    backend = ", cookies: jar" if app.rendered else ""
    (folder / "policy.yaml").write_text(
        POLICY.format(url=url, backend=backend, routes=routes, more=app.policy), "utf-8"
    )
    entry = {
        "source": {"backend": "own", "start": app.start} if app.rendered else str(source),
        "policy": "policy.yaml",
        "title": app.name,
    }
    if not app.rendered:
        entry["start"] = app.start
    config = {"server": {"listen": f"127.0.0.1:{server.port}"}, "apps": {"app": entry}}
    file = folder / "gateway.yaml"
    file.write_text(json.dumps(config), "utf-8")
    await server.start(build_app(load_config(file, {}), lambda: read_config(file, {})))
    try:
        yield f"http://gateway.localhost:{server.port}"
    finally:
        await server.stop()


def _site(app: App, source: Path, behind: str, requests: Counter[str]) -> web.Application:
    """Serve the app's files, and pass requests to its backend's paths on, noting them."""
    patterns, assets = (
        [re.compile("^" + re.escape(path).replace(r"\*\*", ".*").replace(r"\*", "[^/]*") + "$") for path in paths]
        for paths in (app.paths, app.assets)
    )

    async def answer(request: web.Request) -> web.StreamResponse:
        if any(pattern.match(request.path) for pattern in patterns):
            body = await request.read()
            if not any(pattern.match(request.path) for pattern in assets):
                requests[f"{request.method} {request.path_qs} {body.decode('utf-8', 'replace')}".strip()] += 1
            return await _forward(request.app[_CLIENT], request, behind, body)
        file = (source / request.path.lstrip("/")).resolve()
        if file.is_dir():
            file /= "index.html"
        if not file.is_file() or not file.is_relative_to(source.resolve()):
            raise web.HTTPNotFound
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        charset = "; charset=utf-8" if kind.startswith("text/") or "javascript" in kind else ""
        return web.FileResponse(file, headers={"Content-Type": kind + charset})

    async def client_of(application: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession() as client:
            application[_CLIENT] = client
            yield

    site = web.Application(client_max_size=1 << 27)
    site.router.add_route("*", "/{path:.*}", answer)
    site.cleanup_ctx.append(client_of)
    return site


_CLIENT = web.AppKey("client", aiohttp.ClientSession)
_OWN = ("host", "content-length", "transfer-encoding", "connection", "content-encoding")


async def _forward(client: aiohttp.ClientSession, request: web.Request, behind: str, body: bytes) -> web.Response:
    headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN}
    headers["Accept-Encoding"] = "identity"
    async with client.request(
        request.method, behind + request.path_qs, headers=headers, data=body, allow_redirects=False
    ) as answer:
        kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in _OWN]
        return web.Response(status=answer.status, body=await answer.read(), headers=kept)
