"""A client for the conformance suite made of the gateway's own OAuth flows: `python -m tests.interop.oauth_client URL`.

Issuer and client, which gateway.yaml configures for the gateway, come from the suite here: from the resource's
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
    Grant,
    JwtBearer,
    OAuth,
    Server,
    Token,
    TokenExchange,
    authorization_url,
    client_credentials,
    jwt_bearer,
    offered_nonce,
    proof,
    redeem,
    signing_key,
    start_attempt,
    token_exchange,
    wants_nonce,
)
from gateway.exchange.oauth_tokens import run_flow
from gateway.model import Secret
from gateway.policy import parse_network

ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
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
    """Get a token as the resource's metadata require, and use it."""
    context: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    async with aiohttp.ClientSession() as http, Connections() as connections:
        resource = await resource_metadata(http, url)
        issuer = resource["authorization_servers"][0]
        spec = await credential_of(http, issuer, context, resource)
        backend = HttpBackend(spec, connections)
        match spec.grant:
            case JwtBearer(assertion="workload"):
                given = Token(Secret(context["valid_jwt"]), "N_A", None)
                token = await run_flow(jwt_bearer(spec, spec.grant, "", given, time.time()), backend)
            case JwtBearer():
                given = await of_company(connections, context, spec)
                token = await run_flow(jwt_bearer(spec, spec.grant, "", given, time.time()), backend)
            case ClientCredentials():
                token = await by_itself(spec, backend)
            case _:
                token = await by_person(http, spec, backend)
        nonce: str | None = None
        for message in (HELLO, {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}):
            status, nonce = await send_with_token(http, url, message, token, nonce)
            assert status not in (401, 403), status


async def send_with_token(
    http: aiohttp.ClientSession, url: str, message: dict[str, Any], token: Token, nonce: str | None
) -> tuple[int, str | None]:
    """Return the status of a message with the token, repeated once if a nonce is required; and the next nonce."""
    for _ in range(2):
        bound = (proof(token.key, "POST", url, time.time(), nonce=nonce, token=token.value),) if token.key else ()
        async with http.post(url, json=message, headers={**ACCEPT, **dict((token.header(), *bound))}) as answer:
            await answer.read()
            fields = tuple((str(name).lower(), value) for name, value in answer.headers.items())
            nonce = offered_nonce(fields) or nonce
            if answer.status != 401 or not wants_nonce(fields):
                break
    return answer.status, nonce


async def of_company(connections: Connections, context: dict[str, Any], spec: OAuth) -> Token:
    """Return the assertion that the company's server issues for the ID token of its person's login there."""
    grant = TokenExchange("company", audience=spec.server.issuer, requested=ID_JAG, by_id_token=True)
    place = Server(context["idp_issuer"], spec.network, context["idp_token_endpoint"])
    client = Client(context["idp_client_id"], None, ClientAuthentication.NONE)
    there = OAuth("company", grant, place, client, (), spec.resource)
    subject = Token(Secret("unused"), "Bearer", None, id_token=Secret(context["idp_id_token"]))
    flow = token_exchange(there, grant, subject, None, time.time())
    return await run_flow(flow, HttpBackend(there, connections))


def scenario() -> str:
    """Return the scenario's name."""
    return os.environ.get("MCP_CONFORMANCE_SCENARIO", "")


def grant_of_scenario() -> Grant:
    """Return the grant that the scenario's name implies."""
    if "client-credentials" in scenario():
        return ClientCredentials()
    if "wif" in scenario():
        return JwtBearer(assertion="workload")
    return JwtBearer(assertion="company") if "enterprise" in scenario() else AuthorizationCode()


async def resource_metadata(http: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    """Return the resource's metadata (RFC 9728), from the URL in its 401 or a well-known one."""
    async with http.post(url, json=HELLO, headers=ACCEPT) as answer:
        said = answer.headers.get("www-authenticate", "")
    named, scope = (re.search(rf'{word}="([^"]+)"', said) for word in ("resource_metadata", "scope"))
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    well_known = f"{origin}/.well-known/oauth-protected-resource"
    for place in [named[1]] if named else [f"{well_known}{parts.path}", well_known]:
        async with http.get(place) as answer:
            if answer.status == 200:
                found: dict[str, Any] = await answer.json()
                return {**found, "scopes_supported": scope[1].split()} if scope else found
    raise AssertionError("the resource has no metadata")


async def credential_of(
    http: aiohttp.ClientSession, issuer: str, context: dict[str, Any], resource: dict[str, Any]
) -> OAuth:
    """Return the credential, as gateway.yaml would configure it."""
    server = Server(issuer, parse_network(["127.0.0.0/8", "::1/128"]))
    scope = tuple(resource.get("scopes_supported") or ())
    if "private_key_pem" in context:
        key = signing_key(Secret(context["private_key_pem"]), None, context.get("signing_algorithm"))
        client = Client(context["client_id"], None, ClientAuthentication.PRIVATE_KEY_JWT, key)
    elif "wif" in scenario():
        client = Client(context["client_id"], None, ClientAuthentication.NONE)
    elif "client_id" in context:
        client = Client(context["client_id"], Secret(context.get("client_secret", "")))
    else:
        client = await register_client(http, issuer)
    bound = scenario().rpartition("/")[2].startswith("dpop")
    return OAuth("conformance", grant_of_scenario(), server, client, scope, resource.get("resource"), bound)


async def register_client(http: aiohttp.ClientSession, issuer: str) -> Client:
    """Register the client (RFC 7591), which a person does for the gateway itself."""
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
    return await run_flow(client_credentials(spec, time.time()), backend)


async def by_person(http: aiohttp.ClientSession, spec: OAuth, backend: HttpBackend) -> Token:
    """Return a token by the code flow; the suite's server redirects back without a login page."""
    tried = start_attempt(spec, BACK)
    url = await run_flow(authorization_url(spec, tried), backend)
    async with http.get(url, allow_redirects=False) as answer:
        told = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert told["state"] == tried.state
    return await run_flow(redeem(spec, tried, told, time.time()), backend)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
