"""The sign-in of people at an OpenID issuer: the authorization code flow with PKCE, `state` and `nonce`."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlencode

import aiohttp
from aiohttp import encode_basic_auth
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from examples.chat_host.settings import Settings

BACK = "/signed-in"
"""The path of the redirect URI, below the chat's origin."""

ATTEMPT_LIVES = 600.0
MOST_ATTEMPTS = 1024
ALGORITHMS = ["ES256", "RS256", "PS256", "EdDSA"]
TIMEOUT = aiohttp.ClientTimeout(total=10)


class LoginError(Exception):
    """Nobody was signed in; the text is for the person."""


@dataclass(frozen=True, slots=True)
class Person:
    """A person who is signed in. `token` is theirs for the gateway, and is valid for `seconds`."""

    subject: str
    name: str
    token: str = field(repr=False)
    seconds: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """A sign-in that has begun in one browser; `until` is on the monotonic clock."""

    state: str
    nonce: str
    verifier: str
    until: float


@dataclass(slots=True)
class Login:
    """Signs people in at `settings.issuer`."""

    http: aiohttp.ClientSession
    settings: Settings
    _attempts: dict[str, Attempt] = field(default_factory=dict)

    async def begin(self) -> tuple[str, str]:
        """Return a secret for the browser's cookie, and the address at which its person signs in.

        Raises `LoginError`.
        """
        metadata = await self._metadata()
        if len(self._attempts) >= MOST_ATTEMPTS:
            del self._attempts[next(iter(self._attempts))]
        state, nonce, verifier, browser = (secrets.token_urlsafe(32) for _ in range(4))
        self._attempts[browser] = Attempt(state, nonce, verifier, time.monotonic() + ATTEMPT_LIVES)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self.settings.login_id,
            "redirect_uri": self.settings.url + BACK,
            "scope": "openid profile",
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        address = str(metadata["authorization_endpoint"])
        return browser, f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"

    async def finish(self, browser: str, answer: dict[str, str]) -> Person:
        """Return the person of an issuer's answer. An attempt counts once. Raises `LoginError`."""
        attempt = self._attempts.pop(browser, None)
        if attempt is None or attempt.until < time.monotonic():
            raise LoginError("This sign-in did not begin in this browser, or it took too long.")
        if not hmac.compare_digest(attempt.state.encode(), answer.get("state", "").encode()):
            raise LoginError("This answer belongs to another sign-in.")
        metadata = await self._metadata()
        names_itself = metadata.get("authorization_response_iss_parameter_supported") is True
        if answer.get("iss", None if names_itself else self.settings.issuer) != self.settings.issuer:  # RFC 9207
            raise LoginError("This answer is another issuer's.")
        if "code" not in answer:
            raise LoginError("The issuer has signed nobody in.")
        tokens = await self._redeem(str(metadata["token_endpoint"]), answer["code"], attempt.verifier)
        keys = await self._ask("GET", str(metadata["jwks_uri"]))
        claims = self._read(tokens, keys, attempt.nonce)
        token, seconds = tokens.get("access_token"), tokens.get("expires_in")
        if not isinstance(token, str) or not isinstance(seconds, int | float) or seconds <= 0:
            raise LoginError("The issuer gave no access token.")
        subject = str(claims["sub"])
        return Person(subject, str(claims.get("name") or subject)[:80], token, float(seconds))

    def _read(self, tokens: dict[str, Any], keys: dict[str, Any], nonce: str) -> dict[str, Any]:
        """Return the claims of the ID token (OpenID Connect Core 1.0, 3.1.3.7)."""
        try:
            token = jwt.decode(str(tokens["id_token"]), KeySet.import_key_set({"keys": keys["keys"]}), ALGORITHMS)
            jwt.JWTClaimsRegistry(
                leeway=30,
                iss={"essential": True, "value": self.settings.issuer},
                aud={"essential": True, "value": self.settings.login_id},
                exp={"essential": True},
                sub={"essential": True},
                nonce={"essential": True, "value": nonce},
            ).validate(token.claims)
            if token.claims.get("azp", self.settings.login_id) != self.settings.login_id:
                raise ValueError("azp")
        except (JoseError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise LoginError("The issuer's answer does not prove who you are.") from error
        return token.claims

    async def _redeem(self, address: str, code: str, verifier: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.settings.url + BACK,
            "code_verifier": verifier,
        }
        quoted = (quote_plus(part) for part in (self.settings.login_id, self.settings.login_secret))
        return await self._ask("POST", address, data=form, headers={"authorization": encode_basic_auth(*quoted)})

    async def _metadata(self) -> dict[str, Any]:
        found = await self._ask("GET", f"{self.settings.issuer}/.well-known/openid-configuration")
        needed = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        if found.get("issuer") != self.settings.issuer or not all(isinstance(found.get(one), str) for one in needed):
            raise LoginError("The issuer does not describe itself as one.")
        return found

    async def _ask(self, method: str, address: str, **more: Any) -> dict[str, Any]:
        try:
            asking = self.http.request(method, address, allow_redirects=False, timeout=TIMEOUT, **more)
            async with asking as response:
                answer = await response.json(content_type=None) if response.status == 200 else None
                if isinstance(answer, dict):
                    return answer
        except (aiohttp.ClientError, ValueError, TimeoutError) as error:
            raise LoginError("The issuer cannot be reached.") from error
        raise LoginError("The issuer has refused.")
