"""Proofs of possession (RFC 9449): a stolen token is useless without its key."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from typing import Final

from joserfc import jwt
from joserfc.jwk import ECKey

from gateway.base64url import base64url
from gateway.model import Headers, Json, Secret

ALGORITHM: Final = "ES256"
NONCE: Final = "dpop-nonce"
_NONCE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,512}")
_SCHEME = re.compile(r"\bdpop\b", re.IGNORECASE)
_WANTED = re.compile(r'\berror\s*=\s*"?use_dpop_nonce\b', re.IGNORECASE)


def new_key() -> Secret:
    """Return a new key for one token, as private JWK."""
    return Secret(json.dumps(ECKey.generate_key("P-256", private=True).as_dict(private=True)))


def proof(
    key: Secret, method: str, url: str, now: float, *, nonce: str | None = None, token: Secret | None = None
) -> tuple[str, str]:
    """Return the header field that proves the possession of `key` for one request (RFC 9449 4.2).

    `token` is the access token sent with it; None at a token endpoint.
    """
    jwk = ECKey.import_key(json.loads(key.reveal()))
    claims: dict[str, Json] = {
        "jti": secrets.token_urlsafe(16),
        "htm": method,
        "htu": url.partition("?")[0].partition("#")[0],
        "iat": int(now),
    }
    if nonce is not None:
        claims["nonce"] = nonce
    if token is not None:
        digest = hashlib.sha256(token.reveal().encode()).digest()
        claims["ath"] = base64url(digest)
    header = {"alg": ALGORITHM, "typ": "dpop+jwt", "jwk": jwk.as_dict(private=False)}
    return "dpop", jwt.encode(header, claims, jwk, algorithms=[ALGORITHM])


def offered_nonce(headers: Headers) -> str | None:
    """Return the nonce that an answer provides for the next request (RFC 9449 8.2)."""
    given = [value for name, value in headers if name == NONCE]
    return given[0] if len(given) == 1 and _NONCE.fullmatch(given[0]) else None


def wants_nonce(headers: Headers) -> bool:
    """Return whether a resource server refused a request only for a missing nonce (RFC 9449 9)."""
    given = (value for name, value in headers if name == "www-authenticate")
    # Two searches: one expression for both takes quadratic time on a hostile field.
    return any((scheme := _SCHEME.search(value)) and _WANTED.search(value, scheme.end()) for value in given)
