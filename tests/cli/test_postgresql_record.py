"""`policy replay` and `policy learn` read the record in PostgreSQL as they read a journal."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from gateway.cli import main
from tests.cli.test_serve import wait_exit
from tests.cli.test_stop import serving
from tests.postgresql import postgresql
from tests.world import local_client

NEW = "version: 1\nbackends: {api: {url: 'https://api.example'}}\nroutes: [{path: /api/a, methods: [GET]}]\n"


async def run(*words: str) -> Result:
    """Run a command in a thread."""
    return await asyncio.to_thread(CliRunner().invoke, main, ["policy", *words])


async def test_the_record_in_postgresql_gives_the_same_as_its_journal(tmp_path: Path) -> None:
    """Both commands, and a URL whose database does not answer, which is shown without its password."""
    with postgresql() as server:
        async with serving(tmp_path, f"stores: {{database: '{server.url}'}}\n") as gateway, local_client() as http:
            site = {"host": gateway.hosts["app"], "webmcp-gateway-client": "1"}
            for path in ("a", "a", "b"):
                async with http.get(f"http://127.0.0.1:{gateway.port}/api/{path}", headers=site) as answer:
                    assert answer.status == 200
            (tmp_path / "new.yaml").write_text(NEW)
            async with asyncio.timeout(60):
                while True:  # until the last line was copied
                    now = await run("replay", server.url, "--policy", str(tmp_path / "new.yaml"), "--json")
                    if json.loads(now.stdout)["replayed"] == 3:
                        break
                    await asyncio.sleep(0.2)
            gateway.process.terminate()
            assert (await wait_exit(gateway.process))[0] == 0
        told: list[dict[str, Any]] = []
        for place in (str(tmp_path / "gateway.journal"), server.url):
            replayed = await run("replay", place, "--policy", str(tmp_path / "new.yaml"), "--json")
            assert replayed.exit_code in (0, 1), replayed.output
            told.append(json.loads(replayed.stdout))
            learned = await run("learn", place, "--backend", "https://api.example", "--json")
            assert learned.exit_code == 0, learned.output
            told.append({**json.loads(learned.stdout), "policy": None})
        assert told[:2] == told[2:]
        assert told[0]["replayed"] == 3
        assert len(told[0]["changes"]) == 1
    away = server.url.replace("postgres@", "postgres:a-secret@")
    refused = await run("replay", away, "--policy", str(tmp_path / "new.yaml"))
    assert refused.exit_code == 2
    assert "cannot be read" in refused.output
    assert "a-secret" not in refused.output
