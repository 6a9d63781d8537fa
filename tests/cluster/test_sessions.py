"""Sessions of MCP clients with a handshake: any node serves them, and another one goes on with them after a crash."""

from __future__ import annotations

import asyncio
import json
import signal
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from tests.cluster.cluster import APP, Node, Page, client, cluster

OLD = "2025-11-25"

_ids = count(10)


async def post(http: aiohttp.ClientSession, node: Node, message: dict[str, Any], session: str | None) -> Any:
    """Send a message in a session; return status, the answer, and the id of a new session."""
    headers = {
        "host": f"localhost:{node.public}",
        "accept": "application/json, text/event-stream",
        "webmcp-gateway-client": "1",
        **({"mcp-session-id": session, "mcp-protocol-version": OLD} if session is not None else {}),
    }
    url = f"http://127.0.0.1:{node.port}/mcp/page"
    async with http.post(url, json={"jsonrpc": "2.0", **message}, headers=headers) as answer:
        text = await answer.text()
        found = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
        value = json.loads(found[-1]) if found else json.loads(text) if text.startswith("{") else text
        return answer.status, value, answer.headers.get("mcp-session-id")


async def begin(http: aiohttp.ClientSession, node: Node) -> str:
    """Begin a session, and return its id."""
    params = {"protocolVersion": OLD, "capabilities": APP, "clientInfo": {"name": "t", "version": "1"}}
    status, _, id = await post(http, node, {"id": 1, "method": "initialize", "params": params}, None)
    assert (status, bool(id)) == (200, True)
    await post(http, node, {"method": "notifications/initialized"}, id)
    return str(id)


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    """Return the message of a call."""
    return {"id": next(_ids), "method": "tools/call", "params": {"name": name, "arguments": arguments}}


async def test_a_session_is_served_by_any_node_and_survives_its_own(tmp_path: Path, database: str) -> None:
    """Requests, the standing stream and the end of a session go through another node; a killed one's are adopted."""
    async with cluster(tmp_path, database, "a", "b") as nodes, client() as http:
        a, b = nodes["a"], nodes["b"]
        first, second = await begin(http, a), await begin(http, a)
        status, listed, _ = await post(http, b, {"id": 2, "method": "tools/list"}, first)
        assert (status, "http_request" in json.dumps(listed)) == (200, True)

        page = await Page.open(http, b)  # the session runs at one node, the view at the other
        called = await post(http, a, tool("http_request", url="/api/x", _view=page.proof()), first)
        assert called[1]["result"]["structuredContent"]["status"] == 200
        called = await post(http, b, tool("http_request", url="/api/x", _view=page.proof()), first)
        assert called[1]["result"]["structuredContent"]["status"] == 200

        fields = {"host": f"localhost:{b.public}", "accept": "text/event-stream", "mcp-session-id": second}
        url = f"http://127.0.0.1:{b.port}/mcp/page"
        stream = await http.get(url, headers={**fields, "webmcp-gateway-client": "1", "mcp-protocol-version": OLD})
        assert (stream.status, stream.content_type) == (200, "text/event-stream")
        await (await Page.open(http, a)).offer("add")  # tools of views at the session's own node
        async with asyncio.timeout(60):
            while b"list_changed" not in await stream.content.readline():
                pass
        async with http.delete(url, headers={**fields, "webmcp-gateway-client": "1"}) as answer:
            assert answer.status == 200
        assert (await post(http, b, {"id": 2, "method": "tools/list"}, second))[0] == 404
        assert (await post(http, a, {"id": 2, "method": "tools/list"}, second))[0] == 404
        assert (await post(http, b, {"id": 2, "method": "tools/list"}, "f" * 32))[0] == 404
        stream.close()

        a.process.send_signal(signal.SIGKILL)
        await a.process.wait()
        async with asyncio.timeout(90):
            while (await post(http, b, {"id": 2, "method": "tools/list"}, first))[0] != 200:
                await asyncio.sleep(0.5)


async def test_a_clean_stop_costs_no_request(tmp_path: Path, database: str) -> None:
    """Right after a node has stopped, its session goes on elsewhere, and its view is told to move."""
    async with cluster(tmp_path, database, "a", "b") as nodes, client() as http:
        a, b = nodes["a"], nodes["b"]
        session, page = await begin(http, a), await Page.open(http, a)
        assert (await post(http, b, {"id": next(_ids), "method": "tools/list"}, session))[0] == 200
        assert (await page.fetch("/api/before", b))["status"] == 200
        a.process.terminate()
        async with asyncio.timeout(90):
            assert await a.process.wait() == 0
        assert (await post(http, b, {"id": next(_ids), "method": "tools/list"}, session))[0] == 200
        assert "view-moved" in json.dumps(await page.call("http_request", b, url="/api/after"))
