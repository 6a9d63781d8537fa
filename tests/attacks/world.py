"""An attacked gateway: its backends keep raw bytes, one of them has a credential, one is not in the policy."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from sqlalchemy import select

from gateway.app import RELOAD, build_app
from gateway.config import Config, load_config, read_config
from gateway.stores.schema import NODES
from gateway.stores.sql import Database
from tests.attacks.backends import Arrived, RawBackend
from tests.cluster.alternating import alternating_connections
from tests.leaks.marks import MARK
from tests.postgresql import PostgreSQL
from tests.redis_server import RedisServer
from tests.world import Loopback, Server, listen

APP = "target"
TOKEN = f"tok-{MARK}-" + "Zq7" * 12
SECRET = f"client-secret-of-the-attacked-{MARK}"
CLIENT = "attacked-client"
CSRF = "webmcp-gateway-csrf"
WAIT = 60.0

CONFIG = """
server: {{listen: "127.0.0.1:{port}", fast_path: {fast}, drain: {{announce: 0s}}{shown}}}
apps:
  target: {{source: web, policy: policy.yaml}}
  neighbour: {{source: web, policy: neighbour.yaml, sandbox: dedicated}}
credentials:
  attack:
    type: client_credentials
    issuer: http://localhost:{issuer}
    token_endpoint: http://localhost:{issuer}/token
    client_id: {client}
    client_secret: "${{env:SECRET}}"
    network: private
"""

POLICY = """
version: 1
backends:
  main:
    url: http://127.0.0.1:{main}/v1
    credential: attack
    network: [127.0.0.0/8]
    origins: ["https://www.shop.test", "http://shop.test:8080"]
  other: {{url: "http://127.0.0.1:{other}/o", network: [127.0.0.0/8]}}
  public: {{url: "http://127.0.0.1:{outside}", network: public}}
  named: {{url: "http://localhost:{outside}", network: public}}
  linklocal: {{url: "http://169.254.169.254", network: private}}
  mapped: {{url: "http://[::ffff:127.0.0.1]:{outside}", network: public}}
  closed: {{url: "http://127.0.0.1:1", network: private}}
limits: {{timeout: 3s, request: 64KiB, response: 256KiB}}
routes:
  - {{path: "/api/open/admin/**", deny: "not for apps"}}
  - {{path: "/api/open/**", methods: [GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE], backend: main}}
  - {{path: "/api/read/**", methods: [GET], backend: main}}
  - {{path: "/api/items/{{item}}", methods: [GET, PUT], backend: main}}
  - {{path: "/api/files/{{key:encoded}}", methods: [GET], backend: main}}
  - {{path: "/api/files/{{key:encoded}}/meta", methods: [GET], backend: main}}
  - {{path: "/api/exact", methods: [GET, POST], backend: main}}
  - {{path: "/api/small", methods: [GET, POST], backend: main, request: 1KiB, response: 4KiB}}
  - {{path: "/api/slow/**", methods: [GET, POST], backend: main, timeout: 600ms}}
  - {{path: /api/checkout, methods: [POST], backend: main, when: "request.body.total <= 500"}}
  - {{path: /api/pick, methods: [GET], backend: main, when: 'request.query.q == "a"'}}
  - {{path: /api/role, methods: [GET], backend: main, when: '"buyer" in principal.roles'}}
  - {{path: /api/schema, methods: [POST], backend: main, body: {{schema: order.schema.json}}}}
  - {{path: /api/once, methods: [POST], backend: main, idempotent: true}}
  - {{path: "/other/**", methods: [GET, POST], backend: other}}
  - {{path: "/public/**", methods: [GET], backend: public}}
  - {{path: "/named/**", methods: [GET], backend: named}}
  - {{path: "/linklocal/**", methods: [GET], backend: linklocal, timeout: 1s}}
  - {{path: "/mapped/**", methods: [GET], backend: mapped}}
  - {{path: "/closed/**", methods: [GET], backend: closed}}
"""

SHOWN = (
    ", public_url: 'http://localhost:{port}', origins: {{console: 'http://gateway.localhost:{port}', "
    "sandbox: 'http://sandbox.localhost:{port}', apps: 'http://{{app}}.localhost:{port}', "
    "dedicated: 'http://{{id}}.localhost:{port}'}}"
)
"""The addresses of the gateway at the port of its balancer."""

NODE = """
stores: {{database: "{database}", encryption_key: "${{env:ENCRYPTION}}", redis: "{redis}"}}
cluster: {{name: {name}, listen: "unix:node.sock", keys: ["${{env:CLUSTER}}"]}}
"""
KEYS = {
    "ENCRYPTION": "hV2nBx7cZl4kQw9eRt6yUi1oPa3sDf8gJm5vNb0xCzE=",
    "CLUSTER": "Zr4vKq8mT1xWb6yNc3pLs9dHf2gJa7uEo5iRtY0wQzM=",
}

SCHEMA = {
    "type": "object",
    "properties": {"item": {"type": "string", "maxLength": 8}, "count": {"type": "integer", "maximum": 5}},
    "required": ["item"],
    "additionalProperties": False,
}
"""The schema of one route's body."""

