"""What a person or a program begins at one node goes on at the other: two nodes, and the doors of the console."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp
import pytest

from gateway.doors.bridge.bridge import PROTOCOL
from tests.attacks.world import CONFIG, POLICY, AttackWorld, Stores, running_world
from tests.cluster.test_shared_state import NAVIGATION
from tests.postgresql import PostgreSQL
from tests.redis_server import redis_server
from tests.software_key import SoftwareKey
from tests.world import local_client

SECRET = "hooks-secret-k4naRieZq9-oxnard-Vw7pLq2Zt"
HOOK = f"""
approvals: {{ask: [console, webhook], webhook: {{url: "http://127.0.0.1:1/hook", network: private, secret: "{SECRET}",
  answers: true}}}}
"""
ACCOUNT = """  account:
    {{type: authorization_code, issuer: "http://localhost:{issuer}", client_id: "attacked-client",
     client_secret: "${{env:SECRET}}", network: private, authorization_endpoint: "http://localhost:{issuer}/auth",
     token_endpoint: "http://localhost:{issuer}/token", scope: [items]}}
"""
LINKS = """links: {{allow: ["https://www.shop.test/**"], confirm: {{when: always, message: "Leave?"}}}}
"""


@dataclass(slots=True)
class Person:
    """A person's browser, which sends each request to the node of choice."""

    world: AttackWorld
    http: aiohttp.ClientSession

    def fields(self) -> dict[str, str]:
        """Return what a browser sends from the console's page."""
        host = self.world.hosts["console"]
        return {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}

    async def send(self, at: int, method: str, path: str, body: Any = None, **more: str) -> tuple[int, Any]:
        """Send a request to a node; return status and JSON."""
        url = f"http://127.0.0.1:{self.world.nodes[at].server.port}{path}"
        fields = {**self.fields(), **more}
        async with self.http.request(method, url, json=body, headers=fields, allow_redirects=False) as answer:
            text = await answer.text()
            found = json.loads(text) if text.startswith(("{", "[")) else text or dict(answer.headers)
            return answer.status, found

    async def change(self, at: int, path: str, body: Any) -> tuple[int, Any]:
        """Send a change to a node with the CSRF token of the other one."""
        _, state = await self.send(1 - at, "GET", "/api/state")
        return await self.send(at, "POST", path, body, **{"webmcp-gateway-csrf": state["csrf"]})

    async def open(self, at: int, ticket_of: int) -> tuple[aiohttp.ClientWebSocketResponse, str]:
        """Open a view over a WebSocket at a node, with a ticket of a node; return both."""
        _, given = await self.change(ticket_of, "/bridge/tickets", {"apps": ["target"]})
        url = f"http://127.0.0.1:{self.world.nodes[at].server.port}/bridge"
        socket = await self.http.ws_connect(url, headers=self.fields(), protocols=[PROTOCOL])
        await socket.send_str(json.dumps({"hello": {"ticket": given["ticket"]}}))
        await socket.send_str(json.dumps({"open": {"ref": "1", "app": "target"}}))
        async with asyncio.timeout(60):
            while "opened" not in (received := json.loads((await socket.receive()).data)):
                assert "error" not in received, received
        return socket, received["opened"]["view"]


@pytest.fixture(scope="module")
async def world(server: PostgreSQL, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AttackWorld]:
    """Two nodes."""
    with redis_server() as redis, pytest.MonkeyPatch.context() as patch:
        with_account = CONFIG.replace("credentials:\n", f"credentials:\n{ACCOUNT}")
        patch.setattr("tests.attacks.world.CONFIG", with_account)
        folder = tmp_path_factory.mktemp("doors")
        async with running_world(
            folder, POLICY + LINKS, "approvals: {presence: webauthn}\n", stores=Stores(server, redis)
        ) as made:
            yield made


