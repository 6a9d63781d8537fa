"""A server on the standard streams of its process, which starts faster without the other tests' imports."""

from __future__ import annotations

from typing import Any

from mcp.server import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.server.stdio import stdio_server


async def on_standard_streams(made: Server[Any]) -> None:
    """Run `made` on the standard input and output of this process."""
    async with stdio_server() as (read, write), made.lifespan(made) as state:
        await serve_dual_era_loop(made, read, write, lifespan_state=state)
