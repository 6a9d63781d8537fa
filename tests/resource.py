"""A resource server for tests: it keeps the requests that it received, and its answer is configurable."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer


def echo(request: web.Request) -> web.Response:
    """An answer that repeats every header field of the request."""
    return web.json_response({name.lower(): value for name, value in request.headers.items()})


@dataclass
class Resource:
    """A resource server at `url`; `seen` are the header fields of each request, names in lower case."""

    url: str
    answer: Callable[[web.Request], web.Response] = echo
    seen: list[dict[str, str]] = field(default_factory=list)


@asynccontextmanager
async def resource() -> AsyncIterator[Resource]:
    """A server on a free port."""

    async def handle(request: web.Request) -> web.Response:
        await request.read()
        running.seen.append({name.lower(): value for name, value in request.headers.items()})
        return running.answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    async with TestServer(app) as server:
        running = Resource(str(server.make_url("")).rstrip("/"))
        yield running
