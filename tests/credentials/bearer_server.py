"""A real authorization server for assertions (RFC 7523 2.1), Authlib's."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from authlib.oauth2.rfc6749 import AuthorizationServer, OAuth2Request
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc7523 import JWTBearerGrant
from joserfc.jwk import ECKey

from tests.world import Server


@dataclass(slots=True)
class Bearers:
    """A server at `url`. `people` are the subjects that its client may use; `granted` the subjects, by token."""

    url: str
    public: Mapping[str, Any]
    people: frozenset[str]
    granted: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)


class _Client:
    """The only client."""

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "urn:ietf:params:oauth:grant-type:jwt-bearer"

    def get_allowed_scope(self, scope: str) -> str:
        return scope if scope in ("", "cart") else ""


class _Form(OAuth2Request):  # type: ignore[misc]  # Authlib has no types
    """A request in Authlib's form."""

    def __init__(self, url: str, form: Mapping[str, str]) -> None:
        super().__init__("POST", url)
        self.payload = BasicOAuth2Payload(dict(form))

    @property
    def form(self) -> dict[str, str]:
        found: dict[str, str] = self.payload.data
        return found


class _Authlib(AuthorizationServer):  # type: ignore[misc]  # Authlib has no types
    """The parts that each user of Authlib must implement."""

    def __init__(self, state: Bearers) -> None:
        super().__init__()
        self._state = state

        def made(**_: Any) -> dict[str, Any]:
            return {"token_type": "Bearer", "access_token": secrets.token_urlsafe(24), "expires_in": 300}

        self.register_token_generator("default", made)
        self.register_grant(_grant(state))

    def create_oauth2_request(self, request: OAuth2Request) -> OAuth2Request:
        return request

    def handle_response(self, status: int, body: dict[str, Any], headers: Any) -> tuple[int, dict[str, Any]]:
        return status, body

    def send_signal(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Do nothing: there are no listeners."""

    def save_token(self, token: dict[str, Any], request: OAuth2Request) -> None:
        self._state.granted[token["access_token"]] = request.user


def _grant(state: Bearers) -> type[JWTBearerGrant]:
    class Grant(JWTBearerGrant):  # type: ignore[misc]  # Authlib has no types
        def resolve_issuer_client(self, issuer: str) -> _Client | None:
            return _Client() if issuer == "robot" else None

        def resolve_client_public_key(self, client: _Client) -> ECKey:
            return ECKey.import_key(dict(state.public))

        def authenticate_user(self, subject: str) -> str | None:
            return subject if subject in state.people else None

        def has_granted_permission(self, client: _Client, user: str) -> bool:
            return True

        def get_audiences(self) -> list[str]:
            return [state.url]

    return Grant


@asynccontextmanager
async def bearers(public: Mapping[str, Any], *people: str) -> AsyncIterator[Bearers]:
    """The server, on a free port."""
    server = Server()
    state = Bearers(f"http://localhost:{server.port}", public, frozenset(people))
    authlib = _Authlib(state)

    async def metadata(request: web.Request) -> web.Response:
        return web.json_response({"issuer": state.url, "token_endpoint": f"{state.url}/token"})

    async def token(request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        status, body = authlib.create_token_response(_Form(f"{state.url}/token", form))
        if status != 200:
            state.refused.append(f"{body['error']}: {body.get('error_description')}")
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_get("/.well-known/oauth-authorization-server", metadata)
    app.router.add_post("/token", token)
    await server.start(app)
    try:
        yield state
    finally:
        await server.stop()
