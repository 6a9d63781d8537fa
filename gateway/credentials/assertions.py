"""JSON Web Tokens that the gateway signs: client assertions and authorization grants."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from gateway.credentials.nouns import SigningKey
from gateway.model import Json, Secret

LIFE: Final = 60
"""Lifetime of an assertion in seconds."""

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA_BITS: Final = 2048


def signing_key(pem: Secret, id: str | None = None, algorithm: str | None = None) -> SigningKey:
    """Read the key in `pem`, by default with the algorithm of its type. Raises ValueError, never quoting the key."""
    try:
        key = load_pem_private_key(pem.reveal().encode(), None)
    except (ValueError, TypeError):
        raise ValueError("is no private key in PEM without a password") from None
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
    header = {"alg": key.algorithm, "typ": "JWT"} | ({"kid": key.id} if key.id is not None else {})
    issued = int(now)
    claims: dict[str, Json] = {
        "iss": issuer,
        "sub": subject,
        "aud": audience,
        "iat": issued,
        "exp": issued + LIFE,
        "jti": secrets.token_urlsafe(16),
    }
    return signed(header, claims, key)


def signed(header: dict[str, str], claims: Mapping[str, Json], key: SigningKey) -> str:
    """Return the compact JWS."""
    return jwt.encode(dict(header), dict(claims), _imported(key), algorithms=[key.algorithm])


def _imported(key: SigningKey) -> RSAKey | ECKey | OKPKey:
    pem = key.pem.reveal()
    if key.algorithm == "EdDSA":
        return OKPKey.import_key(pem)
    return ECKey.import_key(pem) if key.algorithm.startswith("ES") else RSAKey.import_key(pem)
