"""Runs the aiohttp servers of the benchmark as the gateway is run, so that ratios are comparable."""

from __future__ import annotations

from aiohttp import web


def serve(app: web.Application, port: int) -> None:
    """Serve `app` on loopback until SIGINT or SIGTERM."""
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None)
