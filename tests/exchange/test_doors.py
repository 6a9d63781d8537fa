"""The obligations of a policy at every door of a running gateway, in front of a backend that sends exact bytes."""

import asyncio
import datetime
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.attack.cases import answer_in
from gateway.exchange.decided_request import LONG
from tests.attacks.backends import Arrived
from tests.attacks.bridge_door import BridgeDoor
from tests.attacks.calls import Answer, AttackedDoor
from tests.attacks.doors import DOORS
from tests.attacks.mcp_doors import HttpDoor
from tests.attacks.wire import raw_exchange, request_bytes
from tests.attacks.world import TOKEN, AttackWorld, running_world
from tests.world import local_client

POLICY = """
version: 1
backends:
  main:
    url: http://127.0.0.1:{main}/v1
    credential: attack
    network: [127.0.0.0/8]
    cookies: jar
    retry: {{attempts: 3, backoff: 1ms}}
  plain: {{url: "http://127.0.0.1:{other}", network: [127.0.0.0/8]}}
  closed: {{url: "http://127.0.0.1:1", network: private, circuit: {{failures: 1, reset: 1h}}}}
limits: {{timeout: 3s, response: 600KiB}}
routes:
  - {{path: /api/get, methods: [GET, HEAD], backend: main}}
  - {{path: /api/post, methods: [POST], backend: main, idempotent: true}}
  - {{path: /api/rare, methods: [GET], backend: main, quota: 1/month per view}}
  - {{path: /api/stream, methods: [GET, HEAD], backend: main, stream: true}}
  - {{path: /api/large, methods: [GET], backend: main, stream: true, response: 4MiB}}
  - {{path: /api/plain, methods: [GET], backend: plain}}
  - {{path: /api/asked, methods: [GET], backend: plain, confirm: {{when: model}}}}
  - {{path: /api/never, deny: "not for apps"}}
  - {{path: /api/closed, methods: [GET], backend: closed}}
  - {{path: "/api/moved/{{n}}", methods: [POST], backend: main, redirects: same-route}}
"""
MASKING = 'responses: {{mask: ["$..card"]}}\n'
REPORTING = "mode: {{report: {{until: {until}}}}}\n"
JSON = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
EVENTS = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
BINARY = "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\nconnection: close\r\n"
UNAVAILABLE = ["HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"]
MCP = ("modern", "legacy", "bridge")


@pytest.fixture(scope="session")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AttackWorld]:
    """One gateway for all tests."""
    async with running_world(tmp_path_factory.mktemp("doors"), POLICY) as world:
        yield world


@pytest.fixture(scope="session")
async def doors(world: AttackWorld) -> AsyncIterator[Mapping[str, AttackedDoor]]:
    """Every door, with one view each."""
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(opened(world)) for name, opened in DOORS.items()}


@pytest.fixture
def door(request: pytest.FixtureRequest, world: AttackWorld, doors: Mapping[str, AttackedDoor]) -> AttackedDoor:
    """The door of that name, without arrived requests or records."""
    world.take_arrived()
    world.take_records()
    return doors[request.param]


every_door = pytest.mark.parametrize("door", list(DOORS), indirect=True)
mcp_door = pytest.mark.parametrize("door", MCP, indirect=True)


def says(world: AttackWorld, *answers: Sequence[Any]) -> None:
    """Set the backend's answers, in order."""
    world.backends["main"].answers = list(answers)


def field(arrived: Arrived, name: str) -> str | None:
    """Return a header field as it reached the backend."""
    return dict(arrived.headers).get(name)


def body(answer: Answer) -> Any:
    """Return the JSON in an answer."""
    return json.loads(answer.body) if isinstance(answer.body, str) else answer.body


def outcome(world: AttackWorld) -> dict[str, Any]:
    """Return the fields of the last outcome in the record."""
    fields: dict[str, Any] = [line for line in world.take_records() if line["phase"] == "outcome"][-1]["fields"]
    return fields


