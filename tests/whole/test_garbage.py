"""An exchange leaves no reference cycles: every pause of the collector blocks the event loop."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from benchmarks import gateway_files
from benchmarks.backend import MARKER
from benchmarks.load import Load, run
from benchmarks.processes import Processes
from benchmarks.targets import Target, doors, module
from gateway.app import build_app
from gateway.config import load_config
from tests.leaks.marks import MARK
from tests.world import Server

REQUESTS = 400
FEW = REQUESTS // 4
"""Objects in cycles, of all requests and of background work; one for each request would be more."""


def load(target: Target) -> Load:
    """Send that many requests on a few connections."""
    return Load(
        port=target.port,
        request=target.request.decode("latin-1"),
        marker=MARKER,
        connections=4,
        requests=REQUESTS,
        seconds=60.0,
        warm_up=0.0,
        view=target.view,
        key=target.key,
    )


@pytest.mark.parametrize("which", range(3), ids=["site", "mcp", "mcp-post"])
async def test_an_exchange_leaves_no_cycles(tmp_path: Path, which: int) -> None:
    """At the app's own site, and by `http_request`."""
    with Processes(tmp_path) as processes:
        backend = processes.start("backend", module("benchmarks.backend"))
        server = Server()
        origin = f"http://127.0.0.1:{backend.port}"
        path = gateway_files.write(tmp_path, port=server.port, backend=origin, routes=10)
        await server.start(build_app(load_config(path, {"BENCH_SECRET": f"bench-{MARK}"})))
        try:
            target = (await asyncio.to_thread(doors, server.port, 0))[which]
            await run([load(target)])
            gc.collect()
            gc.disable()
            await run([load(target)])
            assert gc.collect() < FEW
        finally:
            gc.enable()
            await server.stop()
