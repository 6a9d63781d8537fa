"""A client for the conformance suite made of the gateway's own OAuth flows: `python -m tests.interop.oauth_client URL`.

What the gateway is told in gateway.yaml (issuer and client) this finds out as the suite offers it: from the resource's
metadata, and from the context of the scenario or by registration.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import aiohttp

from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from gateway.credentials import (
    AuthorizationCode,
    Client,
    ClientAuthentication,
    ClientCredentials,
    OAuth,
    Server,
    Token,
    attempt,
    authorization_url,
    client_credentials,
    redeem,
    signing_key,
)
from gateway.exchange.drive import drive
from gateway.model import Secret
from gateway.policy import parse_network

BACK = "http://localhost:3000/callback"
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "webmcp-gateway", "version": "1"},
    },
}


async def main(url: str) -> None:
    """Ask, get a token, ask again."""
    context: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    async with aiohttp.ClientSession() as http, Connections() as connections:
        resource = await protected(http, url)
        issuer = resource["authorization_servers"][0]
        spec = await known(http, issuer, context, resource)
        backend = HttpBackend(spec, connections)
        token = await (
            by_itself(spec, backend) if "client_credentials" in granted() else by_person(http, spec, backend)
        )
        for message in (HELLO, {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}):
            headers = {**ACCEPT, token.header()[0]: token.header()[1]}
            async with http.post(url, json=message, headers=headers) as answer:
                await answer.read()
                assert answer.status not in (401, 403), answer.status


def granted() -> str:
    """What the scenario's name says of the grant."""
    return "client_credentials" if "client-credentials" in os.environ.get("MCP_CONFORMANCE_SCENARIO", "") else "code"


async def protected(http: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """The resource's metadata (RFC 9728), where its refusal or a well-known place has them."""
    async with http.post(url, json=HELLO, headers=ACCEPT) as answer:
        named = re.search(r'resource_metadata="([^"]+)"', answer.headers.get("www-authenticate", ""))
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    well_known = f"{origin}/.well-known/oauth-protected-resource"
    for place in [named[1]] if named else [f"{well_known}{parts.path}", well_known]:
        async with http.get(place) as answer:
            if answer.status == 200:
                found: dict[str, Any] = await answer.json()
                return found
    raise AssertionError("the resource has no metadata")


async def known(http: aiohttp.ClientSession, issuer: str, context: dict[str, Any], resource: dict[str, Any]) -> OAuth:
    """The credential, as gateway.yaml would have it."""
    server = Server(issuer, parse_network(["127.0.0.0/8", "::1/128"]))
    scope = tuple(resource.get("scopes_supported") or ())
    if "private_key_pem" in context:
        key = signing_key(Secret(context["private_key_pem"]), None, context.get("signing_algorithm"))
        client = Client(context["client_id"], None, ClientAuthentication.PRIVATE_KEY_JWT, key)
    elif "client_id" in context:
        client = Client(context["client_id"], Secret(context.get("client_secret", "")))
    else:
        client = await registered(http, issuer)
    grant = ClientCredentials() if granted() == "client_credentials" else AuthorizationCode()
    return OAuth("conformance", grant, server, client, scope, resource.get("resource"))


async def registered(http: aiohttp.ClientSession, issuer: str) -> Client:
    """The gateway itself is registered by a person; the suite wants that done here (RFC 7591)."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    places = [f"{origin}/.well-known/{kind}{path}" for kind in ("oauth-authorization-server", "openid-configuration")]
    for place in (*places, f"{origin}{path}/.well-known/openid-configuration"):
        async with http.get(place) as answer:
            if answer.status == 200:
                metadata = await answer.json(content_type=None)
                assert metadata["issuer"] == issuer
                break
    else:
        raise AssertionError("no metadata")
    methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    wanted = {"client_name": "webmcp-gateway", "redirect_uris": [BACK], "token_endpoint_auth_method": methods[0]}
    wanted |= {"grant_types": ["authorization_code", "refresh_token"], "application_type": "native"}
    async with http.post(metadata["registration_endpoint"], json=wanted) as answer:
        made = await answer.json()
    secret = made.get("client_secret")
    method = ClientAuthentication(made.get("token_endpoint_auth_method") or methods[0])
    return Client(made["client_id"], Secret(secret) if secret else None, method)


async def by_itself(spec: OAuth, backend: HttpBackend) -> Token:
    return await drive(client_credentials(spec, time.time()), backend)


async def by_person(http: aiohttp.ClientSession, spec: OAuth, backend: HttpBackend) -> Token:
    """The suite's server asks nobody: it leads back at once."""
    tried = attempt(spec, BACK)
    url = await drive(authorization_url(spec, tried), backend)
    async with http.get(url, allow_redirects=False) as answer:
        told = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert told["state"] == tried.state
    return await drive(redeem(spec, tried, told, time.time()), backend)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