@every_door
async def test_a_retry(world: AttackWorld, door: AttackedDoor) -> None:
    """The app sees only the second answer."""
    says(world, UNAVAILABLE, [JSON, "content-length: 2\r\n\r\n", "{}"])
    assert (await door.ask({"url": "/api/get"})).status == 200
    assert len(world.take_arrived()) == 2
    assert outcome(world)["attempts"] == [503, 200]


@every_door
@pytest.mark.parametrize("path", ["/api/get", "/api/stream"])
async def test_the_length_of_a_body_that_is_left_out(world: AttackWorld, door: AttackedDoor, path: str) -> None:
    """A HEAD passes it on only if GET would have that length; for a GET each side sets its own."""
    told = []
    for fields in (["content-length: 4711\r\n"], ["content-length: 12\r\n", "content-encoding: gzip\r\n"], []):
        says(world, [JSON, *fields, "\r\n"])
        answer = await door.ask({"url": path, "method": "HEAD", "stream": True})
        assert (answer.status, answer.body or None) == (200, None)
        told.append(answer.headers.get("content-length"))
    assert told == ["4711", None, None]


@every_door
async def test_a_breaker(door: AttackedDoor) -> None:
    """After the failure that opens it: 503 with Retry-After."""
    assert (await door.ask({"url": "/api/closed"})).status in (502, 503)
    refused = await door.ask({"url": "/api/closed"})
    assert (refused.status, refused.reason) == (503, "backend-unavailable")
    assert 0 < int(refused.headers["retry-after"]) <= 3600


@every_door
async def test_a_quota(door: AttackedDoor, request: pytest.FixtureRequest, world: AttackWorld) -> None:
    """The second request of a month: 429 with RateLimit fields. The site's callers count as one principal."""
    if request.node.callspec.params["door"] != "site":
        says(world, [JSON, "\r\n{}"])
        assert (await door.ask({"url": "/api/rare"})).status == 200
    else:
        await door.ask({"url": "/api/rare"})
    refused = await door.ask({"url": "/api/rare"})
    assert (refused.status, refused.reason) == (429, "quota-exceeded")
    assert int(refused.headers["retry-after"]) > 0
    assert refused.headers["ratelimit"].startswith('"')
    assert body(refused)["instance"]


@contextmanager
def without(world: AttackWorld, table: str) -> Iterator[None]:
    """The gateway's database, without one of its tables meanwhile."""
    with closing(sqlite3.connect(world.folder / "gateway.db", timeout=60)) as database:
        database.execute(f"ALTER TABLE {table} RENAME TO away")
        try:
            yield
        finally:
            database.execute(f"ALTER TABLE away RENAME TO {table}")


@every_door
@pytest.mark.parametrize(
    ("table", "ask"),
    [
        ("quotas", {"url": "/api/rare"}),
        ("idempotency_keys", {"url": "/api/post", "method": "POST", "headers": {"idempotency-key": "a-key"}}),
    ],
)
async def test_what_the_database_cannot_tell(
    world: AttackWorld, door: AttackedDoor, table: str, ask: dict[str, Any]
) -> None:
    """A quota that cannot be counted is not used up, and a key that cannot be looked up was not used before: 503."""
    with without(world, table):
        refused = await door.ask(ask)
    assert (refused.status, refused.reason) == (503, "state-unavailable")
    assert world.take_arrived() == []
    assert outcome(world)["reason"] == "state-unavailable"


@every_door
async def test_an_idempotency_key(world: AttackWorld, door: AttackedDoor, request: pytest.FixtureRequest) -> None:
    """Replaced by a hash on the way out, and refused for another body."""
    key = f"key-of-{request.node.callspec.params['door']}"
    asking = {"url": "/api/post", "method": "POST", "headers": {"idempotency-key": key}, "body": {"n": 1}}
    says(world, UNAVAILABLE, [JSON, "\r\n{}"])
    assert (await door.ask(asking)).status == 200
    first, second = world.take_arrived()
    assert field(first, "idempotency-key") == field(second, "idempotency-key")
    assert key.encode() not in first.raw + second.raw
    refused = await door.ask({**asking, "body": {"n": 2}})
    assert (refused.status, refused.reason) == (409, "idempotency-conflict")
    assert world.take_arrived() == []


