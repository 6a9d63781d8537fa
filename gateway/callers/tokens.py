"""The gateway's own tokens: their format, stored digest, and principal."""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from gateway.callers.methods import CAPABILITIES, NOT_AT_MCP, PERSON_VIEWS
from gateway.crypto import digest
from gateway.documents import suggestion
from gateway.errors import Unidentified
from gateway.model import LOCAL, Principal, Secret

PREFIX = "wmg_"
ISSUER = LOCAL.issuer
"""The issuer of the gateway's own tokens and links."""

PER_APP = ("bridge", "app")

_TOKEN = re.compile(r"wmg_([A-Za-z0-9]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@+-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TokenGrant:
    """A token that the gateway issued; `person` None means that it is shared. Times are since the epoch."""

    id: str
    name: str
    capabilities: frozenset[str]
    person: str | None
    created: float
    expires: float
    revoked: float | None = None
    digest: bytes = field(default=b"", repr=False)

    def good(self, now: float) -> bool:
        """Return whether it is neither revoked nor expired."""
        return self.revoked is None and now < self.expires


@dataclass(frozen=True, slots=True)
class PresentedToken:
    """A presented token: its claimed id, and the digest that verifies it."""

    id: str
    digest: bytes


def token_text(id: str, secret: str) -> Secret:
    """Return the token text, which its owner is shown once."""
    return Secret(f"{PREFIX}{id}_{secret}")


def parse_token(text: str) -> PresentedToken:
    """Parse a token. Raises `Unidentified` if it is not one of this gateway."""
    match = _TOKEN.fullmatch(text)
    if match is None:
        raise Unidentified("This is not a token of this gateway.")
    return PresentedToken(match[1], digest(text))


def principal(presented: PresentedToken, grant: TokenGrant | None, now: float) -> Principal:
    """Return the principal of this token. Raises `Unidentified`, with the same message for every defect."""
    known = grant.digest if grant is not None else bytes(32)
    if not hmac.compare_digest(known, presented.digest) or grant is None or not grant.good(now):
        raise Unidentified("This token is unknown, revoked or expired.")
    return Principal(
        issuer=ISSUER,
        client=f"token:{grant.name}",
        subject=grant.person or "",
        capabilities=grant.capabilities,
        shared=grant.person is None,
        expires=grant.expires,
        proof=f"token:{grant.id}",
    )


def with_views(principal: Principal, clients: Collection[str]) -> Principal:
    """Return the principal of a token, with the views of its person if its name is one of `clients`."""
    named = principal.client.removeprefix("token:") in clients and not principal.shared
    return replace(principal, capabilities=principal.capabilities | {PERSON_VIEWS}) if named else principal


def name_problem(name: str) -> str | None:
    """Return why a token or a person cannot have this name; None if they can."""
    if _NAME.fullmatch(name):
        return None
    return f"the name {name!r} must be a letter or digit, then up to 63 of these, space and . _ @ + -"


def capability_problem(capabilities: Collection[str]) -> str | None:
    """Return why one token cannot have these capabilities; None if it can."""
    for capability in capabilities:
        name, _, app = capability.partition(":")
        if capability not in CAPABILITIES and not (name in PER_APP and app):
            known = ", ".join((*CAPABILITIES, *(f"{name}:<app>" for name in PER_APP)))
            several = "; for several repeat --can" if "," in capability else ""
            return f"--can {capability}: must be one of {known}{suggestion(capability, CAPABILITIES)}{several}"
    if "mcp" in capabilities and NOT_AT_MCP.intersection(capabilities):
        conflicts = " and ".join(sorted(NOT_AT_MCP.intersection(capabilities)))
        return f"a token for mcp cannot have {conflicts}: a model's client would hold it. Make two tokens"
    return None
