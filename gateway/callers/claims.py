"""Maps claims to a principal or a refusal: issuer, audience, times, scopes (RFC 7519, RFC 9068, RFC 8707)."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.callers.nouns import NOT_AT_MCP, OAuthIssuer, Roles
from gateway.errors import Unidentified
from gateway.model import Json, Principal


def texts(value: Json) -> tuple[str, ...]:
    """Return the strings of a list, or a single string."""
    if isinstance(value, str):
        return (value,)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
"""Accepted `typ` values of an access token; logout, DPoP and event tokens have others."""

LONGEST_NAME = 1024

LATEST = 2**53
"""Latest accepted time in seconds since the epoch: larger numbers are not dates."""


def of_access_token(
    spec: OAuthIssuer, roles: Roles, claims: Mapping[str, Json], resources: frozenset[str], now: float
) -> Principal:
    """Return the principal of an access token. `resources` are the resource identifiers of the mount.

    Raises `Unidentified`. A token whose subject is its client belongs to no person.
    """
    expires = check_times(claims, now, spec.skew)
    check_issuer(spec, claims)
    if not {*spec.audience, *resources}.intersection(texts(claims.get("aud"))):
        raise Unidentified("This token is for another audience.")
    if "nonce" in claims and spec.client_id is not None and spec.client_id in texts(claims.get("aud")):
        raise Unidentified("This is an ID token: it says who logged in, and lets nobody call.")
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
        capabilities=roles.capabilities(values) - NOT_AT_MCP,
        claims=dict(claims),
        shared=shared,
        expires=expires,
    )


def of_id_token(spec: OAuthIssuer, claims: Mapping[str, Json], nonce: str, now: float) -> Principal:
    """Return the person of a login (OpenID Connect Core 3.1.3.7). Capabilities are computed at each use."""
    check_times(claims, now, spec.skew)
    check_issuer(spec, claims)
    audience = texts(claims.get("aud"))
    if spec.client_id not in audience or claims.get("azp", spec.client_id) != spec.client_id:
        raise Unidentified("The issuer's answer is for another client.")
    if len(audience) > 1 and "azp" not in claims:
        raise Unidentified("The issuer's answer is for several clients.")
    if claims.get("nonce") != nonce:
        raise Unidentified("The issuer's answer belongs to another login.")
    subject = _text(claims.get("sub"))
    if subject is None:
        raise Unidentified("The issuer's answer names nobody.")
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
    """Return the expiry in seconds since the epoch. Raises `Unidentified` outside the token's validity."""
    expires = _time(claims, "exp")
    if expires is None or expires + skew <= now:
        raise Unidentified("This token has expired." if expires is not None else "This token says no end.")
    for name in ("nbf", "iat"):
        begins = _time(claims, name)
        if begins is not None and begins - skew > now:
            raise Unidentified("This token is not valid yet: the clocks of its issuer and the gateway differ.")
    return expires


def roles_in(claims: Mapping[str, Json], name: str) -> frozenset[str]:
    """Return the roles claim: a list, or space-separated text; `name` is looked up whole, then along its dots."""
    value: Json = claims.get(name)
    if value is None:
        value = dict(claims)
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    return frozenset(value.split() if isinstance(value, str) else texts(value))


def _check_scope(spec: OAuthIssuer, claims: Mapping[str, Json]) -> None:
    given = claims.get("scope", claims.get("scp"))
    held = set(given.split() if isinstance(given, str) else texts(given))
    missing = [scope for scope in spec.scope if scope not in held]
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
        raise Unidentified(f"The `{name}` of this token is no time.")
    return float(value)
