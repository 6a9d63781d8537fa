"""A backend that sends and receives large bodies, and the folder of a page that uses it."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from aiohttp import web

from benchmarks.serving import serve

LARGEST = 70 * 1024 * 1024
CHUNK = bytes(range(256)) * 256
"""64 KiB, of which the responses consist."""

SOURCE = Path(__file__).parent / "web"

POLICY = """\
version: 1
backends:
  bulk:
    url: http://127.0.0.1:{port}
    network: [127.0.0.0/8]
limits: {{timeout: 60s, rate: 100000/second per view}}
routes:
  - {{path: /api/up, methods: [POST], request: 64MiB}}
  - {{path: /api/size, methods: [POST], request: 64MiB}}
  - {{path: "/api/down/{{chunks}}", methods: [GET], stream: true, response: 64MiB}}
  - {{path: /api/small, methods: [GET, POST]}}
tools:
  ping: {{}}
  work: {{}}
"""


def build_app() -> web.Application:
    """Return the backend as an aiohttp application."""

    async def up(request: web.Request) -> web.Response:
        sha, size = hashlib.sha256(), 0
        async for chunk in request.content.iter_any():
            sha.update(chunk)
            size += len(chunk)
        said = {"size": size, "sha256": sha.hexdigest(), "type": request.headers.get("content-type")}
        return web.json_response(said)

    async def size(request: web.Request) -> web.Response:
        """As `up`, without hashing, which would use the processors of the same machine."""
        return web.json_response({"size": sum([len(chunk) async for chunk in request.content.iter_any()])})

    async def down(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "application/octet-stream"})
        await answer.prepare(request)
        for _ in range(int(request.match_info["chunks"])):
            await answer.write(CHUNK)
        return answer

    async def small(_: web.Request) -> web.Response:
        return web.json_response({"id": 42, "text": "x" * 300})

    app = web.Application(client_max_size=LARGEST)
    app.router.add_post("/api/up", up)
    app.router.add_post("/api/size", size)
    app.router.add_get("/api/down/{chunks}", down)
    app.router.add_route("*", "/api/small", small)
    return app


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="The backend of the benchmark in a page.")
    parser.add_argument("--port", type=int, required=True)
    serve(build_app(), parser.parse_args().port)


if __name__ == "__main__":
    main()
