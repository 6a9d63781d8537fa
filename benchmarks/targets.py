"""The measured servers: different ways to the same document, each with its one request."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks import gateway_files
from benchmarks.backend import PATH
from benchmarks.load import PROOF
from benchmarks.processes import Processes, free_port

BARE = "bare proxy"
BARE_POST = "bare proxy, POST"
DIRECT = "MCP SDK + uvicorn + httpx"
HALVES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "gateway": {},
        "gateway with aiohttp's server": {"fast_path": "false"},
        "gateway with aiohttp's client": {"http_client": "aiohttp"},
        "gateway with both of aiohttp": {"fast_path": "false", "http_client": "aiohttp"},
    }
)
"""The measured gateways: as delivered, and without each half of what exists for speed; settings of `server`."""

ITEM = {"title": "a new one", "count": 3, "tags": ["a", "b"], "note": "x" * 40}
VERSION = "2026-07-28"
_UI = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
SERVE = "from gateway.cli import main; main()"  # as the command webmcp-gateway does


def peer(server: str) -> str:
    """Return the reference of a server: the bare proxy with the same method."""
    return BARE_POST if server.endswith("POST") else BARE


@dataclass(frozen=True, slots=True)
class Target:
    """A running server, and the request for the document.

    `request` is the bytes on the wire, with proofs of `view`, whose key is `key`, in place of `PROOF`.
    """

    name: str
    pid: int
    port: int
    request: bytes
    view: str = ""
    key: str = ""


def start(processes: Processes, folder: Path, routes: int, more: str = "") -> list[Target]:
    """Start the backend and the servers in front of it, the bare proxy first. Raises `BenchmarkError`."""
    backend = processes.start("backend", module("benchmarks.backend"))
    origin = f"http://127.0.0.1:{backend.port}"
    bare = processes.start("bare proxy", [*module("benchmarks.bare_proxy"), "--backend", origin])
    sdk = processes.start("sdk", [*module("benchmarks.sdk_server"), "--backend", origin])
    os.environ.setdefault("BENCH_SECRET", "bench")
    gateways = []
    for name, settings in HALVES.items():
        port, place = free_port(), folder / name.replace(" ", "-")
        place.mkdir()
        config = gateway_files.write(place, port=port, backend=origin, routes=routes, more=more, server=settings)
        running = processes.start(name, [sys.executable, "-c", SERVE, "serve", "--config", str(config)], port=port)
        gateways += doors(port, running.pid, name)
    return [
        Target(BARE, bare.pid, bare.port, _get(f"127.0.0.1:{bare.port}")),
        Target(BARE_POST, bare.pid, bare.port, _post(f"127.0.0.1:{bare.port}")),
        *gateways,
        Target(DIRECT, sdk.pid, sdk.port, call(f"127.0.0.1:{sdk.port}", "/mcp", {"url": PATH})),
    ]


def doors(port: int, pid: int, name: str = "gateway") -> list[Target]:
    """Return the requests for the doors of the gateway `name` on `port`, with an attached view."""
    site = f"{gateway_files.APP}.localhost:{port}"
    view, key = _attach(port)
    get, post = {"url": PATH, "method": "GET"}, {"url": PATH, "method": "POST", "body": ITEM}
    found = [
        Target(f"{name}, site door", pid, port, _get(site, "webmcp-gateway-client: 1")),
        Target(f"{name}, /mcp door", pid, port, _request(port, get), view, key),
    ]
    if name == "gateway":
        found.append(Target(f"{name}, /mcp door, POST", pid, port, _request(port, post), view, key))
    return found


def _attach(port: int) -> tuple[str, str]:
    """Attach a view to the gateway, and return it with its key."""
    host = f"127.0.0.1:{port}"
    opened = _exchange(port, call(host, f"/mcp/{gateway_files.APP}", {}, f"open_{gateway_files.APP}"))
    launch = opened["_meta"]["webmcp-gateway/launch"]
    found = _exchange(port, call(host, f"/mcp/{gateway_files.APP}", {"launch": launch}, "webmcp_attach"))
    return found["structuredContent"]["view"], found["structuredContent"]["key"]


def _exchange(port: int, request: bytes) -> dict[str, Any]:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(request.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    result: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])["result"]
    return result


def _request(port: int, arguments: dict[str, Any]) -> bytes:
    """Return a proven `http_request`."""
    return call(f"127.0.0.1:{port}", f"/mcp/{gateway_files.APP}", {**arguments, "_view": PROOF})


def module(name: str) -> list[str]:
    """Return the command that runs a module with this Python."""
    return [sys.executable, "-m", name]


def _get(host: str, *fields: str) -> bytes:
    lines = [f"GET {PATH} HTTP/1.1", f"host: {host}", "accept: application/json", *fields, "", ""]
    return "\r\n".join(lines).encode("ascii")


def _post(host: str) -> bytes:
    body = json.dumps(ITEM, separators=(",", ":")).encode()
    lines = [f"POST {PATH} HTTP/1.1", f"host: {host}", "content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def call(host: str, path: str, arguments: dict[str, Any], tool: str = "http_request") -> bytes:
    """Return a `tools/call` of a client that shows MCP Apps, in protocol 2026-07-28."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": _UI,
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        f"host: {host}",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        f"mcp-protocol-version: {VERSION}",
        "mcp-method: tools/call",
        f"mcp-name: {tool}",
        f"content-length: {len(body)}",
        "",
        "",
    ]
    return "\r\n".join(lines).encode("ascii") + body
