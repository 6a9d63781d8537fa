"""Requests that no client of the SDK sends, sent to a mount by hand."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import mcp_types as types
import pytest
from mcp import Client

from gateway.model import LOCAL
from tests.mcp.fakes import ADD
from tests.mcp.mounts import MODES, Mount, Served, as_app

ADA = "issuer|client|ada"
_ACCEPT = {"accept": "application/json, text/event-stream"}
_UI = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Yield the mount of two apps."""
    async with Mount().serve() as served:
        yield served


@pytest.mark.parametrize("mode", MODES)
async def test_a_lost_connection_cancels_the_exchange(served: Served, mode: str) -> None:
    """A client that disconnects ends its request, in both eras."""
    async with aiohttp.ClientSession() as session:
        call = asyncio.create_task(_post_slow(session, served.url, mode))
        await served.exchange.started.wait()
        call.cancel()
        async with asyncio.timeout(60):
            await served.exchange.cancelled.wait()


async def _post_slow(session: aiohttp.ClientSession, url: str, mode: str) -> None:
    call = {"name": "http_request", "arguments": {"url": "/slow"}}
    if mode != "legacy":
        async with session.post(url, json=_modern("tools/call", call), headers=_headers("tools/call", "http_request")):
            return
    second = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    async with session.post(url, json=second, headers=await _open_session(session, url, {})) as answer:
        await answer.read()


async def _open_session(session: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of a new session of the handshake protocol."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": _UI, "clientInfo": {"name": "t", "version": "1"}}
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    async with session.post(url, json=first, headers={**_ACCEPT, **headers}) as answer:
        return {**_ACCEPT, **headers, "mcp-session-id": answer.headers["mcp-session-id"]}


def _modern(method: str, params: dict[str, Any]) -> dict[str, Any]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": _UI,
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


def _headers(method: str, name: str) -> dict[str, str]:
    return {**_ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": method, "mcp-name": name}


async def _post(url: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.post(url, json=body, headers=headers) as answer:
        text = await answer.text()
        return answer.status, json.loads(text) if text.startswith("{") else text


@pytest.mark.parametrize(
    ("method", "name"), [("tools/list", "list_view_tools"), ("tools/call", "open_cart")], ids=["method", "name"]
)
async def test_headers_that_say_otherwise_than_the_body_are_refused(served: Served, method: str, name: str) -> None:
    """A proxy that decides by the headers decides on what runs."""
    body = _modern("tools/call", {"name": "list_view_tools", "arguments": {}})
    status, answer = await _post(served.url, body, _headers(method, name))
    assert status == 400
    assert answer["error"]["code"] == types.HEADER_MISMATCH


async def test_a_parameter_header_must_agree_with_the_argument(served: Served) -> None:
    """If a page's schema declares `Mcp-Param-*`, the header is compared with the argument in the body."""
    marked = {"type": "object", "properties": {"item_id": {"type": "string", "x-mcp-header": "Item"}}}
    served.views.offer(LOCAL, type(ADD)(ADD.name, ADD.page_name, "", "", marked))
    body = _modern("tools/call", {"name": ADD.name, "arguments": {"item_id": "7"}})
    agreeing = {**_headers("tools/call", ADD.name), "mcp-param-item": "7"}
    assert (await _post(served.url, body, agreeing))[0] == 200
    status, answer = await _post(served.url, body, {**agreeing, "mcp-param-item": "8"})
    assert (status, answer["error"]["code"]) == (400, types.HEADER_MISMATCH)


@pytest.mark.parametrize(
    ("header", "status"),
    [({"host": "evil.example"}, 421), ({"origin": "http://evil.example"}, 403), ({"origin": "null"}, 403)],
)
async def test_a_foreign_host_or_origin_is_refused(served: Served, header: dict[str, str], status: int) -> None:
    """A web page elsewhere, and a DNS name rebound to this machine, cannot use the mount."""
    assert (await _post(served.url, _modern("tools/list", {}), {**_headers("tools/list", ""), **header}))[0] == status


async def test_the_configured_origin_is_served(served: Served) -> None:
    """The console's page is a client like any other."""
    headers = {k: v for k, v in _headers("tools/list", "").items() if k != "mcp-name"}
    body = _modern("tools/list", {})
    assert (await _post(served.url, body, {**headers, "origin": "http://console.test"}))[0] == 200


@pytest.mark.parametrize("other", ["", "issuer|client|bob", "issuer|other|ada", "other|client|ada"])
async def test_another_principal_cannot_use_a_session(served: Served, other: str) -> None:
    """To any other principal its session does not exist."""
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    async with aiohttp.ClientSession() as session:
        adas = await _open_session(session, served.url, {"x-user": ADA})
        async with session.post(served.url, json=listing, headers={**adas, "x-user": other}) as answer:
            assert answer.status == 404
        async with session.post(served.url, json=listing, headers=adas) as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ([], 400),
        ({"jsonrpc": "2.0", "id": None, "method": "tools/list"}, 400),
        ({"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"}, 400),
        (5, 400),
    ],
)
async def test_what_is_no_single_request_is_refused(served: Served, body: Any, status: int) -> None:
    """Batches and malformed envelopes get an error, and the mount keeps serving."""
    assert (await _post(served.url, body, _headers("tools/list", "")))[0] == status
    async with Client(served.url, mode="2026-07-28") as client:
        assert (await client.list_tools()).tools


@pytest.mark.bound("MCP messages")
async def test_a_body_over_the_limit_is_refused_before_it_is_read(served: Served) -> None:
    """More than 16 MiB is 413."""
    async with aiohttp.ClientSession() as session:
        data = io.BytesIO(b" " * (16 * 1024 * 1024 + 1))
        headers = {**_headers("tools/list", ""), "content-type": "application/json"}
        async with session.post(served.url, data=data, headers=headers) as answer:
            assert answer.status == 413


async def test_a_body_within_the_limit_is_read(served: Served) -> None:
    """An app's upload does not fail at the SDK's own smaller limit."""
    async with as_app(served.url, "2026-07-28") as client:
        result = await client.call_tool(
            "http_request", {"url": "/api", "method": "POST", "body": "x" * (6 * 1024 * 1024)}
        )
    assert result.structured_content is not None
    assert result.structured_content["status"] == 200


async def test_a_call_runs_as_the_principal_of_its_request(served: Served) -> None:
    """The principal is the one that the guard determined."""
    body = _modern("tools/call", {"name": "cart_x", "arguments": {}})
    _, answer = await _post(served.url, body, {**_headers("tools/call", "cart_x"), "x-user": ADA})
    assert json.loads(answer["result"]["content"][0]["text"])["principal"] == "ada"


async def test_the_head_of_a_stream_does_not_wait_for_its_first_event(served: Served) -> None:
    """A legacy GET is answered at once, before any event."""
    async with aiohttp.ClientSession() as session:
        headers = await _open_session(session, served.url, {})
        async with asyncio.timeout(60), session.get(served.url, headers=headers) as stream:
            assert (stream.status, stream.content_type) == (200, "text/event-stream")