NEIGHBOUR = """
version: 1
backends:
  only: {{url: "http://127.0.0.1:{outside}", network: [127.0.0.0/8]}}
routes:
  - {{path: "/neighbour/**", methods: [GET], backend: only}}
"""


class Errors(logging.Handler):
    """Keeps errors in the log: no caller may cause one, except with bytes that are not HTTP."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            self.lines.append(self.format(record))


@dataclass(frozen=True, slots=True)
class Stores:
    """The state that the nodes of a cluster share."""

    database: PostgreSQL
    redis: RedisServer


TWO_NODES: list[Stores] = []
"""Not empty: worlds are clusters of two nodes on these stores (`--cluster`)."""


@dataclass(slots=True)
class AttackedNode:
    """One process' worth of gateway; `offset` is where the unread lines of its journal begin."""

    folder: Path
    config: Config
    server: Server
    app: web.Application
    offset: int = 0

    def take_records(self) -> list[dict[str, Any]]:
        """Return the lines of the journal since the last call."""
        with self.config.journal.open("rb") as journal:
            journal.seek(self.offset)
            lines = journal.read()
            self.offset = journal.tell()
        return [json.loads(line) for line in lines.splitlines()]


@dataclass(slots=True, repr=False)
class AttackWorld:
    """The attacked gateway and its backends, with everything that they received and logged.

    With two nodes, `port` is that of a balancer, and each connection goes to another node than the one before.
    """

    nodes: list[AttackedNode]
    port: int
    """The gateway's port."""
    backends: dict[str, RawBackend]
    arrived: list[Arrived]
    errors: Errors
    _places: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of the first node."""
        return self.nodes[0].folder

    @property
    def config(self) -> Config:
        """The configuration of the first node."""
        return self.nodes[0].config

    @property
    def app(self) -> web.Application:
        """The application of the first node."""
        return self.nodes[0].app

    async def stop(self) -> None:
        """Stop the gateway."""
        await asyncio.gather(*(node.server.stop() for node in self.nodes))

    @property
    def hosts(self) -> dict[str, str]:
        """The `Host` of each site."""
        names = {"plain": "localhost", "console": "gateway.localhost", "sandbox": "sandbox.localhost"}
        names |= {"app": f"{APP}.localhost", "neighbour": "neighbour.localhost", "ip": "127.0.0.1"}
        return {site: f"{name}:{self.port}" for site, name in names.items()}

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """The bytes that must never leave: the token, the client secret, and encoded forms of both."""
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode())
        return TOKEN.encode(), SECRET.encode(), basic, base64.b64encode(TOKEN.encode())

    def placed(self, value: Any) -> Any:
        """`value` with `@main@` and the like replaced by ports, `@app@` and the like by hosts."""
        if isinstance(value, str):
            for name, place in self.places.items():
                value = value.replace(f"@{name}@", place)
            return value
        if isinstance(value, list):
            return [self.placed(part) for part in value]
        if isinstance(value, dict):
            return {self.placed(name): self.placed(part) for name, part in value.items()}
        return value

    @property
    def places(self) -> dict[str, str]:
        """The values of the `@` words in cases."""
        if not self._places:
            ports = {name: str(backend.port) for name, backend in self.backends.items()}
            self._places = {**ports, **self.hosts, "token": TOKEN, "port": str(self.port)}
        return self._places

    def take_arrived(self) -> list[Arrived]:
        """Return the requests that reached any backend since the last call, except at the token endpoint."""
        found, self.arrived[:] = [one for one in self.arrived if one.backend != "issuer"], []
        return found

    def take_records(self) -> list[dict[str, Any]]:
        """Return the lines of the journals since the last call."""
        return [line for node in self.nodes for line in node.take_records()]

    def write_policy(self, text: str) -> None:
        """Replace the app's policy file."""
        for node in self.nodes:
            (node.folder / "policy.yaml").write_text(text, "utf-8")

    def policy(self, text: str) -> None:
        """Replace the app's policy as editors and deployments do, and reload it."""
        ports = {name: backend.port for name, backend in self.backends.items()}
        for node in self.nodes:
            new = node.folder / ".policy.yaml.new"
            new.write_text(text.format(**ports), "utf-8")
            new.replace(node.folder / "policy.yaml")
            node.app[RELOAD]()

    async def digests(self) -> set[str]:
        """Return the digests of their configurations that the nodes of a cluster have announced."""
        if len(self.nodes) == 1:
            return set()
        async with Database(self.config.database.reveal()) as database, database.connect() as connection:
            return set((await connection.execute(select(NODES.c.digest))).scalars().all())

    async def agree(self, before: set[str]) -> None:
        """Wait until the nodes of a cluster have announced one configuration, another than `before`."""
        async with asyncio.timeout(WAIT):
            while len(self.nodes) > 1 and (len(now := await self.digests()) > 1 or now == before):
                await asyncio.sleep(0.05)

    def take_errors(self) -> list[str]:
        """Return the errors that were logged since the last call."""
        found, self.errors.lines = self.errors.lines, []
        return found


