"""A backend that shows a page, answers its requests, and tells it by turns what to measure."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import defaultdict
from pathlib import Path

from aiohttp import web

from benchmarks.serving import serve

SOURCE = Path(__file__).parent / "web"

CHUNK = bytes(range(256)) * 256
"""64 KiB, of which large answers consist."""

LARGEST = 70 * 1024 * 1024

BETWEEN_EVENTS = 0.02
"""Seconds between two events of a stream."""

POLICY = """\
version: 1
backends:
  places:
    url: http://127.0.0.1:{port}
    network: [127.0.0.0/8]
limits: {{timeout: 120s, rate: 100000/second per view}}
routes:
  - {{path: /api/small, methods: [GET]}}
  - {{path: /api/up, methods: [POST], request: 64MiB}}
  - {{path: "/api/down/{{chunks}}", methods: [GET], stream: true, response: 64MiB}}
  - {{path: "/api/events/{{count}}", methods: [GET], stream: true}}
  - {{path: "/turns/{{place}}", methods: [GET, POST], request: 1MiB}}
"""


class Turns:
    """The next task of each place, and its result."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Queue[object]] = defaultdict(asyncio.Queue)
        self._results: dict[str, asyncio.Queue[object]] = defaultdict(asyncio.Queue)

    async def task(self, request: web.Request) -> web.Response:
        """Answer a page with its next task, once it is its turn."""
        return web.json_response(await self._tasks[request.match_info["place"]].get())

    async def result(self, request: web.Request) -> web.Response:
        """Take a page's result."""
        await self._results[request.match_info["place"]].put(await request.json())
        return web.json_response({})

    async def run(self, request: web.Request) -> web.Response:
        """Give a place a task, and answer with its result."""
        place = request.match_info["place"]
        await self._tasks[place].put(await request.json())
        return web.json_response(await self._results[place].get())


async def _small(_: web.Request) -> web.Response:
    return web.json_response({"id": 42, "text": "x" * 300})


async def _up(request: web.Request) -> web.Response:
    return web.json_response({"size": sum([len(chunk) async for chunk in request.content.iter_any()])})


async def _down(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"content-type": "application/octet-stream"})
    await answer.prepare(request)
    for _ in range(int(request.match_info["chunks"])):
        await answer.write(CHUNK)
    return answer


async def _events(request: web.Request) -> web.StreamResponse:
    """Send events that carry the time at which each is sent, in milliseconds of the Unix epoch."""
    answer = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-store"})
    await answer.prepare(request)
    for _ in range(int(request.match_info["count"])):
        await asyncio.sleep(BETWEEN_EVENTS)
        await answer.write(b"data: %f\n\n" % (time.time() * 1000))
    return answer


async def _page(_: web.Request) -> web.FileResponse:
    return web.FileResponse(SOURCE / "index.html")


def build_app() -> web.Application:
    """Return the backend as an aiohttp application."""
    turns = Turns()
    app = web.Application(client_max_size=LARGEST)
    app.router.add_get("/", _page)
    app.router.add_get("/api/small", _small)
    app.router.add_post("/api/up", _up)
    app.router.add_get("/api/down/{chunks}", _down)
    app.router.add_get("/api/events/{count}", _events)
    app.router.add_get("/turns/{place}", turns.task)
    app.router.add_post("/turns/{place}", turns.result)
    app.router.add_post("/run/{place}", turns.run)
    return app


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="The backend of the benchmark in three places.")
    parser.add_argument("--port", type=int, required=True)
    serve(build_app(), parser.parse_args().port)


if __name__ == "__main__":
    main()
