"""Signed tokens (RFC 7515, RFC 7519): parsed first, and trusted only if a key of the issuer verifies them."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from joserfc import jwk, jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from gateway.credentials.server_answers import parsed
from gateway.errors import Unidentified
from gateway.model import Json

KEYS: Final = 64
"""Maximum number of keys read from one issuer."""

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*", re.ASCII)
_PRIVATE: Final = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")
_KIND: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}

Key = RSAKey | ECKey | OKPKey


@dataclass(frozen=True, slots=True)
class Unverified:
    """A token's unverified content: only for choosing a key."""

    token: str
    header: Mapping[str, Json]
    claims: Mapping[str, Json]

    @property
    def key_id(self) -> str | None:
        """The `kid`, or None."""
        kid = self.header.get("kid")
        return kid if isinstance(kid, str) else None


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key of an issuer with its declared use."""

    id: str | None
    algorithm: str | None
    key: Key

    def fits(self, algorithm: str) -> bool:
        """Return whether the key can verify `algorithm`."""
        return self.algorithm in (None, algorithm) and self.key.key_type == _KIND.get(algorithm[:2])


class UnknownKey(Unidentified):
    """The token names a key that the issuer has not published, as far as known."""


def read(token: str) -> Unverified | None:
    """Parse a token in compact form; None if it is not one."""
    if not _COMPACT.fullmatch(token):
        return None
    header, claims, _ = token.split(".")
    try:
        return Unverified(token, parsed(_decoded(header)), parsed(_decoded(claims)))
    except ValueError:
        return None


def public_keys(document: Mapping[str, Json]) -> tuple[PublicKey, ...]:
    """Return the keys of a JWK set (RFC 7517 5) that can verify a signature, skipping others.

    Symmetric and private keys are skipped. Raises ValueError if the set has no list of keys.
    """
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise ValueError("hold no keys")
    return tuple(key for one in listed[:KEYS] if isinstance(one, dict) and (key := _public(one)) is not None)


def verified(token: Unverified, keys: Iterable[PublicKey], algorithms: Collection[str]) -> dict[str, Json]:
    """Return the claims of a token that one of `keys` verifies. Raises `Unidentified`, or its subclass `UnknownKey`."""
    algorithm = token.header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise Unidentified("This token is signed in a way that is not taken here.")
    if "crit" in token.header or "b64" in token.header:
        raise Unidentified("This token asks for an extension that is not known here.")
    named = [key for key in keys if token.key_id in (None, key.id)]
    if not named:
        raise UnknownKey("This token is signed with a key that its issuer does not publish.")
    for key in (key for key in named if key.fits(algorithm)):
        try:
            return parsed(jws.deserialize_compact(token.token, key.key, algorithms=[algorithm]).payload)
        except (JoseError, ValueError):
            continue
    raise Unidentified("The signature of this token is wrong.")


def _public(entry: dict[str, Json]) -> PublicKey | None:
    if any(name in entry for name in _PRIVATE) or entry.get("use") not in (None, "sig"):
        return None
    operations = entry.get("key_ops")
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    plain = {name: value for name, value in entry.items() if isinstance(value, str)}
    try:
        key = jwk.import_key(dict(plain))
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    if not isinstance(key, RSAKey | ECKey | OKPKey) or (isinstance(key, RSAKey) and key.raw_value.key_size < 2048):
        return None
    return PublicKey(plain.get("kid"), plain.get("alg"), key)


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
