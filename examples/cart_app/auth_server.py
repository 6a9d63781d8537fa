"""The shop's OAuth 2.0 authorization server: Authlib on aiohttp, client credentials in, signed JWT access tokens out.

Authlib has no integration for aiohttp, so `TokenEndpoint` and `FormRequest` implement what its documentation requires
of a framework: create an `OAuth2Request`, find the client, and turn `(status, body, headers)` into a response.
"""

from __future__ import annotations

import argparse
import hmac
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

# Authlib has no types: imports from it and subclasses of its classes are unknown to mypy.
from authlib.oauth2.rfc6749 import (  # type: ignore[import-untyped, unused-ignore]
    AuthorizationServer,
    ClientMixin,
    InvalidClientError,
    InvalidRequestError,
    OAuth2Error,
    OAuth2Payload,
    OAuth2Request,
)
from authlib.oauth2.rfc6749.grants import (  # type: ignore[import-untyped, unused-ignore]
    ClientCredentialsGrant as _ClientCredentialsGrant,
)
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator  # type: ignore[import-untyped, unused-ignore]
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet

TOKEN = "/token"
JWKS = "/jwks.json"
AUDIENCE = "https://shop.example/api"
SCOPE = "cart"
TOKEN_LIFETIME = 300
AUTH_METHODS = ["client_secret_basic", "client_secret_post"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the server; `token_lifetime` is in seconds."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    audience: str = AUDIENCE
    scope: str = SCOPE
    token_lifetime: int = TOKEN_LIFETIME
    keys: Path | None = None


@dataclass(frozen=True, slots=True)
class Client(ClientMixin):  # type: ignore[misc, unused-ignore]
    """The one registered client; the method names are Authlib's."""

    id: str
    secret: str = field(repr=False)
    scope: str

    def get_client_id(self) -> str:
        return self.id

    def get_allowed_scope(self, scope: str | None) -> str:
        """Return the granted scope; by default all of the client's (RFC 6749, 3.3)."""
        asked = (scope or self.scope).split()
        return " ".join(name for name in self.scope.split() if name in asked)

    def check_client_secret(self, client_secret: str) -> bool:
        return hmac.compare_digest(self.secret.encode(), client_secret.encode())

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return endpoint == "token" and method in AUTH_METHODS

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "client_credentials"


class ClientCredentialsGrant(_ClientCredentialsGrant):  # type: ignore[misc, unused-ignore]
    """RFC 6749, 4.4, for a client that sends its secret as Basic authentication or in the form."""

    TOKEN_ENDPOINT_AUTH_METHODS = AUTH_METHODS


class FormPayload(OAuth2Payload):  # type: ignore[misc, unused-ignore]
    """The parameters of a token request."""

    def __init__(self, form: Mapping[str, str]) -> None:
        self._form = form

    @property
    def data(self) -> Mapping[str, str]:
        return self._form

    @property
    def datalist(self) -> Mapping[str, list[str]]:
        return {name: [value] for name, value in self._form.items()}


class FormRequest(OAuth2Request):  # type: ignore[misc, unused-ignore]
    """A token request for Authlib. `uri` is configured, not taken from the Host header."""

    def __init__(self, uri: str, form: Mapping[str, str], headers: Mapping[str, str]) -> None:
        super().__init__("POST", uri, headers=headers)
        self.payload = FormPayload(form)

    @property
    def form(self) -> Mapping[str, str]:
        return self.payload.data  # type: ignore[no-any-return, unused-ignore]


class TokenGenerator(JWTBearerTokenGenerator):  # type: ignore[misc, unused-ignore]
    """Access tokens as JWT (RFC 9068, `typ: at+jwt`) with the shop as audience."""

    def __init__(self, settings: Settings, keys: KeySet) -> None:
        super().__init__(settings.issuer, alg="ES256", expires_generator=lambda client, grant: settings.token_lifetime)
        self._audience = settings.audience
        self._keys = keys

    def get_jwks(self) -> KeySet:
        return self._keys

    def get_audiences(self, client: Client, user: object, scope: str) -> str:
        return self._audience


class TokenEndpoint(AuthorizationServer):  # type: ignore[misc, unused-ignore]
    """Authlib's authorization server with its framework methods implemented."""

    def __init__(self, settings: Settings, keys: KeySet) -> None:
        super().__init__(scopes_supported=settings.scope.split())
        self._client = Client(settings.client_id, settings.client_secret, settings.scope)
        self._uri = settings.issuer + TOKEN
        self.register_grant(ClientCredentialsGrant)
        self.register_token_generator("default", TokenGenerator(settings, keys))

    def query_client(self, client_id: str) -> Client | None:
        return self._client if client_id == self._client.id else None

    def save_token(self, token: object, request: OAuth2Request) -> None:
        """Save nothing: a signed token is self-contained, and expires by its `exp`."""

    def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
        """Do nothing: there are no listeners."""

    def create_oauth2_request(self, request: FormRequest) -> FormRequest:
        return request

    def handle_response(
        self, status: int, body: Mapping[str, object], headers: Sequence[tuple[str, str]]
    ) -> web.Response:
        return web.Response(status=status, text=json.dumps(body), headers=list(headers))

    async def answer(self, request: web.Request) -> web.Response:
        """Answer `POST /token`."""
        try:
            asked = FormRequest(self._uri, await read_form(request), request.headers)
            return self.create_token_response(asked)  # type: ignore[no-any-return, unused-ignore]
        except OAuth2Error as error:
            return self.handle_response(*error())
        except UnicodeDecodeError:
            return self.handle_response(*InvalidClientError("The credentials are not UTF-8.", status_code=401)())


async def read_form(request: web.Request) -> dict[str, str]:
    """Return the form of a token request, without repeated parameters (RFC 6749, 3.2). Raises `InvalidRequestError`."""
    if request.content_type != "application/x-www-form-urlencoded":
        raise InvalidRequestError("The body must be application/x-www-form-urlencoded.")
    try:
        pairs = list((await request.post()).items())
    except (LookupError, ValueError) as error:
        raise InvalidRequestError("The body is no valid form.") from error
    form = {name: value for name, value in pairs if isinstance(value, str)}
    if len(form) != len(pairs):
        raise InvalidRequestError("A parameter is repeated.")
    return form


def metadata(settings: Settings) -> dict[str, object]:
    """Return the server's metadata (RFC 8414, section 2)."""
    return {
        "issuer": settings.issuer,
        "token_endpoint": settings.issuer + TOKEN,
        "jwks_uri": settings.issuer + JWKS,
        "scopes_supported": settings.scope.split(),
        "response_types_supported": [],
        "grant_types_supported": ["client_credentials"],
        "token_endpoint_auth_methods_supported": AUTH_METHODS,
    }


def load_keys(path: Path | None) -> KeySet:
    """Return the signing key: from the file, which is created if missing; without a file, a new one at each start."""
    if path is not None and path.exists():
        try:
            return KeySet.import_key_set(json.loads(path.read_text(encoding="utf-8")))
        except (JoseError, KeyError, TypeError, ValueError) as error:
            raise SystemExit(f"{path} holds no JSON Web Key Set with a private key: {error}") from error
    keys = KeySet([ECKey.generate_key("P-256", {"use": "sig", "alg": "ES256"}, auto_kid=True)])
    if path is not None:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(keys.as_dict(private=True), file)
    return keys


def build_app(settings: Settings) -> web.Application:
    """Return the authorization server, to be served at its issuer's address."""
    keys = load_keys(settings.keys)
    document, public = metadata(settings), keys.as_dict(private=False)

    async def show_metadata(request: web.Request) -> web.Response:
        return web.json_response(document)

    async def show_keys(request: web.Request) -> web.Response:
        return web.json_response(public, content_type="application/jwk-set+json")

    app = web.Application(client_max_size=64 * 1024)
    app.router.add_post(TOKEN, TokenEndpoint(settings, keys).answer)
    app.router.add_get(JWKS, show_keys)
    app.router.add_get("/.well-known/oauth-authorization-server", show_metadata)
    app.router.add_get("/.well-known/openid-configuration", show_metadata)
    return app


def read_arguments(arguments: Sequence[str] | None, environ: Mapping[str, str]) -> tuple[str, int, Settings]:
    """Read host, port and settings from the command line; client id and secret also from the environment."""
    parser = argparse.ArgumentParser(description="The shop's authorization server.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on [%(default)s]")
    parser.add_argument("--port", type=int, default=9400, help="[%(default)s]")
    parser.add_argument("--issuer", help="its own URL [http://localhost:PORT]")
    parser.add_argument("--audience", default=AUDIENCE, help="whom tokens are for [%(default)s]")
    parser.add_argument("--client-id", default=environ.get("SHOP_CLIENT", "storefront"), help="[%(default)s]")
    parser.add_argument("--client-secret", default=environ.get("SHOP_SECRET"), help="or better SHOP_SECRET")
    parser.add_argument("--scope", default=SCOPE, help="scopes of the client [%(default)s]")
    parser.add_argument("--token-lifetime", type=int, default=TOKEN_LIFETIME, help="seconds [%(default)s]")
    parser.add_argument("--keys", type=Path, metavar="FILE", help="keep the signing key here [a new one at each start]")
    given = parser.parse_args(arguments)
    issuer: str = given.issuer or f"http://localhost:{given.port}"
    parts = urlsplit(issuer)
    if not given.client_secret:
        parser.error("a client secret is needed: set SHOP_SECRET, or give --client-secret")
    if parts.scheme not in ("http", "https") or not parts.hostname or issuer != f"{parts.scheme}://{parts.netloc}":
        parser.error("--issuer is a URL without path, such as http://localhost:9400")
    if given.token_lifetime < 1:
        parser.error("--token-lifetime is at least 1 second")
    settings = Settings(
        issuer, given.client_id, given.client_secret, given.audience, given.scope, given.token_lifetime, given.keys
    )
    return given.host, given.port, settings


def main() -> None:
    """Serve until interrupted."""
    host, port, settings = read_arguments(None, os.environ)
    ready = partial(print, f"authorization server: ready as {settings.issuer}", flush=True)
    try:
        web.run_app(build_app(settings), host=host, port=port, access_log=None, print=lambda _: ready())
    except OSError as error:
        raise SystemExit(f"authorization server: cannot listen: {error.strerror}") from error


if __name__ == "__main__":
    main()
