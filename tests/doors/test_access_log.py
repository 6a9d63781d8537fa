"""The access log: one line for each request at each door, without what must not be read there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.attacks.mcp_doors import http_door
from tests.cli.test_serve import wait_exit
from tests.cli.test_stop import serving
from tests.world import local_client


async def test_each_request_is_one_line(tmp_path: Path) -> None:
    """On the fast path and on aiohttp's; query and headers are left out, and the trace leads to the record."""
    headers = {"webmcp-gateway-client": "1", "authorization": "Bearer a-secret-of-the-header"}
    async with serving(tmp_path, "access_log: true\n") as gateway, local_client() as http:
        plain, site = f"http://localhost:{gateway.port}", {"host": gateway.hosts["app"], "webmcp-gateway-client": "1"}
        async with http.get(f"{plain}/api/fast?code=a-secret-of-the-query", headers=site) as answer:
            fast = await answer.read()
        async with http.get(f"{plain}/healthz", headers=headers) as answer:
            health = await answer.read()
        async with http.get(f"{plain}/healthz", headers={"host": "evil.example"}) as answer:
            assert answer.status == 421
        async with http_door(gateway, modern=True) as mcp:
            token = {"authorization": "Bearer a-secret-of-the-page"}
            called = {"url": "/api/called", "method": "POST", "body": "{}", "headers": token}
            assert (await mcp.ask(called)).status == 200
        async with http.get(f"{plain}/api/a-secret-of-the-page/%61-secret-of-the-page", headers=site) as answer:
            assert answer.status == 200
        gateway.process.terminate()
        code, output = await wait_exit(gateway.process)
        traces = {
            line["fields"]["url"]: line["fields"].get("trace") for line in gateway.lines() if "url" in line["fields"]
        }
    assert code == 0, output
    lines: list[dict[str, Any]] = [json.loads(line) for line in output.splitlines() if line.startswith('{"time"')]
    shown = [(line["method"], line["path"], line["status"]) for line in lines]
    assert shown[:3] == [("GET", "/api/fast", 200), ("GET", "/healthz", 200), ("GET", "/healthz", 421)]
    assert ("POST", "/mcp/target", 200) in shown
    first, second = lines[:2]
    assert len(fast) < first["bytes"] < 1000
    assert len(health) < second["bytes"] < 1000
    assert (first["app"], first["client"], len(first["principal"])) == ("target", "127.0.0.1", 16)
    assert first["trace"] == next(trace for url, trace in traces.items() if "fast" in url)
    assert lines[-2]["trace"] == traces["/api/called"]
    assert lines[-1]["path"] == "/api/***/***"
    assert "a-secret" not in output


async def test_it_is_off_by_default(tmp_path: Path) -> None:
    """The log has no line of a request."""
    async with serving(tmp_path) as gateway, local_client() as http:
        async with http.get(f"http://localhost:{gateway.port}/healthz") as answer:
            assert answer.status == 200
        gateway.process.terminate()
        _, output = await wait_exit(gateway.process)
    assert "/healthz" not in output
