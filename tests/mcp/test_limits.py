"""The size of one message, and the rate of a view's calls: limited by the policy, before anything runs."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.attacks.wire import WireAnswer, exchange
from tests.mcp.fast_cases import META
from tests.world import World, running

MIB = 1024 * 1024
POLICY = """\
version: 1
backends:
  shop: {url: "http://127.0.0.1:9401", network: [127.0.0.0/8]}
routes:
  - {path: /api/large, methods: [POST], request: 13MiB}
  - {path: /api/small, methods: [POST]}
"""


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Yield a gateway with a route that accepts 13 MiB, and one with the default limit."""
    async with running(tmp_path_factory.mktemp("limits"), policy=POLICY) as world:
        yield world


def head(world: World, tool: str) -> list[tuple[str, str]]:
    """Return the header fields of a call."""
    return [
        ("host", f"localhost:{world.gateway.port}"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
    ]


async def call(world: World, tool: str, arguments: dict[str, Any]) -> WireAnswer:
    """Return a call of a tool at the mount of the cart."""
    params = {"name": tool, "arguments": arguments, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    return await exchange(world.gateway.port, "POST", "/mcp/cart", head(world, tool), body)


async def result(world: World, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the result of such a call."""
    said: dict[str, Any] = json.loads((await call(world, tool, arguments)).raw.partition(b"\r\n\r\n")[2])["result"]
    return said


class Attached:
    """A view that proves its calls."""

    def __init__(self, world: World, view: str, key: str) -> None:
        self._world, self._view, self._key, self._count = world, view, base64.urlsafe_b64decode(key + "="), 0

    async def ask(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Send a proven call."""
        self._count += 1
        number = str(self._count).encode()
        signed = base64.urlsafe_b64encode(hmac.digest(self._key, number, "sha256")).decode().rstrip("=")
        return await result(self._world, tool, **arguments, _view=f"{self._view}.{self._count}.{signed}")


async def attach_view(world: World) -> Attached:
    """Return a new one."""
    opened = await result(world, "open_cart")
    given = await result(world, "webmcp_attach", launch=opened["_meta"]["webmcp-gateway/launch"])
    return Attached(world, given["structuredContent"]["view"], given["structuredContent"]["key"])


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [("large", 13 * MIB, 401), ("large", 13 * MIB + 1, 413), ("small", MIB + 1, 413), ("small", 11 * MIB, 413)],
)
async def test_the_limit_of_a_route_is_what_counts(world: World, path: str, size: int, status: int) -> None:
    """A body of that size reaches the backend (which requires a token), a byte more is answered 413 in the result."""
    view = await attach_view(world)
    body = base64.b64encode(b"x" * size).decode()
    answer = await view.ask("http_request", url=f"/api/{path}", method="POST", body=body, bodyType="base64")
    said = answer["structuredContent"]
    assert (said["status"], "gateway-reason" in said["headers"]) == (status, status == 413)


async def test_what_no_route_could_take_is_refused_by_its_length(world: World) -> None:
    """Twice the largest route's limit, and a little, is read; a larger message is 413 before its body arrives."""
    lines = [f"{name}: {value}" for name, value in head(world, "http_request")]
    request = "\r\n".join(["POST /mcp/cart HTTP/1.1", *lines, f"content-length: {27 * MIB + 1}", "connection: close"])
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    writer.write(f"{request}\r\n\r\n".encode())
    assert WireAnswer(await reader.readuntil(b"\r\n\r\n")).status == 413
    writer.close()


async def test_a_view_that_asks_without_end_is_slowed_down(world: World) -> None:
    """Others continue, and so does it a little later."""
    busy, calm = await attach_view(world), await attach_view(world)
    answers = [await busy.ask("webmcp_poll", wait=0) for _ in range(1)]
    while not answers[-1].get("isError"):
        answers += await asyncio.gather(*(busy.ask("webmcp_poll", wait=0) for _ in range(50)))
        assert len(answers) < 20_000
    refused = next(answer for answer in answers if answer.get("isError"))
    assert refused["structuredContent"]["reason"] == "rate-limited"
    assert not (await calm.ask("webmcp_poll", wait=0)).get("isError")
    while (await busy.ask("webmcp_poll", wait=0)).get("isError"):
        await asyncio.sleep(0)
