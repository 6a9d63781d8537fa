"""Real nginx and Caddy in front of an upstream that breaks connections: no change is sent to it twice."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.deploy.proxies import PROXIES, Ports, certify, start_proxy, wait_listening
from tests.world import Loopback, free_port

CHANGES = ("DELETE", "PUT", "POST", "PATCH", "OPTIONS", "PROPPATCH")
KEYS = {"Idempotency-Key": "one", "X-Idempotency-Key": "one"}
"""Headers for which Go's HTTP client, which Caddy uses, sends any request again."""


class Breaking:
    """An upstream that answers GET /warm and probes, and closes the connection once it has read any other request.

    With `answers` it answers all of them.
    """

    def __init__(self, *, answers: bool = False) -> None:
        self.answers = answers
        self.read: Counter[str] = Counter()
        self.kept = 0
        """Requests that came on a connection that had carried another one."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            for number in range(1000):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                lengths = [line[15:] for line in head.lower().split("\r\n") if line.startswith("content-length:")]
                await reader.readexactly(int(lengths[0]) if lengths else 0)
                method, path, _ = head.split(" ", 2)
                if path not in ("/warm", "/healthz"):
                    self.read[path] += 1
                    self.kept += bool(number)
                    # A GET is answered the second time, as by the next process after a restart.
                    if not self.answers and (method != "GET" or self.read[path] == 1):
                        break
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()


@pytest.fixture(scope="module", params=PROXIES)
async def broken(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[str, int, Breaking]]:
    """The proxy's name and port, and the upstream."""
    folder, upstream = tmp_path_factory.mktemp(request.param), Breaking()
    certify(folder / "tls")
    ports = Ports(free_port(), free_port(), free_port())
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", ports.gateway)
    seldom = ("health_interval 250ms", "health_interval 1h") if request.param == "caddy" else ("", "")
    with start_proxy(folder, request.param, ports, seldom):
        await wait_listening(ports.tls)
        yield request.param, ports.tls, upstream
    server.close()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """A client that does not repeat anything itself, with a connection for each request."""
    trusted = ssl.create_default_context()
    trusted.check_hostname, trusted.verify_mode = False, ssl.CERT_NONE
    connector = aiohttp.TCPConnector(resolver=Loopback(), ssl=trusted, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


@pytest.mark.parametrize("body", [b"", b"{}"], ids=["empty", "body"])
@pytest.mark.parametrize("headers", [{}, KEYS], ids=["plain", "keys"])
async def test_a_change_is_sent_once(
    broken: tuple[str, int, Breaking], client: aiohttp.ClientSession, headers: dict[str, str], body: bytes
) -> None:
    """Though the connection breaks after it was read, and the proxy had an open one: the answer is 502."""
    _, port, upstream = broken
    site = f"https://mcp.gw.localhost:{port}"
    upstream.read.clear()
    for method in CHANGES:
        async with client.get(f"{site}/warm") as got:
            assert got.status == 200
        async with client.request(method, f"{site}/{method}", headers=headers, data=body or None) as got:
            assert got.status == 502
    assert dict(upstream.read) == {f"/{method}": 1 for method in CHANGES}


async def test_a_get_is_sent_again(broken: tuple[str, int, Breaking], client: aiohttp.ClientSession) -> None:
    """Which changes nothing, so that nobody sees that a connection broke."""
    proxy, port, upstream = broken
    upstream.read.clear()
    upstream.kept = 0
    for path in ("warm", "GET"):
        async with client.get(f"https://mcp.gw.localhost:{port}/{path}") as got:
            assert got.status == 200
    assert dict(upstream.read) == {"/GET": 2}
    assert upstream.kept == (proxy == "nginx")


async def test_behind_caddy_changes_wait_for_the_gateway(client: aiohttp.ClientSession, tmp_path: Path) -> None:
    """Once Caddy has noticed that nobody listens: those with a body, too, and each is sent once."""
    certify(tmp_path / "tls")
    ports, upstream = Ports(free_port(), free_port(), free_port()), Breaking(answers=True)

    async def change(method: str, size: int) -> int:
        url = f"https://mcp.gw.localhost:{ports.tls}/{method}/{size}"
        async with client.request(method, url, data=b"x" * size or None) as got:
            return got.status

    async with contextlib.AsyncExitStack() as servers:  # which end after Caddy, whose probes connect to them
        with start_proxy(tmp_path, "caddy", ports):
            async with asyncio.timeout(60):
                while "health_checker.active" not in (tmp_path / "caddy.out").read_text():
                    await asyncio.sleep(0.05)
            await wait_listening(ports.tls)
            asked = [(method, size) for method in ("POST", "PUT", "DELETE") for size in (0, 5, 900_000)]
            waiting = [asyncio.create_task(change(*one)) for one in asked]
            await asyncio.sleep(0.5)
            await servers.enter_async_context(await asyncio.start_server(upstream.serve, "127.0.0.1", ports.gateway))
            assert await asyncio.gather(*waiting) == [200] * len(asked)
        await asyncio.sleep(0.2)  # the connections of its last probes end
    assert dict(upstream.read) == {f"/{method}/{size}": 1 for method, size in asked}
