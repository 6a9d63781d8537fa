"""A configurable issuer that signs and publishes anything, and can fail, for cases that a real one does not cover."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import JWSRegistry

from tests.world import Server


def plain(part: Mapping[str, Any]) -> str:
    """An unsigned part of a token."""
    return base64.urlsafe_b64encode(json.dumps(dict(part)).encode()).decode().rstrip("=")


@dataclass(slots=True)
class Issuer:
    """An issuer at `url`. `keys` are its signing keys, by name; `asked` counts requests by path.

    `person` are the claims of the next login. Its clock is `ahead` seconds before ours.
    """

    url: str
    keys: dict[str, RSAKey | ECKey]
    published: list[dict[str, Any]]
    asked: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    redirect: str | None = None
    padding: int = 0
    ahead: float = 0.0
    introspected: dict[str, Any] = field(default_factory=dict)
    person: dict[str, Any] = field(default_factory=dict)
    codes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def claims(self, audience: str, **more: Any) -> dict[str, Any]:
        """The claims of a valid token; a claim that is given as None is left out."""
        now = int(time.time())
        good = {"iss": self.url, "aud": audience, "sub": "alice", "client_id": "desktop", "exp": now + 300, "iat": now}
        return {name: value for name, value in {**good, **more}.items() if value is not None}

    def sign(self, claims: Mapping[str, Any], key: str = "rsa", **header: Any) -> str:
        """A token; members of the header that are given as None are left out."""
        named = {"alg": "RS256" if key.startswith("rsa") else "ES256", "kid": key, "typ": "at+jwt", **header}
        said = f"{plain({name: value for name, value in named.items() if value is not None})}.{plain(claims)}"
        algorithm = JWSRegistry.algorithms["RS256" if key.startswith("rsa") else "ES256"]
        signature = algorithm.sign(said.encode(), self.keys[key])  # by hand: the library refuses invalid headers
        return f"{said}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"

    def sign_with_public(self, claims: Mapping[str, Any]) -> str:
        """A token signed with HS256 and the text of the public key as shared secret."""
        said = f"{plain({'alg': 'HS256', 'kid': 'rsa'})}.{plain(claims)}"
        signature = hmac.digest(self.keys["rsa"].as_pem(private=False), said.encode(), hashlib.sha256)
        return f"{said}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"

    def publish(self, *names: str) -> None:
        """Publish exactly these keys."""
        self.published = [{**self.keys[name].as_dict(private=False), "kid": name, "use": "sig"} for name in names]

    def rotate(self, name: str) -> None:
        """Replace the signing key, and publish only the new one."""
        self.keys[name] = RSAKey.generate_key(2048)
        self.publish(name)


@asynccontextmanager
async def issuer() -> AsyncIterator[Issuer]:
    """The server, on a free port."""
    server = Server()
    keys: dict[str, RSAKey | ECKey] = {
        "rsa": RSAKey.generate_key(2048),
        "ec": ECKey.generate_key("P-256"),
        "rsa-other": RSAKey.generate_key(2048),
    }
    made = Issuer(f"http://localhost:{server.port}", keys, [])
    made.publish("rsa", "ec")
    made.metadata = {
        "issuer": made.url,
        "jwks_uri": f"{made.url}/jwks",
        "introspection_endpoint": f"{made.url}/introspect",
        "authorization_endpoint": f"{made.url}/auth",
        "token_endpoint": f"{made.url}/token",
    }

    async def handle(request: web.Request) -> web.StreamResponse:
        made.asked[request.path] = made.asked.get(request.path, 0) + 1
        if made.redirect is not None:
            raise web.HTTPFound(made.redirect)
        if made.status != 200:
            return web.Response(status=made.status)
        if request.path == "/jwks":
            return web.json_response({"keys": made.published, "padding": "x" * made.padding})
        if request.path == "/introspect":
            token = str((await request.post())["token"])
            return web.json_response(made.introspected.get(token, {"active": False}))
        if request.path == "/auth":
            query = request.query
            code = secrets.token_urlsafe(16)
            made.codes[code] = {"nonce": query["nonce"], "challenge": query["code_challenge"], **made.person}
            raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}")
        if request.path == "/token":
            form = await request.post()
            claims = made.codes.pop(str(form["code"]))
            digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
            assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == claims.pop("challenge")
            client = base64.b64decode(request.headers["authorization"].partition(" ")[2]).decode().partition(":")[0]
            id_token = made.sign(made.claims(client, **claims), typ="JWT")
            return web.json_response({"id_token": id_token, "token_type": "Bearer"})
        if request.path.startswith("/.well-known/"):
            date = formatdate(time.time() + made.ahead, usegmt=True)
            return web.json_response(made.metadata, headers={"date": date})
        return web.Response(status=404)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    await server.start(app)
    try:
        yield made
    finally:
        await server.stop()