@pytest.fixture
async def ann(world: AttackWorld) -> AsyncIterator[Person]:
    """A person at both nodes."""
    async with local_client() as http:
        yield Person(world, http)


async def test_an_account_is_connected_through_both_nodes(world: AttackWorld, ann: Person) -> None:
    """Begun at one node, called back and finished at the other, listed and disconnected at both."""
    status, begun = await ann.change(0, "/api/connections/account", {})
    assert status == 200, begun
    asked = dict(parse_qsl(urlsplit(begun["location"]).query))
    back = urlsplit(asked["redirect_uri"])
    query = f"{back.path}?code=code-of-the-issuer&state={asked['state']}&iss=http://localhost:{world.places['issuer']}"
    url = f"http://127.0.0.1:{world.nodes[1].server.port}{query}"
    fields = {"host": world.hosts["console"], **NAVIGATION}
    async with ann.http.get(url, headers=fields, allow_redirects=False) as answered:
        assert (answered.status, "code-of-the-issuer" in answered.headers["location"]) == (303, True)
    answer = {"code": "code-of-the-issuer", "state": asked["state"]}
    answer["iss"] = f"http://localhost:{world.places['issuer']}"
    finish = {"secret": begun["secret"], "answer": answer}
    assert (await ann.change(1, "/api/connections/finish", finish))[0] == 200
    assert (await ann.change(0, "/api/connections/finish", finish))[0] != 200
    for at in (0, 1):
        _, listed = await ann.send(at, "GET", "/api/connections")
        assert [one["since"] is not None for one in listed["connections"]] == [True]
    assert (await ann.change(0, "/api/connections/account/disconnect", {}))[0] == 200
    _, listed = await ann.send(1, "GET", "/api/connections")
    assert [one["since"] for one in listed["connections"]] == [None]


async def test_a_security_key_is_added_and_removed_through_both_nodes(world: AttackWorld, ann: Person) -> None:
    """Each challenge is made by one node, and answered at the other, once."""
    key = SoftwareKey("gateway.localhost", f"http://{world.hosts['console']}")
    _, begun = await ann.change(0, "/api/keys/begin", {})
    new = {"name": "mine", "credential": key.create(begun["create"])}
    assert await ann.change(1, "/api/keys", new) == (200, {"id": key.id})
    assert (await ann.change(0, "/api/keys", new))[0] != 200
    _, listed = await ann.send(0, "GET", "/api/keys")
    assert [one["id"] for one in listed["keys"]] == [key.id]
    _, touch = await ann.change(1, f"/api/keys/{key.id}/begin", {})
    assertion = {"assertion": key.get(touch)}
    assert await ann.change(0, f"/api/keys/{key.id}/remove", assertion) == (200, {"removed": key.id})
    assert (await ann.send(1, "GET", "/api/keys"))[1]["keys"] == []


async def test_links_and_downloads_of_a_view_at_the_other_node(world: AttackWorld, ann: Person) -> None:
    """The node with the view decides, asks and records; another person's view stays unknown, and a closed one."""
    socket, view = await ann.open(0, ticket_of=1)
    for at in (0, 1):
        wish = {"view": view, "url": "https://www.shop.test/tea"}
        assert (await ann.change(at, "/api/links", {**wish, "url": "https://evil.test/"}))[0] == 403
        assert (await ann.change(at, "/api/links", wish))[1]["decision"] == "ask"
        answered = await ann.change(1 - at, "/api/links", {**wish, "answered": True})
        assert answered == (200, {"decision": "open"})
        files = {"view": view, "files": [{"name": "tea.txt", "size": 3}], "answered": True}
        assert await ann.change(at, "/api/downloads", files) == (200, {"recorded": True})
    forged = view[:-1] + ("A" if view[-1] != "A" else "B")
    assert (await ann.change(1, "/api/links", {"view": forged, "url": "https://www.shop.test/"}))[0] == 403
    await socket.close()
    for node, recorded in zip(world.nodes, (True, False), strict=True):
        lines = json.dumps(node.take_records())
        assert ("https://www.shop.test/tea" in lines, "tea.txt" in lines) == (recorded, recorded)


