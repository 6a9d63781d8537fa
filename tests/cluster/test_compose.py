"""What compose.yaml runs, as processes: its configuration, Redis, Caddy and certificates, made as the page says.

Each node has a host name of its own, as its container has.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.cli.deployment import deployment_problems
from gateway.config import load_config
from tests.cli.test_serve import COMMAND
from tests.cluster.cluster import Node, Page, client
from tests.deploy.proxies import DEPLOY, Ports, certify, read_renamed, start_proxy, wait_listening
from tests.leaks.watch import environment
from tests.world import free_port

NODES = ("node-1", "node-2", "node-3")
ALONE = ["unshare", "--uts", "--mount"]
"""Gives a process a host name and names of hosts of its own."""

AS_NODE = 'hostname "$NODE" && mount --bind "$HOSTS" /etc/hosts && exec "$@"'


def commands(text: str) -> str:
    """Return the commands of the page that make folders, certificates and secrets for Compose."""
    section = text[text.index("**Compose.**") : text.index("**Kubernetes.**")]
    found = re.search(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@dataclass(slots=True)
class Deployment:
    """The folder `deploy` of a machine, the addresses of its nodes, and the variables of their containers."""

    folder: Path
    compose: dict[str, Any]
    ports: Ports
    between: int
    environ: dict[str, str]
    listen: dict[str, int] = field(default_factory=lambda: {name: free_port() for name in NODES})

    def config(self, name: str) -> Path:
        """Return the configuration of a node."""
        return self.folder / name / "gateway.yaml"

    def write(self, name: str, redis: bool = True) -> None:
        """Write a node's gateway.yaml: that of the file, at an address of this machine, with nobody to log in."""
        host = f"127.0.1.{name[-1]}"
        written = yaml.safe_load((self.folder / "config/gateway.yaml").read_text("utf-8"))
        del written["auth"], written["roles"]
        listeners = {key: written["server"][key].split(":")[0] for key in ("listen", "admin_listen")}
        assert listeners == {"listen": "0.0.0.0", "admin_listen": "127.0.0.1"}
        written["server"] |= {
            "listen": f"127.0.0.1:{self.listen[name]}", "admin_listen": f"127.0.0.1:{free_port()}",
            "state_dir": str(self.folder / name / "state"), "trusted_proxies": ["127.0.0.1"],
            "public_url": f"{written['server']['public_url']}:{self.ports.tls}",
            "origins": {key: f"{origin}:{self.ports.tls}" for key, origin in written["server"]["origins"].items()},
            "drain": {"announce": "0s"},
        }  # fmt: skip
        # Its default has the port of the node, which is another one for each of them here.
        written["server"]["origins"]["dedicated"] = f"https://{{id}}.frames.localhost:{self.ports.tls}"
        cluster = written["cluster"]
        cluster["listen"] = cluster["listen"].replace("0.0.0.0:7946", f"{host}:{self.between}")
        cluster["address"] = cluster["address"].replace("7946", str(self.between))
        nodes = str(self.folder / "nodes")
        cluster["tls"] = {key: file.replace("/run/nodes", nodes) for key, file in cluster["tls"].items()}
        if not redis:
            del written["stores"]["redis"]
        (self.folder / name / "apps").mkdir(parents=True, exist_ok=True)
        (self.folder / name / "policies").mkdir(exist_ok=True)
        (self.folder / name / "apps/hello").mkdir(exist_ok=True)
        (self.folder / name / "apps/hello/index.html").write_text("<!doctype html><title>Hello</title>", "utf-8")
        (self.folder / name / "policies/hello.yaml").write_text("version: 1\ntools: {add: {}}\n", "utf-8")
        self.config(name).write_text(yaml.safe_dump(written), "utf-8")

    async def start(self, name: str) -> asyncio.subprocess.Process:
        """Start a node with the host name of its service."""
        environ = {"HOSTS": str(self.folder / "hosts"), "NODE": self.compose["services"][name]["hostname"]}
        with (self.folder / f"{name}.log").open("wb") as log:
            return await asyncio.create_subprocess_exec(
                *ALONE, "sh", "-c", AS_NODE, "node", *COMMAND, "serve", "--config", str(self.config(name)),
                env={**environment(), **self.environ, **environ},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip

    async def ready(self, name: str, process: asyncio.subprocess.Process) -> None:
        """Wait until a node serves."""
        async with asyncio.timeout(90):
            while "is ready" not in (text := (self.folder / f"{name}.log").read_text("utf-8")):
                assert process.returncode is None, text
                await asyncio.sleep(0.1)


@contextmanager
def redis_of(compose: dict[str, Any], folder: Path, password: str) -> Iterator[int]:
    """Run the command of the service, on a port of this machine; yield the port."""
    port = free_port()
    shell, option, script = compose["services"]["redis"]["command"]
    script = script.replace("$$", "$")
    assert script.endswith("redis-server -")
    command = f"{script} --port {port} --bind 127.0.0.1 --dir {folder} --daemonize no"
    with (folder / "redis.log").open("wb") as log:
        process = subprocess.Popen(
            [shell, option, command],
            env={**os.environ, "REDIS_PASSWORD": password},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + 20
        while time.monotonic() < end and b"Ready to accept" not in (folder / "redis.log").read_bytes():
            time.sleep(0.05)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


@asynccontextmanager
async def deployment(folder: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Deployment]:
    """Yield a deployment with its Redis and Caddy, whose nodes are still to be started."""
    for name in ("gateway.cluster.yaml", "compose.yaml"):
        (folder / name).write_text(read_renamed(name), "utf-8")
    script = commands((DEPLOY.parent / "docs/deployment.md").read_text("utf-8"))
    if os.getuid() != 0:
        script = re.sub(r"^chown .*$", "", script, flags=re.MULTILINE)
    subprocess.run(["sh", "-ec", script], cwd=folder, check=True, capture_output=True)
    (folder / "tls").rmdir()
    certify(folder / "tls")
    environ, of_redis = (
        dict(line.split("=", 1) for line in (folder / name).read_text("utf-8").splitlines())
        for name in ("secrets.env", "redis.env")
    )
    compose = yaml.safe_load((folder / "compose.yaml").read_text("utf-8"))
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"127.0.1.{name[-1]} {name}\n" for name in NODES))
    ports = Ports(free_port(), free_port(), free_port())
    with redis_of(compose, folder, of_redis["REDIS_PASSWORD"]) as redis:
        assert "@redis:6379" in environ["REDIS_URL"]
        environ |= {
            "DATABASE_URL": database, "REDIS_URL": environ["REDIS_URL"].replace("@redis:6379", f"@127.0.0.1:{redis}")
        }  # fmt: skip
        made = Deployment(folder, compose, ports, free_port(), environ)
        for name in NODES:
            made.write(name)
        behind = compose["services"]["caddy"]["environment"]
        addresses = behind["GATEWAY"]
        for name in NODES:
            addresses = addresses.replace(f"{name}:8080", f"127.0.0.1:{made.listen[name]}")
        monkeypatch.setenv("GATEWAY_HEALTH", behind["GATEWAY_HEALTH"])
        with start_proxy(folder, "caddy", ports, ("{$GATEWAY:127.0.0.1:8080}", addresses)):
            await wait_listening(ports.tls)
            yield made


