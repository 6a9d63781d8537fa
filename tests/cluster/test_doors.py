"""Doors of two real nodes, each request at another one: questions to clients, large bodies, moves of host pages."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.doors.bridge.bridge import PROTOCOL
from tests.cluster.cluster import Cluster, client, cluster
from tests.cluster.test_shared_state import Console, asked

ASKABLE: dict[str, Any] = {"elicitation": {"url": {}}}
ECHO = (
    "version: 1\nbackends: {{api: {{url: 'http://127.0.0.1:{backend}', network: private}}}}\n"
    "routes: [{{path: '/api/{{name}}', methods: [GET, POST], request: 4MiB}}]\n"
)


class HostPage:
    """A host page whose WebSocket is at one node."""

    def __init__(self, nodes: Cluster, http: aiohttp.ClientSession, at: str) -> None:
        self.nodes = nodes
        self.http = http
        self.at = at
        self.console = Console(http, nodes[at])
        self.socket: aiohttp.ClientWebSocketResponse | None = None
        self.view = self.token = ""

    def headers(self) -> dict[str, str]:
        """Return what a browser sends from the console's page."""
        host = f"gateway.localhost:{self.nodes.public}"
        return {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}

    async def connect(self) -> None:
        """Connect with a ticket."""
        _, given = await self.console.change("/bridge/tickets", {"apps": ["page"]})
        url = f"http://127.0.0.1:{self.nodes[self.at].port}/bridge"
        self.socket = await self.http.ws_connect(url, headers=self.headers(), protocols=[PROTOCOL])
        await self.socket.send_str(json.dumps({"hello": {"ticket": given["ticket"]}}))

    async def exchange(self, frame: dict[str, Any], kind: str) -> dict[str, Any]:
        """Send a frame, and return the content of the next one of a kind."""
        assert self.socket is not None
        await self.socket.send_str(json.dumps(frame))
        async with asyncio.timeout(60):
            while True:
                received = json.loads((await self.socket.receive()).data)
                if kind in received or "error" in received:
                    return dict(received.get(kind, received))

    async def open(self) -> None:
        """Connect, and open a view."""
        await self.connect()
        opened = await self.exchange({"open": {"ref": "1", "app": "page"}}, "opened")
        self.view, self.token = opened["view"], opened["resume"]

    async def call(self, params: dict[str, Any]) -> dict[str, Any]:
        """Call `http_request` as the page, with these params, and return the message that answers it."""
        id = secrets.token_hex(4)
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        assert self.socket is not None
        await self.socket.send_str(json.dumps({"view": self.view, "channel": "ui", "message": message}))
        async with asyncio.timeout(60):
            while True:
                received = json.loads((await self.socket.receive()).data)
                if received.get("message", {}).get("id") == id:
                    return dict(received["message"])

    async def fetch(self, url: str) -> dict[str, Any]:
        """Send a request to the backend, and return its answer."""
        answer = await self.call({"name": "http_request", "arguments": {"url": url}})
        return dict(answer["result"]["structuredContent"])


@asynccontextmanager
async def page_at(nodes: Cluster, http: aiohttp.ClientSession, at: str) -> AsyncIterator[HostPage]:
    """Yield a host page with a view."""
    page = HostPage(nodes, http, at)
    await page.open()
    try:
        yield page
    finally:
        assert page.socket is not None
        await page.socket.close()


