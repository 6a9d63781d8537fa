"""Three gateways as one: behind nginx or Caddy as shipped, on PostgreSQL and Redis, each on a machine of its own."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from tests.certificates import Authority
from tests.cli.test_serve import COMMAND
from tests.cluster.cluster import ENCRYPTION, KEY, Node
from tests.cluster.machines import NAMES, Machines
from tests.deploy.proxies import Ports, certify, server_settings, start_proxy
from tests.leaks.watch import environment
from tests.redis_server import RedisServer
from tests.world import Loopback, free_port

NODES_PORT: Final = 7946
"""The port for other nodes, which is the same on each machine."""


@dataclass(slots=True)
class Deployment:
    """The nodes by name; `settings` are the sections of gateway.yaml that they share, beside server and cluster."""

    folder: Path
    machines: Machines
    database: str
    redis: RedisServer
    ports: Ports
    authority: Authority
    settings: dict[str, Any]
    announce: str = "0s"
    nodes: dict[str, Node] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    front: str = ""
    lapses: list[str] = field(default_factory=list)
    """The names of nodes that could not renew their lease in time, as on a machine that is too busy."""
    _reading: list[asyncio.Task[None]] = field(default_factory=list)

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    @property
    def port(self) -> int:
        """The port at which each node listens."""
        return self.ports.gateway

    @property
    def mcp(self) -> str:
        """The public URL."""
        return f"https://mcp.gw.localhost:{self.ports.tls}"

    @property
    def console(self) -> str:
        """The console's origin."""
        return f"https://console.gw.localhost:{self.ports.tls}"

    def site(self, app: str) -> str:
        """Return the origin of an app's own site."""
        return f"https://{app}.apps.localhost:{self.ports.tls}"

    @property
    def ca(self) -> Path:
        """The certificate of the proxy."""
        return self.folder / "tls" / "fullchain.pem"

    def client(self, **options: Any) -> aiohttp.ClientSession:
        """Return a client of the proxy, with connections of its own; `options` as of `ClientSession`."""
        trusted = ssl.create_default_context(cafile=str(self.ca))
        connector = aiohttp.TCPConnector(resolver=Loopback(), ssl=trusted, limit=0)
        return aiohttp.ClientSession(connector=connector, **options)

    async def start(self, name: str, *, wait: bool = True, **more: str) -> Node:
        """Start a node, and wait until it is ready; `more` are variables of its environment."""
        folder = self.folder / name
        self.write(name)
        process = await asyncio.create_subprocess_exec(
            *self.machines.command(name), *COMMAND, "serve", "-v",
            cwd=folder, env=self.environment(**more), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        headers = {"host": f"mcp.gw.localhost:{self.ports.tls}", **self.headers}
        address = self.machines.address(name)
        node = Node(name, folder, self.port, self.ports.tls, process, address=address, headers=headers)
        self.nodes[name] = node
        started = asyncio.Event()
        self._reading.append(asyncio.create_task(self._read(node, started)))
        if wait:
            async with asyncio.timeout(300):
                await started.wait()
            assert process.returncode is None, "".join(node.lines)
        return node

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a node, or of a command beside it."""
        secrets = {"DATABASE": self.database, "ENCRYPTION": ENCRYPTION, "CLUSTER": KEY}
        return {**environment(), **secrets, **self.environ, **more}

    def write(self, name: str, **cluster: Any) -> None:
        """Write the configuration of a node."""
        folder, address = self.folder / name, self.machines.address(name)
        folder.mkdir(exist_ok=True)
        if not (folder / "nodes").exists():
            self.authority.write(folder / "nodes", address)
        server = server_settings(folder, self.ports) | {
            "listen": f"{address}:{self.port}",
            "trusted_proxies": [self.machines.outside],
            "drain": {"announce": self.announce, "timeout": "30s"},
        }
        tls = {"certificate": "nodes/certificate.pem", "key": "nodes/key.pem", "authority": "nodes/authority.pem"}
        host, port = self.machines.outside, self.redis.port
        written = {
            "auth": ["token"],
            **self.settings,
            "server": server,
            "stores": {
                "database": "${env:DATABASE}", "encryption_key": "${env:ENCRYPTION}",
                "redis": f"redis://{host}:{port}/0",
            },
            "cluster": {
                "name": name, "listen": f"{address}:{NODES_PORT}", "keys": ["${env:CLUSTER}"], "tls": tls, **cluster,
            },
        }  # fmt: skip
        (folder / "gateway.yaml").write_text(yaml.safe_dump(written))

    async def command(self, *words: str) -> str:
        """Run a command of the gateway beside the first node, and return its output."""
        process = await asyncio.create_subprocess_exec(
            *COMMAND, *words, cwd=self.folder / NAMES[0], env=self.environment(), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output
        return output.decode().strip()

    async def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """End a node, and wait until it has ended; a drain must end with 0."""
        node = self.nodes[name]
        node.process.send_signal(number)
        code = await node.process.wait()
        assert code == (0 if number == signal.SIGTERM else -number), "".join(node.lines[-40:])

    async def close(self) -> None:
        """Kill the nodes that still run."""
        for node in self.nodes.values():
            if node.process.returncode is None:
                node.process.send_signal(signal.SIGCONT)
                node.process.kill()
            await node.process.wait()
        await asyncio.gather(*self._reading)

    async def _read(self, node: Node, started: asyncio.Event) -> None:
        assert node.process.stdout is not None
        async for line in node.process.stdout:
            node.lines.append(line.decode())
            if "is ready" in node.lines[-1]:
                started.set()
            if "the lease of this node has ended" in node.lines[-1]:
                self.lapses.append(node.name)
        await node.process.wait()
        started.set()

    @contextmanager
    def proxied(self, proxy: str, method: str = "", *, by_agent: bool = False) -> Iterator[None]:
        """Run nginx or Caddy before the nodes; `method` is how it chooses among them, by default as it does itself.

        A node that is down is not asked for two seconds. `by_agent`: nginx sends a browser whose name contains `at-a`
        to node a, and so on.
        """
        addresses = {name: f"{self.machines.address(name)}:{self.port}" for name in NAMES}
        self.front = proxy
        changed = [
            ("{$GATEWAY:127.0.0.1:8080} {", f"{' '.join(addresses.values())} {{\n{method}"),
            ("{$GATEWAY_HEALTH:/healthz}", "/readyz"),
        ]
        if proxy == "nginx":
            each = "\n".join(f"server {address} max_fails=1 fail_timeout=2s;" for address in addresses.values())
            changed = [("server 127.0.0.1:8080 max_fails=0;", f"{method}\n{each}\n#")]
        if by_agent:
            steered, start = "map $http_user_agent $webmcp_gateway_upstream {", "upstream webmcp_gateway {"
            named = "\n".join(f"upstream node_{name} {{ server {addresses[name]}; }}" for name in addresses)
            mapped = "\n".join(f"~at-{name} node_{name};" for name in addresses)
            changed += [
                (start, f"{named}\n{start}"),
                ("map $request_method $webmcp_gateway_upstream {", f"{steered}\n{mapped}"),
            ]
        with start_proxy(self.folder, proxy, self.ports, *changed):
            yield


@asynccontextmanager
async def deployment(
    folder: Path,
    machines: Machines,
    database: str,
    redis: RedisServer,
    settings: Mapping[str, Any],
    *names: str,
    announce: str = "0s",
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Deployment]:
    """Yield running nodes, all three unless `names` says which, and a token for their apps and MCP servers."""
    ports = Ports(free_port(), free_port(), free_port())
    inside = database.replace("@127.0.0.1:", f"@{machines.outside}:")
    made = Deployment(
        folder, machines, inside, redis, ports, Authority(), dict(settings), announce, environ=dict(environ or {})
    )
    certify(folder / "tls")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(made.close)
        made.write(NAMES[0])
        made.headers["authorization"] = "Bearer " + await made.command(
            "token", "create", "load", "--can", "mcp", "--can", "app"
        )
        async with asyncio.TaskGroup() as tasks:
            for name in names or NAMES:
                tasks.create_task(made.start(name))
        yield made
