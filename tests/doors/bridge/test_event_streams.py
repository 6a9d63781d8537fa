"""Event streams at addresses of their own: who is offered one, who may read it, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gateway import mux
from gateway.doors.bridge import event_streams
from gateway.doors.bridge.event_streams import COMMENT, EACH, EventStreams
from gateway.doors.revocation import Revocations
from gateway.mcp.catalog import EVENTS_AT
from gateway.model import LOCAL, Part, Response
from gateway.stores.sessions import DatabaseSessions, IssuedTokens
from gateway.stores.sql import Database
from tests.doors.bridge.test_bridge import connected, console
from tests.doors.bridge.test_parts import POLICY, Backend, Place
from tests.world import Server, running

SOURCE = {"accept": "text/event-stream"}
FRAME = {"origin": "null", "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
"""The header fields that a browser sends for a page without an origin."""


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """Yield a view of an app whose backend sends events."""
    backend, server = Backend(), Server()
    app = backend.app()

    async def broken(request: web.Request) -> web.StreamResponse:
        begun = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await begun.prepare(request)
        await begun.write(b"data: one\n\n")
        await backend.news.get()
        assert request.transport is not None
        request.transport.abort()
        return begun

    app.router.add_get("/broken", broken)
    await server.start(app)
    policy = f"{POLICY}  - {{{{path: /broken, methods: [GET], stream: true}}}}\n"
    try:
        async with (
            running(tmp_path, policy=policy.format(port=server.port)) as world,
            console(world) as client,
            connected(world, client) as host,
        ):
            opened = await host.open()
            yield Place(backend, client, world, host, opened.view, opened.resume)
            backend.news.put_nowait(None)
    finally:
        await server.stop()


async def events(stream: aiohttp.ClientResponse) -> bytes:
    """Return what comes next, without the comment at its start; empty at the end."""
    part = b""
    while not part and not stream.content.at_eof():
        part = (await stream.content.readany()).removeprefix(COMMENT)
    return part


async def answer(place: Place, **arguments: Any) -> dict[str, Any]:
    """Open the event stream as a page does; return the structured answer."""
    await place.ask("http_request", **{"url": "/news", "stream": True, "_bytes": True, "headers": SOURCE, **arguments})
    found: dict[str, Any] = (await place.message())["result"]["structuredContent"]
    return found


async def address(place: Place) -> str:
    """Open the event stream; return the address at which the page reads it."""
    return str((await answer(place))["headers"][EVENTS_AT])


@asynccontextmanager
async def reading(place: Place, url: str, **fields: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """Yield the answer to a page's own request."""
    async with place.world.client() as browser, browser.get(url, headers={**FRAME, **fields}) as found:
        yield found


async def test_a_page_reads_its_events_itself_and_once(place: Place) -> None:
    """They come from the site of the sandbox proxy as they are sent, to any page without an origin, and to no cache."""
    url = await address(place)
    assert url.startswith(f"http://sandbox.localhost:{place.world.gateway.port}/streams/")
    async with reading(place, url) as stream:
        for text in ("data: one\n\n", "data: two"):
            place.backend.news.put_nowait(text)
            assert await events(stream) == text.encode()
        place.backend.news.put_nowait(None)
        assert await events(stream) == b""
        assert (stream.status, stream.headers["access-control-allow-origin"]) == (200, "null")
        assert "no-store" in stream.headers["cache-control"]
    async with reading(place, url) as again:
        assert again.status == 404


@pytest.mark.parametrize(
    "arguments", [{"headers": {}}, {"headers": {"accept": "*/*"}}, {"_bytes": False}, {"url": "/bytes"}]
)
async def test_only_the_runtimes_event_sources_are_offered_an_address(place: Place, arguments: dict[str, Any]) -> None:
    """The page's own client, its `fetch`, and answers that are no event stream have none."""
    await place.ask("http_request", **{"url": "/news", "stream": True, "_bytes": True, "headers": SOURCE, **arguments})
    assert EVENTS_AT not in str(await place.message())


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://gateway.localhost", "http://0evil.example", "http://[", None]
)
async def test_a_page_of_another_site_reads_nothing(place: Place, origin: str | None) -> None:
    """Nor does what names no page at all; the stream still waits for its own."""
    url = await address(place)
    fields = {name: value for name, value in FRAME.items() if name != "origin"}
    async with place.world.client() as browser:
        headers = fields if origin is None else {**fields, "origin": origin}
        async with browser.get(url, headers=headers) as found:
            assert found.status == 403
        async with browser.post(url, headers=FRAME) as found:
            assert found.status in (403, 405)
    async with reading(place, url) as stream:
        assert stream.status == 200


