"""The MCP SDK in front of the same backend: MCPServer on uvicorn, and the SDK's HTTP client."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import httpx2
from mcp.server.mcpserver import MCPServer

from benchmarks.backend import document


def build_server(client: httpx2.AsyncClient) -> MCPServer[Any]:
    """Return a server with the tools `http_request`, with results as the gateway's, and `item`, with a static one."""
    server: MCPServer[Any] = MCPServer("benchmark", log_level="WARNING")
    kept = document().decode()

    @server.tool()
    async def item(url: str) -> str:
        """The document, without asking anybody."""
        return kept

    @server.tool()
    async def http_request(url: str, method: str = "GET") -> dict[str, Any]:
        """Carry a request to the backend."""
        answer = await client.request(method, url)
        return {
            "status": answer.status_code,
            "statusText": answer.reason_phrase,
            "ok": answer.is_success,
            "url": url,
            "redirected": False,
            "headers": dict(answer.headers),
            "bodyType": "json",
            "body": answer.json(),
        }

    return server


async def serve(backend: str, port: int) -> None:
    """Serve until SIGTERM."""
    # by default this client keeps 20 connections, and would open a new one for every third request of 32
    limits = httpx2.Limits(max_keepalive_connections=100)
    async with httpx2.AsyncClient(base_url=backend, limits=limits, trust_env=False) as client:
        await build_server(client).run_streamable_http_async(host="127.0.0.1", port=port)


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description="The MCP SDK's own way to a backend.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--backend", required=True, help="Its origin, such as http://127.0.0.1:8000.")
    given = parser.parse_args()
    asyncio.run(serve(given.backend, given.port))


if __name__ == "__main__":
    main()
