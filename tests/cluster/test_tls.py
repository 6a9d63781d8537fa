"""Nodes at addresses of machines: mutual TLS between real nodes, and what is refused on either side."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway.backends.node_connections import NodeCertificates, NodeConnections
from tests.certificates import Authority
from tests.cluster.cluster import Page, client
from tests.cluster.deployment import NODES_PORT, deployment
from tests.cluster.machines import Machines
from tests.redis_server import RedisServer
from tests.world import free_port, serving

ADDRESS = "127.0.0.1"


def settings(folder: Path, backend: int) -> dict[str, Any]:
    """Write a page and its policy; return the section that names them."""
    (folder / "index.html").write_text("<!doctype html><title>one page</title>")
    (folder / "policy.yaml").write_text(
        f"version: 1\nbackends: {{api: {{url: 'http://127.0.0.1:{backend}', network: private}}}}\n"
        "routes: [{path: '/api/{name}', methods: [GET]}]\ntools: {add: {}}\n"
    )
    return {"apps": {"page": {"source": "../index.html", "policy": "../policy.yaml"}}}


async def test_nodes_reach_each_other_by_tls_alone(
    tmp_path: Path, places: Machines, database: str, redis: RedisServer
) -> None:
    """A view's requests and a model's calls run at its node, from the other one; the listener serves nobody else."""
    arrived: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        arrived.append(request.path)
        return web.json_response({})

    backend = web.Application()
    backend.router.add_route("*", "/{path:.*}", handle)
    async with (
        serving(backend) as port,
        places.exposed(port),
        client() as http,
        deployment(tmp_path, places, database, redis, settings(tmp_path, port), "a", "b") as nodes,
    ):
        a, b = nodes["a"], nodes["b"]
        page = await Page.open(http, a)
        assert (await page.fetch("/api/there", b))["status"] == 200
        await page.offer("add", at=b)
        arguments = {"view": page.view, "tool": "add", "arguments": {"n": 1}}
        calling = asyncio.create_task(b.call(http, "call_view_tool", app=False, **arguments))
        assert (await page.serve_one(b))["arguments"] == {"n": 1}
        assert json.loads((await calling)["content"][0]["text"]) == {"n": 1}
        assert arrived == ["/api/there"]

        strangers = Authority("another authority")
        for name, authority, expired in (("other", strangers, False), ("expired", nodes.authority, True)):
            authority.write(tmp_path / name, places.address("b"), expired=expired)
        refused = {
            name: await shaken(places.address("a"), nodes.folder / "a" / "nodes", files)
            for name, files in (
                ("none", None), ("other", tmp_path / "other"), ("expired", tmp_path / "expired"),
                ("right", nodes.folder / "b" / "nodes"),
            )
        }  # fmt: skip
        assert refused == {"none": False, "other": False, "expired": False, "right": True}


async def shaken(address: str, trusted: Path, files: Path | None) -> bool:
    """Return whether a node's listener answers a client with this certificate."""
    context = ssl.create_default_context(cafile=trusted / "authority.pem")
    if files is not None:
        context.load_cert_chain(files / "certificate.pem", files / "key.pem")
    reader, writer = await asyncio.open_connection(address, NODES_PORT, ssl=context)
    try:
        writer.write(b"GET / HTTP/1.1\r\nhost: node\r\n\r\n")
        await writer.drain()
        return bool(await reader.read(1))  # in TLS 1.3 a refused client learns of it with its first read
    except (ssl.SSLError, ConnectionError):
        return False
    finally:
        writer.close()


@asynccontextmanager
async def listener(files: Path) -> AsyncIterator[str]:
    """Yield the address of a listener with these files, which answers 204."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=204)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner, port = web.AppRunner(app), free_port()
    await runner.setup()
    try:
        await web.TCPSite(runner, ADDRESS, port, ssl_context=NodeCertificates(*names(files)).listener).start()
        yield f"{ADDRESS}:{port}"
    finally:
        await runner.cleanup()


def names(files: Path) -> tuple[Path, Path, Path]:
    """Return the files of a certificate, its key and its authority."""
    return files / "certificate.pem", files / "key.pem", files / "authority.pem"


@pytest.mark.parametrize("fault", ["", "other authority", "expired", "other name"])
async def test_a_listener_that_is_not_the_node_gets_nothing(tmp_path: Path, fault: str) -> None:
    """Its certificate must be of the authority, in time, and for the address in the node's row."""
    authority = Authority()
    authority.write(tmp_path / "mine", ADDRESS)
    by = Authority("another authority") if fault == "other authority" else authority
    by.write(tmp_path / "its", "127.0.0.9" if fault == "other name" else ADDRESS, expired=fault == "expired")
    if fault == "other authority":  # it trusts ours, so that nothing else is wrong
        (tmp_path / "its" / "authority.pem").write_bytes((tmp_path / "mine" / "authority.pem").read_bytes())
    async with (
        listener(tmp_path / "its") as address,
        NodeConnections(NodeCertificates(*names(tmp_path / "mine"))) as connections,
    ):
        if not fault:
            async with connections.request(address, "POST", "/calls", {}, b"x") as answer:
                assert answer.status == 204
            return
        with pytest.raises(ConnectionRefusedError):
            async with connections.request(address, "POST", "/calls", {}, b"x"):
                raise AssertionError("it was answered")
