"""A full installation for tests: authorization server, shop and gateway of the cart example, on free ports."""

from __future__ import annotations

import json
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp
import yaml
from aiohttp import web

from benchmarks.processes import free_port as free_port  # for tests, too
from examples.cart_app import auth_server
from examples.cart_app import shop as goods
from gateway import config as configuration
from gateway.app import build_app
from gateway.config import Config, load_config
from gateway.credentials import OAuth
from gateway.doors.runner import LIMITS, GatewayRunner
from tests.leaks.marks import MARK

EXAMPLE = Path(goods.__file__).parent
SECRET = f"a secret of these tests: 100%+ {MARK}"


def bind_socket(port: int = 0) -> socket.socket:
    """A bound socket on loopback; port 0 takes a free one.

    While it does not listen, others can bind and listen at the same port, and the system assigns the port to no one.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    return sock


def listen(port: int = 0) -> socket.socket:
    """A listening socket on loopback; port 0 takes a free one."""
    sock = bind_socket(port)
    sock.listen(128)
    return sock


class Server:
    """An aiohttp application that can be stopped and started again on the same port."""

    def __init__(self) -> None:
        reserved = bind_socket()  # while the object lives, whether it serves or not
        weakref.finalize(self, reserved.close)
        self.port = int(reserved.getsockname()[1])
        self._sock: socket.socket | None = listen(self.port)  # connections made before it serves wait
        self._runner: web.AppRunner | None = None

    async def start(self, app: web.Application) -> None:
        """Serve `app` as the gateway's own `serve` does."""
        self._runner = (
            GatewayRunner(app, drain=2)
            if LIMITS in app
            else web.AppRunner(app, handler_cancellation=True, shutdown_timeout=2)
        )
        await self._runner.setup()
        sock, self._sock = self._sock or listen(self.port), None
        await web.SockSite(self._runner, sock).start()

    async def stop(self) -> None:
        """Stop listening; the port stays reserved."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[int]:
    """Serve `app` on a free port, which this yields."""
    server = Server()
    try:
        await server.start(app)
        yield server.port
    finally:
        await server.stop()


@dataclass(slots=True)
class World:
    """The running servers, and accessors for what they did."""

    folder: Path
    auth: Server
    shop: Server
    gateway: Server
    auth_settings: auth_server.Settings
    shop_settings: goods.Settings
    config: Config

    @property
    def url(self) -> str:
        """The plain address."""
        return f"http://localhost:{self.gateway.port}"

    @property
    def console(self) -> str:
        """The console's origin."""
        return f"http://gateway.localhost:{self.gateway.port}"

    @property
    def site(self) -> str:
        """The cart's own origin."""
        return f"http://cart.localhost:{self.gateway.port}"

    async def start_shop(self) -> None:
        """Start the shop (again)."""
        await self.shop.start(goods.build_app(self.shop_settings))

    async def start_auth(self) -> None:
        """Start the authorization server (again)."""
        await self.auth.start(auth_server.build_app(self.auth_settings))

    async def start_gateway(self) -> None:
        """Start the gateway (again), with its configuration re-read."""
        self.config = read_config(self.folder)
        await self.gateway.start(build_app(self.config, lambda: reload_configuration(self.folder)))

    def arrived(self) -> list[dict[str, Any]]:
        """Every request that the shop has seen."""
        log = self.shop_settings.log
        if log is None or not log.exists():
            return []
        return [json.loads(line) for line in log.read_text("utf-8").splitlines()]

    def records(self) -> list[dict[str, Any]]:
        """Every line of the gateway's journal."""
        return [json.loads(line) for line in self.config.journal.read_text("utf-8").splitlines()]

    def client(self, **options: Any) -> aiohttp.ClientSession:
        """An HTTP client for which every `*.localhost` is this machine, as in browsers."""
        return local_client(**options)


ONE_REQUEST_EACH = False
"""True if each request of clients takes a connection of its own, for a balancer of connections (`--cluster`)."""


def local_client(*, limit: int = 100, **options: Any) -> aiohttp.ClientSession:
    """An HTTP client for which every `*.localhost` is this machine, as in browsers; `limit` 0: any number at once."""
    connector = aiohttp.TCPConnector(resolver=Loopback(), limit=limit, force_close=ONE_REQUEST_EACH)
    return aiohttp.ClientSession(connector=connector, ws_response_class=Socket, **options)