__all__ = ["APP", "AttackWorld", "Loopback", "running_world"]


@asynccontextmanager
async def running_world(
    folder: Path,
    policy: str = POLICY,
    extra: str = "",
    *,
    reloads: bool = False,
    mounted: bool = False,
    fast_path: bool = True,
    stores: Stores | None = None,
) -> AsyncIterator[AttackWorld]:
    """The gateway with its backends; `folder` holds its files, which it watches if it `reloads`.

    `mounted`: as part of another application, under another server. `fast_path`: `server.fast_path`. With `stores`, or
    those of `--cluster`, it has two nodes; each has a folder in `folder`.
    """
    arrived: list[Arrived] = []
    backends = {name: RawBackend(name, arrived) for name in ("main", "other", "outside", "stranger", "issuer")}
    token = json.dumps({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(token)
    backends["issuer"].default = head + token
    stores = stores or next(iter(TWO_NODES), None)
    if "audit:" not in extra:  # tests look at each refusal
        extra += "audit: {refusals: 1000000}\n"
    errors = Errors()
    async with AsyncExitStack() as stack:
        for backend in backends.values():
            await backend.start()
            stack.push_async_callback(backend.stop)
        ports = {name: backend.port for name, backend in backends.items()}
        logging.getLogger().addHandler(errors)
        stack.callback(logging.getLogger().removeHandler, errors)
        servers = {"": Server()} if stores is None else {"a": Server(), "b": Server()}
        balancer = None if stores is None else listen()
        port = servers[""].port if balancer is None else balancer.getsockname()[1]
        shared = {"database": stores.database.new_database(), "redis": stores.redis.new_database()} if stores else {}
        nodes = []
        for name, server in servers.items():
            own = folder / name
            _write_files(own, policy, ports)
            text = CONFIG.format(
                port=server.port,
                fast=json.dumps(fast_path),
                issuer=ports["issuer"],
                client=CLIENT,
                shown=SHOWN.format(port=port) if name else "",
            )
            text += extra + (NODE.format(name=name, **shared) if name else "")
            (own / "gateway.yaml").write_text(text, "utf-8")
            nodes.append(
                await stack.enter_async_context(_running_node(own, server, reloads, port if mounted else None))
            )
        if balancer is not None:
            await stack.enter_async_context(alternating_connections(balancer, *(one.port for one in servers.values())))
        yield AttackWorld(nodes, port, backends, arrived, errors)


def _write_files(folder: Path, policy: str, ports: dict[str, int]) -> None:
    """Write the files of a node but for its gateway.yaml."""
    (folder / "web").mkdir(parents=True, exist_ok=True)
    (folder / "web" / "index.html").write_text("<!doctype html><title>Target</title><p>Target</p>", "utf-8")
    (folder / "web" / ".hidden").write_text("EVIL", "utf-8")
    (folder / "outside.txt").write_text("EVIL", "utf-8")
    (folder / "policy.yaml").write_text(policy.format(**ports), "utf-8")
    (folder / "order.schema.json").write_text(json.dumps(SCHEMA), "utf-8")
    (folder / "neighbour.yaml").write_text(NEIGHBOUR.format(**ports), "utf-8")


@asynccontextmanager
async def _running_node(
    folder: Path, server: Server, reloads: bool, mounted: int | None
) -> AsyncIterator[AttackedNode]:
    """Run a node; `mounted` is the port in the URLs of the application of which it is a part."""
    file, variables = folder / "gateway.yaml", {"SECRET": SECRET, **KEYS}
    config = load_config(file, variables)
    app = build_app(config, (lambda: read_config(file, variables)) if reloads else None)
    outer = web.Application()
    if mounted is not None:
        outer.add_domain(f"*localhost:{mounted}", app)
    try:
        await server.start(outer if mounted is not None else app)
        yield AttackedNode(folder, config, server, app)
    finally:
        await server.stop()
