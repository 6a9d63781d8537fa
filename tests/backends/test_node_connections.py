"""Connections between nodes: mutual TLS, whose files may be replaced while both run."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from aiohttp import web

from gateway.backends.node_connections import NodeCertificates, NodeConnections
from gateway.errors import StartError
from tests.certificates import self_signed
from tests.world import bind_socket


def write(folder: Path, *, key: bool = True) -> tuple[Path, Path, Path]:
    """Write a new certificate, which is its own authority, and its key; return the three files."""
    certificate, private = self_signed("localhost")
    files = folder / "nodes.pem", folder / "nodes.key", folder / "nodes.pem"
    files[0].write_bytes(certificate)
    if key:
        files[1].write_bytes(private)
    return files


async def serial(connections: NodeConnections, port: int) -> str:
    """Return the body of an answer over a connection of its own."""
    async with connections.request(f"localhost:{port}", "GET", "/", {"connection": "close"}, b"") as answer:
        return b"".join([chunk async for chunk in answer.chunks]).decode()


async def test_replaced_certificates_are_used(tmp_path: Path) -> None:
    """New connections use them at both ends; a pair that does not fit changes nothing; strangers do not get in."""
    (tmp_path / "stranger").mkdir()
    here, stranger = NodeCertificates(*write(tmp_path)), NodeCertificates(*write(tmp_path / "stranger"))

    async def handle(request: web.Request) -> web.Response:
        presented = request.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return web.Response(text=ssl.DER_cert_to_PEM_cert(presented))

    app = web.Application()
    app.router.add_get("/", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    sock = bind_socket()
    await web.SockSite(runner, sock, ssl_context=here.listener).start()
    port = int(sock.getsockname()[1])
    try:
        async with NodeConnections(here) as known, NodeConnections(stranger) as unknown:
            first = await serial(known, port)
            assert first == (tmp_path / "nodes.pem").read_text()
            with pytest.raises(OSError, match="certificate"):
                await serial(unknown, port)
            write(tmp_path, key=False)
            with pytest.raises(StartError, match=r"cluster\.tls"):
                here.refresh()
            assert await serial(known, port) == first
            write(tmp_path)
            here.refresh()
            assert await serial(known, port) == (tmp_path / "nodes.pem").read_text() != first
            with pytest.raises(OSError, match="certificate"):
                await serial(unknown, port)
    finally:
        await runner.cleanup()
