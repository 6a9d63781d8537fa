"""How the aiohttp servers of the benchmark are run: as the gateway is, so that the ratios compare like with like."""

from __future__ import annotations

import asyncio
import importlib
from importlib.util import find_spec

from aiohttp import web


def serve(app: web.Application, port: int) -> None:
    """Serve `app` on loopback until SIGINT or SIGTERM, on uvloop where it is installed."""
    loop: asyncio.AbstractEventLoop = (
        importlib.import_module("uvloop").new_event_loop() if find_spec("uvloop") else asyncio.new_event_loop()
    )
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None, loop=loop)
