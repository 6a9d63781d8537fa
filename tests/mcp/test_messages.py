"""Clients that misuse ids, batches, cancellation, and the sessions of others; in both eras."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from starlette.types import Message, Receive, Scope, Send

from gateway.jsontext.sizes import AT_ONCE
from gateway.mcp.middleware import OneInFlight
from tests.mcp.mounts import Mount, Served

ADA = "issuer|client|ada"
BOB = "issuer|client|bob"
VERSION = "2025-11-25"
ACCEPT = {"accept": "application/json, text/event-stream"}
UI = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
MODERN = {**ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "http_request"}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": UI}


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Yield the mount of the cart."""
    async with Mount(app="cart").serve() as served:
        yield served


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """Yield an HTTP client."""
    async with aiohttp.ClientSession() as client:
        yield client


async def open_session(
    http: aiohttp.ClientSession, url: str, user: str = ADA, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the header fields of a new session of `user`, or of the caller with the headers `more`."""
    params = {"protocolVersion": VERSION, "capabilities": UI, "clientInfo": {"name": "t", "version": "1"}}
    fields = {**ACCEPT, **(more if more is not None else {"x-user": user})}
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    async with http.post(url, json=hello, headers=fields) as answer:
        fields = {**fields, "mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": VERSION}
        await answer.read()
    async with http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=fields) as answer:
        assert answer.status == 202
    return fields


def fetch_call(id: object, url: str, **meta: Any) -> dict[str, Any]:
    """Return a call of `http_request`."""
    params: dict[str, Any] = {"name": "http_request", "arguments": {"url": url}}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {**params, **meta}}


async def read_messages(answer: aiohttp.ClientResponse) -> list[dict[str, Any]]:
    """Return the messages of an answer, as JSON or as events."""
    text = await answer.text()
    if "text/event-stream" not in answer.headers.get("content-type", ""):
        return [json.loads(text)]
    return [json.loads(line.removeprefix("data:")) for line in text.splitlines() if line.startswith("data: {")]


# ── sessions of others ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_the_session_of_another_is_as_one_that_never_was(
    served: Served, http: aiohttp.ClientSession, method: str
) -> None:
    """Any use of its id gets the same answer; and the session continues for its owner."""
    adas = await open_session(http, served.url)
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"} if method == "POST" else None
    told = []
    for session in (adas["mcp-session-id"], "0" * 32):
        fields = {**adas, "x-user": BOB, "mcp-session-id": session}
        async with http.request(method, served.url, json=listing, headers=fields) as answer:
            told.append((answer.status, await answer.text()))
    assert told[0] == told[1]
    assert told[0][0] == 404
    async with http.post(served.url, json={"jsonrpc": "2.0", "id": 3, "method": "ping"}, headers=adas) as answer:
        assert (await read_messages(answer))[0]["result"] == {}


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_session_is_of_one_mount(http: aiohttp.ClientSession, method: str) -> None:
    """At another mount it does not exist, for the same principal."""
    async with Mount(app="cart").serve() as cart, Mount(app="todo").serve() as todo:
        fields = await open_session(http, cart.url)
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"} if method == "POST" else None
        async with http.request(method, todo.url, json=listing, headers=fields) as answer:
            assert answer.status == 404


async def test_a_modern_request_is_in_no_session(served: Served, http: aiohttp.ClientSession) -> None:
    """The id of another's session beside it has no effect: it runs as its own caller."""
    adas = await open_session(http, served.url)
    fields = {**MODERN, "x-user": BOB, "mcp-session-id": adas["mcp-session-id"]}
    async with http.post(served.url, json=fetch_call(1, "/api", _meta=META), headers=fields) as answer:
        assert "mcp-session-id" not in answer.headers
        (message,) = await read_messages(answer)
    assert served.exchange.callers[-1].principal.subject == "bob"
    assert message["result"]["structuredContent"]["status"] == 200


# ── batches ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("size", [0, 1, 2, 1000])
async def test_a_batch_is_refused_whole(served: Served, http: aiohttp.ClientSession, era: str, size: int) -> None:
    """No message of it runs (no supported version has batches), and the next single one is answered."""
    fields = {**MODERN, "x-user": ADA} if era == "modern" else await open_session(http, served.url)
    meta = {"_meta": META} if era == "modern" else {}
    batch = [fetch_call(number, "/held", **meta) for number in range(size)]
    async with http.post(served.url, json=batch, headers=fields) as answer:
        assert answer.status == 400
        assert "result" not in await answer.text()
    assert not served.exchange.held.is_set()
    async with http.post(served.url, json=fetch_call(1, "/api", **meta), headers=fields) as answer:
        assert "result" in (await read_messages(answer))[-1]


# ── messages of too many parts ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("place", ["arguments", "_meta", "batch"])
async def test_a_message_of_too_many_parts_is_not_read(
    served: Served, http: aiohttp.ClientSession, era: str, place: str
) -> None:
    """None of it runs: parsing it would block the event loop. A text of the same size is one part."""
    fields = {**MODERN, "x-user": ADA} if era == "modern" else await open_session(http, served.url)
    meta = {"_meta": META} if era == "modern" else {"_meta": {}}
    many: dict[str, Any] = fetch_call(1, "/api", **meta)
    if place == "batch":
        message = json.dumps([{"jsonrpc": "2.0", "id": 1, "method": "ping"}] * (AT_ONCE // 4 + 1))
    else:
        many["params"][place] = {**many["params"][place], "many": "HERE"}
        message = json.dumps(many).replace('"HERE"', f"[{'[],' * AT_ONCE}1]")
    whole = io.BytesIO(message.encode())
    async with http.post(served.url, data=whole, headers={**fields, "content-type": "application/json"}) as answer:
        assert (answer.status, (await read_messages(answer))[0]["error"]["code"]) == (413, -32600)
    assert served.exchange.callers == []
    many = fetch_call(1, "/api", **meta)
    many["params"]["arguments"]["body"] = "[]," * AT_ONCE
    whole = io.BytesIO(json.dumps(many).encode())
    async with http.post(served.url, data=whole, headers={**fields, "content-type": "application/json"}) as answer:
        assert "result" in (await read_messages(answer))[-1]


# ── ids ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_modern_calls_of_one_id_are_each_answered(served: Served, http: aiohttp.ClientSession) -> None:
    """An id is unique only within its own connection; clients that share a principal may use the same."""
    fields = {**MODERN, "x-user": ADA}

    async def ask(url: str) -> dict[str, Any]:
        async with http.post(served.url, json=fetch_call("same", url, _meta=META), headers=fields) as answer:
            return (await read_messages(answer))[-1]

    held = asyncio.create_task(ask("/held"))
    await served.exchange.held.wait()
    assert (await ask("/api"))["result"]["structuredContent"]["status"] == 200
    served.exchange.release.set()
    assert (await held)["id"] == "same"


async def test_an_id_that_is_in_flight_in_a_session(served: Served, http: aiohttp.ClientSession) -> None:
    """The second call with that id is refused, as a number and as a text; the first one gets its own answer."""
    fields = await open_session(http, served.url)

    async def ask(url: str, id: object = 7) -> list[dict[str, Any]]:
        async with http.post(served.url, json=fetch_call(id, url), headers=fields) as answer:
            return await read_messages(answer)

    held = asyncio.create_task(ask("/held"))
    await served.exchange.held.wait()
    async with asyncio.timeout(60):
        for id in (7, "7"):
            (second,) = await ask("/api", id)
            assert (second["id"], second["error"]["message"]) == (id, "A call with this id is in flight.")
        served.exchange.release.set()
        first = await held
        assert [message["result"]["structuredContent"]["url"] for message in first] == ["/held"]
        assert (await ask("/api"))[-1]["result"]["structuredContent"]["url"] == "/api"


async def test_an_id_is_free_once_its_answer_was_sent() -> None:
    """A client that uses the id again at once waits until the former request has ended, and is not refused."""
    served, ending = list[str](), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        served.append("begun")
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data: {}", "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        await ending.wait()
        served.append("ended")

    async def ask() -> list[Message]:
        sent: list[Message] = []
        scope = {"type": "http", "method": "POST", "headers": [(b"mcp-session-id", b"one")], "user": None}
        body = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).encode()

        async def receive() -> Message:
            return {"type": "http.request", "body": body}

        async def send(message: Message) -> None:
            sent.append(message)

        await one_in_flight(scope, receive, send)
        return sent

    one_in_flight = OneInFlight(app)
    first, second = asyncio.create_task(ask()), asyncio.create_task(ask())
    for _ in range(10):
        await asyncio.sleep(0)
    assert served == ["begun"]
    ending.set()
    assert [answer[0]["status"] for answer in await asyncio.gather(first, second)] == [200, 200]
    assert served == ["begun", "ended"] * 2


@pytest.mark.parametrize("id", ["true", "null", "1.5", "1e999", "[1]", '{"a":1}'])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_an_id_that_is_none_is_refused(served: Served, http: aiohttp.ClientSession, era: str, id: str) -> None:
    """It is not taken for a notification, which gets no answer."""
    fields = {**MODERN, "x-user": ADA} if era == "modern" else await open_session(http, served.url)
    message = json.dumps(fetch_call("HERE", "/api", _meta=META if era == "modern" else {})).replace('"HERE"', id)
    async with http.post(served.url, data=message, headers={**fields, "content-type": "application/json"}) as answer:
        assert answer.status == 400
        assert "error" in (await read_messages(answer))[0]
    assert served.exchange.callers == []


@pytest.mark.parametrize("coding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_json_is_utf_8(served: Served, http: aiohttp.ClientSession, era: str, coding: str) -> None:
    """RFC 8259, 8.1. Every reader on the way must read the same."""
    fields = {**MODERN, "x-user": ADA} if era == "modern" else await open_session(http, served.url)
    message = json.dumps(fetch_call(1, "/api", _meta=META if era == "modern" else {})).encode(coding)
    async with http.post(served.url, data=message, headers={**fields, "content-type": "application/json"}) as answer:
        assert (answer.status, "UTF-8" in (await read_messages(answer))[0]["error"]["message"]) == (400, True)
    assert served.exchange.callers == []


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_hosts_are_compared_without_case(served: Served, http: aiohttp.ClientSession, era: str) -> None:
    """As host names are (RFC 9110, 4.2.3)."""
    fields = {**MODERN, "x-user": ADA} if era == "modern" else await open_session(http, served.url)
    message = fetch_call(1, "/api", _meta=META if era == "modern" else {})
    async with http.post(served.url, json=message, headers={**fields, "host": "Gateway.TEST"}) as answer:
        assert "result" in (await read_messages(answer))[-1]


# ── cancellation ─────────────────────────────────────────────────────────────────────────────────────────────


async def cancel(http: aiohttp.ClientSession, url: str, fields: dict[str, str], id: object) -> int:
    """Send `notifications/cancelled`; return its status."""
    params = {"requestId": id, "reason": "enough"}
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    async with http.post(url, json=message, headers=fields) as answer:
        return answer.status


async def test_a_session_cancels_its_own_calls_alone(served: Served, http: aiohttp.ClientSession) -> None:
    """The same id in another session, or another principal's, is another call; its own session cancels it."""
    adas, adas_other, bobs = [await open_session(http, served.url, user) for user in (ADA, ADA, BOB)]
    asking = asyncio.create_task(_post(http, served.url, fetch_call(5, "/held"), adas))
    await served.exchange.held.wait()
    for fields in (adas_other, bobs):
        assert await cancel(http, served.url, fields, 5) == 202
    assert await cancel(http, served.url, {**bobs, "mcp-session-id": adas["mcp-session-id"]}, 5) == 404
    for odd in (6, "x", None, [5], {"a": 1}, 5.5):
        await cancel(http, served.url, adas, odd)
    assert not served.exchange.cancelled.is_set()
    assert await cancel(http, served.url, adas, 5) == 202
    async with asyncio.timeout(60):
        await served.exchange.cancelled.wait()
    asking.cancel()
    async with http.post(served.url, json={"jsonrpc": "2.0", "id": 8, "method": "ping"}, headers=adas) as answer:
        assert (await read_messages(answer))[0]["result"] == {}


async def test_a_modern_call_is_cancelled_by_its_connection_alone(served: Served, http: aiohttp.ClientSession) -> None:
    """A separate notification cancels nothing, not even from the same caller."""
    fields = {**MODERN, "x-user": ADA}
    asking = asyncio.create_task(_post(http, served.url, fetch_call(5, "/held", _meta=META), fields))
    await served.exchange.held.wait()
    for user in (ADA, BOB):
        plain = {**ACCEPT, "x-user": user, "mcp-protocol-version": "2026-07-28"}
        assert await cancel(http, served.url, plain, 5) == 202
    assert not served.exchange.cancelled.is_set()
    asking.cancel()
    async with asyncio.timeout(60):
        await served.exchange.cancelled.wait()


async def _post(http: aiohttp.ClientSession, url: str, message: dict[str, Any], fields: dict[str, str]) -> str:
    async with http.post(url, json=message, headers=fields) as answer:
        return await answer.text()


@pytest.mark.parametrize("era", [{}, {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}])
@pytest.mark.parametrize(
    ("fields", "body", "status", "words"),
    [
        ({"accept": "text/html"}, "{}", 406, ["accept", "application/json", "text/event-stream"]),
        ({"content-type": "text/plain"}, "{}", 400, ["content-type", "application/json"]),
        ({}, "[]", 400, ["json-rpc"]),
        ({}, json.dumps([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]), 400, ["json-rpc"]),
        ({}, '{"a": 1}', 400, ["json-rpc"]),
        ({}, '{"a":', 400, ["parse error"]),
        ({}, "", 400, ["parse error"]),
    ],
)
async def test_what_is_not_taken_is_refused_in_words(
    served: Served,
    http: aiohttp.ClientSession,
    era: Mapping[str, str],
    fields: Mapping[str, str],
    body: str,
    status: int,
    words: list[str],
) -> None:
    """The error names the field, or what the body must be, and not a parser's internals."""
    own = {"x-user": ADA, "content-type": "application/json", **ACCEPT, **era, **fields}
    async with http.post(served.url, data=body, headers=own) as answer:
        assert answer.status == status
        said = (await answer.json())["error"]["message"].lower()
    assert [word for word in words if word not in said] == []
    assert "pydantic" not in said
