"""JWTs that the gateway signs: client assertions, authorization grants, proofs of possession (RFC 7523, RFC 9449)."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

from authlib.oauth2.rfc7523.assertion import sign_jwt_bearer_assertion
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from gateway.credentials.specs import SigningKey
from gateway.crypto import base64url
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Headers, Json, Secret

LIFE: Final = 60
"""Lifetime of an assertion in seconds."""

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signature algorithms for signing and verification: never `none`, never a shared secret."""

_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA_BITS: Final = 2048

DPOP_ALGORITHM: Final = "ES256"
NONCE: Final = "dpop-nonce"
_NONCE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,512}")
_SCHEME = re.compile(r"\bdpop\b", re.IGNORECASE)
_WANTED = re.compile(r'\berror\s*=\s*"?use_dpop_nonce\b', re.IGNORECASE)


def signing_key(pem: Secret, id: str | None = None, algorithm: str | None = None) -> SigningKey:
    """Read the key in `pem`, by default with the algorithm of its type. Raises ValueError, never quoting the key."""
    try:
        key = load_pem_private_key(pem.reveal().encode(), None)
    except (ValueError, TypeError):
        raise ValueError("is not a private key in PEM without a password") from None
    match key:
        case rsa.RSAPrivateKey() if key.key_size >= _RSA_BITS:
            fitting: tuple[str, ...] = ALGORITHMS[:6]
        case rsa.RSAPrivateKey():
            raise ValueError(f"is an RSA key of less than {_RSA_BITS} bits")
        case ec.EllipticCurvePrivateKey() if key.curve.name in _CURVES:
            fitting = (_CURVES[key.curve.name],)
        case ed25519.Ed25519PrivateKey():
            fitting = ("EdDSA",)
        case _:
            raise ValueError("is a key of a kind that cannot be used: take RSA, P-256, P-384, P-521 or Ed25519")
    if algorithm is not None and algorithm not in fitting:
        raise ValueError(f"does not sign with {algorithm}: take {', '.join(fitting)}")
    return SigningKey(pem, algorithm or fitting[0], id)


def assertion(key: SigningKey, issuer: str, subject: str, audience: str, now: float) -> str:
    """Return a single-use, short-lived assertion (RFC 7523 3)."""
    header = {"alg": key.algorithm} | ({"kid": key.id} if key.id is not None else {})
    signed: str = sign_jwt_bearer_assertion(
        _import_key(key), issuer, audience, subject, issued_at=int(now), expires_in=LIFE, header=header
    )
    return signed


def _import_key(key: SigningKey) -> RSAKey | ECKey | OKPKey:
    pem = key.pem.reveal()
    if key.algorithm == "EdDSA":
        return OKPKey.import_key(pem)
    return ECKey.import_key(pem) if key.algorithm.startswith("ES") else RSAKey.import_key(pem)


def new_key() -> Secret:
    """Return a new key for one token, as private JWK."""
    return Secret(plain_json(ECKey.generate_key("P-256", private=True).as_dict(private=True)))


def proof(
    key: Secret, method: str, url: str, now: float, *, nonce: str | None = None, token: Secret | None = None
) -> tuple[str, str]:
    """Return the header field that proves the possession of `key` for one request (RFC 9449 4.2); Authlib has no DPoP.

    `token` is the access token sent with it; None at a token endpoint.
    """
    jwk = ECKey.import_key(parse_json(key.reveal()))
    claims: dict[str, Json] = {
        "jti": secrets.token_urlsafe(16),
        "htm": method,
        "htu": url.partition("?")[0].partition("#")[0],
        "iat": int(now),
    }
    if nonce is not None:
        claims["nonce"] = nonce
    if token is not None:
        claims["ath"] = base64url(hashlib.sha256(token.reveal().encode()).digest())
    header = {"alg": DPOP_ALGORITHM, "typ": "dpop+jwt", "jwk": jwk.as_dict(private=False)}
    return "dpop", jwt.encode(header, claims, jwk, algorithms=[DPOP_ALGORITHM])


def offered_nonce(headers: Headers) -> str | None:
    """Return the nonce that an answer provides for the next request (RFC 9449 8.2)."""
    given = [value for name, value in headers if name == NONCE]
    return given[0] if len(given) == 1 and _NONCE.fullmatch(given[0]) else None


def wants_nonce(headers: Headers) -> bool:
    """Return whether a resource server refused a request only for a missing nonce (RFC 9449 9)."""
    given = (value for name, value in headers if name == "www-authenticate")
    # Two searches: one expression for both takes quadratic time on a hostile field.
    return any((scheme := _SCHEME.search(value)) and _WANTED.search(value, scheme.end()) for value in given)