@pytest.fixture
def names() -> None:
    """Skip where the system gives no host names to processes."""
    if shutil.which("unshare") is None or subprocess.run([*ALONE, "true"], check=False).returncode != 0:
        pytest.skip("unshare may not be used here")


async def problems(place: Deployment, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Return what doctor finds, and its notes."""
    for key, value in place.environ.items():
        monkeypatch.setenv(key, value)
    notes: list[str] = []
    config = load_config(place.config("node-1"), os.environ)
    url = f"https://mcp.gw.localhost:{place.ports.tls}"
    return await deployment_problems(config, url, place.folder / "tls/fullchain.pem", notes=notes), notes


async def test_three_nodes(tmp_path: Path, database: str, names: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """They know and reach each other, and calls follow a view; a node that differs is named."""
    async with deployment(tmp_path, database, monkeypatch) as place:
        running = {name: await place.start(name) for name in NODES}
        try:
            for name, process in running.items():
                await place.ready(name, process)
            found, notes = await problems(place, monkeypatch)
            assert (found, notes) == ([], ["3 nodes answered: node-1, node-2, node-3"])
            nodes = {
                name: Node(name, tmp_path, place.listen[name], place.listen[name], process)
                for name, process in running.items()
            }
            async with client() as http:

                async def call(name: str, tool: str, **arguments: Any) -> Any:
                    params = {"name": tool, "arguments": arguments}
                    answer = await nodes[name].rpc(http, "tools/call", params, mount="/mcp/hello")
                    return answer["result"]

                launch = (await call("node-1", "open_hello"))["_meta"]["webmcp-gateway/launch"]
                view = (await call("node-1", "webmcp_attach", launch=launch))["structuredContent"]
                page = Page(http, nodes["node-2"], view["view"], base64.urlsafe_b64decode(view["key"] + "="))
                polled = await call("node-2", "webmcp_poll", _view=page.proof(), after=0, wait=0, tools=[])
                assert polled["structuredContent"]["events"] == []
            running["node-3"].terminate()
            await running["node-3"].wait()
            file = place.folder / "node-3/policies/hello.yaml"
            file.write_text(file.read_text() + "limits: {timeout: 7s}\n")
            running["node-3"] = await place.start("node-3")
            await place.ready("node-3", running["node-3"])
            found, _ = await problems(place, monkeypatch)
            assert any(one.startswith("nodes differ in configuration: node-1, node-2 (") for one in found), found
            assert any(one.startswith("nodes have different versions of the policy of hello") for one in found), found
            status = await asyncio.create_subprocess_exec(
                *COMMAND, "cluster", "status", "--json", "--config", str(place.config("node-1")),
                env={**environment(), **place.environ}, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            output, _ = await status.communicate()
            listed = json.loads(output)
            assert (status.returncode, listed["ok"]) == (1, False)
            assert listed["differing"]
        finally:
            for process in running.values():
                if process.returncode is None:
                    process.kill()
                await process.wait()
