"""A client's requests end with its session, also if it never sent `notifications/initialized`."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from gateway.mcp.upstreams.changes.merged_changes import MergedChanges
from gateway.mcp.upstreams.merged import MergedUpstreams
from gateway.mcp.upstreams.mount import Proxy
from tests.interop.probe import Probe
from tests.interop.serving import gateway, over_http
from tests.views.pages import until
from tests.world import local_client

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "short", "version": "1"}}
FIELDS = {"accept": "application/json, text/event-stream", "webmcp-gateway-client": "1"}


def session_state() -> list[object]:
    """Return the session state of the upstreams' mounts."""
    mounts = [one for one in gc.get_objects() if isinstance(one, Proxy | MergedUpstreams | MergedChanges)]
    found: list[object] = []
    for one in mounts:
        found += getattr(one, "_levels", {})
        following = one if isinstance(one, MergedChanges) else getattr(one, "_following", None)
        found += getattr(following, "_sessions", {})
    return found


@pytest.mark.parametrize("mount", ["/up", ""])
async def test_a_session_that_ends_leaves_nothing(tmp_path: Path, mount: str) -> None:
    """Its log level and its subscriptions are removed."""
    probe = Probe()
    async with (
        over_http(probe.server, only="legacy") as url,
        gateway(tmp_path, f'up: {{url: "{url}", network: private}}') as mcp,
        local_client(headers=FIELDS) as http,
        asyncio.timeout(60),
    ):
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        async with http.post(f"{mcp}{mount}", json=hello) as answer:
            session = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
            await answer.read()
        asked = {"logging/setLevel": {"level": "info"}, "resources/subscribe": {"uri": probe.uri}}
        for id, (method, params) in enumerate(asked.items(), 2):
            said = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            async with http.post(f"{mcp}{mount}", json=said, headers=session) as answer:
                await answer.read()
        assert session_state()
        async with http.delete(f"{mcp}{mount}", headers=session) as answer:
            assert answer.status == 200
        await until(lambda: not session_state())
