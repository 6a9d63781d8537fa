"""A backend of raw bytes, and a page that requests it: in a view, on the app's own site, and at the backend itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Frame, Page, expect

from tests.world import listen, running

PAGE = """<!doctype html><meta charset=utf-8><title>t</title>
<p id=ready>/* XMLHttpRequest FormData multipart/form-data */</p>"""
POLICY = """version: 1
backends:
  raw: {url: "http://127.0.0.1:PORT", network: private}
routes:
  - {path: "/streamed/**", methods: [GET, POST], stream: true}
  - {path: "/ruled/**", methods: [POST], when: size(request.body) > 0}
  - {path: "/only/**", methods: [GET, HEAD]}
  - {path: "/moving/**", methods: [POST], redirects: same-route}
  - {path: "/**", methods: [GET, HEAD, POST, PUT, PATCH, DELETE]}
responses:
  headers: [content-type, content-language, content-location, content-range, etag, last-modified, link, location,
    x-a, x-b, x-c, "x-!#$%&'*+.^`|~"]
"""

Serve = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as received."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Backend:
    """Answers each path as a test defines; without a definition, with the target of the request."""

    answers: dict[str, bytes | Serve] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                fields = (line.partition(":") for line in lines[1:] if line)
                headers = {name.strip().lower(): value.strip() for name, _, value in fields}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, target, _ = lines[0].split(" ")
                await self._answer(Asked(method, target, headers, body), writer)
                await writer.drain()
        writer.close()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.target == "/page":
            writer.write(whole(PAGE.encode(), "text/html"))
            return
        if asked.target == "/favicon.ico":
            writer.write(whole(b"", head="404 No"))
            return
        self.asked.append(asked)
        answer = self.answers.get(asked.target.partition("?")[0])
        if answer is None:
            writer.write(whole(asked.target.encode()))
        elif isinstance(answer, bytes):
            writer.write(answer)
        else:
            await answer(asked, writer)


def whole(body: bytes, media_type: str = "text/plain", head: str = "200 OK", fields: bytes = b"") -> bytes:
    """An answer with its length."""
    start = f"HTTP/1.1 {head}\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n"
    return start.encode("latin-1") + fields + b"\r\n" + body


@dataclass(frozen=True, slots=True)
class Places:
    """The same page in the three places."""

    backend: Backend
    port: int
    places: dict[str, Page | Frame]

    async def seen(self, script: str, argument: Any = None) -> dict[str, Any]:
        """The result of `script` in each place."""
        return {name: await place.evaluate(script, argument) for name, place in self.places.items()}

    async def same(self, script: str, argument: Any = None) -> Any:
        """The common result of all places."""
        seen = await self.seen(script, argument)
        assert seen == dict.fromkeys(seen, seen["backend"]), seen
        return seen["backend"]


@asynccontextmanager
async def three_places(browser: Browser, folder: Path) -> AsyncIterator[Places]:
    """Run all places."""
    backend, sock = Backend(), listen()
    source = folder / "page"
    source.mkdir()
    (source / "index.html").write_text(PAGE, "utf-8")
    port = sock.getsockname()[1]
    async with (
        await asyncio.start_server(backend.connected, sock=sock),
        running(folder, policy=POLICY.replace("PORT", str(port)), source=source) as world,
        await browser.new_context() as context,
    ):
        console, site, native = await context.new_page(), await context.new_page(), await context.new_page()
        await native.goto(f"http://127.0.0.1:{port}/page")
        await site.goto(world.site)
        await console.goto(world.url)
        app = console.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
        await expect(app.locator("#ready")).to_be_visible()
        yield Places(backend, port, {"backend": native, "site": site, "view": console.frames[-1]})
