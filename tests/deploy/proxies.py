"""The reverse proxies of deploy/, started as they are shipped with other names, ports and certificates."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import httpx2
import yaml
from aiohttp import web

from tests.certificates import self_signed
from tests.world import Loopback, World, free_port, running

DEPLOY = Path(__file__).parents[2] / "deploy"
PROXIES = ("nginx", "caddy")
SITES = ("mcp.gw.localhost", "console.gw.localhost", "*.apps.localhost", "*.frames.localhost")
WAIT = 20.0
CLIENT = "127.0.0.2"
"""The address of clients, as that of the proxy is another one."""

NGINX = """
daemon off; user root; pid {folder}/nginx.pid; worker_processes 1; error_log {folder}/nginx.log warn;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/site.conf;
}}
"""
"""The file into which a distribution includes ours."""


def read_renamed(name: str) -> str:
    """The text of a file of deploy/ with the names of the tests, which every browser resolves to this machine."""
    text = (DEPLOY / name).read_text("utf-8")
    names = {"example.com": "gw.localhost", "example.net": "apps.localhost", "example.org": "frames.localhost"}
    for shipped, ours in names.items():
        text = text.replace(shipped, ours)
    return text


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a gateway, and of the proxy in front of it."""

    gateway: int
    tls: int
    plain: int


@dataclass(slots=True)
class Deployed:
    """A gateway behind a proxy."""

    world: World
    port: int
    plain_port: int
    ca: Path

    @property
    def ports(self) -> Ports:
        """The ports of the gateway and its proxy."""
        return Ports(self.world.gateway.port, self.port, self.plain_port)

    @property
    def console(self) -> str:
        """The console's origin."""
        return f"https://console.gw.localhost:{self.port}"

    @property
    def mcp(self) -> str:
        """The public URL."""
        return f"https://mcp.gw.localhost:{self.port}"

    @property
    def sandbox(self) -> str:
        """The origin of the sandbox proxy of views."""
        return f"https://sandbox.apps.localhost:{self.port}"

    @property
    def site(self) -> str:
        """The cart's own origin."""
        return f"https://cart.apps.localhost:{self.port}"

    async def restart(self, auth: str) -> None:
        """Restart the gateway with another section `auth`."""
        await self.world.gateway.stop()
        configure(self, auth)
        await self.world.start_gateway()

    def browser(self) -> aiohttp.ClientSession:
        """An HTTP client that verifies the certificate."""
        trusted = ssl.create_default_context(cafile=str(self.ca))
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=Loopback(), ssl=trusted, local_addr=(CLIENT, 0))
        )

    def http(self, headers: dict[str, str] | None = None, auth: httpx2.Auth | None = None) -> httpx2.AsyncClient:
        """The same for the MCP SDK."""
        trusted = ssl.create_default_context(cafile=str(self.ca))
        return httpx2.AsyncClient(
            transport=_ThisMachine(verify=trusted, local_address=CLIENT), headers=headers, auth=auth, timeout=60
        )


class Backend:
    """An API that reports what reaches it, and can keep a stream open."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.more = asyncio.Event()

    def build(self) -> web.Application:
        """The application."""
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/api/size", self._size)
        app.router.add_route("*", "/api/slow", self._slow)
        app.router.add_get("/api/events", self._events)
        app.router.add_get("/api/file", self._file)
        return app

    async def _size(self, request: web.Request) -> web.Response:
        self.seen.append((request.method, request.path_qs))
        return web.json_response({"size": len(await request.read())})

    async def _slow(self, request: web.Request) -> web.Response:
        self.seen.append((request.method, request.path_qs))
        await self.more.wait()
        return web.json_response({})

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=b"x" * int(request.query["size"]))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b"data: first\n\n")
        await self.more.wait()
        await answer.write(b"data: second\n\n")
        return answer


class _ThisMachine(httpx2.AsyncHTTPTransport):
    """Connects to 127.0.0.1 for every name, which stays in `Host` and in TLS."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.extensions["sni_hostname"] = request.url.host
        request.url = request.url.copy_with(host="127.0.0.1")
        return await super().handle_async_request(request)


