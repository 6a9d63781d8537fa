"""The reference: a reverse proxy on aiohttp that decides nothing and records nothing."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Mapping

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from benchmarks.serving import serve

OWN = frozenset({"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"})
"""Fields that each side writes itself (RFC 9110, 7.6.1)."""


def build_app(backend: str) -> web.Application:
    """Return the proxy in front of the origin `backend`."""
    session = web.AppKey("session", aiohttp.ClientSession)

    async def forward(request: web.Request) -> web.Response:
        async with request.app[session].request(
            request.method,
            URL(backend + request.raw_path, encoded=True),
            headers=_end_to_end_headers(request.headers),
            data=await request.read() or None,
            allow_redirects=False,
        ) as answer:
            return web.Response(
                status=answer.status, headers=_end_to_end_headers(answer.headers), body=await answer.read()
            )

    async def lifetime(app: web.Application) -> AsyncIterator[None]:
        app[session] = aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar())
        yield
        await app[session].close()

    app = web.Application()
    app.cleanup_ctx.append(lifetime)
    app.router.add_route("*", "/{path:.*}", forward)
    return app


def _end_to_end_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in OWN)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="A bare reverse proxy.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--backend", required=True, help="Its origin, such as http://127.0.0.1:8000.")
    given = parser.parse_args()
    serve(build_app(given.backend), given.port)


if __name__ == "__main__":
    main()
