"""Tokens of a real authorization server at every door: of another resource or issuer, changed, expired, revoked."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from joserfc.jwk import ECKey

from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from gateway.callers.methods import OAuthIssuer, Roles
from gateway.credentials import ALGORITHMS
from gateway.doors import issuers
from gateway.doors.issuers import EARLY_FETCH_SPACING, Issuer
from gateway.errors import Unidentified
from gateway.policy import parse_network
from tests.attacks.bridge_door import BridgeDoor
from tests.attacks.calls import WAIT
from tests.attacks.mcp_doors import HttpDoor
from tests.attacks.test_sequences import stream_of
from tests.backends.peers import Shop
from tests.callers.doors import statuses
from tests.mcp.test_messages import open_session
from tests.oidc.provider import OidcProvider, oidc_provider
from tests.resource import resource
from tests.world import World, local_client, running

RESOURCE, OTHER = "https://gateway.example/mcp", "https://elsewhere.example/mcp"
OPAQUE = "https://gateway.example/opaque"
RESOURCES = {RESOURCE: {"scope": "use"}, OTHER: {"scope": "use"}, OPAQUE: {"scope": "use", "format": "opaque"}}
CLIENTS = [
    {
        "client_id": name,
        "client_secret": f"{name}-secret",
        "grant_types": ["client_credentials"],
        "redirect_uris": [],
        "response_types": [],
    }
    for name in ("ada", "bob", "gateway")
]
AUTH = """
auth:
  - {{type: oauth, issuer: "{issuer}", audience: [{audience}], network: private, skew: 1ms,
      introspection: true, client_id: gateway, client_secret: gateway-secret}}
"""


@asynccontextmanager
async def guarded(
    folder: Path, policy: str | None = None, **settings: Any
) -> AsyncIterator[tuple[World, OidcProvider]]:
    """The cart behind a gateway that accepts tokens of an authorization server with these `settings`."""
    async with oidc_provider(CLIENTS, resources=RESOURCES, **settings) as provider:
        auth = AUTH.format(issuer=provider.issuer, audience=f"{RESOURCE}, {OPAQUE}")
        async with running(folder, policy=policy, extra=auth) as world:
            yield world, provider


async def token(provider: OidcProvider, client: str = "ada", kind: str = RESOURCE) -> dict[str, str]:
    """The headers with a new token."""
    headers = {"authorization": aiohttp.encode_basic_auth(client, f"{client}-secret")}
    form = {"grant_type": "client_credentials", "resource": kind, "scope": "use"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{provider.issuer}/token", data=form, headers=headers) as answer,
    ):
        return {"authorization": f"Bearer {(await answer.json())['access_token']}"}


async def test_only_tokens_of_this_server_for_this_gateway_open_a_door(tmp_path: Path) -> None:
    """Tokens for another resource, and tokens of another server with the same clients, are refused."""
    async with guarded(tmp_path) as (world, provider), oidc_provider(CLIENTS, resources=RESOURCES) as foreign:
        good = await statuses(world, await token(provider))
        assert good["mcp"] == good["mcp of an app"] == good["console"] == 200
        before = len(world.arrived())
        for wrong in (await token(provider, kind=OTHER), await token(foreign)):
            assert set((await statuses(world, wrong)).values()) == {401}
        assert len(world.arrived()) == before


async def test_a_session_stays_its_callers_while_keys_are_rotated(tmp_path: Path) -> None:
    """Another client's token does not open the session; a token signed with the new key continues it."""
    async with guarded(tmp_path) as (world, provider), aiohttp.ClientSession() as http:
        url, ada = f"{world.url}/mcp/cart", await token(provider)
        session = await open_session(http, url, more=ada)
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        await provider.rotate_keys()
        told = []
        for shown in (await token(provider, "bob"), await token(provider)):
            async with http.post(url, json=listing, headers={**session, **shown}) as answer:
                told.append((answer.status, b"http_request" in await answer.read()))
        assert told == [(404, False), (200, True)]


async def test_a_token_that_was_changed_opens_no_door(tmp_path: Path) -> None:
    """Unsigned tokens, the public key as HMAC secret, another `kid`, and tokens of a replaced key are refused."""
    async with guarded(tmp_path) as (world, provider):
        older = await token(provider)
        assert (await statuses(world, await token(provider)))["mcp"] == 200  # the gateway knows its key
        await provider.rotate_keys()
        newer = await token(provider)
        assert (await statuses(world, newer))["mcp"] == 200
        before = len(world.arrived())
        shown = [older["authorization"].removeprefix("Bearer ")]
        shown += forge_tokens(newer["authorization"].removeprefix("Bearer "), await public_key(provider))
        wrong = [one[:80] for one in shown if set((await door_statuses(world, one)).values()) != {401}]
        assert wrong == []
        assert len(world.arrived()) == before