@every_door
async def test_cookies(world: AttackWorld, door: AttackedDoor, request: pytest.FixtureRequest) -> None:
    """Stored by the gateway, sent again, and unknown to the app."""
    name = request.node.callspec.params["door"]
    says(world, [JSON, f"set-cookie: {name}=s3cr3t-session; HttpOnly\r\n\r\n", "{}"])
    answer = await door.ask({"url": "/api/get"})
    assert b"s3cr3t-session" not in answer.raw
    world.take_arrived()
    await door.ask({"url": "/api/get"})
    await door.ask({"url": "/api/get", "headers": {"cookie": f"{name}=forged"}})
    for arrived in world.take_arrived():
        assert f"{name}=s3cr3t-session" in (field(arrived, "cookie") or "")
        assert b"forged" not in arrived.raw


@every_door
async def test_caching(world: AttackWorld, door: AttackedDoor) -> None:
    """Answers to a credential are private; others only stay out of shared caches."""
    told = "cache-control: public, max-age=60, s-maxage=600\r\ncdn-cache-control: max-age=9\r\n\r\n{}"
    says(world, [JSON, told])
    assert (await door.ask({"url": "/api/get"})).headers["cache-control"] == "private, no-cache"
    world.backends["other"].answers = [[JSON, told]]
    plain = await door.ask({"url": "/api/plain"})
    assert plain.headers["cache-control"] == "max-age=60"
    assert "cdn-cache-control" not in plain.headers
    world.backends["other"].answers = [[JSON, told]]
    assert (await door.ask({"url": "/api/asked"})).headers["cache-control"] == "no-store"


@every_door
async def test_exact_json(world: AttackWorld, door: AttackedDoor) -> None:
    """JSON that a parser would change arrives as text."""
    exact = '{"id": 12345678901234567890, "a": 1, "a": 2}'
    says(world, [JSON, "\r\n", exact])
    assert (await door.ask({"url": "/api/get"})).body == exact


@every_door
async def test_a_redirected_change(world: AttackWorld, door: AttackedDoor) -> None:
    """Repeated with its body, inside its route only."""
    moved = "HTTP/1.1 307 Temporary Redirect\r\nconnection: close\r\ncontent-length: 0\r\nlocation: {}\r\n\r\n"
    asking = {"url": "/api/moved/1", "method": "POST", "body": {"n": 1}}
    says(world, [moved.format("/v1/api/moved/2")], [JSON, "\r\n{}"])
    assert (await door.ask(asking)).status == 200
    first, second = world.take_arrived()
    assert (second.line, second.body) == ("POST /v1/api/moved/2", first.body)
    says(world, [moved.format("/v1/api/post")])
    assert (await door.ask(asking)).reason == "redirect-denied"


@pytest.mark.parametrize("name", list(DOORS))
async def test_masked_values(tmp_path: Path, name: str) -> None:
    """Under a policy with masks no door shows them, reveals their length, or streams."""
    policy = POLICY.replace("routes:", MASKING + "routes:")
    async with running_world(tmp_path, policy) as world, DOORS[name](world) as door:
        for url in ("/api/get", "/api/stream"):
            says(world, [JSON, '\r\n{"card": 4111, "sum": 1.10}'])
            answer = await door.ask({"url": url, "stream": True})
            assert b"4111" not in answer.raw
            assert body(answer) == {"card": "***", "sum": 1.1}
        says(world, [JSON, '\r\n{"card": 4111, "more": "', "x" * LONG, '"}'])
        assert (await door.ask({"url": "/api/get"})).raw.count(b"4111") == 0
        says(world, [JSON, "content-length: 4711\r\n\r\n"])
        answer = await door.ask({"url": "/api/get", "method": "HEAD"})
        assert (answer.status, answer.headers.get("content-length")) == (200, None)


