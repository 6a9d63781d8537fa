"""Sessions that nobody uses leave the SDK, and their standing streams go on without it and without aiohttp."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp

from gateway.fastpath.connection import FastConnection
from gateway.model import LOCAL
from tests.mcp.fakes import ADD
from tests.mcp.mounts import Mount, Served
from tests.mcp.test_adopted import LIST, send_request
from tests.mcp.test_resume import event, open_session

CHANGED = "notifications/tools/list_changed"


def mount(rest: float = 0.01, idle: float = 1800.0) -> Mount:
    """Return a mount whose sessions rest soon, and whose plain streams are served without aiohttp."""
    return Mount(front=True, plain_streams=True, session_rest=rest, session_idle=idle)


def client() -> aiohttp.ClientSession:
    """Return a client, which waits for a minute at most."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60))


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds, for a minute at most."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


def running(served: Served) -> int:
    """Return the number of sessions in the SDK."""
    return len(served.face._manager._server_instances)


def is_full(served: Served, fields: dict[str, str]) -> bool:
    """Return whether the write buffer of a session's stream is full."""
    stream = served.face._manager._here[fields["mcp-session-id"]].stream
    connection = stream._writer if stream is not None else None
    return isinstance(connection, FastConnection) and connection._full


async def message(stream: aiohttp.ClientResponse) -> Any:
    """Return the next message of a stream."""
    while not (data := (found := await event(stream)).get("data")):
        assert found
    return json.loads(data)


async def method(stream: aiohttp.ClientResponse) -> str:
    """Return the method of the next message of a stream."""
    return str((await message(stream))["method"])


async def test_an_idle_session_leaves_the_sdk_and_its_stream_goes_on() -> None:
    """Its client notices nothing: messages arrive, requests are answered, and then it rests again."""
    async with mount().serve() as served, client() as http:
        mine = await open_session(http, served.url)
        before = await send_request(http, served.url, mine)
        async with http.get(served.url, headers=mine) as stream:
            await event(stream)
            for _ in range(2):
                await until(lambda: not running(served))
                served.views.offer(LOCAL, ADD)
                assert await method(stream) == CHANGED
                assert running(served) == 0  # the notification did not need the SDK
                served.views.offer(LOCAL)
                assert (await send_request(http, served.url, mine))[0] == before[0] == 200
                assert await method(stream) == CHANGED
        assert served.seen.count("/mcp") == 5  # of the client's POST requests: the stream never came to aiohttp


async def test_a_thousand_idle_sessions_need_one_task_each() -> None:
    """That of the connection; without a stream a session needs none."""
    async with mount().serve() as served, client() as http, AsyncExitStack() as streams:
        before = len(asyncio.all_tasks())
        for number in range(20):
            mine = await open_session(http, served.url)
            if number % 2:
                await event(await streams.enter_async_context(http.get(served.url, headers=mine)))
        await until(lambda: not running(served))
        await until(lambda: len(asyncio.all_tasks()) - before <= 10)


async def test_a_second_stream_is_refused_while_one_is_open() -> None:
    """By the SDK, whether the session rests or not; once the first is gone, the next one begins."""
    async with mount().serve() as served, client() as http:
        mine = await open_session(http, served.url)
        async with http.get(served.url, headers=mine) as stream:
            await event(stream)
            await until(lambda: not running(served))
            async with http.get(served.url, headers=mine) as second:
                assert second.status == 409
            async with http.get(served.url, headers={**mine, "x-user": "i|c|other"}) as foreign:
                assert foreign.status == 404
        session = served.face._manager._here[mine["mcp-session-id"]]
        await until(lambda: session.stream is None)
        async with http.get(served.url, headers=mine) as stream:
            assert stream.status == 200


async def test_a_resting_session_is_its_own_principals_alone() -> None:
    """For others it is unknown, and it stays at rest."""
    async with mount().serve() as served, client() as http:
        mine = await open_session(http, served.url)
        await until(lambda: not running(served))
        for verb in ("POST", "GET", "DELETE"):
            async with http.request(verb, served.url, json=LIST, headers={**mine, "x-user": "i|c|other"}) as answer:
                assert answer.status == 404
        assert running(served) == 0
        async with http.delete(served.url, headers=mine) as answer:
            assert answer.status == 200
        assert (await send_request(http, served.url, mine))[0] == 404
        assert mine["mcp-session-id"] not in served.face._manager._here


async def test_requests_at_once_wake_a_session_once() -> None:
    """All are answered by the same session in the SDK."""
    async with mount(rest=0.05).serve() as served, client() as http:
        mine = await open_session(http, served.url)
        await until(lambda: not running(served))
        answers = await asyncio.gather(
            *[send_request(http, served.url, mine, {**LIST, "id": number}) for number in range(8)]
        )
        assert [(status, answer["id"]) for status, answer in answers] == [(200, number) for number in range(8)]


