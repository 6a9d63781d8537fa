"""Many apps are packed while the gateway runs, and what was packed is kept for the next start."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway.app import PACKER, build_app
from gateway.apps.node import NodeProgram, ask, keeping_node, node
from gateway.config import read_config
from tests.assembly.files import until
from tests.assembly.test_reloaded_apps import CLIENT, page, titles
from tests.world import Server

NAMES = ["a", "b", "c", "d", "e", "f"]


def many(folder: Path, port: int) -> None:
    """Write an app for each of `NAMES`, of which `c` has no page."""
    for name in NAMES:
        (folder / name).mkdir()
        (folder / name / ("index.html" if name != "c" else "none.html")).write_text(f"<!doctype html><p>app {name}")
    (folder / "p.yaml").write_text("version: 1\n")
    apps = "\n".join(f"  {name}: {{source: {name}, policy: p.yaml}}" for name in NAMES)
    (folder / "gateway.yaml").write_text(f"server: {{listen: 127.0.0.1:{port}, state_dir: state}}\napps:\n{apps}\n")
    (folder / "state").mkdir(mode=0o700)


@asynccontextmanager
async def gateway(folder: Path, server: Server) -> AsyncIterator[tuple[aiohttp.ClientSession, int]]:
    """The running gateway: a client, and how many apps were left to be packed when its port opened."""
    reading = read_config(folder / "gateway.yaml", {})
    assert reading.config is not None
    app = build_app(reading.config, lambda: read_config(folder / "gateway.yaml", {}))
    left = app[PACKER].remaining
    try:
        await server.start(app)
        async with aiohttp.ClientSession(headers=CLIENT) as client:

            async def packed() -> bool:
                return app[PACKER].remaining == 0

            await until(packed)
            yield client, left
    finally:
        await server.stop()


async def test_many_apps_come_in_while_the_gateway_runs(tmp_path: Path) -> None:
    """In the order of the file; one that cannot be packed is named, and stops no other one."""
    server = Server()
    many(tmp_path, server.port)
    async with gateway(tmp_path, server) as (client, left):
        assert left == 6

        async def told() -> bool:
            async with client.get(f"http://127.0.0.1:{server.port}/readyz") as ready:
                return bool((await ready.json())["broken_apps"] == ["c"])

        await until(told)
        assert await titles(client, server.port) == ["A", "B", "D", "E", "F"]
        assert "app e" in (await page(client, server.port, "e"))[1]
        (tmp_path / "c" / "index.html").write_text("<p>mended")

        async def mended() -> bool:
            return "C" in await titles(client, server.port)

        await until(mended)


async def test_each_warning_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At each start, though an app that cannot be packed makes those be taken in alone that were packed with it."""
    server = Server()
    many(tmp_path, server.port)
    for name in NAMES:
        (tmp_path / name / ("index.html" if name != "c" else "none.html")).write_text("<p>x<img src=missing.png>")
    for left in (6, 1):
        caplog.clear()
        async with gateway(tmp_path, server) as (client, waiting):
            assert waiting == left

            async def served(client: aiohttp.ClientSession = client) -> bool:
                return await titles(client, server.port) == ["A", "B", "D", "E", "F"]

            await until(served)
        told = [
            record.getMessage().partition(":")[0] for record in caplog.records if "missing.png" in record.getMessage()
        ]
        assert sorted(told) == ["app a", "app b", "app d", "app e", "app f"]


async def test_what_was_packed_is_kept_by_its_content(tmp_path: Path) -> None:
    """The next start packs only what has changed, or whose kept result is damaged; only the gateway's user reads it."""
    many(tmp_path, 1)
    kept = tmp_path / "state" / "packed"
    for change, expected in ((None, 6), (None, 1), ("file", 2), ("damage", 6), ("policy", 6)):
        server = Server()
        file = tmp_path / "gateway.yaml"
        file.write_text(
            file.read_text().replace(file.read_text().partition(",")[0], f"server: {{listen: 127.0.0.1:{server.port}")
        )
        match change:
            case "file":
                (tmp_path / "a" / "index.html").write_text("<!doctype html><p>app A2")
            case "damage":
                for number, path in enumerate(sorted(kept.iterdir())):
                    path.write_text(["", "x\n{}", "[]"][number % 3] if number % 2 else path.read_text()[:-1])
            case "policy":
                (tmp_path / "p.yaml").write_text("version: 1\n# other\n")
            case _:
                pass
        async with gateway(tmp_path, server) as (client, left):
            assert (change, left) == (change, expected)
            assert "app F".lower() in (await page(client, server.port, "f"))[1]
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept.iterdir()} == {0o600}
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700


async def test_the_oldest_results_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what is kept is bounded."""
    monkeypatch.setattr("gateway.assembly.packing.KEPT_BYTES", 1)
    server = Server()
    many(tmp_path, server.port)
    async with gateway(tmp_path, server):

        async def pruned() -> bool:
            return not [*(tmp_path / "state" / "packed").iterdir()]

        await until(pruned)


def test_a_program_of_node_answers_many_lines() -> None:
    """It runs until the block ends; one that ended answers with an error, and the next one is new."""
    program = node()
    assert program is not None
    line = '[{"code": "location", "kind": "script"}]'
    with keeping_node():
        assert ask(program, "location.mjs", line) == ask(program, "location.mjs", line)
        with pytest.raises(OSError, match=r"node ended without an answer|Broken pipe"):
            ask(program, "location.mjs", "no JSON")
        assert "webmcpGatewayOwn(" in ask(program, "location.mjs", line)
    ended = NodeProgram(program, "location.mjs")
    ended.close()
    with pytest.raises((OSError, ValueError)):
        ended.ask(line)