@pytest.mark.parametrize("name", list(DOORS))
async def test_report_mode(tmp_path: Path, name: str) -> None:
    """A request without a route passes and is recorded; one without a canonical form is refused."""
    until = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=7)
    policy = POLICY.replace("routes:", REPORTING.replace("{until}", until.isoformat()) + "routes:")
    single = "\n".join(line for line in policy.splitlines() if "plain" not in line and "closed" not in line)
    single = single.replace("/api/asked", "/api/unused").replace(", backend: main", "")
    async with running_world(tmp_path, single) as world, DOORS[name](world) as door:
        says(world, [JSON, "\r\n{}"])
        assert (await door.ask({"url": "/api/unlisted"})).status == 200
        said = outcome(world)
        assert "no route allows GET /api/unlisted" in " ".join(said["reported"])
        assert len(world.take_arrived()) == 1
        for _ in range(2):
            says(world, [JSON, "\r\n{}"])
            assert (await door.ask({"url": "/api/rare"})).status == 200
        assert "quota-exceeded" in " ".join(outcome(world)["reported"])
        world.take_arrived()
        assert (await door.ask({"url": "/api//unlisted%2f..%2fx"})).status == 400
        assert (await door.ask({"url": "/api/never"})).reason == "policy-denied"
        assert world.take_arrived() == []


async def more(door: AttackedDoor, id: str, *, cancel: bool = False) -> dict[str, Any]:
    """Return the result of one `http_stream`."""
    assert isinstance(door, HttpDoor | BridgeDoor)
    return content(await door.tool("http_stream", json.dumps({"id": id, "cancel": cancel})))


def content(answer: Answer) -> dict[str, Any]:
    """Return the whole structured content."""
    message = answer_in(answer.raw)
    assert message is not None, answer
    found: dict[str, Any] = message["result"]["structuredContent"]
    return found


@mcp_door
async def test_an_event_stream_over_mcp(world: AttackWorld, door: AttackedDoor) -> None:
    """The head at once, then the events, then the end; all in one record."""
    says(world, [EVENTS, "data: 1\n\n", {"sleep": 0.05}, f"data: {TOKEN[:20]}", {"sleep": 0.05}, f"{TOKEN[20:]}\n\n"])
    part = content(await door.ask({"url": "/api/stream", "stream": True}))
    assert part["headers"]["content-type"] == "text/event-stream"
    said = part.get("body", "")
    while "stream" in part:
        part = await more(door, part["stream"])
        said += part.get("body", "")
    assert said == "data: 1\n\ndata: ***\n\n"
    lines = [line for line in world.take_records() if line["fields"].get("url") == "/api/stream"]
    assert [line["phase"] for line in lines] == ["intent", "outcome"]
    assert lines[-1]["fields"]["response_size"] == len(said)


@mcp_door
async def test_a_large_answer_over_mcp(world: AttackWorld, door: AttackedDoor) -> None:
    """In parts if the app asks for them, otherwise whole."""
    numbers = " ".join(map(str, range(200_000)))
    says(world, [BINARY, "\r\n", numbers], [BINARY, "\r\n", numbers])
    part = content(await door.ask({"url": "/api/large", "stream": True}))
    sizes = [len(part["body"])]
    while "stream" in part:
        part = await more(door, part["stream"])
        sizes.append(len(part.get("body", "")))
    assert len(sizes) > 1
    assert max(sizes) < 1_500_000
    whole = content(await door.ask({"url": "/api/large"}))
    assert "stream" not in whole
    assert len(whole["body"]) > 1_500_000


@mcp_door
async def test_cancelling_a_stream_over_mcp(world: AttackWorld, door: AttackedDoor) -> None:
    """The backend's connection ends, although it has more to send."""
    says(world, [EVENTS, {"endless": "data: 1\n\n"}])
    part = content(await door.ask({"url": "/api/stream", "stream": True}))
    assert "stream" not in await more(door, part["stream"], cancel=True)
    async with asyncio.timeout(60):
        while world.backends["main"]._tasks:
            await asyncio.sleep(0.01)
    assert (await more(door, part["stream"]))["headers"]["gateway-reason"] == "connection-lost"