OPENED = {"mcp", "mcp of an app", "mcp on the console's host", "console", "events", "record", "site", "site's api"}


async def test_an_expired_token_opens_no_door(tmp_path: Path) -> None:
    """Signed and opaque tokens work until they expire, and their bridge connections are then closed."""
    async with guarded(tmp_path, ttl={"ClientCredentials": 8}) as (world, provider), asyncio.timeout(WAIT):
        signed, opaque = [await token(provider, kind=kind) for kind in (RESOURCE, OPAQUE)]
        async with bridge(world, signed) as one, bridge(world, opaque) as other:
            for shown in (signed, opaque):
                found = await statuses(world, shown)
                assert {name for name, status in found.items() if status == 200} == OPENED
            before = len(world.arrived())
            await ended(one)
            await ended(other)
            for shown in (signed, opaque):
                assert set((await statuses(world, shown)).values()) == {401}
            assert len(world.arrived()) == before


async def test_a_revoked_token_opens_no_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revoked token is refused, also one that was used before, and its bridge connection is closed."""
    monkeypatch.setattr(issuers, "REMEMBERED", 0.0)
    async with guarded(tmp_path) as (world, provider):
        used, unused = [await token(provider, kind=OPAQUE) for _ in range(2)]
        async with bridge(world, used) as door, asyncio.timeout(WAIT):
            found = await statuses(world, used)
            assert {name for name, status in found.items() if status == 200} == OPENED
            before = len(world.arrived())
            for one in (used, unused):
                await revoke_token(provider, one)
                assert set((await statuses(world, one)).values()) == {401}
            await ended(door)
            assert len(world.arrived()) == before


STREAMING = """
version: 1
backends: {{shop: {{url: "{url}", network: private}}}}
routes: [{{path: /api/large, methods: [GET], stream: true}}]
"""
LARGE = b"a part of what is Ada's " * 100_000


@pytest.mark.parametrize("door", ["2026-07-28", "2025-11-25", "bridge"])
async def test_a_good_token_does_not_open_what_is_anothers(tmp_path: Path, door: str) -> None:
    """Bob has his own view, and Ada's view id, proof and stream id: he can neither read nor end her stream."""
    asked = {"url": "/api/large", "stream": True}
    async with resource() as behind, guarded(tmp_path, STREAMING.format(url=behind.url)) as (world, provider):
        behind.answer = lambda request: web.Response(body=LARGE)
        async with (
            holder(world, await token(provider), door) as ada,
            holder(world, await token(provider, "bob"), door) as bob,
        ):
            stream = stream_of(await ada.ask(asked))
            assert stream is not None
            for told in ({"id": stream}, {"id": stream, "cancel": True}):
                refused = await bob.tool("http_stream", json.dumps(told))
                assert (refused.status, refused.reason) == (503, "connection-lost")
            assert (await ada.tool("http_stream", json.dumps({"id": stream}))).status == 200
            if isinstance(ada, HttpDoor) and isinstance(bob, HttpDoor):
                bob.proof = ada.proof
                assert (await bob.ask(asked)).reason == "view-unproven"
            elif isinstance(ada, BridgeDoor) and isinstance(bob, BridgeDoor):
                assert ada.socket is not None
                await ada.socket.close()
                assert [await resume_view(one, ada.view, ada.token) for one in (bob, ada)] == [
                    "unknown-view",
                    "resumed",
                ]


def holder(world: World, shown: dict[str, str], door: str) -> AbstractAsyncContextManager[BridgeDoor | HttpDoor]:
    """A proven view of the caller with these headers, at one of the doors."""
    return bridge(world, shown) if door == "bridge" else client(world, shown, modern=door == "2026-07-28")


@asynccontextmanager
async def client(world: World, shown: dict[str, str], *, modern: bool) -> AsyncIterator[HttpDoor]:
    """An MCP client with these headers."""
    async with local_client(headers=shown) as http:
        door = HttpDoor(Here(world), http, modern, app="cart")
        await door.open()
        yield door


async def revoke_token(provider: OidcProvider, shown: dict[str, str]) -> None:
    """Revoke a token of Ada's at the issuer (RFC 7009)."""
    headers = {"authorization": aiohttp.encode_basic_auth("ada", "ada-secret")}
    form = {"token": shown["authorization"].removeprefix("Bearer ")}
    url = f"{provider.issuer}/token/revocation"
    async with aiohttp.ClientSession() as http, http.post(url, data=form, headers=headers) as answer:
        assert answer.status == 200, await answer.text()


