"""Streams of the handshake protocols are resumed where they broke, only by their own session, within bounds."""

from __future__ import annotations

import asyncio
import json
import logging
import runpy
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from io import BytesIO
from typing import Any

import aiohttp
import pytest
from mcp.server.streamable_http import EventMessage
from mcp_types import JSONRPCNotification

from gateway.mcp import out_of_band, resume, sessions
from gateway.mcp.out_of_band import MARK
from gateway.mcp.resume import STANDING, Room, SessionEvents
from gateway.model import LOCAL
from tests.mcp.fakes import ADD
from tests.mcp.mounts import Mount, Served

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
VERSION = "2025-11-25"


@pytest.fixture(params=["aiohttp", "plain"])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """Yield a mount of two apps, whose standing streams are served by aiohttp and the SDK, or by neither."""
    plain = request.param == "plain"
    async with Mount(front=plain, plain_streams=plain, session_rest=0.01 if plain else 5.0).serve() as served:
        yield served


def streams(served: Served) -> int:
    """Return the number of open standing streams."""
    plain = sum(session.stream is not None for session in served.face._manager._here.values())
    return plain + len(served.face._streams)


async def open_session(http: aiohttp.ClientSession, url: str) -> dict[str, str]:
    """Return the header fields of a new session."""
    params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    async with http.post(
        url, json={"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, headers=ACCEPT
    ) as answer:
        await answer.read()
        fields = {**ACCEPT, "mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": VERSION}
    async with http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=fields) as answer:
        assert answer.status == 202
    return fields


async def answers(http: aiohttp.ClientSession, url: str, *users: str) -> list[tuple[int, str]]:
    """Return status and text of the answer to a new session of each of these."""
    params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    found = []
    for user in users:
        async with http.post(url, json=message, headers={**ACCEPT, "x-user": user}) as answer:
            found.append((answer.status, await answer.text()))
    return found


