"""At an app's site `Authorization` is the page's own, unless it identified the caller to the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.callers.tokens import link, token
from tests.doors.test_callers import NAVIGATION, OWN
from tests.world import Server, World, running

POLICY = """version: 1
backends: {{api: {{url: "http://127.0.0.1:{port}", network: private, authorization: pass}}}}
routes:
  - {{path: /api/socket, methods: [GET], websocket: true}}
  - {{path: "/api/**", methods: [GET, POST]}}
"""
ITS_OWN = "Token page-token-12345"


@dataclass
class Shop:
    """A backend that keeps the `authorization` of each request."""

    server: Server = field(default_factory=Server)
    seen: list[str | None] = field(default_factory=list)

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/api/socket", self._socket)
        app.router.add_route("*", "/{path:.*}", self._answer)
        await self.server.start(app)

    async def _answer(self, request: web.Request) -> web.Response:
        self.seen.append(request.headers.get("authorization"))
        return web.json_response({})

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        self.seen.append(request.headers.get("authorization"))
        wire = web.WebSocketResponse()
        await wire.prepare(request)
        await wire.close()
        return wire


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    """The backend."""
    shop = Shop()
    await shop.start()
    yield shop
    await shop.server.stop()


@pytest.fixture(params=[True, False], ids=["fast", "slow"])
async def world(tmp_path: Path, shop: Shop, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A gateway that requires tokens, before this backend."""
    policy = POLICY.format(port=shop.server.port)
    async with running(tmp_path, extra="auth: [token]\n", policy=policy, fast_path=request.param) as world:
        yield world


async def ask_everything(client: aiohttp.ClientSession, world: World, headers: dict[str, str]) -> list[int]:
    """Send a GET, a POST and the opening of a WebSocket; return the statuses."""
    found = []
    async with client.get(f"{world.site}/api/x", headers=headers) as answer:
        found.append(answer.status)
    async with client.post(f"{world.site}/api/x", headers=headers, json={}) as answer:
        found.append(answer.status)
    try:
        async with client.ws_connect(f"{world.site}/api/socket", headers={**headers, "origin": world.site}) as wire:
            await wire.receive()
            found.append(101)
    except aiohttp.WSServerHandshakeError as error:
        found.append(error.status)
    return found


async def test_a_token_of_the_gateway_reaches_no_backend(world: World, shop: Shop) -> None:
    """Though its backends get the page's own authorization."""
    shown = await token(world, "client", "app")
    async with world.client() as client:
        assert await ask_everything(client, world, shown) == [200, 200, 101]
    assert shop.seen == [None, None, None]


async def test_a_person_who_is_logged_in_has_the_pages_authorization(world: World, shop: Shop) -> None:
    """In any scheme: it is not taken for a token of the gateway."""
    async with world.client() as client:
        async with client.get(await link(world), headers=NAVIGATION) as got:
            assert got.status == 200
        async with client.get(f"{world.site}/", headers=NAVIGATION) as page:
            assert page.status == 200, await page.text()
        statuses = await ask_everything(client, world, {**OWN, "authorization": ITS_OWN})
    assert statuses == [200, 200, 101]
    assert shop.seen == [ITS_OWN, ITS_OWN, ITS_OWN]


@pytest.mark.parametrize("authorization", [ITS_OWN, "Bearer page-token-12345", "Basic dTpw"])
async def test_the_pages_authorization_identifies_nobody(world: World, shop: Shop, authorization: str) -> None:
    """A caller without a login is refused."""
    async with world.client() as client:
        statuses = await ask_everything(client, world, {"authorization": authorization})
    assert set(statuses) == {401}
    assert shop.seen == []
