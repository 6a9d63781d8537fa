"""Upstreams that redirect, and the forms in which people write their URLs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from mcp import Client
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from gateway.mcp.asgi import Ending, User, serve
from gateway.mcp.upstreams.transport.conversation import UpstreamLost
from gateway.mcp.upstreams.transport.requests import MAX_REDIRECTS, RedirectTrail
from gateway.model import LOCAL
from tests.interop.probe import Probe, text
from tests.interop.serving import SECURITY, Events, gateway, over_sse, over_websocket
from tests.world import serving

MODES = ["legacy", "2026-07-28"]


@asynccontextmanager
async def at(path: str, leads: dict[str, Any]) -> AsyncIterator[tuple[int, list[tuple[str, str, str | None]]]]:
    """Run a server at `path` that redirects the paths in `leads`; yield its port, and its requests."""
    asked: list[tuple[str, str, str | None]] = []
    manager = StreamableHTTPSessionManager(Probe().server, event_store=Events(), security_settings=SECURITY)

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append((request.method, request.path_qs, request.headers.get("authorization")))
        if request.path_qs in leads:
            status, location = leads[request.path_qs]
            fields = {} if location is None else {"location": location.replace("PORT", str(request.url.port))}
            return web.Response(status=status, headers=fields)
        if request.path_qs != path:
            return web.Response(status=404)
        return await serve(manager.handle_request, request, User(LOCAL), Ending())

    async with manager.run():
        app = web.Application()
        app.router.add_route("*", "/{all:.*}", handle)
        async with serving(app) as port:
            yield port, asked


CREDENTIALS = "credentials: {key: {type: header, header: authorization, value: Bearer s3cret-of-ours}}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("status", "location"),
    [(307, "http://localhost:PORT/mcp/"), (308, "/mcp/"), (307, "mcp/"), (308, "http://localhost:PORT/on#part")],
)
async def test_a_redirect_within_the_origin_is_followed(tmp_path: Path, mode: str, status: int, location: str) -> None:
    """Method, body and credential are kept, for the POSTs, the event stream and the end of a session."""
    leads = {"/mcp": (status, location), "/on": (307, "/mcp/")}
    async with at("/mcp/", leads) as (port, asked):
        spec = f'up: {{url: "http://localhost:{port}/mcp", network: private, credential: key}}'
        async with gateway(tmp_path, spec, CREDENTIALS) as mcp, Client(f"{mcp}/up", mode=mode) as client:
            assert text(await client.call_tool("plain", {"n": 1}))
        assert {credential for _, _, credential in asked} == {"Bearer s3cret-of-ours"}
        arrived = {method for method, path, _ in asked if path == "/mcp/"}
        assert arrived == ({"POST", "GET", "DELETE"} if mode == "legacy" else {"POST"})


@pytest.mark.parametrize(
    ("status", "location", "why"),
    [
        (307, "http://127.0.0.1:PORT/mcp/", "which is another origin: write that URL in gateway.yaml"),
        (308, "https://localhost:PORT/mcp/", "which is another origin"),
        (
            307,
            "//elsewhere.example/mcp",
            "it answered with the redirect 307 to http://elsewhere.example/mcp, which is another origin",
        ),
        (301, "/mcp/", "the redirect 301 to http://localhost:PORT/mcp/, which does not keep a POST: write that URL"),
        (302, "/mcp/", "the redirect 302"),
        (303, "/mcp/", "the redirect 303"),
        (307, "/mcp", "it redirects in a circle, to http://localhost:PORT/mcp again"),
        (308, "/there", "it redirects in a circle"),
        (307, None, "the redirect 307, which names no address"),
        (307, "http://[::", "it redirects to http://[::, which is not a URL"),
    ],
)
async def test_other_redirects_are_refused_with_the_reason(
    tmp_path: Path, status: int, location: str | None, why: str
) -> None:
    """No request goes there, and the client gets the remedy."""
    async with at("/mcp/", {"/mcp": (status, location), "/there": (307, "/mcp")}) as (port, asked):
        spec = f'up: {{url: "http://localhost:{port}/mcp", network: private, credential: key}}'
        async with gateway(tmp_path, spec, CREDENTIALS) as mcp, Client(f"{mcp}/up", mode="2026-07-28") as client:
            with pytest.raises(Exception, match="cannot be reached") as told:
                await client.list_tools()
        assert why.replace("PORT", str(port)) in str(told.value)
        assert {path for _, path, _ in asked} <= {"/mcp", "/there"}


def test_an_address_is_read_byte_by_byte() -> None:
    """A header's value arrives as one character per byte; browsers take it as UTF-8."""
    for given, sent in {"/é": "/%C3%A9", "/a b": "/a%20b", "/%c3%a9?ü": "/%C3%A9?%C3%BC"}.items():
        assert (
            RedirectTrail("http://a.example").follow(307, given.encode().decode("latin-1")) == f"http://a.example{sent}"
        )


