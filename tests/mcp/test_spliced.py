"""Large results reach a client whole, in both eras, and are never part of a message that the SDK writes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import mcp_types as types
import pytest
from aiohttp import web
from mcp import Client
from starlette.requests import Request
from starlette.types import Scope

from gateway.contract import result as content
from gateway.jsontext.messages import THINGS
from gateway.jsontext.writing import SIZE
from gateway.mcp import asgi
from gateway.mcp.asgi import ENDING, Ending, put_in
from gateway.mcp.out_of_band import outline_params
from gateway.model import LOCAL, Response
from tests.interop.hostile_http import GOOD, WAYS, Hostile, answer, stream
from tests.interop.hostile_http import event as event_of
from tests.interop.test_hostile_http import behind
from tests.mcp import fakes
from tests.mcp.fakes import ADD
from tests.mcp.mounts import MODES, Mount
from tests.mcp.test_messages import ACCEPT, META, MODERN, fetch_call, open_session, read_messages
from tests.mcp.test_resume import event, taken_up

LARGE = 'aé"\n\x7f' * 200_000
RESULTS: dict[str, dict[str, Any]] = {
    "text": {"content": [{"type": "text", "text": LARGE}, {"type": "text", "text": "small"}]},
    "structured": {"content": [], "structuredContent": {"a": {LARGE: [LARGE, None, 1.5]}, "b": 1}},
    "parts": {"content": [], "structuredContent": {"a": list(range(90_000))}},
    "meta": {"content": [{"type": "text", "text": "small"}], "_meta": {"x": LARGE}},
}
MOST = 4096
"""The most bytes that the SDK may write at a time."""


@pytest.fixture
def by_the_sdk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the SDK's writes."""
    seen: list[int] = []

    def counted(scope: Scope, part: bytes) -> list[bytes]:
        seen.append(len(part))
        return put_in(scope, part)

    monkeypatch.setattr(asgi, "put_in", counted)
    return seen


async def request_slowly(http: aiohttp.ClientSession, url: str, mode: str, method: str, params: dict[str, Any]) -> Any:
    """Return the result of a request off the fast path."""
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    if mode == "legacy":
        fields = await open_session(http, url, more=ACCEPT)
    else:
        fields = {**MODERN, "mcp-method": method, **({"mcp-name": params["name"]} if "name" in params else {})}
        body["params"] = {**params, "_meta": {**META, "progressToken": "x"}}
    async with http.post(url, json=body, headers=fields) as response:
        assert response.status == 200
        return (await read_messages(response))[-1]["result"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", RESULTS)
@pytest.mark.parametrize("mount", ["/bad", ""])
async def test_a_large_result_of_an_upstream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_the_sdk: list[int], mount: str, kind: str, mode: str
) -> None:
    """Whichever part of it is large."""

    async def large(_: Hostile, __: web.Request, id: Any) -> web.StreamResponse:
        return answer(id, {**RESULTS[kind], "resultType": "complete"})

    monkeypatch.setitem(WAYS, "large", large)
    async with behind(tmp_path, "large") as (mcp, _, __), aiohttp.ClientSession() as http:
        await request_slowly(http, mcp + mount, mode, "tools/list", {})
        by_the_sdk.clear()
        name = "ok" if mount else "bad_ok"
        result = await request_slowly(http, mcp + mount, mode, "tools/call", {"name": name, "arguments": {}})
    assert {key: result[key] for key in RESULTS[kind] if key != "_meta"} == {
        key: value for key, value in RESULTS[kind].items() if key != "_meta"
    }
    assert result.get("_meta", {}).get("x") == RESULTS[kind].get("_meta", {}).get("x")
    assert 0 < max(by_the_sdk) < MOST


