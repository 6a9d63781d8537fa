"""The backend behind every measured server: one small static JSON document, and a token."""

from __future__ import annotations

import argparse
import os

from aiohttp import web

from benchmarks.serving import serve

PATH = "/api/items/42"
MARKER = "the item of the benchmark"
SIZE = 400
TOKEN = f"the-token-of-{os.environ.get('BENCH_SECRET', 'the-benchmark')}"


def document() -> bytes:
    """Return the response: JSON of `SIZE` bytes, which contains `MARKER`."""
    start, end = b'{"id": 42, "price": 12.5, "title": "%s", "text": "' % MARKER.encode(), b'"}'
    return start + b"x" * (SIZE - len(start) - len(end)) + end


def build_app() -> web.Application:
    """Return the backend as an aiohttp application."""
    body = document()

    async def item(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    async def token(_: web.Request) -> web.Response:
        return web.json_response({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 86400})

    app = web.Application()
    app.router.add_get("/api/items/{id}", item)
    app.router.add_post("/api/items/{id}", item)
    app.router.add_post("/token", token)
    return app


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="The backend of the benchmark.")
    parser.add_argument("--port", type=int, required=True)
    serve(build_app(), parser.parse_args().port)


if __name__ == "__main__":
    main()
