"""Request bodies at every door: who may send them, how many bytes are held, and how long they are waited for."""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway import arriving
from gateway.doors import approvals, responses
from gateway.doors.bridge import uploads
from gateway.exchange.approvers import SIGNATURE, TIMESTAMP, signature
from gateway.model import Secret
from tests.callers.tokens import token
from tests.doors.bridge.test_bridge import console
from tests.leaks.marks import MARK
from tests.world import World, running

KEY = f"a webhook secret of these tests, long enough {MARK}"
WEBHOOK = (
    'approvals:\n  ask: [console, webhook]\n  webhook: {url: "http://127.0.0.1:9/", network: private, '
    f'answers: true, secret: "{KEY}"}}\n'
)
MIB = 1024 * 1024
BYTES = "application/octet-stream"


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[World]:
    """A gateway with tokens."""
    async with running(tmp_path, extra="auth: [token]\n") as world:
        yield world


@asynccontextmanager
async def connected(world: World, *lines: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield a connection on which a request has begun."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        yield reader, writer
    finally:
        writer.close()


def put_head(world: World, shown: dict[str, str], length: int, id: str | None = None) -> list[str]:
    """Return the head of a PUT of a body."""
    return [
        f"PUT /bridge/bodies/{id or secrets.token_urlsafe(24)} HTTP/1.1",
        f"host: gateway.localhost:{world.gateway.port}",
        *(f"{name}: {value}" for name, value in shown.items()),
        f"content-type: {BYTES}",
        f"content-length: {length}",
    ]


async def status(reader: asyncio.StreamReader) -> int:
    """Return the status of the answer."""
    async with asyncio.timeout(60):
        return int((await reader.readuntil(b"\r\n")).split()[1])


async def put_bytes(world: World, shown: dict[str, str], size: int) -> int:
    """Return the status of a PUT of so many bytes."""
    url, headers = f"{world.console}/bridge/bodies/{secrets.token_urlsafe(24)}", {**shown, "content-type": BYTES}
    async with world.client() as client, client.put(url, data=io.BytesIO(bytes(size)), headers=headers) as answer:
        return answer.status


async def test_a_body_takes_the_capability_of_the_bridge(guarded: World) -> None:
    """Both to upload a body and to fetch it; for all apps, or for one of them."""
    for name, capability, expected in (("mcp", "mcp", 403), ("all", "bridge", 204), ("one", "bridge:cart", 204)):
        shown = await token(guarded, name, capability)
        assert await put_bytes(guarded, shown, 10) == expected
        url = f"{guarded.console}/bridge/bodies/{secrets.token_urlsafe(24)}"
        async with guarded.client() as client, client.get(url, headers=shown) as answer:
            assert answer.status == (403 if expected == 403 else 404)


async def test_bodies_that_are_announced_and_not_sent_take_no_room(guarded: World) -> None:
    """Four tokens announce the whole capacity; a fifth still uploads its body."""
    shown = [await token(guarded, f"holder {number}", "bridge", person=f"p{number}") for number in range(5)]
    open_ones = [connected(guarded, *put_head(guarded, shown[number % 4], 64 * MIB)) for number in range(20)]
    for one in open_ones:
        await one.__aenter__()
    try:
        assert await put_bytes(guarded, shown[4], 20 * MIB) == 204
    finally:
        for one in open_ones:
            await one.__aexit__(None, None, None)


@pytest.mark.bound("incomplete large bodies of the bridge")
@pytest.mark.parametrize("trickle", [True, False], ids=["trickles", "sends nothing"])
async def test_a_body_that_does_not_come_is_answered_408(
    guarded: World, monkeypatch: pytest.MonkeyPatch, *, trickle: bool
) -> None:
    """Although it never stops for long; its id and its space are then free."""
    monkeypatch.setattr(arriving, "SILENCE", 0.3)
    shown, id = await token(guarded, "holder", "bridge"), secrets.token_urlsafe(24)
    async with connected(guarded, *put_head(guarded, shown, MIB, id)) as (reader, writer):

        async def trickling() -> None:
            while trickle:
                writer.write(b"x")
                await asyncio.sleep(0.02)

        task = asyncio.ensure_future(trickling())
        assert await status(reader) == 408
        task.cancel()
    async with connected(guarded, *put_head(guarded, shown, 1, id)) as (reader, writer):
        writer.write(b"x")
        assert await status(reader) == 204


@pytest.mark.bound("incomplete request bodies")
@pytest.mark.parametrize(("host", "path"), [("cart", "/api/cart"), ("gateway", "/mcp/cart"), ("gateway", "/mcp")])
async def test_a_body_of_a_request_that_does_not_come_is_answered_408(
    world: World, monkeypatch: pytest.MonkeyPatch, host: str, path: str
) -> None:
    """At every door that reads bodies."""
    monkeypatch.setattr(arriving, "SILENCE", 0.3)
    head = (f"POST {path} HTTP/1.1", f"host: {host}.localhost:{world.gateway.port}", "webmcp-gateway-client: 1")
    more = ("content-type: application/json", "accept: application/json, text/event-stream", "content-length: 10")
    async with connected(world, *head, *more) as (reader, writer):
        writer.write(b"[")
        assert await status(reader) == 408


async def test_a_body_that_is_given_up_leaves_its_room(tmp_path: Path) -> None:
    """As soon as its connection is closed."""
    async with running(tmp_path, extra="auth: [token]\nmcp: {bodies: 64MiB, bodies_each: 64MiB}\n") as world:
        shown = await token(world, "holder", "bridge")
        async with connected(world, *put_head(world, shown, 64 * MIB)) as (_, writer):
            writer.transport.set_write_buffer_limits(0)
            writer.write(bytes(40 * MIB))
            await writer.drain()
            assert await put_bytes(world, shown, 40 * MIB) == 503
        async with asyncio.timeout(60):
            while await put_bytes(world, shown, 40 * MIB) != 204:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("door", ["site", "mcp"])
async def test_the_bodies_of_requests_share_that_room(tmp_path: Path, door: str) -> None:
    """A caller that filled it with one kind of body gets 503 with Retry-After for another kind."""
    async with running(tmp_path, extra="mcp: {bodies: 64MiB, bodies_each: 64MiB}") as world, console(world) as client:
        url = f"{world.console}/bridge/bodies/{secrets.token_urlsafe(24)}"
        async with client.put(url, data=io.BytesIO(bytes(60 * MIB)), headers={"content-type": BYTES}) as answer:
            assert answer.status == 204
        target = f"{world.site}/api/cart" if door == "site" else f"{world.url}/mcp/cart"
        headers = {"webmcp-gateway-client": "1", "content-type": "application/json", "accept": "application/json"}
        async with world.client(headers=headers) as other:
            for size, expected in ((6 * MIB, True), (1024, False)):
                async with other.post(target, data=io.BytesIO(b" " * size)) as answer:
                    assert (answer.status == 503) is expected, await answer.text()
                    assert ("retry-after" in answer.headers) is expected


@pytest.mark.bound("requests to the console's REST API")
async def test_the_console_reads_small_bodies_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And waits for them for a limited time."""
    monkeypatch.setattr(responses, "SOON", 0.3)
    async with console(world) as client:
        for path in ("bridge/tickets", "api/links", "api/downloads", "api/approvals/x", "api/connections/x"):
            padded = json.dumps({"apps": ["cart"], "x": "x" * responses.SMALL})
            async with client.post(f"{world.console}/{path}", data=padded) as answer:
                assert answer.status == 413, path
        csrf = client.headers["webmcp-gateway-csrf"]
        host = f"gateway.localhost:{world.gateway.port}"
        head = ["POST /bridge/tickets HTTP/1.1", f"host: {host}", f"origin: http://{host}", "content-length: 100"]
        async with connected(world, *head, f"webmcp-gateway-csrf: {csrf}") as (reader, _):
            assert await status(reader) == 408


def sign_answer(body: bytes, when: float) -> dict[str, str]:
    """Return the header fields of a signed answer."""
    timestamp = str(int(when))
    return {TIMESTAMP: timestamp, SIGNATURE: signature(Secret(KEY), timestamp, body)}


@pytest.mark.bound("signed webhook answers (unauthenticated until verified)")
async def test_of_signed_answers_little_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a plausible signature nothing, else few bytes for a short time, from few senders at a time."""
    monkeypatch.setattr(approvals, "SIGNED_WITHIN", 0.5)
    monkeypatch.setattr(approvals, "SIGNED_EACH", 3)
    async with running(tmp_path, extra=WEBHOOK) as world, world.client() as client:
        url, host = f"{world.url}/approvals/webhook", f"localhost:{world.gateway.port}"
        head = ["POST /approvals/webhook HTTP/1.1", f"host: {host}", f"content-length: {16 * MIB}"]
        for fields in ({}, {SIGNATURE: "v1=1"}, sign_answer(b"", time.time() - 3600)):
            async with connected(world, *head, *(f"{name}: {value}" for name, value in fields.items())) as (reader, _):
                assert await status(reader) == 403  # although none of its body has arrived
        good = [f"{name}: {value}" for name, value in sign_answer(b"", time.time()).items()]
        waiting = [connected(world, *head[:2], "content-length: 100", *good) for _ in range(3)]
        readers = [(await one.__aenter__())[0] for one in waiting]
        try:
            async with asyncio.timeout(60):
                while True:
                    async with client.post(url, data=b"{}", headers=sign_answer(b"{}", time.time())) as answer:
                        if answer.status == 503:
                            break
                        assert answer.status == 403
            assert [await status(reader) for reader in readers] == [408] * 3
        finally:
            for one in waiting:
                await one.__aexit__(None, None, None)
        large = b" " * (approvals.SIGNED_BYTES + 1)
        async with client.post(url, data=large, headers=sign_answer(large, time.time())) as answer:
            assert answer.status == 413
        async with client.post(url, data=b"{}", headers=sign_answer(b"{}", time.time())) as answer:
            assert answer.status == 403
            assert "answer: approve or decline" in await answer.text()


def test_a_few_principals_cannot_take_all_room() -> None:
    """Of its second half each principal gets little; late callers still find space."""
    waiting = uploads.Bodies(room=1024 * MIB, each=256 * MIB)
    greedy = 0
    for number in range(64):
        greedy += waiting.put(f"{number:032}", f"greedy {number % 4}", bytes(32 * MIB))
    assert greedy <= 32
    assert all(
        waiting.put(f"late {number}".ljust(32, "x").replace(" ", "-"), f"{number}", bytes(MIB)) for number in range(16)
    )
