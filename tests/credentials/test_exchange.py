"""Token exchange with a real authorization server that supports it: idpyoidc (RFC 8693)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from idpyoidc.message.oidc import AuthorizationRequest
from idpyoidc.server import Server as Issuer
from idpyoidc.server.authn_event import create_authn_event
from idpyoidc.server.configure import ASConfiguration

from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from gateway.credentials import Client, OAuth, Server, Token, TokenExchange, token_exchange
from gateway.errors import Refusal
from gateway.exchange.oauth_tokens import run_flow
from gateway.model import Secret
from tests.credentials.test_client_credentials import Everywhere
from tests.leaks.marks import MARK
from tests.world import Server as WebServer

SECRET = f"hush-hush-hush-hush-{MARK}"
TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"
HELPERS = "idpyoidc.server.oauth2.token_helper"


def settings(url: str) -> dict[str, Any]:
    """The settings of an issuer with a token endpoint for exchange."""
    exchange = {
        "subject_token_types_supported": [TOKEN_TYPE],
        "requested_token_types_supported": [TOKEN_TYPE],
        "default_requested_token_type": TOKEN_TYPE,
        "policy": {"": {"function": f"{HELPERS}.validate_token_exchange_policy", "kwargs": {"scope": ["cart"]}}},
    }
    helpers = {
        "urn:ietf:params:oauth:grant-type:token-exchange": {
            "class": f"{HELPERS}.token_exchange.TokenExchangeHelper",
            "kwargs": exchange,
        }
    }
    methods = ["client_secret_basic", "client_secret_post"]
    endpoint = {
        "authorization": {
            "path": "authorization",
            "class": "idpyoidc.server.oauth2.authorization.Authorization",
            "kwargs": {},
        },
        "token": {
            "path": "token",
            "class": "idpyoidc.server.oauth2.token.Token",
            "kwargs": {"client_authn_method": methods, "grant_types_helpers": helpers},
        },
    }
    rules = {"access_token": {"supports_minting": ["access_token"], "expires_in": 600}}
    keys = [{"type": "OCT", "use": ["enc"], "kid": "password"}, {"type": "OCT", "use": ["enc"], "kid": "salt"}]
    return {
        "issuer": url,
        "keys": {"uri_path": "jwks.json", "key_defs": [{"type": "EC", "crv": "P-256", "use": ["sig"]}]},
        "preference": {"scopes_supported": ["cart", "orders"]},
        "endpoint": endpoint,
        "authz": {
            "class": "idpyoidc.server.authz.AuthzHandling",
            "kwargs": {"grant_config": {"usage_rules": rules, "expires_in": 43200}},
        },
        "session_params": {"encrypter": {"kwargs": {"keys": {"key_defs": keys}, "iterations": 1}}},
    }


@asynccontextmanager
async def issuer(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """The issuer's URL, and the access token of a person there."""
    server = WebServer()
    url = f"http://localhost:{server.port}"
    made = Issuer(ASConfiguration(conf=settings(url), base_path=str(folder)), cwd=str(folder))
    context = made.context
    context.cdb["gateway"] = {
        "client_secret": SECRET,
        "redirect_uris": [("http://localhost/cb", "")],
        "client_salt": "salted",
        "token_endpoint_auth_method": "client_secret_basic",
        "response_types_supported": ["code"],
        "allowed_scopes": ["cart", "orders"],
    }
    context.keyjar.add_symmetric("gateway", SECRET)
    asked = AuthorizationRequest(
        client_id="gateway",
        redirect_uri="http://localhost/cb",
        scope=["cart", "orders"],
        state="s",
        response_type="code",
    )
    session = context.session_manager.create_session(
        create_authn_event(uid="diana", authn_info="x"), asked, "diana", client_id="gateway", sub_type="public"
    )
    minted = context.authz(session, asked).mint_token(
        session_id=session,
        context=context,
        token_class="access_token",
        token_handler=context.session_manager.token_handler["access_token"],
    )
    endpoint = made.get_endpoint("token")

    async def metadata(request: web.Request) -> web.Response:
        return web.json_response({"issuer": url, "token_endpoint": f"{url}/token"})

    async def token(request: web.Request) -> web.Response:
        headers = {"headers": {name.lower(): value for name, value in request.headers.items()}}
        parsed = endpoint.parse_request(dict(await request.post()), http_info=headers)
        if "error" in parsed:
            return web.json_response(parsed.to_dict(), status=400)
        answer = endpoint.process_request(parsed)
        found = answer.get("response_args", answer)
        body = found if isinstance(found, dict) else found.to_dict()
        return web.json_response(body, status=400 if "error" in body else 200)

    app = web.Application()
    app.router.add_get("/.well-known/oauth-authorization-server", metadata)
    app.router.add_post("/token", token)
    try:
        await server.start(app)
        yield url, str(minted.value)
    finally:
        await server.stop()


def spec(url: str) -> tuple[OAuth, TokenExchange]:
    grant = TokenExchange("calendar", requested=TOKEN_TYPE)
    client = Client("gateway", Secret(SECRET))
    return OAuth("orders", grant, Server(url, Everywhere()), client, ("cart",)), grant


async def test_a_token_is_exchanged_for_another(tmp_path: Path) -> None:
    """The new token has another value, and less scope."""
    async with issuer(tmp_path) as (url, subject), Connections() as connections:
        credential, grant = spec(url)
        flow = token_exchange(credential, grant, Token(Secret(subject), "Bearer", None), None, time.time())
        token = await run_flow(flow, HttpBackend(credential, connections))
    assert token.value.reveal() != subject
    assert (token.token_type, token.scope, token.type) == ("Bearer", "cart", TOKEN_TYPE)


async def test_a_token_that_the_server_does_not_know_is_refused(tmp_path: Path) -> None:
    """The refusal does not repeat the server's text."""
    async with issuer(tmp_path) as (url, _), Connections() as connections:
        credential, grant = spec(url)
        flow = token_exchange(credential, grant, Token(Secret("made-up-token"), "Bearer", None), None, time.time())
        with pytest.raises(Refusal, match="invalid_request") as refused:
            await run_flow(flow, HttpBackend(credential, connections))
    assert "made-up-token" not in refused.value.detail
