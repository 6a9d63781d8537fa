"""How the aiohttp servers of the benchmark are run: as the gateway is, so that the ratios compare like with like."""

from __future__ import annotations

from aiohttp import web


def serve(app: web.Application, port: int) -> None:
    """Serve `app` on loopback until SIGINT or SIGTERM."""
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None)
