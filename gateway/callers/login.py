"""One attempt of a person to log in at an issuer: everything that binds it to their browser comes from one cookie."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from gateway.base64url import base64url
from gateway.proving import shows


@dataclass(frozen=True, slots=True)
class Attempt:
    """`cookie` is what the browser keeps, `issuer` the name of the issuer, `to` where it leads in the end.

    A `fresh` one asks the person again, whoever is logged in at the issuer already.

    State, nonce and PKCE verifier are derived from the cookie under a key of the gateway's: nobody who does not have
    both can make them, and nothing is kept of attempts that come to nothing.
    """

    cookie: str
    issuer: str
    fresh: bool
    to: str
    _key: bytes = field(repr=False)

    @classmethod
    def of(cls, cookie: str | None, key: bytes, now: float, life: float) -> Self | None:
        """The attempt in a cookie that this gateway has given out less than `life` seconds ago."""
        told, _, signature = (cookie or "").rpartition(".")
        parts = told.split(".")
        if len(parts) != 5 or not shows(signature, _derived(key, "cookie", told)):
            return None
        _, begun, issuer, fresh, to = parts
        if not 0 <= now - int(begun) <= life:
            return None
        return cls(cookie or "", issuer, fresh == "1", base64.urlsafe_b64decode(f"{to}==").decode(), key)

    @property
    def state(self) -> str:
        """The OAuth `state` (RFC 6749 10.12)."""
        return _derived(self._key, "state", self.cookie)

    @property
    def nonce(self) -> str:
        """What the ID token must repeat (OpenID Connect Core 3.1.2.1)."""
        return _derived(self._key, "nonce", self.cookie)

    @property
    def verifier(self) -> str:
        """The PKCE code verifier (RFC 7636 4.1)."""
        return _derived(self._key, "verifier", self.cookie)

    @property
    def challenge(self) -> str:
        """The PKCE code challenge, S256 (RFC 7636 4.2)."""
        return base64url(hashlib.sha256(self.verifier.encode()).digest())

    def has_state(self, given: str) -> bool:
        """Whether what came back belongs to this attempt."""
        return shows(given, self.state)


def attempt(key: bytes, issuer: str, to: str, now: float, *, fresh: bool = False) -> Attempt:
    """A new attempt; `issuer` is one of `names`, `to` a path."""
    told = f"{secrets.token_urlsafe(24)}.{int(now)}.{issuer}.{int(fresh)}.{base64url(to.encode())}"
    return Attempt(f"{told}.{_derived(key, 'cookie', told)}", issuer, fresh, to, key)


def names(issuers: Iterable[str]) -> list[str]:
    """A name for each issuer, for its own redirect URI: `login-example-com-realm` of https://login.example.com/realm.

    Where two would have the same, the later one has a number behind it.
    """
    found: list[str] = []
    for issuer in issuers:
        name = re.sub(r"[^a-z0-9]+", "-", issuer.partition("://")[2].lower()).strip("-") or "issuer"
        like = (name, *(f"{name}-{number}" for number in range(2, len(found) + 3)))
        found.append(next(one for one in like if one not in found))
    return found


def _derived(key: bytes, purpose: str, text: str) -> str:
    return base64url(hmac.digest(key, f"{purpose}\n{text}".encode("utf-8", "surrogatepass"), hashlib.sha256))