@asynccontextmanager
async def deployed(
    folder: Path, proxy: str, *, policy: str | None = None, changed: tuple[str, str] = ("", "")
) -> AsyncIterator[Deployed]:
    """Run the cart behind `proxy`, with the server settings of deploy/gateway.yaml.

    `changed` is a text of nginx.conf, and what stands there instead.
    """
    async with running(folder, policy=policy) as world:
        port, plain_port = free_port(), free_port()
        place = Deployed(world, port, plain_port, folder / "tls" / "fullchain.pem")
        await place.restart("auth: [token]\n")
        certify(folder / "tls")
        if proxy == "caddy":  # a probe that comes while a gateway in this process ends leaves its connection open
            changed = ("health_interval 250ms", "health_interval 1h")
        with start_proxy(folder, proxy, place.ports, changed):
            await wait_listening(port)
            yield place


def configure(place: Deployed, auth: str) -> None:
    """Write gateway.yaml of the cart anew, behind the proxy."""
    file = place.world.folder / "gateway.yaml"
    server = server_settings(place.world.folder, place.ports)
    written = yaml.safe_load(file.read_text("utf-8")) | {"server": server} | yaml.safe_load(auth)
    file.write_text(yaml.safe_dump(written), "utf-8")


def server_settings(folder: Path, ports: Ports) -> dict[str, Any]:
    """The settings `server` of deploy/gateway.yaml with these ports, and the state in a folder of its own."""
    shipped: dict[str, Any] = yaml.safe_load(read_renamed("gateway.yaml"))["server"]
    shipped |= {"listen": f"127.0.0.1:{ports.gateway}", "public_url": f"https://mcp.gw.localhost:{ports.tls}"}
    shipped["origins"] = {name: f"{origin}:{ports.tls}" for name, origin in shipped["origins"].items()}
    shipped["admin_listen"] = f"127.0.0.1:{free_port()}"
    state = folder / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    return shipped | {"state_dir": str(state)}


@contextmanager
def start_proxy(folder: Path, proxy: str, ports: Ports, *changed: tuple[str, str]) -> Iterator[None]:
    """Run the proxy; each of `changed` as in `deployed`."""
    command, environment = (_nginx if proxy == "nginx" else _caddy)(folder, ports, *changed)
    program = shutil.which(command[0], path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise RuntimeError(f"{proxy} is not installed: run scripts/proxies")
    with (folder / f"{proxy}.out").open("wb") as out:
        process = subprocess.Popen([program, *command[1:]], stdout=out, stderr=out, env={**os.environ, **environment})
    try:
        yield
    finally:
        process.terminate()
        process.wait(WAIT)


def _changed(text: str, changed: Sequence[tuple[str, str]]) -> str:
    for before, after in changed:
        assert before in text
        text = text.replace(before, after)
    return text


def _nginx(folder: Path, ports: Ports, *changed: tuple[str, str]) -> tuple[list[str], dict[str, str]]:
    text = _changed(read_renamed("nginx.conf"), changed).replace("127.0.0.1:8080", f"127.0.0.1:{ports.gateway}")
    text = text.replace("listen 443", f"listen 127.0.0.1:{ports.tls}").replace(
        "listen 80;", f"listen 127.0.0.1:{ports.plain};"
    )
    (folder / "site.conf").write_text(text.replace("/etc/webmcp-gateway", str(folder)), "utf-8")
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder), "utf-8")
    return ["nginx", "-c", str(folder / "nginx.conf"), "-e", str(folder / "nginx.log")], {}


def _caddy(folder: Path, ports: Ports, *changed: tuple[str, str]) -> tuple[list[str], dict[str, str]]:
    options = ("admin off", f"http_port {ports.plain}", f"https_port {ports.tls}", "default_bind 127.0.0.1")
    head = "\n\t".join(("{", *options, "grace_period 1s")) + "\n}\n"
    text = _changed(read_renamed("Caddyfile"), changed).replace("/etc/webmcp-gateway", str(folder))
    text = text.replace("Host mcp.gw.localhost", f"Host mcp.gw.localhost:{ports.tls}")
    (folder / "Caddyfile").write_text(head + text, "utf-8")
    homes = {name: str(folder / "caddy") for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    gateway = {"GATEWAY": f"127.0.0.1:{ports.gateway}"}
    return ["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"], {**homes, **gateway}


def certify(folder: Path) -> None:
    """Write a certificate of the sites, signed by itself, and its key."""
    folder.mkdir()
    certificate, key = self_signed(*SITES)
    (folder / "fullchain.pem").write_bytes(certificate)
    (folder / "privkey.pem").write_bytes(key)


async def wait_listening(port: int) -> None:
    """Wait until the port takes connections."""
    async with asyncio.timeout(WAIT):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            return