async def test_the_console_lists_the_views_of_all_nodes_and_closes_them(world: AttackWorld, ann: Person) -> None:
    """Each with its node, at both consoles; one that is closed at the other console ends at its node."""
    sockets = [await ann.open(at, ticket_of=1 - at) for at in (0, 1)]
    expected = {view: name for (_, view), name in zip(sockets, "ab", strict=True)}
    for at in (0, 1):
        assert await listed_views(ann, at, set(expected)) == expected
    view = sockets[0][1]
    forged = view[:-1] + ("A" if view[-1] != "A" else "B")
    assert (await ann.change(1, f"/api/views/{forged}/close", {}))[0] == 404
    assert (await ann.change(1, f"/api/views/{view}/close", {}))[0] == 200
    assert (await ann.change(1, f"/api/views/{view}/close", {}))[0] == 404
    for at in (0, 1):
        assert view not in await listed_views(ann, at, set(expected) - {view})
    for socket, _ in sockets:
        await socket.close()


async def listed_views(person: Person, at: int, wanted: set[str]) -> dict[str, str]:
    """Return the nodes of the views of a console, once it lists exactly the wanted ones."""
    url = f"http://127.0.0.1:{person.world.nodes[at].server.port}/api/events"
    async with asyncio.timeout(60), person.http.get(url, headers=person.fields()) as stream:
        async for line in stream.content:
            text = line.decode()
            if text.startswith("event: views"):
                views = json.loads((await stream.content.readline()).decode().removeprefix("data: "))
                if {one["id"] for one in views} == wanted:
                    return {one["id"]: one["node"] for one in views}
    raise AssertionError("the stream ended")


async def test_a_signed_answer_arrives_at_any_node(tmp_path: Path, server: PostgreSQL) -> None:
    """A question that waits at one of them is answered at the other, with the webhook's secret, once."""
    route = '"/api/exact", methods: [GET, POST]'
    policy = POLICY.replace(route, f"{route}, confirm: {{{{when: always}}}}")
    assert policy != POLICY
    with redis_server() as redis:
        async with running_world(tmp_path, policy, HOOK, stores=Stores(server, redis)) as world, local_client() as http:
            await _answered_by_webhook(world, Person(world, http))


async def _answered_by_webhook(world: AttackWorld, ann: Person) -> None:
    socket, view = await ann.open(0, ticket_of=1)
    call = {"name": "http_request", "arguments": {"url": "/api/exact", "method": "POST", "body": {}}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    await socket.send_str(json.dumps({"view": view, "channel": "ui", "message": message}))
    async with asyncio.timeout(60):
        while not (questions := (await ann.send(1, "GET", "/api/approvals"))[1]["approvals"]):
            await asyncio.sleep(0.1)
    (question,) = questions
    for at, secret, status in ((1, "another-secret", 403), (1, SECRET, 200), (0, SECRET, 410)):
        wish = {"id": question["id"], "digest": question["digest"], "answer": "approve", "by": "bot"}
        body, now = json.dumps(wish).encode(), str(int(time.time()))
        mac = hmac.new(secret.encode(), f"{now}.".encode() + body, hashlib.sha256).hexdigest()
        fields = {"webmcp-gateway-timestamp": now, "webmcp-gateway-signature": f"v1={mac}"}
        fields |= {"host": world.hosts["plain"], "content-type": "application/json"}
        url = f"http://127.0.0.1:{world.nodes[at].server.port}/approvals/webhook"
        async with ann.http.post(url, data=body, headers=fields) as answer:
            assert answer.status == status, await answer.text()
    async with asyncio.timeout(60):
        while (await ann.send(0, "GET", "/api/approvals"))[1]["approvals"]:
            await asyncio.sleep(0.1)
    await socket.close()
