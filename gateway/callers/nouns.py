"""The ways in which callers prove who they are, as gateway.yaml names them, and what roles are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Final, Protocol, TypeAlias

from gateway.model import Secret

Blocks: TypeAlias = tuple[IPv4Network | IPv6Network, ...]

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""What a token may be signed with: never `none`, never a secret that two share."""

CAPABILITIES: Final = ("mcp", "bridge", "app", "approve", "audit:read", "admin")
"""What a caller can be allowed; `mcp`, `bridge` and `app` open a door, `bridge:<app>` and `app:<app>` one app there."""

NOT_AT_MCP: Final = frozenset({"approve", "admin"})
"""What no caller of `/mcp` has: a model's client must not answer for the person."""


class Network(Protocol):
    """Which addresses an issuer may have; hashable, so that equal networks share connections."""

    def allows(self, ip: str) -> bool:
        """True for an address that may be connected to."""
        ...


@dataclass(frozen=True, slots=True)
class NoAuth:
    """Whoever reaches the gateway on loopback is its one principal, `local`."""


@dataclass(frozen=True, slots=True)
class TokenAuth:
    """Tokens of the gateway's own, and links that log a person in once."""


@dataclass(frozen=True, slots=True)
class ProxyAuth:
    """A proxy in `proxies` has identified the caller, and says so in `header` (in lower case)."""

    name: str
    header: str
    roles_header: str | None
    proxies: Blocks


@dataclass(frozen=True, slots=True)
class OAuth:
    """Access tokens of `issuer`, and its login for people where there is a `client_id`.

    `audience` is what a token must be for; the mount's own URL is always right at that mount. `roles_claim` may name a
    member of a member with dots. `skew` and `session` are in seconds. `logout_there` ends the issuer's own login, too.
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


Method: TypeAlias = NoAuth | TokenAuth | ProxyAuth | OAuth


def told_by_proxies(methods: Sequence[Method]) -> frozenset[str]:
    """The header fields, in lower case, by which proxies say who calls: they end at the gateway."""
    proxies = [method for method in methods if isinstance(method, ProxyAuth)]
    return frozenset(name for proxy in proxies for name in (proxy.header, proxy.roles_header) if name is not None)


@dataclass(frozen=True, slots=True)
class Roles:
    """Which values of the roles claim make a caller what; `user` None means that everybody is one."""

    user: frozenset[str] | None = None
    approver: frozenset[str] = frozenset()
    auditor: frozenset[str] = frozenset()
    admin: frozenset[str] = frozenset()

    def capabilities(self, values: frozenset[str]) -> frozenset[str]:
        """What somebody with these values may do, on the console at most."""
        found: set[str] = set()
        if self.user is None or values & (self.user | self.admin):
            found |= {"mcp", "bridge", "app"}
        if values & self.approver:
            found.add("approve")
        if values & (self.auditor | self.admin):
            found.add("audit:read")
        if values & self.admin:
            found.add("admin")
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """What a token of the gateway's own gives; `person` None means that it is shared. Times are since the epoch."""

    id: str
    name: str
    capabilities: frozenset[str]
    person: str | None
    created: float
    expires: float
    revoked: float | None = None
    digest: bytes = field(default=b"", repr=False)

    def good(self, now: float) -> bool:
        """Whether it can be used."""
        return self.revoked is None and now < self.expires
