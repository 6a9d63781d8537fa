"""The sign-in of the demo: a small OpenID issuer, on whose page one picks a person. It asks for no password.

It is for one's own machine only. A chat of a company is a client of the company's issuer instead.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import html
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import unquote_plus, urlencode, urlsplit

from aiohttp import BasicAuth, web
from joserfc import jwt
from joserfc.jwk import ECKey

PEOPLE: Mapping[str, str] = {"alice": "Alice Ferreira", "bob": "Bob Okafor"}
"""The people of the demo: their subjects and names."""

TOKEN_LIFETIME = 8 * 3600
"""Seconds. The demo has no refresh tokens: a session ends with its access token."""

CODE_LIFETIME = 60.0
MOST_CODES = 256
STYLE = """
:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; color: light-dark(#1d2421, #eceeec);
  background: light-dark(#f2f0ea, #16181a); }
main { box-sizing: border-box; width: min(26rem, calc(100vw - 2rem)); padding: 1.75rem; border-radius: 14px;
  background: light-dark(#fff, #1e2123); border: 1px solid light-dark(#e2ded4, #363b3f); }
h1 { margin: 0; font-size: 1.4rem; letter-spacing: -0.02em; }
p { margin: 0.4rem 0 1.2rem; color: light-dark(#59625d, #a9b1ad); }
button { display: block; width: 100%; margin-top: 0.6rem; padding: 0.75rem 1rem; font: inherit; text-align: start;
  color: inherit; cursor: pointer; border-radius: 10px; background: light-dark(#fbfaf7, #272b2e);
  border: 1px solid light-dark(#d5d0c4, #454b50); }
button:hover, button:focus-visible { border-color: light-dark(#1f6f5c, #6fc7ae); }
"""


@dataclass(frozen=True, slots=True)
class Client:
    """A registered client; `name` is shown to people."""

    name: str
    secret: str = field(repr=False)
    redirect_uri: str


@dataclass(frozen=True, slots=True)
class Code:
    """What an authorization code stands for; `until` is on the monotonic clock."""

    client: str
    person: str
    nonce: str
    challenge: str
    until: float


@dataclass(slots=True)
class Issuer:
    """The issuer at `url`; its access tokens are for `audience`."""

    url: str
    audience: str
    clients: Mapping[str, Client]
    key: ECKey = field(default_factory=lambda: ECKey.generate_key("P-256", {"use": "sig"}, auto_kid=True), repr=False)
    codes: dict[str, Code] = field(default_factory=dict, repr=False)

    def metadata(self) -> dict[str, object]:
        """Return the metadata (OpenID Connect Discovery 1.0, section 3)."""
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks.json",
            "scopes_supported": ["openid", "profile"],
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def issue_code(self, query: Mapping[str, str], person: str) -> str:
        """Return a code for a person that was picked."""
        if len(self.codes) >= MOST_CODES:
            del self.codes[next(iter(self.codes))]
        code = secrets.token_urlsafe(24)
        until = time.monotonic() + CODE_LIFETIME
        self.codes[code] = Code(query["client_id"], person, query.get("nonce", ""), query["code_challenge"], until)
        return code

    def redeem(self, client: str, form: Mapping[str, str]) -> dict[str, object] | None:
        """Return the tokens for a code, which counts once; None if it is not valid for this client."""
        code = self.codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if (
            code is None
            or code.client != client
            or code.until < time.monotonic()
            or form.get("redirect_uri") != self.clients[client].redirect_uri
            or not hmac.compare_digest(code.challenge.encode(), challenge.rstrip(b"="))
        ):
            return None
        now = int(time.time())
        claims = {"iss": self.url, "sub": code.person, "name": PEOPLE[code.person], "iat": now}
        id_claims = {**claims, "aud": client, "exp": now + 300, "auth_time": now, "nonce": code.nonce}
        access = {**claims, "aud": self.audience, "client_id": client, "exp": now + TOKEN_LIFETIME}
        return {
            "access_token": self._sign({**access, "jti": secrets.token_urlsafe(12)}, "at+jwt"),
            "id_token": self._sign(id_claims, "JWT"),
            "token_type": "Bearer",
            "expires_in": TOKEN_LIFETIME,
        }

    def _sign(self, claims: dict[str, object], type: str) -> str:
        header = {"alg": "ES256", "kid": self.key.kid, "typ": type}
        return jwt.encode(header, claims, self.key, algorithms=["ES256"])


def build_app(issuer: Issuer) -> web.Application:
    """Return the application, to be served at the issuer's address."""

    async def show_metadata(request: web.Request) -> web.Response:
        return web.json_response(issuer.metadata())

    async def show_keys(request: web.Request) -> web.Response:
        return web.json_response({"keys": [{**issuer.key.as_dict(private=False), "alg": "ES256"}]})

    async def authorize(request: web.Request) -> web.Response:
        query = dict(request.query)
        client = issuer.clients.get(query.get("client_id", ""))
        if client is None or query.get("redirect_uri") != client.redirect_uri:
            raise web.HTTPBadRequest(text="No client with this id and redirect URI is registered here.")
        answer = {"state": query.get("state", ""), "iss": issuer.url}
        proof = query.get("code_challenge_method") == "S256" and bool(query.get("code_challenge"))
        if query.get("response_type") != "code" or not proof:
            raise web.HTTPSeeOther(f"{client.redirect_uri}?{urlencode({**answer, 'error': 'invalid_request'})}")
        if request.method != "POST":
            return _page(client)
        person = str((await request.post()).get("person", ""))
        if person not in PEOPLE:
            raise web.HTTPSeeOther(f"{client.redirect_uri}?{urlencode({**answer, 'error': 'access_denied'})}")
        code = issuer.issue_code(query, person)
        raise web.HTTPSeeOther(f"{client.redirect_uri}?{urlencode({**answer, 'code': code})}")

    async def give_tokens(request: web.Request) -> web.Response:
        form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        id, secret = _credentials(request, form)
        client = issuer.clients.get(id)
        headers = {"cache-control": "no-store"}
        if client is None or not hmac.compare_digest(client.secret.encode(), secret.encode()):
            return web.json_response({"error": "invalid_client"}, status=401, headers=headers)
        if form.get("grant_type") != "authorization_code":
            return web.json_response({"error": "unsupported_grant_type"}, status=400, headers=headers)
        tokens = issuer.redeem(id, form)
        return web.json_response(tokens or {"error": "invalid_grant"}, status=200 if tokens else 400, headers=headers)

    app = web.Application(client_max_size=64 * 1024)
    app.router.add_get("/.well-known/openid-configuration", show_metadata)
    app.router.add_get("/.well-known/oauth-authorization-server", show_metadata)
    app.router.add_get("/jwks.json", show_keys)
    app.router.add_get("/authorize", authorize)
    app.router.add_post("/authorize", authorize)
    app.router.add_post("/token", give_tokens)
    return app


def _credentials(request: web.Request, form: Mapping[str, str]) -> tuple[str, str]:
    header = request.headers.get("authorization")
    if header is None:
        return form.get("client_id", ""), form.get("client_secret", "")
    try:
        basic = BasicAuth.decode(header)
    except ValueError:
        return "", ""
    return unquote_plus(basic.login), unquote_plus(basic.password)  # RFC 6749, 2.3.1


def _page(client: Client) -> web.Response:
    buttons = "".join(f'<button name="person" value="{id}">{html.escape(name)}</button>' for id, name in PEOPLE.items())
    style = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    parts = urlsplit(client.redirect_uri)
    policy = (
        f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; frame-ancestors 'none'; "
        f"form-action 'self' {parts.scheme}://{parts.netloc}"  # also of the redirect that answers the form
    )
    text = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Sign in</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>'
        f"<main><h1>Who are you?</h1><p>{html.escape(client.name)} asks. This is a demo: there are no passwords.</p>"
        f'<form method="post">{buttons}</form></main></html>'
    )
    headers = {"content-security-policy": policy, "cache-control": "no-store", "x-content-type-options": "nosniff"}
    return web.Response(text=text, content_type="text/html", headers=headers)


def main() -> None:
    """Serve until a signal comes; the clients' secrets are in CHAT_LOGIN_SECRET and CONSOLE_SECRET."""
    parser = argparse.ArgumentParser(description="The issuer of the demo chat's people.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--chat", required=True, metavar="ORIGIN", help="the chat's origin")
    parser.add_argument("--gateway", required=True, metavar="URL", help="the gateway, for which access tokens are")
    parser.add_argument("--console", required=True, metavar="ORIGIN", help="the origin of the gateway's console")
    given = parser.parse_args()
    clients = {
        "parlour": Client("Parlour", os.environ["CHAT_LOGIN_SECRET"], f"{given.chat}/signed-in"),
        "console": Client("The gateway", os.environ["CONSOLE_SECRET"], f"{given.console}/login/back"),
    }
    issuer = Issuer(f"http://localhost:{given.port}", given.gateway, clients)
    ready = partial(print, f"sign-in: ready as {issuer.url}", flush=True)
    web.run_app(build_app(issuer), host="127.0.0.1", port=given.port, access_log=None, print=lambda _: ready())


if __name__ == "__main__":
    main()
