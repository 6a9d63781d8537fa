"""A gateway with the fast path and one without it answer generated requests alike, at `/mcp` and at an app's site."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from gateway.app import build_app
from gateway.config import Config, load_config
from gateway.fastpath.connection import FastConnection
from tests.fastpath.requests import (
    MCP_POST,
    SITE_POST,
    TRACE,
    Case,
    Draft,
    cases,
    mcp_request,
    site_request,
    split_everywhere,
)
from tests.world import Server, serving

CONFIG = """
server: {{listen: "127.0.0.1:{port}", fast_path: {fast}}}
apps: {{page: {{source: web, policy: policy.yaml}}}}
"""
POLICY = """
version: 1
backends: {{main: {{url: "http://127.0.0.1:{port}", network: [127.0.0.0/8]}}}}
limits: {{timeout: 10s, request: 64KiB}}
routes:
  - {{path: "/api/denied", deny: "not for apps"}}
  - {{path: "/api/only-get", methods: [GET]}}
  - {{path: "/api/small", methods: [GET, POST, PUT, PATCH, DELETE], request: 16B}}
  - {{path: "/api/stream", methods: [GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS], stream: true}}
  - {{path: "/api/**", methods: [GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS]}}
responses: {{headers: [content-type, etag, location, x-odd, x-body, date, server]}}
"""
RANDOM = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]")
"""A trace context."""

OPEN = 0.5
"""Seconds after which a connection counts as open, if the other gateway has not closed it either."""

PATIENCE = 30.0


@dataclass
class Gateway:
    """One gateway with its own backend."""

    port: int
    arrived: list[tuple[str, str, list[tuple[str, str]], bytes]]
    config: Config

    def records(self) -> list[dict[str, Any]]:
        """The lines of the record, without what differs from run to run."""
        text = re.sub(r"(?<=[A-Za-z.0-9]):\d{5}", ":PORT", self.config.journal.read_text("utf-8"))
        lines = [json.loads(line) for line in text.splitlines()]
        return [
            {"phase": line["phase"], **{name: value for name, value in line["fields"].items() if name not in UNLIKE}}
            for line in lines
            if line["phase"] != "note"
        ]


UNLIKE = {"approval", "timing", "trace", "policy_version"}
"""Fields of the record that differ from run to run."""


class Client(asyncio.Protocol):
    """Collects what the gateway sends, up to the end of the connection."""

    def __init__(self) -> None:
        self.came = bytearray()
        self.closed: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.came += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(exc)


def backend(arrived: list[Any]) -> web.Application:
    """A backend that answers with a body that is made from the path, and keeps what it got."""

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        fields = sorted((name.lower(), value) for name, value in request.headers.items() if name.lower() != "host")
        kept = [(name, TRACE if TRACE in value else RANDOM.sub("trace", value)) for name, value in fields]
        arrived.append((request.method, request.raw_path, kept, body))
        word = request.path.rpartition("/")[2]
        if word.isdigit() and request.path.startswith("/api/status/"):
            return web.Response(status=int(word), headers={"x-odd": word}, body=b"" if word in ("204", "304") else b"s")
        match word:
            case "long":
                return web.Response(body=b"long " * 40_000, content_type="text/plain")
            case "odd":
                odd = {"x-odd": "caf\u00e9 \t x", "server": "odd", "date": "yesterday", "etag": '"a"'}
                return web.Response(status=299, reason="Odd \u00e9", headers=odd, body=b"\x00\xff")
            case "none":
                return web.Response(status=200)
            case "redirect":
                return web.Response(status=302, headers={"location": "/api/items/1"})
            case "broken" if request.transport is not None:
                request.transport.close()
        return web.json_response({"path": request.path, "size": len(body)}, headers={"x-body": str(len(body))})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    return app


@asynccontextmanager
async def gateway(folder: Path, *, fast: bool) -> AsyncIterator[Gateway]:
    """A gateway with `server.fast_path` on or off."""
    (folder / "web" / "folder").mkdir(parents=True)
    for name in ("index.html", "folder/index.html"):
        (folder / "web" / name).write_text("<!doctype html><title>Page</title>", "utf-8")
        os.utime(folder / "web" / name, (1e9, 1e9))
    server, arrived = Server(), list[Any]()
    async with serving(backend(arrived)) as port:
        (folder / "gateway.yaml").write_text(CONFIG.format(port=server.port, fast=str(fast).lower()), "utf-8")
        (folder / "policy.yaml").write_text(POLICY.format(port=port), "utf-8")
        config = load_config(folder / "gateway.yaml", {})
        await server.start(build_app(config))
        try:
            yield Gateway(server.port, arrived, config)
        finally:
            await server.stop()


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """Two gateways that differ in `server.fast_path`: on, and off."""
    async with gateway(tmp_path / "on", fast=True) as on, gateway(tmp_path / "off", fast=False) as off:
        yield on, off


async def send_pieces(port: int, case: Case) -> Client:
    """Send the pieces, each when the gateway has read the one before."""
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(Client, "127.0.0.1", port)
    for piece in case.at(port):
        transport.write(piece)
        for _ in range(3):
            await asyncio.sleep(0)
    if case.unfinished and not client.closed.done():
        with suppress(OSError):  # the gateway closes it at this moment
            transport.write_eof()
    return client


async def wait_ends(one: Client, other: Client) -> None:
    """Wait for the ends of both connections; if neither has ended after a while, note that they stay open."""
    _, open_ = await asyncio.wait({one.closed, other.closed}, timeout=OPEN)
    if len(open_) == 1 or answers(bytes(one.came)) != answers(bytes(other.came)):
        await asyncio.wait({one.closed, other.closed}, timeout=PATIENCE)
    for client in [client for client in (one, other) if not client.closed.done()]:
        client.came += b"HTTP/1.1 000 the connection stays open"
        client.transport.abort()
    await asyncio.wait({one.closed, other.closed})


def answers(came: bytes) -> list[tuple[bytes, list[bytes], bytes]]:
    """Start line, fields and body of each answer, without ports, times and random ids."""
    came = re.sub(rb"(?<=[A-Za-z.0-9]):\d{5}", b":PORT", came)
    came = re.sub(rb"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT", b"now", came)
    came = re.sub(rb"(?<=mcp-session-id: )[0-9a-f]{32}", b"id", came)
    came = re.sub(rb'(instance\\*": *\\*")[\w-]+', rb"\1id", came)
    return [_answer(one) for one in re.split(rb"(?=HTTP/1\.[01] \d\d\d )", came) if one]


def _answer(raw: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Start line, sorted fields and body; chunks are joined, since they come as the backend's parts do."""
    head, _, body = raw.partition(b"\r\n\r\n")
    start, *fields = head.split(b"\r\n")
    named = sorted(name.lower() + b":" + value for name, _, value in (field.partition(b":") for field in fields))
    if b"transfer-encoding: chunked" in named:
        body = re.sub(rb"(?:\r\n|\A)[0-9a-f]+\r\n", b"", body)
    return start, named, body