@dataclass(frozen=True, slots=True)
class Here:
    """The address of the gateway, as the doors of attacks expect it."""

    world: World

    @property
    def port(self) -> int:
        """Its port."""
        return self.world.gateway.port

    @property
    def hosts(self) -> dict[str, str]:
        """The `Host` of each site."""
        return {"console": self.world.console.removeprefix("http://"), "site": self.world.site.removeprefix("http://")}


@asynccontextmanager
async def bridge(world: World, shown: dict[str, str]) -> AsyncIterator[BridgeDoor]:
    """A view at the bridge, opened with these headers."""
    async with local_client(headers=shown) as client:
        door = BridgeDoor(Here(world), client, apps=("cart",))
        await door.open()
        yield door


async def resume_view(door: BridgeDoor, view: str, token: str) -> str:
    """Resume a view whose connection was lost; return `resumed` or the error code."""
    door.socket = await door.connect()
    await door.socket.send_json({"hello": {"ticket": await door.ticket()}})
    await door.socket.send_json({"resume": {"view": view, "token": token}})
    heard = await door.socket.receive_json(timeout=WAIT)
    return "resumed" if "resume" in heard else str(heard["error"]["code"])


async def ended(door: BridgeDoor) -> None:
    """Wait until the gateway has closed the connection of a host page."""
    assert door.socket is not None
    while (await door.socket.receive()).type is aiohttp.WSMsgType.TEXT:
        pass


async def door_statuses(world: World, shown: str) -> dict[str, int]:
    """The status of every door for this token."""
    return await statuses(world, {"authorization": f"Bearer {shown}"})


async def public_key(provider: OidcProvider) -> dict[str, Any]:
    """The public key that the server publishes for signatures."""
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{provider.issuer}/.well-known/openid-configuration") as answer:
            place = (await answer.json())["jwks_uri"]
        async with http.get(place) as answer:
            (key,) = [key for key in (await answer.json())["keys"] if key.get("use", "sig") == "sig"]
            return dict(key)


async def test_odd_keys_of_strangers_hide_no_new_one(tmp_path: Path) -> None:
    """A new key of the server is found soon, however many unknown key ids strangers present."""
    now = 0.0
    async with oidc_provider(CLIENTS, resources=RESOURCES) as provider, Connections() as connections:
        spec = OAuthIssuer(
            issuer=provider.issuer,
            audience=(RESOURCE,),
            algorithms=ALGORITHMS,
            scope=(),
            roles_claim="roles",
            client_id=None,
            client_secret=None,
            login_scope=(),
            introspection=False,
            skew=30.0,
            session=3600.0,
            logout_there=False,
            network=parse_network(["private"]),
        )
        taker = Issuer(spec, Roles(), HttpBackend(Shop(), connections), steady=lambda: now)

        async def takes(shown: str) -> bool:
            try:
                return await taker.principal(shown, frozenset()) is not None
            except Unidentified:
                return False

        async def show_odd_ones() -> None:
            for name in range(20):
                header = {**json.loads(base64.urlsafe_b64decode(head + "==")), "kid": f"odd-{name}"}
                assert not await takes(f"{plain(header)}.{claims}.{signature}")

        first = (await token(provider))["authorization"].removeprefix("Bearer ")
        head, claims, signature = first.split(".")
        assert await takes(first)
        await show_odd_ones()
        await provider.rotate_keys()
        newer = (await token(provider))["authorization"].removeprefix("Bearer ")
        assert not await takes(newer)
        now += EARLY_FETCH_SPACING
        await show_odd_ones()
        assert await takes(newer)


def forge_tokens(good: str, key: dict[str, Any]) -> list[str]:
    """Tokens that an attacker can make from a valid token and the published key."""
    head, claims, signature = good.split(".")
    header = json.loads(base64.urlsafe_b64decode(head + "=="))
    pem = ECKey.import_key(key).as_pem(private=False)
    made = [f"{plain({**header, 'alg': alg})}.{claims}." for alg in ("none", "None", "NONE", "")]
    made += [f"{plain({**header, 'alg': 'none'})}.{claims}.{signature}", f"{head}.{claims}.", good[:-8]]
    for secret in (pem, pem.strip(), json.dumps(key).encode(), key["x"].encode(), b""):
        signed = f"{plain({**header, 'alg': 'HS256'})}.{claims}"
        made.append(f"{signed}.{base64url(hmac.digest(secret, signed.encode(), 'sha256'))}")
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
    """A JSON part of a token."""
    return base64url(json.dumps(value).encode())


def base64url(value: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
