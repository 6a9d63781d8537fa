"""The authentication methods of gateway.yaml, and the capabilities of roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from typing import Final, TypeAlias

from gateway.credentials.specs import Network
from gateway.model import Principal, Secret

Blocks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]


class ClientHeader(StrEnum):
    """The header in which reverse proxies name the client."""

    FORWARDED = "forwarded"
    X_FORWARDED_FOR = "x-forwarded-for"


CAPABILITIES: Final = ("mcp", "bridge", "app", "approve", "audit:read", "admin")
"""All capabilities; `mcp`, `bridge` and `app` open a door, `bridge:<app>` and `app:<app>` that door for one app."""

PERSON_VIEWS: Final = "person-views"
"""The capability of clients that `auth` names in `view_clients`: views of the same person, by their handles."""

NOT_AT_MCP: Final = frozenset({"approve", "admin"})
"""Capabilities that callers of `/mcp` never have: a model's client must not answer for the person."""


@dataclass(frozen=True, slots=True)
class NoAuth:
    """No authentication: every caller on loopback is the principal `local`."""


@dataclass(frozen=True, slots=True)
class TokenAuth:
    """Tokens that the gateway issues, and links that log a person in once; `view_clients` as below, by their names."""

    view_clients: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProxyAuth:
    """A proxy in `proxies` authenticates the caller, and sends the name in `header` (in lower case)."""

    name: str
    header: str
    roles_header: str | None
    proxies: Blocks


@dataclass(frozen=True, slots=True)
class OAuthIssuer:
    """Access tokens of `issuer`, and its login for people if there is a `client_id`.

    `audience` are the accepted audiences; a mount's own URL is always accepted at that mount. `roles_claim` may be a
    dotted path. `skew` and `session` are in seconds. `logout_there` also ends the login at the issuer. `view_clients`
    are the ids of clients that reach the views of their person at other clients, by their handles.
    """

    issuer: str
    audience: tuple[str, ...]
    algorithms: tuple[str, ...]
    scope: tuple[str, ...]
    roles_claim: str
    client_id: str | None
    client_secret: Secret | None
    login_scope: tuple[str, ...]
    introspection: bool
    skew: float
    session: float
    logout_there: bool
    network: Network
    view_clients: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HostSite:
    """A web site of others whose pages may show views of `apps`, apps and upstreams, under its displayed `name`.

    Its people are those of `issuer`. Its back end, the confidential client `client_id`, exchanges their tokens; it has
    a secret, or keys (`jwks`, the JSON text of a set). With `attest` its reports of gestures count. Without
    authentication (`auth: [none]`) it has none of these, and its people are `local`.
    """

    origin: str
    name: str
    apps: tuple[str, ...]
    attest: bool = False
    issuer: str | None = None
    client_id: str | None = None
    client_secret: Secret | None = None
    jwks: str = ""


Method: TypeAlias = NoAuth | TokenAuth | ProxyAuth | OAuthIssuer


def identity_headers(methods: Sequence[Method]) -> frozenset[str]:
    """Return the header fields, in lower case, in which proxies identify callers: the gateway removes them."""
    proxies = [method for method in methods if isinstance(method, ProxyAuth)]
    return frozenset(name for proxy in proxies for name in (proxy.header, proxy.roles_header) if name is not None)


@dataclass(frozen=True, slots=True)
class Roles:
    """The values of the roles claim for each role; `user` None means every caller."""

    user: frozenset[str] | None = None
    approver: frozenset[str] = frozenset()
    auditor: frozenset[str] = frozenset()
    admin: frozenset[str] = frozenset()

    def capabilities(self, values: frozenset[str]) -> frozenset[str]:
        """Return the capabilities of a caller with these values, before any door's limits."""
        scopes: set[str] = set()
        if self.user is None or values & (self.user | self.admin):
            scopes |= {"mcp", "bridge", "app"}
        if values & self.approver:
            scopes.add("approve")
        if values & (self.auditor | self.admin):
            scopes.add("audit:read")
        if values & self.admin:
            scopes.add("admin")
        return frozenset(scopes)


def reaches(principal: Principal, owner: Principal) -> bool:
    """Return whether a client that `auth` names reaches, by its handle, a view of the same person at another client."""
    if PERSON_VIEWS not in principal.capabilities or principal.shared or owner.shared:
        return False
    return (principal.issuer, principal.subject) == (owner.issuer, owner.subject)