def _short(of: object) -> str:
    """For a message: runs of one character are shortened."""
    return re.sub(r"(.{1,5}?)\1{9,}", r"\1…", repr(of))[:1500]


async def compare(both: tuple[Gateway, Gateway], chosen: Iterable[Case]) -> None:
    """Send each case to both, and compare answers, what reached the backend, and the record."""
    on, off = both
    problems = []
    for case in chosen:
        clients = await asyncio.gather(send_pieces(on.port, case), send_pieces(off.port, case))
        await wait_ends(*clients)
        one, other = (bytes(client.came) for client in clients)
        if answers(one) != answers(other):
            problems.append(f"{_short(case)}\non:  {_short(one)}\noff: {_short(other)}")
        if on.arrived != off.arrived:
            problems.append(f"{_short(case)}\narrived on:  {_short(on.arrived)}\narrived off: {_short(off.arrived)}")
        on.arrived.clear()
        off.arrived.clear()
    assert not problems, f"{len(problems)} differences\n" + "\n".join(problems[:10])
    one_record, other_record = on.records(), off.records()
    unlike = [(one, other) for one, other in zip(one_record, other_record, strict=False) if one != other]
    assert not unlike, f"{len(unlike)} lines of the record differ: {unlike[:3]}"
    assert len(one_record) == len(other_record)


@pytest.fixture
def fast_requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The targets of requests that the fast path reads."""
    found: list[str] = []
    start = FastConnection._start

    def started(connection: FastConnection, request: Any) -> None:
        found.append(request[1].head.target)
        start(connection, request)

    monkeypatch.setattr(FastConnection, "_start", started)
    return found


@pytest.mark.parametrize("make", [site_request, mcp_request])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 8))])
async def test_generated_requests_have_the_same_answers(
    both: tuple[Gateway, Gateway], fast_requests: list[str], make: Any, seed: int
) -> None:
    """Plain, malformed, pipelined and unfinished ones: the same statuses, fields, bodies, and ends of connections."""
    await compare(both, cases(make, seed, 100))
    assert len(fast_requests) > 20


@pytest.mark.parametrize("request_", [SITE_POST, MCP_POST], ids=["site", "mcp"])
async def test_a_request_may_be_split_anywhere(
    both: tuple[Gateway, Gateway], fast_requests: list[str], request_: Draft
) -> None:
    """Its pieces are put together, on the fast path if its head comes in one piece."""
    await compare(both, split_everywhere(request_))
    assert len(fast_requests) > 5
