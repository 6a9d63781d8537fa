"""An attacked gateway: its backends keep raw bytes, one of them has a credential, one is not in the policy."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gateway.app import RELOAD, build_app
from gateway.config import Config, load_config, read_config
from tests.attacks.backends import Arrived, RawBackend
from tests.leaks.marks import MARK
from tests.world import Loopback, Server

APP = "target"
TOKEN = f"tok-{MARK}-" + "Zq7" * 12
SECRET = f"client-secret-of-the-attacked-{MARK}"
CLIENT = "attacked-client"
CSRF = "webmcp-gateway-csrf"

CONFIG = """
server: {{listen: "127.0.0.1:{port}", fast_path: {fast}, drain: {{announce: 0s}}}}
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


@dataclass(slots=True)
class AttackWorld:
    """The attacked gateway and its backends, with everything that they received and logged."""

    folder: Path
    config: Config
    server: Server
    backends: dict[str, RawBackend]
    arrived: list[Arrived]
    errors: Errors
    reread: Callable[[], None]
    """Re-reads the files of the configuration, as on SIGHUP."""
    app: web.Application
    journal_offset: int = 0
    _places: dict[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """The gateway's port."""
        return self.server.port

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
        """Return the lines of the journal since the last call."""
        with self.config.journal.open("rb") as journal:
            journal.seek(self.journal_offset)
            lines = journal.read()
            self.journal_offset = journal.tell()
        return [json.loads(line) for line in lines.splitlines()]

    def policy(self, text: str) -> None:
        """Replace the app's policy as editors and deployments do, and reload it."""
        ports = {name: backend.port for name, backend in self.backends.items()}
        new = self.folder / ".policy.yaml.new"
        new.write_text(text.format(**ports), "utf-8")
        new.replace(self.folder / "policy.yaml")
        self.reread()

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
) -> AsyncIterator[AttackWorld]:
    """The gateway with its backends; `folder` holds its files, which it watches if it `reloads`.

    `mounted`: as part of another application, under another server. `fast_path`: `server.fast_path`.
    """
    arrived: list[Arrived] = []
    backends = {name: RawBackend(name, arrived) for name in ("main", "other", "outside", "stranger", "issuer")}
    for backend in backends.values():
        await backend.start()
    token = json.dumps({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600}).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(token)
    backends["issuer"].default = head + token
    server = Server()
    ports = {name: backend.port for name, backend in backends.items()}
    (folder / "web").mkdir(exist_ok=True)
    (folder / "web" / "index.html").write_text("<!doctype html><title>Target</title><p>Target</p>", "utf-8")
    (folder / "web" / ".hidden").write_text("EVIL", "utf-8")
    (folder / "outside.txt").write_text("EVIL", "utf-8")
    (folder / "policy.yaml").write_text(policy.format(**ports), "utf-8")
    (folder / "order.schema.json").write_text(json.dumps(SCHEMA), "utf-8")
    (folder / "neighbour.yaml").write_text(NEIGHBOUR.format(**ports), "utf-8")
    text = CONFIG.format(port=server.port, fast=json.dumps(fast_path), issuer=ports["issuer"], client=CLIENT) + extra
    if "audit:" not in extra:  # tests look at each refusal
        text += "audit: {refusals: 1000000}\n"
    (folder / "gateway.yaml").write_text(text, "utf-8")
    file, variables = folder / "gateway.yaml", {"SECRET": SECRET}
    config = load_config(file, variables)
    errors = Errors()
    logging.getLogger().addHandler(errors)
    try:
        app = build_app(config, (lambda: read_config(file, variables)) if reloads else None)
        outer = web.Application()
        if mounted:
            outer.add_domain(f"*localhost:{server.port}", app)
        await server.start(outer if mounted else app)
        yield AttackWorld(folder, config, server, backends, arrived, errors, app[RELOAD], app)
    finally:
        logging.getLogger().removeHandler(errors)
        await server.stop()
        for backend in backends.values():
            await backend.stop()
