"""Every YAML block of the documentation works as written: the gateway starts with it, its policy passes its tests."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.cli.test_serve import process, wait_exit
from tests.docs.blocks import ROOT, Block, blocks
from tests.postgresql import postgresql
from tests.world import SECRET, free_port, local_client

YAML = list(blocks("yaml"))
CONFIGURATIONS = [block for block in YAML if block.file == "gateway.yaml"]
POLICIES = [block for block in YAML if block.file not in ("gateway.yaml", "prometheus.yml", None)]
READERS_OWN = "apps: {cart: {source: web, policy: policies/cart.yaml}}\n"
"""The gateway.yaml of a reader, for blocks that show other keys of it."""

VALUES = {
    "ENCRYPTION_KEY": base64.b64encode(os.urandom(32)).decode(),
    "CLUSTER_KEY": base64.b64encode(os.urandom(32)).decode(),
    "REDIS_URL": "redis://127.0.0.1:1",  # a gateway starts without its Redis
}
"""Values of environment variables that are more than any text."""


def lay_out(folder: Path, shown: Block) -> None:
    """Write the files of the block's page to `folder`, including `shown`, and a reader's app."""
    beside = [block for block in blocks("yaml", "python") if block.page == shown.page and block.file]
    for block in (*beside, shown):
        assert block.file is not None
        if block is shown or block.file != shown.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
    (folder / "web").mkdir(exist_ok=True)
    (folder / "web" / "index.html").write_text("<!doctype html><title>An app</title>")
    policy = folder / "policies" / "cart.yaml"
    if not policy.exists():
        policy.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "policies" / "read-only.yaml", policy)


def secrets(folder: Path, text: str) -> dict[str, str]:
    """The environment for a configuration; its files of secrets are written."""
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for name in re.findall(r"\$\{file:([^}]+)\}", text):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(key if name.endswith(".pem") else SECRET.encode())
        (folder / name).chmod(0o600)
    values = dict.fromkeys(re.findall(r"\$\{env:([^}]+)\}", text), SECRET)
    return {name: VALUES.get(name, value) for name, value in values.items()}


def test_every_yaml_block_says_which_file_it_is() -> None:
    """Readers thus know where it goes, and tests how to use it."""
    assert [block.id for block in YAML if block.file is None] == []
    assert CONFIGURATIONS
    assert POLICIES


@asynccontextmanager
async def run_serve(folder: Path, shown: Block, configuration: str) -> AsyncIterator[int]:
    """Run `serve` in the folder of a block's page, on a free port; it must end without an error."""
    lay_out(folder, shown)
    port = free_port()
    (folder / "gateway.yaml").write_text(
        f"{configuration}\nserver: {{listen: '127.0.0.1:{port}', drain: {{announce: 0s}}}}\n", "utf-8"
    )
    async with process(folder) as running:
        lines = [line async for line in said_until_it_serves(running)]
        if running.returncode is not None:
            raise AssertionError("\n".join([*lines, (await wait_exit(running))[1]]))
        yield port
        running.terminate()
        code, rest = await wait_exit(running)
        assert (code, "Traceback" in rest) == (0, False), rest


async def said_until_it_serves(running: asyncio.subprocess.Process) -> AsyncIterator[str]:
    """The output of `serve` up to the line with its MCP URL, or to its end."""
    assert running.stdout is not None
    async with asyncio.timeout(60):
        while line := (await running.stdout.readline()).decode():
            yield line
            if "/mcp" in line:
                return
        await running.wait()


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of a real PostgreSQL."""
    with postgresql() as server:
        yield server.url


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=lambda block: block.id)
async def test_the_gateway_starts_with_a_configuration_of_the_docs(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The configuration is used alone, or with a reader's app: the gateway gets ready, and ends on a signal."""
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "approvals.py").write_text('"""A plugin of a reader."""\n')
    for name, value in secrets(tmp_path, block.text).items():
        monkeypatch.setenv(name, value)
    if "${env:DATABASE}" in block.text:
        monkeypatch.setenv("DATABASE", request.getfixturevalue("database"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    shows_apps = yaml.safe_load(block.text).keys() & {"apps", "upstreams"}
    configuration = block.text if shows_apps else block.text + READERS_OWN
    async with (
        run_serve(tmp_path, block, configuration) as port,
        local_client() as client,
        client.get(f"http://localhost:{port}/readyz") as answer,
    ):
        assert answer.status == 200, await answer.text()


@pytest.mark.parametrize("block", POLICIES, ids=lambda block: block.id)
async def test_a_policy_of_the_docs_can_be_used_and_passes_its_tests(block: Block, tmp_path: Path) -> None:
    """`policy check` finds nothing, and `policy test` passes if there are tests, also in a separate file."""
    lay_out(tmp_path, block)
    policy = tmp_path / str(block.file).replace(".test.yaml", ".yaml")
    tested = "tests:" in policy.read_text("utf-8") or policy.with_suffix(".test.yaml").exists()
    for step in ("check", "test") if tested else ("check",):
        async with process(tmp_path, step, str(policy), command="policy") as running:
            code, said = await wait_exit(running)
            assert code == 0, said


async def test_prometheus_reads_where_the_docs_say(tmp_path: Path) -> None:
    """The block is a valid configuration, and the gateway serves its metrics at that address and path."""
    behind_a_proxy, block = [block for block in YAML if block.file == "prometheus.yml"]
    deploy, shown = Path(__file__).parents[2] / "deploy", yaml.safe_load(behind_a_proxy.text)
    assert all((deploy / name).is_file() for name in shown["rule_files"])
    (job,) = shown["scrape_configs"]
    server = yaml.safe_load((deploy / "gateway.yaml").read_text("utf-8"))["server"]
    assert job["static_configs"] == [{"targets": [server["admin_listen"]]}]
    assert f'job="{job["job_name"]}"' in (deploy / "alerts.yaml").read_text("utf-8")
    (job,) = yaml.safe_load(block.text)["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["127.0.0.1:8080"]}]
    async with (
        run_serve(tmp_path, block, READERS_OWN) as port,
        local_client() as client,
        client.get(f"http://127.0.0.1:{port}{job.get('metrics_path', '/metrics')}") as answer,
    ):
        assert answer.status == 200
        assert "webmcp_gateway_" in await answer.text()