class Socket(aiohttp.ClientWebSocketResponse[Literal[True]]):
    """A WebSocket that releases a connection that the peer broke: aiohttp leaves that to the garbage collector."""

    async def receive(self, timeout: float | None = None) -> Any:
        """Receive a message, and release a broken connection."""
        received = await super().receive(timeout)
        if self.closed:
            self._response.close()
        return received

    async def close(self, *, code: int = aiohttp.WSCloseCode.OK, message: bytes = b"") -> bool:
        """Close the socket, and release a broken connection."""
        try:
            return await super().close(code=code, message=message)
        finally:
            self._response.close()


class Loopback(aiohttp.abc.AbstractResolver):
    """Resolves every name to 127.0.0.1."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        """One address."""
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        """Do nothing: no resources are held."""


def read_config(folder: Path) -> Config:
    """The configuration in `folder`."""
    return load_config(folder / "gateway.yaml", {"SHOP_SECRET": SECRET})


def reload_configuration(folder: Path) -> configuration.Reading:
    """The parts of the configuration that can be used."""
    return configuration.read_config(folder / "gateway.yaml", {"SHOP_SECRET": SECRET})


def write_config(
    folder: Path,
    *,
    issuer: str,
    shop_port: int,
    port: int,
    policy: str | None = None,
    source: Path | str = EXAMPLE / "web",
    storage: str = "page",
    sandbox: str = "opaque",
    extra: str = "",
    credentials: str = "",
    story: bool = False,
    fast_path: bool = True,
) -> None:
    """Write the example's configuration with other ports; policy, source and storage are the cart's by default, its
    frames are opaque.

    `story` adds the demo's story; `fast_path` is `server.fast_path`."""
    text = (EXAMPLE / "gateway.yaml").read_text("utf-8")
    text = text.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("http://localhost:9400", issuer)
    text = text.replace("source: web", f"source: {source}\n    storage: {storage}\n    sandbox: {sandbox}")
    if story:
        told = yaml.safe_load((EXAMPLE / "story.yaml").read_text("utf-8"))
        text = text.replace("    title: Fennel", f"    story: {json.dumps(told)}\n    title: Fennel")
    text = text.replace("credentials:\n", f"credentials:\n{credentials}")
    if not fast_path:
        text = text.replace("server:\n", "server:\n  fast_path: false\n", 1)
    (folder / "gateway.yaml").write_text(f"{text}\n{extra}", "utf-8")
    rules = policy if policy is not None else (EXAMPLE / "policy.yaml").read_text("utf-8")
    (folder / "policy.yaml").write_text(rules.replace("127.0.0.1:9401", f"127.0.0.1:{shop_port}"), "utf-8")


@asynccontextmanager
async def running_page(folder: Path, page: str, policy: str) -> AsyncIterator[World]:
    """A gateway for an app of this one page."""
    source = folder / "page"
    source.mkdir()
    (source / "index.html").write_text(page, "utf-8")
    async with running(folder, policy=policy, source=source) as world:
        yield world


@asynccontextmanager
async def running(
    folder: Path,
    *,
    policy: str | None = None,
    source: Path | str = EXAMPLE / "web",
    storage: str = "page",
    sandbox: str = "opaque",
    extra: str = "",
    token_lifetime: int = 300,
    credentials: str = "",
    story: bool = False,
    fast_path: bool = True,
) -> AsyncIterator[World]:
    """Run all servers; `folder` holds their files."""
    auth, shop, door = Server(), Server(), Server()
    issuer = f"http://localhost:{auth.port}"
    write_config(
        folder,
        issuer=issuer,
        shop_port=shop.port,
        port=door.port,
        policy=policy,
        source=source,
        storage=storage,
        sandbox=sandbox,
        extra=extra,
        credentials=credentials,
        story=story,
        fast_path=fast_path,
    )
    config = read_config(folder)
    credential = config.credentials["shop-service"]
    assert isinstance(credential, OAuth)
    world = World(
        folder,
        auth,
        shop,
        door,
        auth_server.Settings(issuer, credential.client.id, SECRET, token_lifetime=token_lifetime),
        goods.Settings(folder / "shop.db", issuer, log=folder / "shop.log"),
        config,
    )
    try:
        await world.start_auth()
        await world.start_shop()
        await world.start_gateway()
        yield world
    finally:
        for server in (door, shop, auth):
            await server.stop()
