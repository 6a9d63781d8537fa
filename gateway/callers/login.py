"""One login attempt at an issuer: a single cookie binds it to the browser."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from authlib.oauth2.rfc7636 import create_s256_code_challenge

from gateway.proving import shows
from gateway.randomness import base64url


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """`cookie` is stored in the browser, `issuer` is the issuer's name, `to` the final destination.

    With `fresh` the issuer must authenticate the person again. State, nonce and PKCE verifier are derived from the
    cookie under a key of the gateway: creating them needs both, and abandoned attempts take no memory.
    """

    cookie: str
    issuer: str
    fresh: bool
    to: str
    _key: bytes = field(repr=False)

    @classmethod
    def of(cls, cookie: str | None, key: bytes, now: float, life: float) -> Self | None:
        """Return the attempt of a cookie that this gateway issued less than `life` seconds ago."""
        payload, _, signature = (cookie or "").rpartition(".")
        parts = payload.split(".")
        if len(parts) != 5 or not shows(signature, _derive(key, "cookie", payload)):
            return None
        _, begun, issuer, fresh, to = parts
        if not 0 <= now - int(begun) <= life:
            return None
        return cls(cookie or "", issuer, fresh == "1", base64.urlsafe_b64decode(f"{to}==").decode(), key)

    @property
    def state(self) -> str:
        """The OAuth `state` (RFC 6749 10.12)."""
        return _derive(self._key, "state", self.cookie)

    @property
    def nonce(self) -> str:
        """The nonce that the ID token must repeat (OpenID Connect Core 3.1.2.1)."""
        return _derive(self._key, "nonce", self.cookie)

    @property
    def verifier(self) -> str:
        """The PKCE code verifier (RFC 7636 4.1)."""
        return _derive(self._key, "verifier", self.cookie)

    @property
    def challenge(self) -> str:
        """The PKCE code challenge, S256 (RFC 7636 4.2)."""
        challenge: str = create_s256_code_challenge(self.verifier)
        return challenge

    def has_state(self, given: str) -> bool:
        """Return whether a callback's state belongs to this attempt."""
        return shows(given, self.state)


def start_attempt(key: bytes, issuer: str, to: str, now: float, *, fresh: bool = False) -> LoginAttempt:
    """Return a new attempt; `issuer` is one of `issuer_names`, `to` a path."""
    payload = f"{secrets.token_urlsafe(24)}.{int(now)}.{issuer}.{int(fresh)}.{base64url(to.encode())}"
    return LoginAttempt(f"{payload}.{_derive(key, 'cookie', payload)}", issuer, fresh, to, key)


def issuer_names(issuers: Iterable[str]) -> list[str]:
    """Return a name for each issuer, for its redirect URI.

    `login-example-com-realm` of https://login.example.com/realm; of equal names the later one gets a number.
    """
    found: list[str] = []
    for issuer in issuers:
        name = re.sub(r"[^a-z0-9]+", "-", issuer.partition("://")[2].lower()).strip("-") or "issuer"
        like = (name, *(f"{name}-{number}" for number in range(2, len(found) + 3)))
        found.append(next(one for one in like if one not in found))
    return found


def _derive(key: bytes, purpose: str, text: str) -> str:
    return base64url(hmac.digest(key, f"{purpose}\n{text}".encode("utf-8", "surrogatepass"), hashlib.sha256))