@mcp_door
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([EVENTS, {"endless": "data: 1\n\n"}], "response-too-large"),
        ([BINARY, "content-encoding: gzip\r\n", {"zeros": 50_000_000, "coding": "gzip"}], "response-too-large"),
        ([BINARY, "content-length: 300000\r\n\r\n", "x" * 200_000], "backend-protocol"),
    ],
)
async def test_a_stream_that_breaks_over_mcp(
    world: AttackWorld, door: AttackedDoor, answer: Sequence[Any], said: str
) -> None:
    """The last answer contains the reason, and so does the record."""
    says(world, answer)
    part = content(await door.ask({"url": "/api/stream", "stream": True}))
    while "stream" in part:
        part = await more(door, part["stream"])
    assert part["headers"]["gateway-reason"] == said
    assert outcome(world)["reason"] == said


async def test_the_site_hands_parts_on(world: AttackWorld) -> None:
    """An event reaches the browser before the next one is sent."""
    says(world, [EVENTS, "data: 1\n\n", {"sleep": 1.0}, "data: 2\n\n"])
    host = world.hosts["app"]
    async with local_client() as client:
        headers = {"origin": f"http://{host}", "sec-fetch-site": "same-origin"}
        async with client.get(f"http://{host}/api/stream", headers=headers) as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            assert answer.headers["cache-control"] == "private, no-cache, no-transform"
            assert await answer.content.readany() == b"data: 1\n\n"
            assert await answer.content.read() == b"data: 2\n\n"


async def test_a_browser_that_leaves_ends_the_stream(world: AttackWorld) -> None:
    """At the backend, and in the record."""
    says(world, [EVENTS, {"endless": "data: 1\n\n"}])
    world.take_records()
    host = world.hosts["app"]
    async with local_client() as client:
        headers = {"origin": f"http://{host}", "sec-fetch-site": "same-origin"}
        async with client.get(f"http://{host}/api/stream", headers=headers) as answer:
            await answer.content.readany()
            answer.close()
    async with asyncio.timeout(60):
        while world.backends["main"]._tasks:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "answer",
    [
        [BINARY, "content-encoding: gzip\r\n", {"zeros": 50_000_000, "coding": "gzip"}],
        [BINARY, "\r\n", {"endless": "x"}],
        [BINARY, "content-length: 300000\r\n\r\n", "x" * 200_000],
    ],
)
async def test_a_stream_that_breaks_at_the_site(world: AttackWorld, answer: Sequence[Any]) -> None:
    """The browser's connection is cut, too: a part cannot pass for the whole body."""
    says(world, answer)
    host = world.hosts["app"]
    headers = [("host", host), ("origin", f"http://{host}"), ("sec-fetch-site", "same-origin")]
    came = await raw_exchange(world.port, request_bytes("GET", "/api/stream", headers, b""))
    assert not came.raw.endswith(b"0\r\n\r\n")
    assert len(came.raw) < 700_000


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", ["HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 9\r\nconnection: close\r\n\r\n"]),
        ("GET", ["HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"]),
        ("GET", ["HTTP/1.1 304 Not Modified\r\nconnection: close\r\n\r\n"]),
        ("GET", [BINARY, "content-length: 0\r\n\r\n"]),
    ],
)
async def test_a_stream_without_a_body(world: AttackWorld, method: str, answer: Sequence[Any]) -> None:
    """It ends like any answer without a body; the connection stays open."""
    says(world, answer)
    host = world.hosts["app"]
    async with local_client() as client:
        headers = {"origin": f"http://{host}", "sec-fetch-site": "same-origin"}
        async with client.request(method, f"http://{host}/api/stream", headers=headers) as came:
            assert str(came.status) in answer[0]
            assert await came.read() == b""


async def test_a_view_that_closes_ends_its_streams(world: AttackWorld) -> None:
    """The host page closes the view."""
    says(world, [EVENTS, {"endless": "data: 1\n\n"}])
    async with DOORS["bridge"](world) as door:
        assert "stream" in content(await door.ask({"url": "/api/stream", "stream": True}))
    async with asyncio.timeout(60):
        while world.backends["main"]._tasks:
            await asyncio.sleep(0.01)