@pytest.mark.parametrize("mount", ["/bad", ""])
async def test_a_large_result_on_a_stream_that_was_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str
) -> None:
    """It comes on another connection than the call did."""
    held, go = asyncio.Event(), asyncio.Event()

    async def large(_: Hostile, __: web.Request, id: Any) -> web.StreamResponse:
        held.set()
        await go.wait()
        return answer(id, RESULTS["text"])

    monkeypatch.setitem(WAYS, "large", large)
    call = {"jsonrpc": "2.0", "id": 5, "method": "tools/call"}
    name = "ok" if mount else "bad_ok"
    async with (
        behind(tmp_path, "large") as (mcp, _, __),
        asyncio.timeout(60),
        aiohttp.ClientSession(read_bufsize=2**22) as http,
    ):
        await request_slowly(http, mcp + mount, "legacy", "tools/list", {})
        fields = await open_session(http, mcp + mount, more=ACCEPT)
        async with aiohttp.ClientSession() as breaking:
            broken = await breaking.post(mcp + mount, json={**call, "params": {"name": name}}, headers=fields)
            first = await event(broken)
            await held.wait()
            broken.close()
        found = await taken_up(http, mcp + mount, {**fields, "last-event-id": first["id"]}, go)
    assert found["result"]["content"] == RESULTS["text"]["content"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("mount", ["/bad", ""])
async def test_a_large_list(tmp_path: Path, by_the_sdk: list[int], mount: str, mode: str) -> None:
    """The first tools of the list are returned."""
    async with behind(tmp_path, "many") as (mcp, _, __), aiohttp.ClientSession() as http:
        tools: list[dict[str, Any]] = []
        while len(tools) < THINGS:
            by_the_sdk.clear()
            tools = (await request_slowly(http, mcp + mount, mode, "tools/list", {}))["tools"]
    assert ("tool_4999" if mount else "bad_tool_4999") in [one["name"] for one in tools]
    assert max(by_the_sdk) < MOST


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/plain; charset=utf-8", LARGE.encode()),
        ("application/json", json.dumps({"a": LARGE}).encode()),
        ("application/octet-stream", bytes(range(256)) * 4096),
    ],
)
async def test_a_large_answer_of_a_backend(
    monkeypatch: pytest.MonkeyPatch, by_the_sdk: list[int], content_type: str, body: bytes, mode: str
) -> None:
    """The text block repeats the structured content."""
    response = Response(200, (("content-type", content_type),), body, "/answer/large")
    monkeypatch.setitem(fakes.ANSWERS, "/answer/large", response)
    async with Mount(app="cart").serve() as served, aiohttp.ClientSession() as http:
        params = fetch_call(1, "/answer/large")["params"]
        result = await request_slowly(http, served.url, mode, "tools/call", params)
    structured = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == structured
    assert structured["body"] == content(response)["body"]
    assert 0 < max(by_the_sdk) < MOST


@pytest.mark.parametrize("mode", MODES)
async def test_texts_that_are_large_together(monkeypatch: pytest.MonkeyPatch, by_the_sdk: list[int], mode: str) -> None:
    """Beside a text that is large by itself, of a page: a placeholder within a detached part is not lost."""
    texts = ["a" * (SIZE + 1), "b" * (SIZE - 1), "c" * (SIZE - 1)]

    async def call(*_: Any, **__: Any) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=text) for text in texts])

    async with Mount(app="cart").serve() as served, aiohttp.ClientSession() as http:
        served.views.offer(LOCAL, ADD)
        monkeypatch.setattr(served.pages, "call", call)
        params = {"name": ADD.name, "arguments": {"item_id": "tea"}}
        result = await request_slowly(http, served.url, mode, "tools/call", params)
    assert [block["text"] for block in result["content"]] == texts
    assert 0 < max(by_the_sdk) < MOST


@pytest.mark.parametrize("mode", MODES)
async def test_what_an_upstream_tells_and_asks_on_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_the_sdk: list[int], mode: str
) -> None:
    """Its client receives all of it."""
    told: list[object] = []
    words = LARGE[: SIZE + 1]  # the SDK's client accepts no event of more than a megabyte

    async def large(hostile: Hostile, response: web.StreamResponse, id: Any) -> None:
        progress = {"progressToken": id, "progress": 1, "message": words}
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        for method, params in (
            ("notifications/progress", progress),
            ("elicitation/create", {"message": words, "requestedSchema": schema}),
        ):
            asks = {"id": 1} if method.startswith("elicitation") else {}
            await response.write(event_of({"jsonrpc": "2.0", **asks, "method": method, "params": params}))
        await hostile.go.wait()
        await response.write(event_of({"jsonrpc": "2.0", "id": id, "result": GOOD}))

    monkeypatch.setitem(WAYS, "large", stream(large))
    async with behind(tmp_path, "large") as (mcp, hostile, _), asyncio.timeout(60):

        async def elicit(_: object, params: types.ElicitRequestParams) -> types.ElicitResult:
            told.append(params.message)
            hostile.go.set()
            return types.ElicitResult(action="accept", content={"name": "Ada"})

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            told.append(message)

        async with Client(f"{mcp}/bad", mode=mode, elicitation_callback=elicit) as client:  # type: ignore[arg-type]  # by name
            by_the_sdk.clear()
            await client.call_tool("ok", progress_callback=progress)
    assert told == [words, words]
    assert max(by_the_sdk) < MOST


async def test_what_is_large_is_not_kept_for_a_client_that_is_gone() -> None:
    """A large notification is dropped, a small one is received when the client resumes its stream."""
    ending, small = Ending(), {"message": "small"}
    request = Request({"type": "http", ENDING: ending})
    leaving = asyncio.ensure_future(outline_params({"message": LARGE}, request))
    await asyncio.sleep(0)
    ending.end()
    assert await leaving is None
    assert await outline_params(small, request) is small
    assert await outline_params({"message": LARGE}, request) is None


async def test_what_was_left_out_is_put_in_once() -> None:
    """A large value is released once it is written."""
    request = Request({"type": "http", ENDING: Ending()})
    part = json.dumps(await outline_params({"message": LARGE}, request)).encode()
    assert json.loads(b"".join(put_in(request.scope, part))) == {"message": LARGE}
    assert put_in(request.scope, part) == [part]
