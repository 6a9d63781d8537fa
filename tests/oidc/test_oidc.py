"""Tests of the authorization server that other tests use."""

from __future__ import annotations

import base64
import hashlib
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp

from tests.oidc.provider import oidc_provider
from tests.oidc.sign_in import sign_in

BACK = "http://gateway.localhost:1/back"
SERVICE = {
    "client_id": "service",
    "client_secret": "service-secret",
    "grant_types": ["client_credentials"],
    "redirect_uris": [],
    "response_types": [],
}
CONSOLE = {
    "client_id": "console",
    "client_secret": "console-secret",
    "grant_types": ["authorization_code", "refresh_token"],
    "redirect_uris": [BACK],
}
RESOURCES = {"https://shop.example/api": {"scope": "cart"}}


async def test_client_credentials() -> None:
    """A service gets a JWT for a resource; introspection knows it; rotation publishes another key."""
    async with oidc_provider([SERVICE], resources=RESOURCES) as provider, aiohttp.ClientSession() as http:
        headers = {"authorization": aiohttp.encode_basic_auth("service", "service-secret")}
        form = {"grant_type": "client_credentials", "resource": "https://shop.example/api", "scope": "cart"}
        async with http.post(f"{provider.issuer}/token", data=form, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            token = (await answer.json())["access_token"]
        assert token.count(".") == 2
        kid = await provider.rotate_keys()
        async with http.get(f"{provider.issuer}/jwks") as answer:
            assert [key["kid"] for key in (await answer.json())["keys"]] == [kid]
        assert [(found["event"], found["grant"]) for found in await provider.events()] == [
            ("grant.success", "client_credentials")
        ]


async def test_sign_in() -> None:
    """A person logs in through its pages: a code with PKCE, an ID token with the account's roles, a refresh."""
    accounts = {"alice": {"roles": ["ops"]}}
    async with oidc_provider([CONSOLE], accounts=accounts) as provider, aiohttp.ClientSession() as http:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(b"v" * 43).digest()).decode().rstrip("=")
        query = {
            "client_id": "console",
            "response_type": "code",
            "redirect_uri": BACK,
            "scope": "openid roles",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "state": "s",
        }
        back = await sign_in(http, f"{provider.issuer}/auth?{urlencode(query)}", "alice", BACK)
        found = parse_qs(urlsplit(back).query)
        assert found["iss"] == [provider.issuer]
        form = {
            "grant_type": "authorization_code",
            "code": found["code"][0],
            "redirect_uri": BACK,
            "code_verifier": "v" * 43,
        }
        headers = {"authorization": aiohttp.encode_basic_auth("console", "console-secret")}
        async with http.post(f"{provider.issuer}/token", data=form, headers=headers) as answer:
            tokens = await answer.json()
        assert answer.status == 200, tokens
        assert {"access_token", "id_token", "refresh_token"} <= tokens.keys()
        body = tokens["id_token"].split(".")[1]
        assert b'"roles":["ops"]' in base64.urlsafe_b64decode(body + "==")