async def test_what_a_client_declared_holds_after_a_rest() -> None:
    """Its capabilities and version are those of its handshake."""
    async with mount().serve() as served, client() as http:
        params = {"protocolVersion": "2025-06-18", "capabilities": {"roots": {}, "elicitation": {}}}
        params |= {"clientInfo": {"name": "one", "version": "7"}}
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        accept = {"accept": "application/json, text/event-stream"}
        async with http.post(served.url, json=hello, headers=accept) as answer:
            await answer.read()
            mine = {**accept, "mcp-session-id": answer.headers["mcp-session-id"]}
        async with http.post(
            served.url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=mine
        ) as answer:
            assert answer.status == 202
        await until(lambda: not running(served))
        manager, connections = served.face._manager, []
        note = manager.note

        async def see(ctx, call_next):  # type: ignore[no-untyped-def]  # of the SDK
            connections.append(ctx.session._connection)
            return await note(ctx, call_next)

        served.face._manager.app.middleware[0] = see
        await send_request(http, served.url, mine)
    (connection,) = connections
    assert connection.protocol_version == "2025-06-18"
    assert connection.client_params.client_info.name == "one"
    assert connection.client_capabilities.roots is not None
    assert connection.client_capabilities.sampling is None


async def test_a_session_that_rests_ends_when_nobody_uses_it() -> None:
    """Not while its stream is open."""
    async with mount(idle=0.2).serve() as served, client() as http:
        mine, other = await open_session(http, served.url), await open_session(http, served.url)
        async with http.get(served.url, headers=mine) as stream:
            await event(stream)
            await until(lambda: other["mcp-session-id"] not in served.face._manager._here)
            assert (await send_request(http, served.url, other))[0] == 404
            served.views.offer(LOCAL, ADD)
            assert await method(stream) == CHANGED
        await until(lambda: not served.face._manager._here)
        assert (await send_request(http, served.url, mine))[0] == 404


async def test_what_happens_between_two_streams_is_sent_on_the_next() -> None:
    """Also to a session that rests; resumed after an event, or begun anew."""
    async with mount().serve() as served, client() as http:
        mine = await open_session(http, served.url)
        async with http.get(served.url, headers=mine) as stream:
            last = (await event(stream))["id"]
        session = served.face._manager._here[mine["mcp-session-id"]]
        await until(lambda: session.stream is None and not running(served))
        served.views.offer(LOCAL, ADD)
        async with http.get(served.url, headers={**mine, "last-event-id": last}) as stream:
            assert await method(stream) == CHANGED
        assert served.seen.count("/mcp") == 2


async def test_after_a_restart_a_stream_needs_no_aiohttp_either() -> None:
    """Its session is adopted, restored, and rests; of an unknown session the SDK says so."""
    before = mount()
    async with before.serve() as served, client() as http:
        mine = await open_session(http, served.url)
        await until(lambda: not running(served))
    async with before.serve() as served, client() as http:
        async with http.get(served.url, headers=mine) as stream:
            assert stream.status == 200
            assert await method(stream) == CHANGED
            await until(lambda: served.face._subscriptions and not running(served))
            served.views.offer(LOCAL, ADD)
            assert await method(stream) == CHANGED
        assert served.seen == []
        async with http.get(served.url, headers={**mine, "mcp-session-id": "0" * 32}) as stream:
            assert stream.status == 404


async def test_a_drain_ends_the_streams() -> None:
    """As a whole answer, not as a broken one."""
    async with mount().serve() as served, client() as http:
        mine = await open_session(http, served.url)
        async with http.get(served.url, headers=mine) as stream:
            await event(stream)
            served.face.drain()
            assert b"id: " not in await stream.read()


async def test_both_ways_write_the_same() -> None:
    """Head, first event and messages of a plain stream are those of aiohttp and the SDK, byte for byte."""
    found = []
    for plain in (True, False):
        async with Mount(front=True, plain_streams=plain).serve() as served, client() as http:
            mine = await open_session(http, served.url)
            host = served.url.split("/")[2]
            reader, writer = await asyncio.open_connection(*host.split(":"))
            fields = "".join(f"{name}: {value}\r\n" for name, value in mine.items())
            writer.write(f"GET /mcp HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n".encode())
            text = await reader.readuntil(b"retry: 3000\r\n\r\n\r\n")
            await until(lambda served=served: served.face._subscriptions)  # type: ignore[misc]  # a default binds it
            served.views.offer(LOCAL, ADD)
            text += await reader.readuntil(b"list_changed")
            served.face.drain()
            text += await reader.readuntil(b"0\r\n\r\n")
            writer.close()
            masked = re.sub(rb"id: \.[\w-]{16}", b"id: #", text)
            masked = re.sub(rb"[0-9a-f]{32}", b"session", masked)
            found.append(re.sub(rb"(?m)^Date: .*$", b"date", masked))
            assert ("/mcp" in served.seen[2:]) is not plain
    assert found[0] == found[1]


async def test_a_client_that_reads_slowly_gets_everything_in_order() -> None:
    """What it is sent waits for it; a client that goes away instead holds up nobody."""
    async with mount().serve() as served, client() as http:
        manager, large = served.face._manager, "x" * 30_000
        mine, other = await open_session(http, served.url), await open_session(http, served.url)

        async def announce(id: str) -> None:
            for number in range(400):
                await manager.announce(id, "notifications/message", {"level": "info", "data": f"{number} {large}"})

        async with http.get(served.url, headers=mine) as stream:
            telling = asyncio.create_task(announce(mine["mcp-session-id"]))
            await until(lambda: is_full(served, mine))
            assert not telling.done()
            told = [await message(stream) for _ in range(400)]
            await telling
        assert [int(one["params"]["data"].split()[0]) for one in told] == list(range(400))
        gone = await http.get(served.url, headers=other)
        telling = asyncio.create_task(announce(other["mcp-session-id"]))
        await until(lambda: is_full(served, other))
        gone.close()
        await telling
