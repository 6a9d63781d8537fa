"""Tokens of issuers: parsed, verified with a key of the issuer, and mapped to a principal (RFC 7519, RFC 9068)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from joserfc import jwk, jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from gateway.callers.methods import NOT_AT_MCP, PERSON_VIEWS, OAuthIssuer, Roles
from gateway.credentials.flow_steps import check_id_token, parse_jwt_part, parse_object
from gateway.errors import Unidentified
from gateway.model import Json, Principal

KEYS: Final = 64
"""Maximum number of keys read from one issuer."""

TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
"""Accepted `typ` values of an access token; logout, DPoP and event tokens have others."""

LONGEST_NAME = 1024

LATEST = 2**53
"""Latest accepted time in seconds since the epoch: larger numbers are not dates."""

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*", re.ASCII)
_PRIVATE: Final = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")
_KIND: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}

Key = RSAKey | ECKey | OKPKey


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
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


def parse_token(token: str) -> UnverifiedToken | None:
    """Parse a token in compact form; None if it is not one."""
    if not _COMPACT.fullmatch(token):
        return None
    header, claims, _ = token.split(".")
    try:
        return UnverifiedToken(token, parse_jwt_part(header), parse_jwt_part(claims))
    except ValueError:
        return None


def public_keys(document: Mapping[str, Json]) -> tuple[PublicKey, ...]:
    """Return the keys of a JWK set (RFC 7517 5) that can verify a signature, skipping others.

    Symmetric and private keys are skipped. Raises ValueError if the set has no list of keys.
    """
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise ValueError("hold no keys")
    return tuple(key for one in listed[:KEYS] if isinstance(one, dict) and (key := _public_key(one)) is not None)


def verify(token: UnverifiedToken, keys: Iterable[PublicKey], algorithms: Collection[str]) -> dict[str, Json]:
    """Return the claims of a token that one of `keys` verifies. Raises `Unidentified`, or its subclass `UnknownKey`."""
    algorithm = token.header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise Unidentified("This token's signature algorithm is not accepted here.")
    if "crit" in token.header or "b64" in token.header:
        raise Unidentified("This token requires an extension that the gateway does not know.")
    candidates = [key for key in keys if token.key_id in (None, key.id)]
    if not candidates:
        raise UnknownKey("This token is signed with a key that its issuer does not publish.")
    for key in (key for key in candidates if key.fits(algorithm)):
        try:
            return parse_object(jws.deserialize_compact(token.token, key.key, algorithms=[algorithm]).payload)
        except (JoseError, ValueError):
            continue
    raise Unidentified("The signature of this token is wrong.")


def _public_key(entry: dict[str, Json]) -> PublicKey | None:
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


def texts(value: Json) -> tuple[str, ...]:
    """Return the strings of a list, or a single string."""
    if isinstance(value, str):
        return (value,)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def of_access_token(
    spec: OAuthIssuer, roles: Roles, claims: Mapping[str, Json], resources: frozenset[str], now: float
) -> Principal:
    """Return the principal of an access token. `resources` are the resource identifiers of the mount.

    Raises `Unidentified`. A token whose subject is its client belongs to no person. Authlib 1.9's
    `JWTAccessTokenClaims` is not used: it refuses the type `JWT` and null claims, which many servers send, and an empty
    list of audiences there accepts any.
    """
    expires = check_times(claims, now, spec.skew)
    check_issuer(spec, claims)
    if not {*spec.audience, *resources}.intersection(texts(claims.get("aud"))):
        raise Unidentified("This token is for another audience.")
    if "nonce" in claims and spec.client_id is not None and spec.client_id in texts(claims.get("aud")):
        raise Unidentified("This is an ID token, which identifies a person but authorizes no calls.")
    if "cnf" in claims:
        raise Unidentified("This token is bound to a key, and cannot be shown as a plain bearer token.")
    _check_scope(spec, claims)
    client, subject = _client(claims), _text(claims.get("sub"))
    if client is None and subject is None:
        raise Unidentified("This token names neither a subject nor a client.")
    shared = subject is None or subject == client
    values = roles_in(claims, spec.roles_claim)
    return Principal(
        issuer=spec.issuer,
        client=client or "",
        subject="" if shared else subject or "",
        roles=values,
        capabilities=(roles.capabilities(values) - NOT_AT_MCP)
        | ({PERSON_VIEWS} if not shared and client in spec.view_clients else frozenset()),
        claims=dict(claims),
        shared=shared,
        expires=expires,
    )


def of_id_token(spec: OAuthIssuer, claims: Mapping[str, Json], nonce: str, now: float) -> Principal:
    """Return the person of a login (OpenID Connect Core 3.1.3.7). Capabilities are computed at each use."""
    try:
        check_id_token(claims, spec.issuer, spec.client_id or "", nonce, now, spec.skew)
    except ValueError as error:
        raise Unidentified(f"The issuer's answer {error}.") from None
    subject = _text(claims.get("sub"))
    if subject is None:
        raise Unidentified("The issuer's answer names no subject.")
    return person(spec, claims, subject)


def person(spec: OAuthIssuer, claims: Mapping[str, Json], subject: str) -> Principal:
    """Return the person in these claims, as a login to the console."""
    values = roles_in(claims, spec.roles_claim)
    return Principal(spec.issuer, spec.client_id or "", subject, roles=values, claims=dict(claims), session=True)


def check_issuer(spec: OAuthIssuer, claims: Mapping[str, Json]) -> None:
    """Check the issuer of a token. Raises `Unidentified`."""
    if claims.get("iss") != spec.issuer:
        raise Unidentified("This token is of another issuer.")


def check_times(claims: Mapping[str, Json], now: float, skew: float) -> float:
    """Return when the token is not accepted any more, in seconds since the epoch: `skew` after its expiry.

    Raises `Unidentified` outside the token's validity.
    """
    expires = _time(claims, "exp")
    if expires is None or expires + skew <= now:
        raise Unidentified("This token has expired." if expires is not None else "This token has no expiry.")
    for name in ("nbf", "iat"):
        begins = _time(claims, name)
        if begins is not None and begins - skew > now:
            raise Unidentified("This token is not valid yet: the clocks of its issuer and the gateway differ.")
    return expires + skew  # what is open until then would otherwise be ended as expired


def roles_in(claims: Mapping[str, Json], name: str) -> frozenset[str]:
    """Return the roles claim: a list, or space-separated text; `name` is looked up whole, then along its dots."""
    value: Json = claims.get(name)
    if value is None:
        value = dict(claims)
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    return frozenset(value.split() if isinstance(value, str) else texts(value))


def _check_scope(spec: OAuthIssuer, claims: Mapping[str, Json]) -> None:
    claim = claims.get("scope", claims.get("scp"))
    scopes = set(claim.split() if isinstance(claim, str) else texts(claim))
    missing = [scope for scope in spec.scope if scope not in scopes]
    if missing:
        raise Unidentified(f"This takes the scope {' '.join(missing)}.", "insufficient_scope", status=403)


def _client(claims: Mapping[str, Json]) -> str | None:
    return _text(claims.get("client_id")) or _text(claims.get("azp"))


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable() else None


def _time(claims: Mapping[str, Json], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LATEST:
        raise Unidentified(f"The `{name}` of this token is not a time.")
    return float(value)