async def test_a_client_that_is_asked_comes_back_to_the_other_node(tmp_path: Path, database: str) -> None:
    """Its repeated call rejoins the running one, which runs once; a forged state is refused at both."""
    async with asked(tmp_path, database) as place:
        arguments = {"view": place.page.view, "tool": "add", "arguments": {"n": 1}}
        params: dict[str, Any] = {"name": "call_view_tool", "arguments": arguments}

        async def send(at: str, **more: Any) -> dict[str, Any]:
            given = {**params, **more}
            answer = await place.nodes[at].rpc(place.http, "tools/call", given, app=False, capabilities=ASKABLE)
            return dict(answer.get("result", answer))

        first = await send("a")
        assert first["resultType"] == "input_required", first
        state, (question,) = first["requestState"], first["inputRequests"]
        forged = state[:-6] + ("AAAAAA" if not state.endswith("AAAAAA") else "BBBBBB")
        for at in "ab":
            assert "requestState" in json.dumps(await send(at, requestState=forged))
        serving = place.serve()
        assert (await place.at_b.answer((await place.at_b.question())["id"]))[0] == 200
        answers = {question: {"action": "accept"}}
        last = await send("b", requestState=state, inputResponses=answers)
        assert json.loads(last["content"][0]["text"]) == {"n": 1}, last
        assert (await serving)["arguments"] == {"n": 1}


async def test_large_bodies_travel_by_another_node_than_the_bridge(tmp_path: Path, database: str) -> None:
    """One that the page sends, and one that it gets, each once; another person's are not served."""
    async with cluster(tmp_path, database, "a", "b") as nodes, client() as http, page_at(nodes, http, "a") as page:
        there = f"http://127.0.0.1:{nodes['b'].port}/bridge/bodies"
        id, text = secrets.token_urlsafe(24), "x" * 300_000
        sent = {"name": "http_request", "arguments": {"url": "/api/echo", "method": "POST", "body": text}}
        async with http.put(f"{there}/{id}", json=sent, headers=page.headers()) as put:
            assert put.status == 204, await put.text()
        answer = await page.call({"$body": id})
        assert "result" in answer, answer
        content = answer["result"]["structuredContent"]
        assert (content["status"], content["body"]["size"]) == (200, len(text)), answer
        assert "unknown-body" in json.dumps(await page.call({"$body": id}))
        answer = await page.call({"name": "http_request", "arguments": {"url": "/api/long"}})
        named = answer["result"]["$body"] if "$body" in answer["result"] else answer["result"]["$bytes"]
        for status in (200, 404):
            async with http.get(f"{there}/{named}", headers=page.headers()) as got:
                assert (got.status, len(await got.read()) > 300_000) == (status, status == 200)


@pytest.mark.parametrize("how", ["living", "draining", "killed"])
async def test_a_host_page_connects_at_the_other_node(tmp_path: Path, database: str, how: str) -> None:
    """Its view moves there with its id: clean if the former node says so, else a model may have called it.

    A node that drains closes its WebSocket when it has ended: nobody can ask it any more.
    """
    killed = how != "living"
    policy = ECHO.replace("methods: [GET, POST]", "methods: [GET], when: 'initiator != \"model\"'")
    async with cluster(tmp_path, database, "a", "b") as nodes, client() as http, page_at(nodes, http, "a") as page:
        for name in "ab":
            (nodes[name].folder / "policy.yaml").write_text(policy.format(backend=nodes.backend))
        async with asyncio.timeout(60):
            while not all("policy.yaml is in effect" in "".join(node.lines) for node in nodes.nodes.values()):
                await asyncio.sleep(0.1)
        assert (await page.fetch("/api/items"))["status"] == 200
        if killed:
            nodes["a"].process.send_signal(signal.SIGTERM if how == "draining" else signal.SIGKILL)
        if how == "draining":
            assert page.socket is not None
            async with asyncio.timeout(90):
                while not (await page.socket.receive()).type.name.startswith("CLOS"):
                    pass
                assert await nodes["a"].process.wait() == 0
        async with page_at(nodes, http, "b") as other:
            resumed = await other.exchange({"resume": {"view": page.view, "token": page.token}}, "resume")
            assert resumed["view"] == page.view, resumed
            other.view = page.view
            assert (await other.fetch("/api/items"))["status"] == (403 if killed else 200)
            if not killed:
                refused = await page.call({"name": "http_request", "arguments": {"url": "/api/items"}})
                assert "This view is closed" in json.dumps(refused), refused
