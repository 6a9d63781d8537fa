"""Tokens of a real authorization server at every door: of another resource, another issuer, an older key, another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.callers.doors import statuses
from tests.mcp.test_messages import opened
from tests.oidc.provider import OidcProvider, oidc_provider
from tests.world import World, running

RESOURCE, OTHER = "https://gateway.example/mcp", "https://elsewhere.example/mcp"
RESOURCES = {RESOURCE: {"scope": "use"}, OTHER: {"scope": "use"}}
CLIENTS = [
    {
        "client_id": name,
        "client_secret": f"{name}-secret",
        "grant_types": ["client_credentials"],
        "redirect_uris": [],
        "response_types": [],
    }
    for name in ("ada", "bob")
]
AUTH = 'auth: [{{type: oauth, issuer: "{issuer}", audience: "{audience}", network: private}}]'


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[tuple[World, OidcProvider]]:
    """The cart behind a gateway that takes the tokens of the server."""
    async with oidc_provider(CLIENTS, resources=RESOURCES) as provider:
        auth = AUTH.format(issuer=provider.issuer, audience=RESOURCE)
        async with running(folder, extra=auth) as world:
            yield world, provider


async def token(provider: OidcProvider, client: str = "ada", resource: str = RESOURCE) -> dict[str, str]:
    """What the holder of a new token shows."""
    headers = {"authorization": aiohttp.encode_basic_auth(client, f"{client}-secret")}
    form = {"grant_type": "client_credentials", "resource": resource, "scope": "use"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{provider.issuer}/token", data=form, headers=headers) as answer,
    ):
        return {"authorization": f"Bearer {(await answer.json())['access_token']}"}


async def test_only_tokens_of_this_server_for_this_gateway_open_a_door(tmp_path: Path) -> None:
    """Not those for another resource, nor those of another server with the same clients."""
    async with guarded(tmp_path) as (world, provider), oidc_provider(CLIENTS, resources=RESOURCES) as foreign:
        good = await statuses(world, await token(provider))
        assert good["mcp"] == good["mcp of an app"] == good["console"] == 200
        before = len(world.arrived())
        for wrong in (await token(provider, resource=OTHER), await token(foreign)):
            assert set((await statuses(world, wrong)).values()) == {401}
        assert len(world.arrived()) == before


async def test_a_session_stays_its_callers_while_keys_are_rotated(tmp_path: Path) -> None:
    """Another client's token does not open it; a token of the new key goes on with it."""
    async with guarded(tmp_path) as (world, provider), aiohttp.ClientSession() as http:
        url, ada = f"{world.url}/mcp/cart", await token(provider)
        session = await opened(http, url, more=ada)
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        await provider.rotate_keys()
        told = []
        for shown in (await token(provider, "bob"), await token(provider)):
            async with http.post(url, json=listing, headers={**session, **shown}) as answer:
                told.append((answer.status, b"http_request" in await answer.read()))
        assert told == [(404, False), (200, True)]
