"""Validates OAuth 2.0 access tokens for the shop with their issuer's keys."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import Any

import aiohttp
from aiohttp import web
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from examples.cart_app.refusals import ShopError

SCOPE = "cart"
ALGORITHMS = ["ES256", "RS256"]
KEYS_LIVE = 3600.0


class Issuer:
    """A cache of the authorization server's public keys: fetched on first use, and again for an unknown key."""

    def __init__(self, url: str, pause: float, session: aiohttp.ClientSession) -> None:
        self.url, self._pause, self._session = url, pause, session
        self._keys: KeySet | None = None
        self._fetched = 0.0
        self._lock = asyncio.Lock()

    async def keys(self) -> KeySet:
        """Return the keys, at most an hour old."""
        async with self._lock:
            if self._keys is None or time.monotonic() - self._fetched > KEYS_LIVE:
                self._keys = await self._fetch()
            return self._keys

    async def newer_keys(self, seen: KeySet) -> KeySet:
        """Fetch the keys again, unless they were fetched a moment ago."""
        async with self._lock:
            if self._keys is seen and time.monotonic() - self._fetched >= self._pause:
                self._keys = await self._fetch()
            return self._keys or seen

    async def _fetch(self) -> KeySet:
        try:
            metadata = await self._get(f"{self.url}/.well-known/oauth-authorization-server")
            if metadata.get("issuer") != self.url:  # RFC 8414, 3.3
                raise ValueError(f"it calls itself {metadata.get('issuer')!r}")
            keys = KeySet.import_key_set({"keys": (await self._get(str(metadata["jwks_uri"])))["keys"]})
        except (aiohttp.ClientError, TimeoutError, JoseError, LookupError, TypeError, ValueError) as error:
            print(f"shop: no keys from {self.url}: {error!r}", file=sys.stderr, flush=True)
            message = "The shop cannot check who you are at the moment. Please try again."
            raise ShopError(503, "issuer_unavailable", message, {"Retry-After": "1"}) from error
        self._fetched = time.monotonic()
        return keys

    async def _get(self, url: str) -> dict[str, Any]:
        async with self._session.get(url, allow_redirects=False) as response:
            response.raise_for_status()
            answer = await response.json(content_type=None)
        if not isinstance(answer, dict):
            raise ValueError(f"{url} is not a JSON object")
        return answer


def challenge(status: int, error: str, message: str, scope: str = "") -> ShopError:
    """Return a refusal with the `WWW-Authenticate` of RFC 6750, section 3; without `error` if no token was sent."""
    fields = ['realm="shop"']
    if error != "token_needed":
        fields += [f'error="{error}"', f'error_description="{message}"']
    if scope:
        fields.append(f'scope="{scope}"')
    return ShopError(status, error, message, {"WWW-Authenticate": "Bearer " + ", ".join(fields)})


def bearer(request: web.Request) -> str:
    """Return the access token of the `Authorization` header. Raises `ShopError` if it is missing or invalid."""
    values = request.headers.getall("Authorization", [])
    if not values:
        raise challenge(401, "token_needed", "An access token is needed.")
    scheme, _, token = values[0].partition(" ")
    if scheme.lower() != "bearer":
        raise challenge(401, "token_needed", "An access token is needed.")
    if len(values) > 1 or not re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", token.strip()):
        raise challenge(400, "invalid_request", "The Authorization header holds no bearer token.")
    return token.strip()


async def customer(token: str, issuer: Issuer, audience: str) -> str:
    """Return the token's subject (`sub`) after the checks of RFC 9068, section 4. Raises `ShopError`."""
    keys = await issuer.keys()
    try:
        try:
            decoded = jwt.decode(token, keys, algorithms=ALGORITHMS)
        except InvalidKeyIdError:
            decoded = jwt.decode(token, await issuer.newer_keys(keys), algorithms=ALGORITHMS)
        jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": issuer.url},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
            sub={"essential": True},
        ).validate(decoded.claims)
    except (JoseError, ValueError, RecursionError) as error:
        raise challenge(401, "invalid_token", "The access token is not valid here, or no longer.") from error
    if str(decoded.header.get("typ")).lower() not in ("at+jwt", "application/at+jwt"):
        raise challenge(401, "invalid_token", "This is no access token.")
    if SCOPE not in str(decoded.claims.get("scope", "")).split():
        raise challenge(403, "insufficient_scope", f"The access token lacks the scope {SCOPE}.", SCOPE)
    return str(decoded.claims["sub"])
