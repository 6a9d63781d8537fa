"""Tokens of a real authorization server at every door: of another resource, another issuer, an older key, another."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from joserfc.jwk import ECKey

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


async def test_a_token_that_was_changed_opens_no_door(tmp_path: Path) -> None:
    """Unsigned, signed with the published key as a secret, under another key's name, or by a key of before."""
    async with guarded(tmp_path) as (world, provider):
        older = await token(provider)
        assert (await statuses(world, await token(provider)))["mcp"] == 200  # its key is known
        await provider.rotate_keys()
        newer = await token(provider)
        assert (await statuses(world, newer))["mcp"] == 200
        before = len(world.arrived())
        shown = [older["authorization"].removeprefix("Bearer ")]
        shown += forged(newer["authorization"].removeprefix("Bearer "), await published(provider))
        wrong = [one[:80] for one in shown if set((await knocked(world, one)).values()) != {401}]
        assert wrong == []
        assert len(world.arrived()) == before


async def knocked(world: World, shown: str) -> dict[str, int]:
    """What every door answers to who shows this token."""
    return await statuses(world, {"authorization": f"Bearer {shown}"})


async def published(provider: OidcProvider) -> dict[str, Any]:
    """The key that the server signs with, as it tells everybody."""
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{provider.issuer}/.well-known/openid-configuration") as answer:
            place = (await answer.json())["jwks_uri"]
        async with http.get(place) as answer:
            (key,) = [key for key in (await answer.json())["keys"] if key.get("use", "sig") == "sig"]
            return dict(key)


def forged(good: str, key: dict[str, Any]) -> list[str]:
    """What somebody can make of a good token and the published key."""
    head, claims, signature = good.split(".")
    header = json.loads(base64.urlsafe_b64decode(head + "=="))
    pem = ECKey.import_key(key).as_pem(private=False)
    made = [f"{plain({**header, 'alg': alg})}.{claims}." for alg in ("none", "None", "NONE", "")]
    made += [f"{plain({**header, 'alg': 'none'})}.{claims}.{signature}", f"{head}.{claims}.", good[:-8]]
    for secret in (pem, pem.strip(), json.dumps(key).encode(), key["x"].encode(), b""):
        signed = f"{plain({**header, 'alg': 'HS256'})}.{claims}"
        made.append(f"{signed}.{encoded(hmac.digest(secret, signed.encode(), 'sha256'))}")
    kids: tuple[Any, ...] = (
        "",
        "../../../dev/null",
        "x\0",
        "' or 1=1 --",
        key["kid"] + " ",
        7,
        None,
        [],
        {"a": 1},
        "k" * 1000,
    )
    made += [f"{plain({**header, 'kid': kid})}.{claims}.{signature}" for kid in kids]
    more: list[dict[str, Any]] = [{"crit": ["exp"]}, {"jwk": key}, {"b64": False}, {"alg": "ES512"}, {"typ": "id+jwt"}]
    return made + [f"{plain({**header, **one})}.{claims}.{signature}" for one in more]


def plain(value: dict[str, Any]) -> str:
    """A part of a token."""
    return encoded(json.dumps(value).encode())


def encoded(value: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