def test_a_trail_has_an_end() -> None:
    """An endless chain of redirects is followed only a few times."""
    trail = RedirectTrail("http://a.example")
    for number in range(MAX_REDIRECTS):
        assert trail.follow(307, f"/{number}") == f"http://a.example/{number}"
    with pytest.raises(UpstreamLost, match="more than 5 times"):
        trail.follow(307, "/more")


@pytest.mark.parametrize("base", ["", "http://localhost:PORT", "ws://localhost:PORT"])
@pytest.mark.parametrize(("way", "leads"), [("sse", "/sse"), ("websocket", "/mcp")])
async def test_the_older_ways_follow_redirects_too(tmp_path: Path, way: str, leads: str, base: str) -> None:
    """The event stream that names the endpoint, and the opening of a WebSocket."""
    if way == "sse":
        base = base.replace("ws:", "http:")
    seen: list[str] = []

    async def moved(request: web.Request) -> web.Response | None:
        seen.append(request.path_qs)
        if "there" in request.query or request.method == "POST":
            return None
        origin = base.replace("PORT", str(request.url.port))
        return web.Response(status=308, headers={"location": f"{origin}{leads}?there"})

    async with AsyncExitStack() as stack:
        over = over_sse if way == "sse" else over_websocket
        url = await stack.enter_async_context(over(Probe().server, admit=moved))
        mcp = await stack.enter_async_context(gateway(tmp_path, f'up: {{{way}: "{url}", network: private}}'))
        client = await stack.enter_async_context(Client(f"{mcp}/up", mode="legacy"))
        assert text(await client.call_tool("plain"))
    assert f"{leads}?there" in seen


async def test_a_websocket_is_not_led_to_another_origin(tmp_path: Path) -> None:
    """Its credential is not sent elsewhere."""

    async def moved(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"location": f"http://127.0.0.1:{request.url.port}/mcp"})

    async with over_websocket(Probe().server, admit=moved) as url:
        spec = f'up: {{websocket: "{url}", network: private}}'
        async with gateway(tmp_path, spec) as mcp, Client(f"{mcp}/up", mode="2026-07-28") as client:
            with pytest.raises(Exception, match="which is another origin"):
                await client.list_tools()


@pytest.mark.parametrize("path", ["", "/", "?key=1", "/?key=1", "/mcp/", "/a/b?c=d&e", "/caf%C3%A9"])
async def test_an_address_is_reached_as_it_is_written(tmp_path: Path, path: str) -> None:
    """Without a path, with a query, with a slash at the end."""
    async with at(path if path.startswith("/") else f"/{path}", {}) as (port, _):
        spec = f'up: {{url: "http://localhost:{port}{path}", network: private}}'
        async with gateway(tmp_path, spec) as mcp, Client(f"{mcp}/up", mode="legacy") as client:
            assert text(await client.call_tool("plain"))
