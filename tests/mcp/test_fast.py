"""The fast path and the SDK give the same bytes, whatever is sent."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from gateway.jsontext.writing import SIZE
from gateway.mcp.fast import EnvelopeReader, Heads, tool_call
from gateway.mcp.upstreams.calls.client import UpstreamClient
from gateway.mcp.upstreams.calls.fast_call import FastToolCall, UpstreamFast
from gateway.model import LOCAL
from tests.attacks.wire import WireAnswer, exchange, request_bytes
from tests.mcp.fakes import HELD
from tests.mcp.fast_cases import HOST, Case, cases, message
from tests.mcp.mounts import Mount, Served

CASES = tuple(cases())


@pytest.fixture(scope="module")
async def ways() -> AsyncIterator[tuple[Served, Served, Served]]:
    """Yield the same mount with the MCP fast path, with that and the one in front of aiohttp, and with neither."""
    async with (
        Mount(app="cart").serve() as fast,
        Mount(app="cart", front=True).serve() as short,
        Mount(app="cart", fast_path=False).serve() as slow,
    ):
        yield fast, short, slow


async def send_case(served: Served, case: Case) -> WireAnswer:
    """Return the answer to the bytes of a case."""
    return await exchange(urlsplit(served.url).port or 0, case.method, "/mcp", case.head, case.body)


def comparable(answer: WireAnswer) -> tuple[int, dict[str, str], bytes]:
    """Return an answer without its date, and without the id of a session that an older protocol may have begun."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "mcp-session-id")}
    return answer.status, headers, answer.raw.partition(b"\r\n\r\n")[2]


def test_there_are_enough_cases() -> None:
    """Valid, odd and malformed requests, each with a distinct name."""
    assert len({case.name for case in CASES}) == len(CASES) >= 300


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_all_ways_give_the_same_bytes(ways: tuple[Served, Served, Served], case: Case) -> None:
    """Status, header fields and body are the same."""
    fast, short, slow = [comparable(await send_case(way, case)) for way in ways]
    assert fast == slow
    assert short == slow


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_fast_path_takes_what_is_usual_alone(case: Case) -> None:
    """Otherwise both ways might be the same one."""
    fields = tuple((name.encode(), value.encode("latin-1")) for name, value in case.head)
    heads = Heads((HOST,), ("http://console.test",))
    length = (b"content-length", b"%d" % len(case.body))
    tool = heads.tool((*fields, length)) if case.method == "POST" else None
    taken = tool is not None and EnvelopeReader().read(case.body, tool) is not None
    assert taken is case.fast


@asynccontextmanager
async def begin_held_call(
    *, front: bool, tool: str
) -> AsyncIterator[tuple[Served, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Start a call of `tool` that is not answered before it is released."""
    async with Mount(app="cart", front=front, silence=0.05).serve() as served:
        case = next(case for case in CASES if case.fast and ("mcp-name", tool) in case.head)
        arguments = {"url": "/held", "after": HELD, "_view": "proof"}
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(served.url).port)
        writer.write(request_bytes("POST", "/mcp", case.head, message(arguments=arguments, params_name=tool).encode()))
        yield served, reader, writer
        writer.close()


EACH = [(front, tool) for front in (False, True) for tool in ("http_request", "webmcp_poll")]


@pytest.mark.parametrize(("front", "tool"), EACH)
async def test_a_silent_call_becomes_an_event_stream(*, front: bool, tool: str) -> None:
    """Pings come before any proxy times the connection out, and at last the answer."""
    async with begin_held_call(front=front, tool=tool) as (served, reader, _):
        head = await reader.readuntil(b": ping")
        served.exchange.release.set()
        served.views.relay.release.set()
        rest = await reader.read()
    assert b"text/event-stream" in head
    assert b'"structuredContent"' in rest.rpartition(b"event: message\r\ndata: ")[2]


@pytest.mark.parametrize(("front", "tool"), EACH)
async def test_a_call_ends_with_its_connection(*, front: bool, tool: str) -> None:
    """The connection of a closed view cancels its call."""
    async with begin_held_call(front=front, tool=tool) as (served, reader, writer):
        await reader.readuntil(b": ping")
        writer.transport.abort()
        ends = served.exchange.cancelled if tool == "http_request" else served.views.relay.cancelled
        await asyncio.wait_for(ends.wait(), 10)


def test_a_message_of_too_many_parts_is_left_to_be_refused() -> None:
    """Parsing it here would block the event loop."""
    for parts, taken in ((10, True), (120_000, False)):
        body = message(arguments={"_view": "x", "other": [1] * parts}).encode()
        assert (EnvelopeReader().read(body, b"http_request") is not None) is taken
        assert (tool_call(body) is not None) is taken


@pytest.mark.parametrize(("tool", "name"), [("http_request", "body"), ("webmcp_result", "result")])
def test_numbers_of_a_page_stay_as_they_are(tool: str, name: str) -> None:
    """Of any size: a page's values, and its tools' answers, are parsed exactly."""
    given = {"_view": "x", "call": "call-1", name: {"n": 2**80}}
    call = EnvelopeReader().read(message(arguments=given, params_name=tool).encode(), tool.encode())
    assert call is not None
    assert repr(call.arguments) == repr(given)


def test_a_client_that_describes_itself_too_deeply_is_left_to_the_sdk() -> None:
    """Newer Pythons parse JSON of such a depth, whatever their recursion limit is."""
    body = message(meta={"x": 0}).replace('{"x": 0}', f'{{"x": {"[" * 3000}{"]" * 3000}}}').encode()
    upstream = UpstreamFast(cast(Any, None), [], [])
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        assert EnvelopeReader().read(body, b"http_request") is None
        assert upstream.read(b"http_request", body) is None
    finally:
        sys.setrecursionlimit(limit)


async def test_a_large_result_of_an_upstream_is_written_in_pieces() -> None:
    """The event loop is not blocked while it is serialized."""
    result = {"content": [{"type": "text", "text": "é" * SIZE * 3}]}

    class Large:
        async def carry(self, client: UpstreamClient, params: object) -> dict[str, Any]:
            return result

    described = SimpleNamespace(capabilities={}, info=None, info_text="", is_app=False)
    call = FastToolCall("7", {"name": "tool"}, cast(Any, described))
    pieces, status = await UpstreamFast(cast(Any, Large()), [], []).message(call, LOCAL)
    assert isinstance(pieces, list)
    assert max(map(len, pieces)) < 10 * SIZE
    assert len(pieces) > 3
    assert (json.loads(b"".join(pieces)), status) == ({"jsonrpc": "2.0", "id": 7, "result": result}, 200)