@pytest.mark.bound("event streams that a page reads past the bridge")
async def test_one_person_has_few_of_them(place: Place) -> None:
    """Browsers would open no further connection to the site; one that ends makes room for another."""
    urls = [await address(place) for _ in range(EACH)]
    assert EVENTS_AT not in (await answer(place))["headers"]
    async with reading(place, urls[0]) as stream:
        place.backend.news.put_nowait(None)
        await stream.read()
    assert await address(place) not in urls


async def test_an_address_that_nobody_uses_expires(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It works no longer, and makes room for others."""
    monkeypatch.setattr(event_streams, "LIFE", 0.0)
    urls = [await address(place) for _ in range(2 * EACH)]
    for url in urls:
        async with reading(place, url) as found:
            assert found.status == 404


async def test_the_stream_ends_with_its_view(place: Place) -> None:
    """A closed view receives nothing more."""
    async with reading(place, await address(place)) as stream:
        place.backend.news.put_nowait("data: one\n\n")
        assert await events(stream) == b"data: one\n\n"
        await place.host.say(mux.Close(place.view, "gone"))
        assert await events(stream) == b""


async def test_the_stream_ends_with_the_persons_login(place: Place) -> None:
    """A logout ends what the person's pages read."""
    async with reading(place, await address(place)) as stream:
        place.backend.news.put_nowait("data: one\n\n")
        assert await events(stream) == b"data: one\n\n"
        async with place.client.post(f"{place.world.console}/api/logout", json={}) as answered:
            assert answered.status < 400
        assert await events(stream) == b""


async def test_a_revoked_caller_is_cut_off(tmp_path: Path) -> None:
    """A page whose caller is none any more receives nothing further, nor does one that begins to read then."""
    kept = True

    async def read(_: float, /, *, cancel: bool = False) -> Response:
        await asyncio.sleep(0 if cancel else 0.01)
        return Response(200, (), b"data: one\n\n", part=Part("stream-1", last=cancel))

    server, app = Server(), web.Application()
    async with Database(f"sqlite:///{tmp_path / 'gateway.db'}") as database:
        tokens, sessions = IssuedTokens(database), DatabaseSessions(database)
        revocations = Revocations(tokens, sessions, keeps=lambda _, __, ___: kept)
        streams = EventStreams("", revocations)
        app.router.add_routes(streams.routes())
        await server.start(app)
        try:
            paths = [streams.offer(LOCAL, read) for _ in range(2)]
            urls = [f"http://127.0.0.1:{server.port}{path}" for path in paths]
            async with aiohttp.ClientSession(headers=FRAME) as browser:
                async with browser.get(urls[0]) as stream:
                    assert await stream.content.readany()
                    kept = False
                    await revocations.reconsider(lambda _, __, ___: False)
                    with pytest.raises(aiohttp.ClientPayloadError):
                        await stream.read()
                async with browser.get(urls[1]) as stream:
                    assert stream.status == 404
        finally:
            await server.stop()


async def test_a_stream_that_breaks_off_is_no_whole_one(place: Place) -> None:
    """The page hears of it, and the record has one entry of the request, which gives the reason."""
    url = str((await answer(place, url="/broken"))["headers"][EVENTS_AT])
    async with reading(place, url) as stream:
        assert await events(stream) == b"data: one\n\n"
        place.backend.news.put_nowait(None)
        with pytest.raises(aiohttp.ClientPayloadError):
            await stream.read()
    entries = [line["fields"] for line in place.world.records() if line["fields"].get("reason")]
    assert [entry["reason"] for entry in entries] == ["backend-protocol"]


async def test_a_page_that_leaves_ends_the_backends_request(place: Place) -> None:
    """The gateway reads nothing that nobody wants."""
    async with reading(place, await address(place)) as stream:
        place.backend.news.put_nowait("data: one\n\n")
        await stream.content.readany()
        stream.close()
    async with asyncio.timeout(20):
        while not [line for line in place.world.records() if line["fields"].get("reason") == "cancelled"]:
            await asyncio.sleep(0.05)


async def test_a_silent_stream_says_so_between_lines(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy takes it for dead, and no comment gets into the middle of a line."""
    monkeypatch.setattr(event_streams, "PULSE", 0.05)
    async with reading(place, await address(place)) as stream:
        assert await stream.content.readexactly(2 * len(COMMENT)) == 2 * COMMENT
        place.backend.news.put_nowait("data: o")
        while (text := await stream.content.readany()) == COMMENT:
            pass
        await asyncio.sleep(0.2)
        place.backend.news.put_nowait("ne\n\n")
        assert text + await stream.content.readexactly(4) == b"data: one\n\n"
