"""The capabilities of a logged-in person, and the form in which the person of a login is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gateway.callers.methods import NOT_AT_MCP, Method, NoAuth, OAuthIssuer, ProxyAuth, Roles, TokenAuth
from gateway.errors import Unidentified
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import LOCAL, Json, Principal

EVERYBODY = frozenset({"bridge", "app"})
"""The capabilities of a login by the gateway's own links."""


def proxy_issuer(method: ProxyAuth) -> str:
    """Return the issuer of the principals that this proxy names."""
    return f"proxy:{method.name}"


def on_console(principal: Principal, methods: Sequence[Method], roles: Roles) -> Principal:
    """Return the person of a login with their capabilities under this configuration.

    Raises `Unidentified` if the configuration no longer has the issuer of the login.
    """
    for method in methods:
        match method:
            case TokenAuth() if principal.issuer == LOCAL.issuer:
                held = LOCAL.capabilities if principal.subject == LOCAL.subject else EVERYBODY
                return replace(principal, capabilities=held - {"mcp"})
            case OAuthIssuer(issuer=issuer) if principal.issuer == issuer:
                return replace(principal, capabilities=roles.capabilities(principal.roles) - {"mcp"})
            case _:
                pass
    raise Unidentified("This login is no longer known here. Log in again.")


def on_site(principal: Principal, app: str) -> Principal:
    """Return the same person on the site of an app: with no capability but that app."""
    return replace(principal, capabilities=frozenset({f"app:{app}"} if principal.may("app", app) else ()))


def as_client(principal: Principal) -> Principal:
    """Return the same caller without the capabilities that a model's client must not have."""
    if principal.session or principal.capabilities & NOT_AT_MCP:
        return replace(principal, capabilities=principal.capabilities - NOT_AT_MCP, session=False)
    return principal


def is_login(principal: Principal) -> bool:
    """Return whether this is a browser login that can be ended; `local` without authentication cannot."""
    return principal.session and principal.expires is not None


def display_name(principal: Principal) -> str:
    """Return a person's display name; by default the subject."""
    for claim in ("name", "preferred_username", "email"):
        value = principal.claims.get(claim)
        if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable():
            return value
    return principal.subject or principal.client


def is_open(methods: Sequence[Method]) -> bool:
    """Return whether `local` is the only possible principal."""
    return all(isinstance(method, NoAuth) for method in methods)


CLAIMS = 16 * 1024
"""Maximum characters of claims stored with a login; larger claims are omitted."""


def principal_fields(principal: Principal) -> dict[str, Json]:
    """Return the stored fields of a principal."""
    claims = plain_json(dict(principal.claims))
    return {
        "issuer": principal.issuer,
        "client": principal.client,
        "subject": principal.subject,
        "roles": list[Json](sorted(principal.roles)),
        "claims": parse_json(claims) if len(claims) <= CLAIMS else {},
    }


def principal_of(kept: Mapping[str, Json], expires: float, proof: str = "") -> Principal:
    """Return the principal of a login that ends at `expires`, or when `proof` is revoked."""
    return Principal(
        issuer=str(kept["issuer"]),
        client=str(kept["client"]),
        subject=str(kept["subject"]),
        roles=_texts(kept["roles"]),
        claims=claims if isinstance(claims := kept["claims"], dict) else {},
        session=True,
        expires=expires,
        proof=proof,
    )


def _texts(value: Json) -> frozenset[str]:
    return frozenset(map(str, value)) if isinstance(value, list) else frozenset()
