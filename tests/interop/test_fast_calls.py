"""Calls of an upstream's tools with and without the SDK: the same answers, and the upstream's own bytes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from tests.attacks.wire import WireAnswer, exchange
from tests.interop.everything import Everything
from tests.interop.raw import raw
from tests.interop.serving import gateway, over_http
from tests.mcp.fast_cases import HOST, META, Case, cases

TOOL = b"test_simple_text"
CASES = tuple(cases())
META_KEY = "io.modelcontextprotocol/serverInfo"


@pytest.fixture(scope="module")
async def ways(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[int, int]]:
    """Yield the ports of two gateways before the same upstream: with the fast path and without."""
    fast, slow = tmp_path_factory.mktemp("fast"), tmp_path_factory.mktemp("slow")
    started: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def live() -> None:  # in one task, as the SDK's servers require
        async with over_http(Everything().server) as url:
            up = f'up: {{url: "{url}", network: private}}'
            async with gateway(fast, up) as one, gateway(slow, up, "mcp: {fast_path: false}") as other:
                started.set_result((urlsplit(one).port or 0, urlsplit(other).port or 0))
                await over.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(live())
        ports = await started
        for port in ports:
            await call(port, TOOL.decode())  # from here on the tool is known
        yield ports
        over.set()


async def call(port: int, tool: str, **params: Any) -> WireAnswer:
    """Send a plain call; return its answer."""
    message = {
        "jsonrpc": "2.0",
        "id": "c",
        "method": "tools/call",
        "params": {"name": tool, "arguments": {}, "_meta": META, **params},
    }
    head = {
        "host": f"localhost:{port}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": tool,
    }
    return await exchange(port, "POST", "/mcp/up", list(head.items()), json.dumps(message).encode())


async def send_case(port: int, case: Case) -> WireAnswer:
    """Return the answer to the bytes of a case, which calls this tool."""
    host = f"localhost:{port}"
    head = [(name, value.replace(HOST, host).replace("http_request", TOOL.decode())) for name, value in case.head]
    head = [(name, value.replace("http://console.test", f"http://{host}")) for name, value in head]
    return await exchange(port, case.method, "/mcp/up", head, case.body.replace(b"http_request", TOOL))


def comparable(answer: WireAnswer) -> tuple[int, dict[str, str], object]:
    """Return an answer without its date, its length, and the id of a session."""
    left_out = ("date", "mcp-session-id", "content-length")
    headers = {name: value for name, value in answer.headers.items() if name not in left_out}
    body = answer.raw.partition(b"\r\n\r\n")[2]
    body = re.sub(rb"localhost:\d+", b"localhost", body)
    try:
        return answer.status, headers, json.loads(body)
    except ValueError:
        return answer.status, headers, body


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_both_ways_answer_alike(ways: tuple[int, int], case: Case) -> None:
    """Status, header fields and the JSON of the body are the same, whatever is sent."""
    fast, slow = ways
    assert comparable(await send_case(fast, case)) == comparable(await send_case(slow, case))


@pytest.mark.parametrize("tool", ["test_error_handling", "no_such_tool", "test_image_content", "test_elicitation"])
async def test_both_ways_say_alike_what_went_wrong(ways: tuple[int, int], tool: str) -> None:
    """Error results, errors, and results without text."""
    fast, slow = ways
    for port in ways:
        await call(port, tool)
    assert comparable(await call(fast, tool)) == comparable(await call(slow, tool))


RESULT = (
    '{ "resultType": "complete",\t"content": [{"type":"text","text":"\\u00e9é\\/"}], "n": 1.50e0, '
    '"_meta": {"%s": {"name": "raw", "version": "1"}} }'
)


@pytest.mark.parametrize(
    "around",
    ['{"jsonrpc":"2.0","id":%d,"result":%s}', '\n{"result" : %s , "jsonrpc" : "2.0", "id" : %d }\n'],
    ids=["result-last", "result-first"],
)
async def test_a_result_reaches_a_modern_client_as_the_upstream_wrote_it(tmp_path: Any, around: str) -> None:
    """Byte for byte, spaces and escapes included."""
    result = RESULT % META_KEY

    async def answer(_: web.Request, message: dict[str, Any]) -> web.Response:
        text = around.replace("%d", str(message["id"])).replace("%s", result)
        return web.Response(text=text, content_type="application/json")

    async with raw(answer) as upstream, gateway(tmp_path, f'up: {{url: "{upstream.url}", network: private}}') as mcp:
        port = urlsplit(mcp).port or 0
        await call(port, "tool")
        assert (await call(port, "tool")).text == f'{{"jsonrpc":"2.0","id":"c","result":{result}}}'


@pytest.mark.parametrize(
    "text",
    [
        '{"jsonrpc":"2.0","id":%d,"result":{"a":1},"result":{"resultType":"complete","content":[]}}',
        '{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete","content":[{"type":"text","text":"\\ud800"}]}}',
        '{"jsonrpc":"2.0","id":%d,"result":{"resultType":"complete","content":[]},"extra":{"id":7}}',
    ],
    ids=["twice", "half-a-character", "more"],
)
async def test_an_answer_that_readers_differ_about_is_written_anew(tmp_path: Any, text: str) -> None:
    """The upstream's envelope, and spellings that clients fail on, are not passed on."""

    async def answer(_: web.Request, message: dict[str, Any]) -> web.Response:
        return web.Response(text=text.replace("%d", str(message["id"])), content_type="application/json")

    async with raw(answer) as upstream, gateway(tmp_path, f'up: {{url: "{upstream.url}", network: private}}') as mcp:
        port = urlsplit(mcp).port or 0
        await call(port, "tool")
        said = json.loads((await call(port, "tool")).raw.partition(b"\r\n\r\n")[2])
        assert said.keys() == {"jsonrpc", "id", "result"}
        assert said["id"] == "c"
        assert said["result"]["resultType"] == "complete"
        said["result"]["_meta"][META_KEY]  # written by the gateway
        json.dumps(said, ensure_ascii=False).encode()


async def test_a_call_whose_connection_breaks_is_not_made_twice(tmp_path: Any) -> None:
    """The upstream may have run it; a list may be requested again."""

    async def answer(request: web.Request, _: dict[str, Any]) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        await asyncio.Event().wait()
        raise AssertionError

    async with raw(answer) as upstream, gateway(tmp_path, f'up: {{url: "{upstream.url}", network: private}}') as mcp:
        said = await call(urlsplit(mcp).port or 0, "tool")
        assert "the connection to the upstream broke" in said.text
        assert upstream.asked["tools/call"] == 1
        assert (await call(urlsplit(mcp).port or 0, "tool")).status == 200
        assert upstream.asked["tools/call"] == 2


async def test_an_answer_on_a_stream_that_stays_open_is_given_at_once(tmp_path: Any) -> None:
    """The rest of the stream is not waited for, and the next call uses a separate connection."""
    left = asyncio.Event()

    async def answer(request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await stream.prepare(request)
        said = {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", "content": []}}
        await stream.write(f"data: {json.dumps(said)}\n\n".encode())
        await left.wait()
        return stream

    async with raw(answer) as upstream, gateway(tmp_path, f'up: {{url: "{upstream.url}", network: private}}') as mcp:
        port = urlsplit(mcp).port or 0
        for _ in range(3):
            assert (await call(port, "tool")).status == 200
        left.set()
        assert (await call(port, "tool")).status == 200
