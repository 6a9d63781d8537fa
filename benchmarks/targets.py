"""What is measured: four ways to the same document, each with the one request that is sent to it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks import gateway_files
from benchmarks.backend import PATH
from benchmarks.processes import Processes

BARE = "bare proxy"
VERSION = "2026-07-28"
_UI = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
_SERVE = "from gateway.cli import main; main()"  # what the command webmcp-gateway does


@dataclass(frozen=True, slots=True)
class Target:
    """A server that runs, and the request that asks it for the document; `request` is the bytes on the wire."""

    name: str
    pid: int
    port: int
    request: bytes


def start(processes: Processes, folder: Path, routes: int) -> list[Target]:
    """Start the backend and what stands before it, the bare proxy first. Raises `BenchmarkError`."""
    backend = processes.start("backend", _module("benchmarks.backend"))
    origin = f"http://127.0.0.1:{backend.port}"
    bare = processes.start("bare proxy", [*_module("benchmarks.bare_proxy"), "--backend", origin])
    sdk = processes.start("sdk", [*_module("benchmarks.sdk_server"), "--backend", origin])
    port = processes.free_port()
    config = gateway_files.write(folder, port=port, backend=origin, routes=routes)
    gateway = processes.start("gateway", [sys.executable, "-c", _SERVE, "serve", "--config", str(config)], port=port)
    site = f"{gateway_files.APP}.localhost:{port}"
    return [
        Target(BARE, bare.pid, bare.port, _get(f"127.0.0.1:{bare.port}")),
        Target("gateway, site door", gateway.pid, port, _get(site, "webmcp-gateway-client: 1")),
        Target("gateway, /mcp door", gateway.pid, port, _call(f"127.0.0.1:{port}", f"/mcp/{gateway_files.APP}")),
        Target("MCP SDK + uvicorn + httpx", sdk.pid, sdk.port, _call(f"127.0.0.1:{sdk.port}", "/mcp")),
    ]


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", name]


def _get(host: str, *fields: str) -> bytes:
    lines = [f"GET {PATH} HTTP/1.1", f"host: {host}", "accept: application/json", *fields, "", ""]
    return "\r\n".join(lines).encode("ascii")


def _call(host: str, path: str) -> bytes:
    """`tools/call` of `http_request` by a client that shows MCP Apps, as protocol 2026-07-28 writes it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": _UI,
    }
    params = {"name": "http_request", "arguments": {"url": PATH, "method": "GET"}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        f"host: {host}",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        f"mcp-protocol-version: {VERSION}",
        "mcp-method: tools/call",
        "mcp-name: http_request",
        f"content-length: {len(body)}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode("ascii") + body
