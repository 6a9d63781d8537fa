"""`storage backup`, `restore` and `check`: a state is moved as a whole, and nothing of it is lost or overwritten."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.test_serve import COMMAND, process, ready, wait_exit
from tests.cli.test_stop import serving
from tests.leaks.watch import environment
from tests.postgresql import postgresql
from tests.world import local_client


async def command(folder: Path, *words: str) -> tuple[int | None, str]:
    """Run `storage` with these words; its exit code and output."""
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(
        *COMMAND, "storage", *words, cwd=folder, env=environment(), stdout=pipe, stderr=pipe
    )
    return await wait_exit(running)


async def test_a_backup_under_load_is_restored_as_a_whole(tmp_path: Path) -> None:
    """Its record verifies, later lines are missing, the gateway goes on with it; nothing is overwritten."""
    async with serving(tmp_path) as gateway, local_client() as http:
        site = {"host": gateway.hosts["app"], "webmcp-gateway-client": "1"}

        async def load() -> None:
            while True:
                async with http.post(f"http://127.0.0.1:{gateway.port}/api/x", headers=site, data=b"{}") as answer:
                    assert answer.status == 200

        async with asyncio.TaskGroup() as tasks:
            busy = tasks.create_task(load())
            code, output = await command(tmp_path, "backup", "b.tar")
            busy.cancel()
        assert code == 0, output
        code, output = await command(tmp_path, "restore", "b.tar")
        assert (code, "runs already" in output) == (2, True)
        gateway.process.terminate()
        await wait_exit(gateway.process)
        assert stat.S_IMODE((tmp_path / "b.tar").stat().st_mode) == 0o600
        code, output = await command(tmp_path, "restore", "b.tar")
        assert (code, "exist already" in output) == (2, True)
        before = (tmp_path / "gateway.journal").read_bytes()
        for path in tmp_path.glob("gateway.*"):
            if path.suffix != ".yaml":
                path.unlink()
        code, output = await command(tmp_path, "restore", "b.tar")
        assert code == 0, output
        after = (tmp_path / "gateway.journal").read_bytes()
        assert before.startswith(after)
        assert len(after) > 1000
        assert (await command(tmp_path, "check"))[0] == 0
        async with process(tmp_path) as running:
            assert (await ready(running, 1))[0].startswith("webmcp-gateway")
        (tmp_path / "b.tar").unlink()  # it has the keys, which the tests look for in all other files


def audit_lines(folder: Path) -> int:
    """The lines of the record that the database has."""
    with closing(sqlite3.connect(folder / "gateway.db")) as database:
        return int(database.execute("SELECT count(*) FROM audit").fetchone()[0])


async def test_sqlite_moves_to_postgresql_and_back(tmp_path: Path) -> None:
    """Every table arrives with all its rows."""
    async with serving(tmp_path) as gateway, local_client() as http:
        site = {"host": gateway.hosts["app"], "webmcp-gateway-client": "1"}
        async with http.post(f"http://127.0.0.1:{gateway.port}/api/x", headers=site, data=b"{}") as answer:
            assert answer.status == 200
        async with asyncio.timeout(60):
            while not audit_lines(tmp_path):
                await asyncio.sleep(0.05)
        gateway.process.terminate()
        await wait_exit(gateway.process)
    with closing(sqlite3.connect(tmp_path / "gateway.db")) as database:
        database.execute("INSERT INTO issued_tokens VALUES ('t', 'robot', x'00ff', 'mcp', NULL, 1.5, 2.5, NULL, NULL)")
        database.commit()
    with postgresql() as server:
        places = {"lite": "sqlite:///gateway.db", "great": server.url, "again": "sqlite:///gateway.db"}
        text = (tmp_path / "gateway.yaml").read_text()
        assert (await command(tmp_path, "backup", str(tmp_path / "lite.tar")))[0] == 0
        for before, now in (("lite", "great"), ("great", "again")):
            (tmp_path / now).mkdir()
            for name in ("index.html", "policy.yaml"):
                (tmp_path / now / name).write_text((tmp_path / name).read_text())
            (tmp_path / now / "gateway.yaml").write_text(f"{text}stores: {{database: '{places[now]}'}}\n")
            code, output = await command(tmp_path / now, "restore", str(tmp_path / f"{before}.tar"))
            assert code == 0, output
            code, output = await command(tmp_path / now, "backup", str(tmp_path / f"{now}.tar"))
            assert code == 0, output
        assert (await command(tmp_path / "great", "check"))[0] == 0
    dumps = []
    for folder in (tmp_path, tmp_path / "again"):
        with closing(sqlite3.connect(folder / "gateway.db")) as database:
            names = [
                row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
            ]
            dumps.append({name: sorted(database.execute(f"SELECT * FROM {name}"), key=repr) for name in names})
    assert dumps[0] == dumps[1]
    assert dumps[0]["audit"]
    assert dumps[0]["issued_tokens"][0][2] == b"\x00\xff"


@pytest.mark.parametrize("how", ["torn", "changed", "foreign"])
async def test_a_damaged_backup_is_refused_before_anything_is_written(tmp_path: Path, how: str) -> None:
    """The message says what it is; files outside of the state cannot be written."""
    (tmp_path / "index.html").write_text("<!doctype html><title>one page</title>")
    (tmp_path / "policy.yaml").write_text("version: 1\nroutes: []\nbackends: {api: {url: 'https://api.example'}}\n")
    (tmp_path / "gateway.yaml").write_text("apps: {page: {source: index.html, policy: policy.yaml}}\n")
    async with process(tmp_path) as running:
        await ready(running, 1)
        assert (await command(tmp_path, "backup", "good.tar"))[0] == 0
    good = (tmp_path / "good.tar").read_bytes()
    for path in tmp_path.glob("gateway.*"):
        if path.suffix != ".yaml":
            path.unlink()
    if how == "foreign":
        with tarfile.open(tmp_path / "good.tar") as tar, tarfile.open(tmp_path / "bad.tar", "w") as bad:
            manifest = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]  # it is a file
            manifest["files"]["journal/../../outside"] = manifest["files"].pop("journal.key")
            (tmp_path / "manifest.json").write_text(json.dumps(manifest))
            for member in tar:
                content = tar.extractfile(member)
                member.name = {"journal.key": "journal/../../outside"}.get(member.name, member.name)
                if member.name != "manifest.json":
                    bad.addfile(member, content)
            bad.add(tmp_path / "manifest.json", "manifest.json")
    else:
        at = good.index(b'{"')
        changed = good[:at] + b"{ " + good[at + 2 :]
        (tmp_path / "bad.tar").write_bytes(good[:3000] if how == "torn" else changed)
    before = {path.name for path in tmp_path.iterdir()}
    code, output = await command(tmp_path, "restore", "bad.tar")
    assert code == 2, output
    expected = {"torn": "not a whole backup", "changed": "is damaged", "foreign": "which no backup has"}[how]
    assert expected in output
    assert "Traceback" not in output
    assert {path.name for path in tmp_path.iterdir()} - before == {"gateway.lock"}
    for name in ("good.tar", "bad.tar"):
        (tmp_path / name).unlink()