@pytest.mark.parametrize(
    ("mount", "users", "why"),
    [
        (
            Mount(sessions_each=2),
            ("", "", "", "i|c|other"),
            "this caller has 2 here, the limit of `mcp.sessions_each`",
        ),
        (
            Mount(sessions=2),
            ("", "i|c|one", "i|c|two"),
            "all callers together have 2 here, the limit of `mcp.sessions`",
        ),
    ],
    ids=("each", "all"),
)
@pytest.mark.bound("sessions of the handshake protocols")
async def test_too_many_sessions_are_refused_with_the_limit_that_is_reached(
    mount: Mount, users: tuple[str, ...], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets the remedy, and the log the same limit; another caller's share stays free."""
    async with mount.serve() as served, aiohttp.ClientSession() as http:
        said = await answers(http, served.url, *users)
    assert [status for status, _ in said] == [200, 200, 503, 200][: len(users)]
    error = json.loads(said[2][1])["error"]
    assert error["code"] == -32603
    assert error["message"].startswith(f"Too many open sessions: {why}. End one that is not needed (DELETE)")
    assert [record.getMessage() for record in caplog.records if record.name == "gateway.mcp.sessions"] == [
        f"no new session at /mcp: {why}"
    ]


@pytest.mark.bound("what a client declares in `initialize`")
@pytest.mark.parametrize("name", ["x" * 65_536, "x" * 2_000_000])
async def test_what_a_client_declares_is_bounded(name: str) -> None:
    """A session keeps it, so that a long one is refused, before the session and within it; shorter ones count."""
    declared = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": name, "version": "1"}}
    message = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": declared}).encode()
    async with Mount(sessions_each=1).serve() as served, aiohttp.ClientSession() as http:
        async with http.post(served.url, data=BytesIO(message), headers=ACCEPT) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (413, -32600)
        session = await open_session(http, served.url)
        async with http.post(served.url, data=BytesIO(message), headers=session) as answer:
            assert "65,536 bytes at most" in await answer.text()
        assert (await answers(http, served.url, ""))[0][0] == 503


async def test_a_session_that_nobody_uses_ends() -> None:
    """Its place is then free, and its id unknown."""
    async with Mount(sessions_each=1, session_idle=0.3).serve() as served, aiohttp.ClientSession() as http:
        first = await open_session(http, served.url)
        async with asyncio.timeout(60):
            while (status := (await answers(http, served.url, ""))[0][0]) != 200:
                assert status == 503
                await asyncio.sleep(0.05)
        async with http.post(
            served.url, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers=first
        ) as answer:
            assert answer.status == 404


async def event(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """Return the next event of a stream, empty at its end."""
    found: dict[str, str] = {}
    while True:
        line = await answer.content.readline()
        if not line or (found and not line.strip()):
            return found
        name, _, value = line.decode().strip().partition(": ")
        if name in ("id", "data", "event"):
            found[name] = value


async def taken_up(http: aiohttp.ClientSession, url: str, fields: dict[str, str], go: asyncio.Event) -> dict[str, Any]:
    """Return the first message of a stream that is resumed with `fields`; set `go` once the gateway has it again.

    A stream that ends at once means that the gateway has not noticed the end of the previous connection yet.
    """
    found: dict[str, Any] = {}
    while not found:
        async with http.get(url, headers=fields) as stream:
            while not found and (one := await event(stream)):
                go.set()
                found = json.loads(one.get("data") or "{}")
    return found


async def test_a_stream_is_taken_up_where_it_broke(served: Served) -> None:
    """Missed messages are sent then; another session receives none of them."""
    async with aiohttp.ClientSession() as http:
        mine, others = await open_session(http, served.url), await open_session(http, served.url)
        async with http.get(served.url, headers=mine) as stream:
            first: dict[str, str] = {}
            while json.loads(first.get("data") or "{}").get("method") != "notifications/tools/list_changed":
                served.views.offer(LOCAL, ADD)  # again, in case the session did not listen yet
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        first = await event(stream)
        assert first["id"]
        served.views.offer(LOCAL)
        async with http.get(served.url, headers={**mine, "last-event-id": first["id"]}) as stream:
            again = await event(stream)
            while "list_changed" not in again.get("data", ""):
                again = await event(stream)
        assert again["id"] != first["id"]
        async with http.get(served.url, headers={**others, "last-event-id": first["id"]}) as stream:
            served.face.drain()
            assert first["id"].encode() not in await stream.read()


async def test_an_idle_session_with_its_stream_needs_few_tasks(served: Served) -> None:
    """Two for the session in the SDK, and three for the request of its stream; thousands may be idle."""
    async with aiohttp.ClientSession() as http, AsyncExitStack() as streams, asyncio.timeout(60):

        async def hold() -> None:
            mine = await open_session(http, served.url)
            await event(await streams.enter_async_context(http.get(served.url, headers=mine)))

        await hold()
        before = len(asyncio.all_tasks())
        for _ in range(5):
            await hold()
        while len(served.face._subscriptions) < 6:
            await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) - before <= 5 * 5


async def test_a_client_that_ends_its_session_is_no_error(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Its standing stream ends with it."""
    async with aiohttp.ClientSession() as http, asyncio.timeout(60):
        mine = await open_session(http, served.url)
        async with http.get(served.url, headers=mine) as stream:
            await event(stream)
            async with http.delete(served.url, headers=mine) as answer:
                assert answer.status == 200
            await stream.read()
    assert [line.getMessage() for line in caplog.records if line.levelno >= logging.ERROR] == []


async def test_a_standing_stream_gets_comments_while_nothing_happens(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies close connections without traffic."""
    monkeypatch.setattr(resume, "PING", 0.05)
    async with aiohttp.ClientSession() as http, asyncio.timeout(60):
        mine = await open_session(http, served.url)
        async with http.get(served.url, headers=mine) as stream:
            while not (line := await stream.content.readline()).startswith(b": ping"):
                assert line
            served.views.offer(LOCAL, ADD)
            while "list_changed" not in (await event(stream)).get("data", ""):
                pass


async def test_what_is_said_before_a_standing_stream_and_where_it_breaks_is_said_then(served: Served) -> None:
    """A client may list the tools before it opens its stream, and may resume a stream without events."""

    async with aiohttp.ClientSession() as http, asyncio.timeout(60):
        mine = await open_session(http, served.url)
        while not served.face._subscriptions:
            await asyncio.sleep(0.01)
        served.views.offer(LOCAL, ADD)
        async with http.get(served.url, headers=mine) as stream:
            while "list_changed" not in (await event(stream)).get("data", ""):
                pass
        while streams(served):
            await asyncio.sleep(0.01)
        async with http.get(served.url, headers=mine) as stream:
            began = await event(stream)
        assert "list_changed" not in began.get("data", "")
        served.views.offer(LOCAL)
        again = await taken_up(http, served.url, {**mine, "last-event-id": began["id"]}, asyncio.Event())
        assert again["method"].endswith("list_changed")


async def test_a_stream_that_cannot_be_taken_up_is_refused_or_begins_anew(served: Served) -> None:
    """On an empty stream clients would retry for ever; a caller without such a session learns nothing of it."""
    async with aiohttp.ClientSession() as http:
        mine = await open_session(http, served.url)
        async with http.get(served.url, headers={**mine, "last-event-id": "gone"}) as stream:
            assert stream.status == 400
            assert "cannot be resumed" in (await stream.json())["error"]["message"]
        async with http.get(served.url, headers={**mine, "last-event-id": "gone", "x-user": "i|c|other"}) as stream:
            assert stream.status == 404
        async with http.get(served.url, headers={**mine, "last-event-id": f"{STANDING}gone"}) as stream:
            assert stream.status == 200
            served.views.offer(LOCAL, ADD)
            one: dict[str, str] = {}
            while "list_changed" not in one.get("data", ""):
                one = await event(stream)
            assert one["id"].startswith(STANDING)


def note(number: int, size: int = 0) -> JSONRPCNotification:
    """Return a message with a number."""
    return JSONRPCNotification(jsonrpc="2.0", method=f"n{number}", params={"x": "x" * size})


async def replay(events: SessionEvents, last: str) -> list[str]:
    """Return the methods of the events after `last`."""
    found: list[str] = []

    async def take(message: EventMessage) -> None:
        found.append(getattr(message.message, "method", ""))

    await events.replay_events_after(last, take)
    return found


async def test_only_the_same_stream_is_said_again() -> None:
    """In order, and nothing up to the event that the client names."""
    events = SessionEvents(Room())
    ids = [await events.store_event("a" if number % 2 else "b", note(number)) for number in range(6)]
    assert await replay(events, ids[1]) == ["n3", "n5"]
    assert await replay(events, "unknown") == []


async def test_what_is_put_in_later_is_not_kept() -> None:
    """Its placeholder means nothing in another answer; later events are kept."""
    events = SessionEvents(Room())
    first = await events.store_event("a", note(1))
    spliced = JSONRPCNotification(jsonrpc="2.0", method="n2", params={"x": {f"{MARK}0": 0}})
    await events.store_event("a", spliced)
    third = await events.store_event("a", note(3))
    await events.store_event("a", note(4))
    assert (await replay(events, first), await replay(events, third)) == ([], ["n4"])


def test_nobody_outside_knows_what_stands_for_what_is_put_in_later() -> None:
    """It differs in each process: an upstream that sent it could keep its client's events from being stored."""
    assert runpy.run_path(out_of_band.__file__)["MARK"] != MARK


@pytest.mark.bound("events kept for resumption")
async def test_a_session_keeps_its_newest_events_alone() -> None:
    """Bounded by number, by size, and by the total of all sessions of the mount."""
    room = Room(limit=4000)
    few, small = SessionEvents(room, events=2), SessionEvents(room, size=1000)
    ids = [await few.store_event("a", note(number)) for number in range(4)]
    assert [await replay(few, id) for id in ids] == [[], [], ["n3"], []]
    large = [await small.store_event("a", note(number, 400)) for number in range(4)]
    assert await replay(small, large[0]) == []
    hungry = SessionEvents(room, size=10**6)
    for number in range(20):
        await hungry.store_event("a", note(number, 400))
        assert room.size <= room.limit
    before = room.size
    del hungry
    assert room.size < before


async def test_whoever_says_much_pushes_out_nothing_of_others() -> None:
    """Over any number of its sessions: its own oldest events go; at the total, those of the owner with most."""
    room = Room(limit=20_000, each=8000)
    mine = SessionEvents(room, "ann")
    ids = [await mine.store_event("a", note(number, 400)) for number in range(4)]
    theirs = [SessionEvents(room, owner) for owner in ("eve", "eve", "mallory") for _ in range(5)]
    first = await theirs[0].store_event("a", note(0, 400))
    for number in range(20):
        for events in theirs:
            said = await events.store_event("a", note(number, 400))
            assert events.has(said)
            assert room.size <= room.limit
    assert await replay(mine, ids[0]) == ["n1", "n2", "n3"]
    assert not theirs[0].has(first)
    before = room.size
    theirs.clear()
    del events
    assert room.size < before
    assert await replay(mine, ids[0]) == ["n1", "n2", "n3"]


async def test_the_events_of_a_session_count_for_who_opened_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a mount with two callers."""
    owners = list[str]()

    class Seen(Room):
        def add_event(self, owner: str, id: str, size: int, events: SessionEvents) -> None:
            owners.append(owner)
            super().add_event(owner, id, size, events)

    monkeypatch.setattr(sessions, "Room", Seen)
    async with Mount().serve() as served, aiohttp.ClientSession() as http:
        await answers(http, served.url, "i|c|one", "i|c|two", "i|c|one")
    assert {owner for owner in owners if owner} == {"i|c|one", "i|c|two"}
