"""`authorities`: servers whose certificates a private authority has signed, at backends, issuers, upstreams."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from gateway.app import build_app
from gateway.backends.connect import Connections, Origin
from gateway.callers.methods import OAuthIssuer
from gateway.config import Config, load_config
from gateway.errors import DocumentError, Refusal
from tests.credentials.test_proofs import Authority, _key, _pem
from tests.world import Server, listen, local_client

CONFIG = """\
server: {{listen: "127.0.0.1:8080"}}
auth: [{{type: oauth, issuer: "https://localhost:{port}", network: private, authorities: {file}}}]
apps: {{page: {{source: index.html, policy: policy.yaml}}}}
upstreams: {{search: {{url: "https://localhost:{port}/mcp", network: private, authorities: {file}}}}}
approvals:
  ask: [webhook]
  webhook: {{url: "https://localhost:{port}", secret: "{secret}", network: private, authorities: {file}}}
telemetry: {{otlp: "https://localhost:{port}", network: private, authorities: {file}}}
"""


class Silent(asyncio.Protocol):
    """Says nothing; `connected` once the handshake is over."""

    connected = False

    def connection_made(self, _: asyncio.BaseTransport) -> None:
        self.connected = True


@asynccontextmanager
async def private_server(folder: Path) -> AsyncIterator[int]:
    """A TLS server whose certificate is signed by the authority in `folder`/ca.pem; its port."""
    authority, key = Authority(), _key()
    (folder / "ca.pem").write_bytes(authority.pem)
    (folder / "server.pem").write_bytes(authority.issue("localhost", key) + _pem(key))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem")

    async def handle(_: web.Request) -> web.Response:
        return web.json_response({"private": True})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    sock = listen()
    await web.SockSite(runner, sock, ssl_context=context).start()
    try:
        yield int(sock.getsockname()[1])
    finally:
        await runner.cleanup()


def configure(folder: Path, port: int, file: str = "ca.pem", policy: str = "ca.pem") -> Config:
    """The configuration of everything that may have authorities."""
    (folder / "index.html").write_text("<!doctype html><title>one page</title>")
    (folder / "policy.yaml").write_text(
        f"version: 1\nbackends: {{api: {{url: 'https://localhost:{port}', network: private, authorities: {policy}}}}}\n"
        "routes: [{path: /api/x, methods: [GET]}]\n"
    )
    (folder / "gateway.yaml").write_text(CONFIG.format(port=port, file=file, secret="s" * 40))
    return load_config(folder / "gateway.yaml", {})


async def test_each_network_with_authorities_reaches_the_private_server(tmp_path: Path) -> None:
    """Without them its certificate is refused; a file that was replaced counts for the next connection."""
    async with private_server(tmp_path) as port, Connections() as connections:
        config, origin = configure(tmp_path, port), Origin("https", "localhost", port)
        (issuer,) = config.auth
        assert isinstance(issuer, OAuthIssuer)
        assert config.approvals.webhook is not None
        networks = [
            config.apps["page"].policy.backends["api"].network,
            config.upstreams["search"].network,
            config.approvals.webhook.network,
            config.telemetry.network,
            issuer.network,
        ]
        for network in networks:
            made = await connections.dial(network, origin, lambda _: Silent())
            assert made.connected
        other = Authority().pem
        (tmp_path / "ca.pem").write_bytes(other)
        with pytest.raises(Refusal, match="certificate"):
            await connections.dial(networks[0], origin, lambda _: Silent())


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_backend_with_a_private_certificate(tmp_path: Path, trusted: bool) -> None:
    """Its answer arrives, or the refusal names the certificate."""
    async with private_server(tmp_path) as port:
        gateway = Server()
        configure(tmp_path, port)
        lines = (tmp_path / "policy.yaml").read_text()
        (tmp_path / "policy.yaml").write_text(lines if trusted else lines.replace(", authorities: ca.pem", ""))
        (tmp_path / "gateway.yaml").write_text(
            f"server: {{listen: '127.0.0.1:{gateway.port}'}}\n"
            f"apps: {{page: {{source: index.html, policy: policy.yaml}}}}\n"
        )
        await gateway.start(build_app(load_config(tmp_path / "gateway.yaml", {})))
        headers = {"host": f"page.localhost:{gateway.port}", "webmcp-gateway-client": "1"}
        try:
            async with (
                local_client() as http,
                http.get(f"http://127.0.0.1:{gateway.port}/api/x", headers=headers) as answer,
            ):
                said = await answer.text()
        finally:
            await gateway.stop()
    assert (answer.status, "private" in said, "certificate" in said) == (
        (200, True, False) if trusted else (502, False, True)
    )


@pytest.mark.parametrize(("file", "policy", "count"), [("gone.pem", "ca.pem", 4), ("ca.pem", "index.html", 1)])
async def test_a_file_without_authorities_is_an_error(tmp_path: Path, file: str, policy: str, count: int) -> None:
    """Each setting that names it is reported with its place."""
    (tmp_path / "ca.pem").write_bytes(Authority().pem)
    with pytest.raises(DocumentError) as caught:
        configure(tmp_path, 8443, file, policy)
    assert len(caught.value.problems) == count
    assert all(str(tmp_path) in problem.message for problem in caught.value.problems)
