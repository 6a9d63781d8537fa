"""Invalid or contradictory messages to the mount of an upstream: refused with a reason, and nothing is called."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.cli.attack.cases import VERSION, answer_in, meta
from gateway.jsontext.writing import SIZE
from tests.attacks.corpus import family
from tests.interop.large_lists import server
from tests.interop.serving import gateway, over_http

RAN = "tool_0 ran"
FIELDS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": VERSION,
    "mcp-method": "tools/call",
    "mcp-name": "tool_0",
}
NO_IDS: list[Any] = [None, 1.5, True, [1], {"a": 1}]


def call_message(**more: Any) -> dict[str, Any]:
    """Return a call of the tool."""
    params = {"name": "tool_0", "arguments": {}, "_meta": meta()}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params, **more}


@asynccontextmanager
async def mounted(folder: Path, fast: str) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """Yield the URL of the mount, with the fast path or without, and an HTTP client."""
    async with (
        over_http(server(), json_response=True) as url,
        gateway(folder, f'up: {{url: "{url}", network: private}}', f"mcp: {{fast_path: {fast}}}") as mcp,
        aiohttp.ClientSession() as http,
    ):
        assert (
            RAN.encode() in (await send_message(http, f"{mcp}/up", call_message()))[1]
        )  # only known tools take the fast path
        yield f"{mcp}/up", http


async def send_message(
    http: aiohttp.ClientSession, mount: str, body: Any, fields: dict[str, str] | None = None, method: str = "POST"
) -> tuple[int, bytes]:
    """Send a message, a text as it is; return status and body of the answer."""
    data = (body if isinstance(body, str) else json.dumps(body)).encode("utf-8", "surrogatepass")
    async with http.request(method, mount, data=data, headers=FIELDS | (fields or {})) as answer:
        return answer.status, await answer.read()


@pytest.mark.parametrize("fast", ["true", "false"])
async def test_every_kind_of_id(tmp_path: Path, fast: str) -> None:
    """A valid id comes back unchanged; with an invalid one nothing is called."""
    async with mounted(tmp_path, fast) as (mount, http):
        for id in (0, -1, 2**53, 2**63 + 1, 10**400, "", "1", "é\u2028", "x" * 10_000):
            status, raw = await send_message(http, mount, call_message(id=id))
            answer = answer_in(raw)
            assert (status, answer is not None and answer["id"] == id) == (200, True), id
            assert RAN.encode() in raw
        for id in NO_IDS:
            status, raw = await send_message(http, mount, call_message(id=id))
            assert status < 500, id
            assert RAN.encode() not in raw, id


@pytest.mark.parametrize("size", [0, 1, 2, 1000])
@pytest.mark.parametrize("fast", ["true", "false"])
async def test_batches(tmp_path: Path, fast: str, size: int) -> None:
    """None of its calls runs."""
    async with mounted(tmp_path, fast) as (mount, http):
        status, raw = await send_message(http, mount, [call_message(id=number) for number in range(size)])
        assert (status, RAN.encode() in raw) == (400, False)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"mcp-name": "other"}, 400),
        ({"mcp-method": "tools/list"}, 400),
        ({"mcp-protocol-version": "1999-01-01"}, 400),
        ({"content-type": "text/plain"}, 400),
        ({"accept": "text/html"}, 406),
        ({"host": "evil.example"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
@pytest.mark.parametrize("fast", ["true", "false"])
async def test_heads_that_say_otherwise(tmp_path: Path, fast: str, fields: dict[str, str], status: int) -> None:
    """Headers that contradict the body, or name another host."""
    async with mounted(tmp_path, fast) as (mount, http):
        found, raw = await send_message(http, mount, call_message(), fields)
        assert RAN.encode() not in raw
        assert found == status


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"])
@pytest.mark.parametrize("fast", ["true", "false"])
async def test_odd_methods(tmp_path: Path, fast: str, method: str) -> None:
    """A call is a POST."""
    async with mounted(tmp_path, fast) as (mount, http):
        status, raw = await send_message(http, mount, call_message(), method=method)
        assert RAN.encode() not in raw
        assert 400 <= status < 500


@pytest.mark.parametrize("fast", ["true", "false"])
async def test_arguments_that_no_message_can_carry(tmp_path: Path, fast: str) -> None:
    """They are refused as the caller's error, also in the record; the upstream is not called, and nothing fails."""
    nested = [f'{{"a":{"[" * depth}{"]" * depth}}}' for depth in (64, 200, *range(900, 960, 4), 10_000)]
    large = [f'{{"b":"{"x" * SIZE}",{value[1:]}' for value in ('{"a":1e400}', nested[0])]
    values = ['{"a":1e400}', '{"a":[-1e400]}', '{"a":NaN}', '{"a":Infinity}', *nested, *large]
    async with mounted(tmp_path, fast) as (mount, http):
        before = outcomes(tmp_path)
        for arguments in values:
            body = json.dumps(call_message()).replace('"arguments": {}', f'"arguments":{arguments}')
            status, raw = await send_message(http, mount, body)
            assert status in (200, 400), arguments[:40]
            assert b"bad-request" in raw or b"Parse error" in raw, arguments[:40]
        told = outcomes(tmp_path)[len(before) :]
    assert len(told) > 4
    assert {(one["reason"], one["status"], "arguments" in one) for one in told} == {("bad-request", 400, False)}


def outcomes(folder: Path) -> list[dict[str, Any]]:
    """Return the outcomes of calls in the record."""
    lines = [json.loads(line) for path in folder.rglob("*.journal") for line in path.read_text("utf-8").splitlines()]
    return [line["fields"] for line in lines if line["phase"] == "outcome" and line["fields"].get("kind") == "tool"]


@pytest.mark.parametrize("fast", ["true", "false"])
async def test_the_corpus(tmp_path: Path, fast: str) -> None:
    """The attacks on other mounts are refused here, too; the next call is answered."""
    async with mounted(tmp_path, fast) as (mount, http):
        bodies = [case["mcp"] for case in family("mcp") if "mcp" in case]
        bodies += [
            call_message() | case["rpc"] for case in family("mcp") if "rpc" in case and "params" not in case["rpc"]
        ]
        assert len(bodies) > 20
        for body in bodies:
            status, raw = await send_message(http, mount, body)
            assert status < 500, body
            assert b"Traceback" not in raw, body
        status, raw = await send_message(http, mount, call_message())
        assert (status, RAN.encode() in raw) == (200, True)
